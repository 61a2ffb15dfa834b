"""An agent as the registry lists it: its identity, its addresses, and the names of its states.

`synapse send` loads this module, so it imports nothing: `AgentEntry` is a plain class and the states are plain strings.
"""

STARTING = "starting"
READY = "ready"
WORKING = "working"
WAITING = "waiting"
EXITED = "exited"
AGENT_STATES = (STARTING, READY, WORKING, WAITING, EXITED)
LAUNCH_HEADER = "X-Synapse-Launch"
"""Proves an agent by the secret of its launch, on a host's Unix socket; see `auth.launch`."""
SECRET_FILE = "secret"  # noqa: S105 - the name of a file
"""The file with that secret, in the folder of the launch."""

OPEN_FIELDS = (
    *("agent_id", "agent_type", "name", "port", "working_dir", "inbox", "started_at", "takes", "extensions", "lacks"),
    *("version", "role", "team", "accepts"),
)
"""The fields of an entry that other machines see; they can use neither pids nor sockets nor addresses of this one."""


class AgentEntry:
    """The entry that an agent's host writes into the registry."""

    __slots__ = (
        "accepts",
        "agent_id",
        "agent_type",
        "cli_pid",
        "endpoint",
        "extensions",
        "gateway",
        "inbox",
        "lacks",
        "launch_key",
        "launched_by",
        "name",
        "pid",
        "pid_namespace",
        "pid_started",
        "port",
        "role",
        "socket",
        "started_at",
        "takes",
        "team",
        "terminal",
        "version",
        "working_dir",
    )

    def __init__(  # noqa: PLR0913 - a record's constructor; a dataclass would cost `synapse send` its import
        self,
        agent_id: str,
        agent_type: str,
        *,
        name: str = "",
        port: int = 0,
        pid: int = 0,
        pid_started: int = 0,
        cli_pid: int = 0,
        socket: str = "",
        endpoint: str = "",
        working_dir: str = "",
        inbox: str = "",
        started_at: str = "",
        gateway: str = "",
        takes: str = "",
        extensions: str = "",
        terminal: int = 0,
        pid_namespace: int = 0,
        version: str = "",
        lacks: str = "",
        launch_key: str = "",
        role: str = "",
        team: str = "",
        accepts: str = "",
        launched_by: str = "",
    ) -> None:
        self.agent_id = agent_id
        self.agent_type = agent_type
        self.name = name
        self.port = port
        self.pid = pid
        # The system reuses pids; a pid with its start time is unique until the machine restarts.
        self.pid_started = pid_started
        self.cli_pid = cli_pid
        self.socket = socket
        self.endpoint = endpoint
        self.working_dir = working_dir
        self.inbox = inbox
        self.started_at = started_at
        # The gateway that runs it, for an in-process agent: it has no process of its own to stop or to attach to.
        self.gateway = gateway
        # The media types of the parts that it accepts, separated by spaces; empty accepts all.
        self.takes = takes
        # The A2A extensions that it declares, as JSON (see `core.extension`); empty for none.
        self.extensions = extensions
        # The device number of the terminal that its CLI runs on, or 0. Processes on it do not count as a person's.
        self.terminal = terminal
        # The namespace that the pid belongs to: a container or a sandbox may have its own pids. 0 when it is unknown.
        self.pid_namespace = pid_namespace
        # The version of Synapse that its process runs; empty in entries of versions that did not write it.
        self.version = version
        # The A2A capabilities that are switched off, separated by spaces; see `core.requests.CAPABILITIES`.
        self.lacks = lacks
        # Recognises the secret of its launch (see `auth.launch`); empty for an agent without one.
        self.launch_key = launch_key
        # What it is for, in the words of the person who started it; it is told so, and others see it.
        self.role = role
        # The team that it was started with, or empty.
        self.team = team
        # The senders that it accepts messages from, separated by spaces; empty accepts all.
        self.accepts = accepts
        # The agent that started it, or empty. Others accept no messages from it in the name of a member of their team.
        self.launched_by = launched_by

    def as_dict(self) -> "dict[str, object]":
        """Returns the fields of the registry file."""
        return {name: getattr(self, name) for name in self.__slots__}

    def shown(self) -> "dict[str, object]":
        """Returns the fields that commands print: all but the key of the launch."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "launch_key"}

    def is_agent_of(self, inbox: str, agent_id: str) -> bool:
        """Decides whether this is the agent of `inbox`; compares `agent_id` only when `inbox` is empty.

        The id contains the port. After a restart an agent may have another port, and its old one may belong to another
        agent.
        """
        return self.inbox == inbox if inbox else self.agent_id == agent_id


def entry_from(fields: "dict[str, object]") -> "AgentEntry | None":
    """Returns the entry that the fields of a registry file describe, or None when they are not a valid entry."""
    agent_id = fields.get("agent_id")
    agent_type = fields.get("agent_type")
    if not isinstance(agent_id, str) or not isinstance(agent_type, str) or not agent_id or not agent_type:
        return None
    entry = AgentEntry(agent_id, agent_type)
    for name in entry.__slots__:
        value = fields.get(name)
        if isinstance(value, type(getattr(entry, name))):
            setattr(entry, name, value)
    # Lists and prompts show these names. No host writes unprintable ones, so such a file is not a host's entry.
    return entry if f"{entry.agent_id}{entry.agent_type}{entry.name}".isprintable() else None
