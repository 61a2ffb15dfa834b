"""Finds the host of an agent and sends it requests. `synapse send` imports this module, so it imports nothing heavy."""

import os

from synapse.client.http import Answer, HostAddress, NoAnswer, request
from synapse.config.paths import USER_FILE, check_place, user_folder
from synapse.core.address import PERSON, is_remote, matching, resolve, short_name, split_machine
from synapse.core.agent import SECRET_FILE, AgentEntry
from synapse.core.json_text import object_in
from synapse.registry.files import FileRegistry, gateways, is_alive, is_foreign, is_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from synapse.core.errors import AgentNotResponding, SynapseError

AGENT_VARIABLE = "SYNAPSE_AGENT_ID"
SOCKET_VARIABLE = "SYNAPSE_SOCKET"
WAIT_VARIABLE = "SYNAPSE_MCP_WAIT"
"""In the environment of a CLI whose launch gave it the MCP server: how many seconds one call of a tool may wait."""
GATEWAY = "gateway"
ACCEPT_SECONDS = 8.0
"""How long a host may take to answer; usually it takes a few milliseconds."""
LONGEST_SECRET = 128
REPLY_SECONDS = 20.0
"""The own host answers only after the sender's host has accepted the reply, which may take long."""
GATEWAY_HINT = (
    "a gateway is not an agent: `synapse start gateway` starts one, `synapse list` shows it, `synapse logs gateway` "
    "shows its log, `synapse stop gateway` stops it"
)
LINKS = ("link", "synapse-link")
"""Names that people use for the link of this machine."""
LINK_HINT = (
    "the link is not an agent: `synapse fleet status` shows it, `synapse fleet start` starts it, `synapse fleet stop` "
    "stops it, `synapse logs synapse-link` shows its log"
)

_launch: "dict[str, str]" = {}
"""The launch of this process, like its environment: one for all requests."""


def current_folder() -> str:
    """Returns the working folder, or the root folder if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return os.sep


def open_registry() -> FileRegistry:
    """Opens the registry of this user's agents."""
    return FileRegistry(os.path.join(state_folder(os.environ, current_folder()), "registry"))


def open_gateways() -> FileRegistry:
    """Opens the registry of this user's gateways, which are not agents and have a folder of their own."""
    return gateways(state_folder(os.environ, current_folder()))


def state_folder(environ: "Mapping[str, str]", folder: str) -> str:
    """Returns the setting `home` of a process that works in `folder`; in most cases without loading the settings."""
    if not environ.get("SYNAPSE_HOME") and _mentions_home(os.path.join(user_folder(environ), USER_FILE)):
        from synapse.config.settings import load_home

        return str(load_home(environ, folder))
    home = os.path.join(folder, os.path.expanduser(environ.get("SYNAPSE_HOME") or "~/.a2a"))
    check_place(home, folder, what="the state folder", variable="SYNAPSE_HOME")
    return home


def find_agent(target: str, registry: FileRegistry) -> AgentEntry:
    """Returns the running agent that `target` names; removes the entry of a dead one.

    Asks the link for `codex@box2`, an agent on another machine; see `client.link`.

    Raises:
        AgentNotFound, AmbiguousTarget: no agent matches, or several do.
        AgentNotResponding: its entry exists, but its host is gone.
        NotInFleet, LinkDown, MachineNotFound, MachineAway: its machine cannot be reached.
    """
    if split_machine(target)[1]:
        from synapse.client.link import find_remote, without_own_machine

        target = without_own_machine(target, registry)
        if split_machine(target)[1]:
            return find_remote(target, registry)
    written = registry.written()
    running = [entry for entry in written if is_alive(entry)]
    gone = [] if matching(target, running) else [entry for entry in matching(target, written) if entry not in running]
    for entry in gone:
        registry.remove_dead(entry)
    if gone:
        raise not_responding(gone[0])
    if not matching(target, running):
        raise _not_found(target, running, registry)
    return resolve(target, running)


def find_local_agent(target: str, registry: FileRegistry, verb: str) -> AgentEntry:
    """Returns the agent as `find_agent` does, for a verb that needs the files and processes of its machine.

    Raises UnsupportedOperation for an agent on another machine, and what `find_agent` raises.
    """
    return find_agent(require_local(target, registry, verb), registry)


def require_local(target: str, registry: FileRegistry, verb: str) -> str:
    """Returns `target` without the name of this machine. Raises UnsupportedOperation if it names another one."""
    if not split_machine(target)[1]:
        return target
    from synapse.client.link import without_own_machine
    from synapse.core.errors import UnsupportedOperation

    target = without_own_machine(target, registry)
    name, machine = split_machine(target)
    if machine:
        raise UnsupportedOperation(
            f"{target} is on {machine}, and this cannot be done from here",
            hint=f"type `synapse {verb} {name}` on {machine}",
        )
    return target


def own_agent(registry: FileRegistry) -> "AgentEntry | None":
    """Returns the agent that this process runs in, or None in a person's shell."""
    agent_id = os.environ.get(AGENT_VARIABLE, "")
    if not agent_id:
        return None
    entry = registry.find(agent_id) or AgentEntry(agent_id, _type_in(agent_id))
    entry.socket = os.environ.get(SOCKET_VARIABLE) or entry.socket
    return entry


def require_own_agent(registry: FileRegistry) -> AgentEntry:
    """Returns the agent that this process runs in.

    Raises:
        InvalidRequest: it is a person's shell.
    """
    entry = own_agent(registry)
    if entry is None:
        from synapse.core.errors import InvalidRequest

        raise InvalidRequest(
            f"this shell does not run inside an agent ({AGENT_VARIABLE} is not set), so there is nothing to reply to",
            hint='to send a message: `synapse send TARGET "…"`',
        )
    return entry


def sender_fields(registry: FileRegistry, claimed: str = "") -> "dict[str, str]":
    """Returns the contract's `sender`: the claimed one, else the agent that this process runs in, else a person."""
    entry = _claimed_agent(claimed, registry) if claimed else own_agent(registry)
    if entry is None:
        return {"sender_id": PERSON, "sender_type": PERSON, "sender_endpoint": ""}
    return {"sender_id": entry.agent_id, "sender_type": entry.agent_type, "sender_endpoint": entry.endpoint}


def show_launch(home: str) -> None:
    """Makes every later request of this process prove its launch by the secret, if that can be read.

    A host knows the agent of a process by its ancestors; a sandbox or a container may hide them.
    """
    path = os.path.join(home, "launches", os.environ.get(AGENT_VARIABLE, ""), SECRET_FILE)
    try:
        with open(path, "rb") as file:
            secret = file.read(LONGEST_SECRET).decode("ascii").strip()
    except (OSError, ValueError):
        return
    if secret.isprintable():
        _launch["secret"] = secret


def address_of(entry: AgentEntry) -> HostAddress:
    """Returns where the host of `entry` listens, with the secret of `show_launch`."""
    return HostAddress(entry.socket, port=entry.port, launch=_launch.get("secret", ""))


def exchange(
    entry: AgentEntry, method: str, path: str, body: "dict[str, Any] | None" = None, *, timeout: float
) -> Answer:
    """Sends a request to an agent's host and returns its answer, whatever its status. Skips a suspended host.

    Raises:
        NoAnswer: the host is suspended, cannot be reached, or does not answer.
    """
    if is_suspended(entry):
        raise NoAnswer("its process is suspended", sent=False)
    return request(address_of(entry), method, path, body, timeout=timeout, is_stopped=lambda: is_suspended(entry))


def ask(
    entry: AgentEntry,
    method: str,
    path: str,
    body: "dict[str, Any] | None" = None,
    *,
    timeout: float = ACCEPT_SECONDS,
) -> "dict[str, Any]":
    """Sends a request to an agent's host and returns the body of its answer.

    Raises:
        AgentNotResponding: the host does not answer.
        SynapseError: the host refuses; the error has the host's code.
    """
    try:
        answer = exchange(entry, method, path, body, timeout=timeout)
    except NoAnswer as silence:
        error = not_responding(entry, silence)
        if silence.sent and body is not None:
            error.hint = (
                f"the request may still take effect, `synapse status {short_name(entry)}` shows it; {error.hint}"
            )
        raise error from silence
    if answer.status >= 400:
        raise refusal_of(answer)
    return answer.body


def post_message(
    entry: AgentEntry,
    body: "dict[str, Any]",
    registry: FileRegistry,
    *,
    warn: "Callable[[str], None]",
    priority: str = "",
    timeout: float = ACCEPT_SECONDS,
) -> "dict[str, Any]":
    """Sends a message to an agent's host and returns the task. Sends a reply without a waiting task as a new message.

    Raises:
        SynapseError: the host refuses or does not answer.
    """
    path = f"/tasks/send-priority?priority={priority}" if priority else "/tasks/send"
    answer = _post(entry, path, body, timeout, registry)
    reply_to = body["metadata"].get("in_reply_to")
    if answer.status == 404 and reply_to:
        warn(f"Warning: --reply-to {reply_to} not found (404), retrying as new message")
        del body["metadata"]["in_reply_to"]
        answer = _post(entry, path, body, timeout, registry)
    if answer.status >= 400:
        raise refusal_of(answer)
    return object_in(answer.body, "task")


def post_reply(own: AgentEntry, parts: "list[dict[str, Any]]", *, task_id: str, failed: bool) -> "dict[str, Any]":
    """Asks the agent's own host to reply to a request: `task_id`, else the one it is working on, else the last.

    Raises:
        SynapseError: the host refuses or does not answer.
    """
    message = {"role": "agent", "parts": parts, "message_id": os.urandom(16).hex()}
    body = {"message": message, "task_id": task_id, "failed": failed}
    return object_in(ask(own, "POST", "/reply", body, timeout=REPLY_SECONDS), "replied")


def not_responding(entry: AgentEntry, silence: "NoAnswer | None" = None) -> "AgentNotResponding":
    """Returns the error for a host that does not answer, or that this process is not allowed to reach."""
    from synapse.core.errors import AgentNotResponding, ConnectionForbidden

    has_tools = runs_with_tools()
    if silence is not None and silence.forbidden:
        return ConnectionForbidden(entry.agent_id, f"it may not open connections ({silence})", has_tools=has_tools)
    if silence is not None and not silence.sent and is_foreign(entry):
        why = f"it sees neither the host's process nor its socket ({silence})"
        return ConnectionForbidden(entry.agent_id, why, has_tools=has_tools)
    error = AgentNotResponding(entry.agent_id, entry.port, entry.agent_type)
    if is_remote(entry):
        from synapse.client.link import link_silent

        sentence, error.hint = link_silent(entry)
        error.args = (sentence,)
        return error
    if is_suspended(entry):
        error.hint = suspended_hint(entry)
    elif entry.gateway:
        error.hint = "it runs inside a gateway: `synapse start gateway` starts one, with its agents"
    elif entry.name:
        error.hint = f"restart the agent with `synapse {entry.agent_type} --name {entry.name}`"
    return error


def runs_with_tools() -> bool:
    """Returns whether this process runs in an agent whose launch gave its CLI the MCP server."""
    return bool(os.environ.get(AGENT_VARIABLE) and os.environ.get(WAIT_VARIABLE))


def is_suspended(entry: AgentEntry) -> bool:
    """Returns whether the host's process is suspended (Ctrl-Z, SIGSTOP) and cannot answer."""
    return is_stopped(entry.pid, entry.pid_started)


def suspended_hint(entry: AgentEntry) -> str:
    """Returns the hint for a host whose process is suspended."""
    return (
        f"its process (pid {entry.pid}) is suspended, as by Ctrl-Z; continue it with `fg` in its terminal, or with "
        f"`kill -CONT {entry.pid}`"
    )


def refusal_of(answer: Answer) -> "SynapseError":
    """Returns the error that a host answered with."""
    from synapse.core.errors import from_wire

    error = from_wire(object_in(answer.body, "error"), f"the host answered with status {answer.status}")
    if error.code == "machine_away":
        from synapse.client.link import with_age

        return with_age(error)
    return error


def _not_found(target: str, running: "list[AgentEntry]", registry: FileRegistry) -> "SynapseError":
    """Returns the error for a target that names no running agent of this machine."""
    from synapse.core.errors import AgentNotFound

    hint = _hint_for(target, registry)
    if hint:
        return AgentNotFound(target, hint=hint)
    try:
        resolve(target, running)
    except AgentNotFound as error:
        hint = error.hint
    from synapse.client.link import is_in_fleet

    if is_in_fleet(os.path.dirname(registry.folder)):
        hint += "\n`synapse list --all` shows the agents of other machines too"
    return AgentNotFound(target, hint=hint)


def _hint_for(target: str, registry: FileRegistry) -> str:
    """Returns a hint for a target that is known but not a running agent of this machine, or an empty string."""
    if target == GATEWAY:
        return GATEWAY_HINT
    alias, home = target.removeprefix("@"), os.path.dirname(registry.folder)
    if "/" in alias:
        return ""
    # The log of an agent that was called so has its name; that of the link is `synapse-link.log`.
    if alias in LINKS and not os.path.exists(os.path.join(home, "logs", "link.log")):
        return LINK_HINT
    if os.path.exists(os.path.join(home, "external", f"{alias}.json")):
        return f'it is an external agent: use `synapse external send {alias} "…"`, or a running gateway'
    # An agent that has stopped leaves a log by its given name or id.
    if any(os.path.exists(os.path.join(home, "logs", f"{begin}{alias}.log")) for begin in ("", "synapse-")):
        return (
            f"it has stopped: `synapse restart {alias}` starts it again\n"
            f"(synapse logs {alias}; `synapse send --queue` keeps a message for its next start)"
        )
    return ""


def _post(entry: AgentEntry, path: str, body: "dict[str, Any]", timeout: float, registry: FileRegistry) -> Answer:
    """Sends a message; repeats it once if the connection broke but the host lives: the message id makes that safe."""
    try:
        return exchange(entry, "POST", path, body, timeout=timeout)
    except NoAnswer as silence:
        is_running = is_alive(entry)
        if not is_running:
            registry.remove_dead(entry)
        # A reply is not repeated: the first one finishes its task, so the second would arrive as a new message.
        if not is_running or not silence.sent or silence.timed_out or "in_reply_to" in body["metadata"]:
            raise _unconfirmed(entry, body, silence) from silence
    try:
        return exchange(entry, "POST", path, body, timeout=timeout)
    except NoAnswer as silence:
        raise _unconfirmed(entry, body, silence) from silence


def _unconfirmed(entry: AgentEntry, body: "dict[str, Any]", silence: NoAnswer) -> "AgentNotResponding":
    """Returns the error for a message that the host may have read; its hint says how to repeat it safely."""
    error = not_responding(entry, silence)
    if not silence.sent:
        error.hint = f"the message was not sent; {error.hint}"
        return error
    name, remedy = short_name(entry), error.hint
    if not is_suspended(entry) and not is_remote(entry):
        remedy = f"if the agent is stuck (pid {entry.pid}): `synapse stop {name} --force`, then {remedy}"
    again = f"To send it again without a duplicate, add `--message-id {body['message']['message_id']}`"
    if "in_reply_to" in body["metadata"]:
        again = "Check before you reply again: a second reply arrives as a new message"
    error.hint = (
        f"the message was not confirmed and may still be delivered; `synapse status {name}` and `synapse queue {name}` "
        f"show it. {again}; {remedy}"
    )
    return error


def _claimed_agent(claimed: str, registry: FileRegistry) -> "AgentEntry | None":
    if claimed == PERSON:
        return None
    found = matching(claimed, registry.written())
    return found[0] if len(found) == 1 else AgentEntry(claimed, _type_in(claimed))


def _type_in(agent_id: str) -> str:
    """Returns the type in an agent id: `claude` for `synapse-claude-8100`."""
    return agent_id.removeprefix("synapse-").rpartition("-")[0] or agent_id


def _mentions_home(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"home" in file.read()
    except OSError:
        return False
