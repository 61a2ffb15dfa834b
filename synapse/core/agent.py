"""An agent as others see it: who it is, where it listens, and in what state it is.

`synapse send` reads these, so this file imports nothing: `AgentEntry` is a plain class and the states are plain words.
"""

STARTING = "starting"
READY = "ready"
WORKING = "working"
WAITING = "waiting"
EXITED = "exited"
AGENT_STATES = (STARTING, READY, WORKING, WAITING, EXITED)


class AgentEntry:
    """What an agent's host writes into the registry."""

    __slots__ = (
        "agent_id",
        "agent_type",
        "cli_pid",
        "endpoint",
        "extensions",
        "gateway",
        "inbox",
        "lacks",
        "name",
        "pid",
        "pid_namespace",
        "pid_started",
        "port",
        "socket",
        "started_at",
        "takes",
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
    ) -> None:
        self.agent_id = agent_id
        self.agent_type = agent_type
        self.name = name
        self.port = port
        self.pid = pid
        # A pid alone may have been taken by another process since; with its start time it is unique until reboot.
        self.pid_started = pid_started
        self.cli_pid = cli_pid
        self.socket = socket
        self.endpoint = endpoint
        self.working_dir = working_dir
        self.inbox = inbox
        self.started_at = started_at
        # The gateway in whose process it lives; such an agent has no process of its own to be ended or attached to.
        self.gateway = gateway
        # The media types of the parts that it takes, with a space between; empty takes all.
        self.takes = takes
        # The extensions of A2A that it declares, as JSON; see `core.extension`. Empty declares none.
        self.extensions = extensions
        # The device number of the terminal that its CLI runs on: who sits there is no person. 0 when it has none.
        self.terminal = terminal
        # Where the pid means something: a container or a sandbox may have pids of its own. 0 when it is not known.
        self.pid_namespace = pid_namespace
        # The version of Synapse that its process runs; empty for those that wrote none yet.
        self.version = version
        # The capabilities of A2A that are switched off, with a space between; see `core.capability`.
        self.lacks = lacks

    def as_dict(self) -> "dict[str, object]":
        """The registry file's fields."""
        return {name: getattr(self, name) for name in self.__slots__}

    def is_agent_of(self, inbox: str, agent_id: str) -> bool:
        """Whether this is the agent of that inbox; only of one whose inbox is not known, the one with that id.

        The id holds the port. An agent that was started again may have another, and its own may be another agent's.
        """
        return self.inbox == inbox if inbox else self.agent_id == agent_id


def entry_from(fields: "dict[str, object]") -> "AgentEntry | None":
    """Return the entry that a registry file's fields describe, or None when they do not describe one."""
    agent_id = fields.get("agent_id")
    agent_type = fields.get("agent_type")
    if not isinstance(agent_id, str) or not isinstance(agent_type, str) or not agent_id or not agent_type:
        return None
    entry = AgentEntry(agent_id, agent_type)
    for name in entry.__slots__:
        value = fields.get(name)
        if isinstance(value, type(getattr(entry, name))):
            setattr(entry, name, value)
    # They are shown in lists and prompts. No host writes such names; what else does is no entry.
    return entry if f"{entry.agent_id}{entry.agent_type}{entry.name}".isprintable() else None
