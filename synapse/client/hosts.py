"""Finding the host of an agent, and asking it. `synapse send` imports this file, so it imports nothing of weight."""

import os

from synapse.client.http import Answer, HostAddress, NoAnswer, request
from synapse.config.paths import USER_FILE, check_place, user_folder
from synapse.core.address import PERSON, matching, resolve, short_name
from synapse.core.agent import AgentEntry
from synapse.core.json_text import object_in
from synapse.registry.files import FileRegistry, is_alive, is_foreign, is_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from synapse.core.errors import AgentNotResponding, SynapseError

AGENT_VARIABLE = "SYNAPSE_AGENT_ID"
SOCKET_VARIABLE = "SYNAPSE_SOCKET"
GATEWAY = "gateway"
ACCEPT_SECONDS = 8.0
"""How long a host may take to answer: a person waits for it. It takes some milliseconds."""
NO_AGENT = (
    "a gateway is no agent: `synapse start gateway` starts one, `synapse list` shows it, `synapse logs gateway` says "
    "what it did, `synapse stop gateway` ends it"
)


def current_folder() -> str:
    """The working folder; the root when it was deleted under us."""
    try:
        return os.getcwd()
    except OSError:
        return os.sep


def open_registry() -> FileRegistry:
    """The registry of this user."""
    return FileRegistry(os.path.join(state_folder(os.environ, current_folder()), "registry"))


def open_gateways() -> FileRegistry:
    """The gateways of this user, which are no agents and have a folder of their own."""
    return FileRegistry(os.path.join(state_folder(os.environ, current_folder()), "gateways"))


def state_folder(environ: "Mapping[str, str]", folder: str) -> str:
    """The setting `home` of a process that works in `folder`, without the price of reading settings in most cases."""
    if not environ.get("SYNAPSE_HOME") and _speaks_of_home(os.path.join(user_folder(environ), USER_FILE)):
        from synapse.config.settings import load_home

        return str(load_home(environ, folder))
    home = os.path.join(folder, os.path.expanduser(environ.get("SYNAPSE_HOME") or "~/.a2a"))
    check_place(home, folder, what="the state folder", variable="SYNAPSE_HOME")
    return home


def find_agent(target: str, registry: FileRegistry) -> AgentEntry:
    """Return the living agent that `target` names; a dead one that was meant is forgotten.

    Raises:
        AgentNotFound, AmbiguousTarget: none or several fit.
        AgentNotResponding: it was here, but its host is gone.
    """
    written = registry.written()
    living = [entry for entry in written if is_alive(entry)]
    gone = [] if matching(target, living) else [entry for entry in matching(target, written) if entry not in living]
    for entry in gone:
        registry.remove_dead(entry)
    if gone:
        raise not_responding(gone[0])
    if not matching(target, living) and (hint := _elsewhere(target, registry)):
        from synapse.core.errors import AgentNotFound

        raise AgentNotFound(target, hint=hint)
    return resolve(target, living)


def own_agent(registry: FileRegistry) -> "AgentEntry | None":
    """The agent that this process runs in, or None in a person's shell."""
    agent_id = os.environ.get(AGENT_VARIABLE, "")
    if not agent_id:
        return None
    entry = registry.find(agent_id) or AgentEntry(agent_id, _type_in(agent_id))
    entry.socket = os.environ.get(SOCKET_VARIABLE) or entry.socket
    return entry


def require_own_agent(registry: FileRegistry) -> AgentEntry:
    """The agent that this process runs in.

    Raises:
        InvalidRequest: it is a person's shell.
    """
    entry = own_agent(registry)
    if entry is None:
        from synapse.core.errors import InvalidRequest

        raise InvalidRequest(
            f"this shell does not run inside an agent ({AGENT_VARIABLE} is not set), so there is nothing to reply to",
            hint='a person sends with `synapse send TARGET "…"`',
        )
    return entry


def sender_fields(registry: FileRegistry, claimed: str = "") -> "dict[str, str]":
    """The contract's `sender`: who is claimed, else the agent that this process runs in, else a person."""
    entry = _claimed_agent(claimed, registry) if claimed else own_agent(registry)
    if entry is None:
        return {"sender_id": PERSON, "sender_type": PERSON, "sender_endpoint": ""}
    return {"sender_id": entry.agent_id, "sender_type": entry.agent_type, "sender_endpoint": entry.endpoint}


def address_of(entry: AgentEntry) -> HostAddress:
    """Where the host of `entry` listens."""
    return HostAddress(entry.socket, port=entry.port)


def converse(
    entry: AgentEntry, method: str, path: str, body: "dict[str, Any] | None" = None, *, timeout: float
) -> Answer:
    """Ask an agent's host and return its answer, whatever its status. One whose process stands still is not asked.

    Raises:
        NoAnswer: it cannot be reached, or does not answer.
    """
    if stands_still(entry):
        raise NoAnswer("its process is stopped", sent=False)
    return request(address_of(entry), method, path, body, timeout=timeout, is_stopped=lambda: stands_still(entry))


def ask(
    entry: AgentEntry,
    method: str,
    path: str,
    body: "dict[str, Any] | None" = None,
    *,
    timeout: float = ACCEPT_SECONDS,
) -> "dict[str, Any]":
    """Ask an agent's host and return the body of its answer.

    Raises:
        AgentNotResponding: it does not answer.
        SynapseError: it refuses; the error has the host's own code.
    """
    try:
        answer = converse(entry, method, path, body, timeout=timeout)
    except NoAnswer as silence:
        error = not_responding(entry, silence)
        if silence.sent and body is not None:
            error.hint = (
                f"what was asked may still be done, `synapse status {short_name(entry)}` shows it; {error.hint}"
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
    """Hand a message to an agent's host and return the task. A reply that nobody waits for goes as a new message.

    Raises a SynapseError.
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


def not_responding(entry: AgentEntry, silence: "NoAnswer | None" = None) -> "AgentNotResponding":
    """The error for a host that does not answer, or of which nobody can tell from here whether it would."""
    from synapse.core.errors import AgentNotResponding, ConnectionForbidden

    if silence is not None and silence.forbidden:
        return ConnectionForbidden(entry.agent_id, f"it may not open connections ({silence})")
    if silence is not None and not silence.sent and is_foreign(entry):
        return ConnectionForbidden(entry.agent_id, f"it sees neither the host's process nor its socket ({silence})")
    error = AgentNotResponding(entry.agent_id, entry.port, entry.agent_type)
    if stands_still(entry):
        error.hint = standstill(entry)
    elif entry.gateway:
        error.hint = "it lives in a gateway: `synapse start gateway` starts one, with the agents that it runs"
    elif entry.name:
        error.hint = f"restart the agent with `synapse {entry.agent_type} --name {entry.name}`"
    return error


def stands_still(entry: AgentEntry) -> bool:
    """Whether the host's process is stopped, and so hears nobody until somebody lets it go on."""
    return is_stopped(entry.pid, entry.pid_started)


def standstill(entry: AgentEntry) -> str:
    """What has happened to a host whose process is stopped, and what to do."""
    return (
        f"its process (pid {entry.pid}) is stopped, as by Ctrl-Z; let it go on with `fg` in its terminal, or with "
        f"`kill -CONT {entry.pid}`"
    )


def refusal_of(answer: Answer) -> "SynapseError":
    """The error that a host answered with."""
    return refusal(object_in(answer.body, "error"), f"the host answered with status {answer.status}")


def refusal(told: "dict[str, Any]", otherwise: str) -> "SynapseError":
    """Return the error that a host described: of its class, or with its code when this version does not know it."""
    from synapse.core.errors import from_wire

    return from_wire(told, otherwise)


def _elsewhere(target: str, registry: FileRegistry) -> str:
    """What to do about a target that is known and no living agent of this machine, or an empty string."""
    if target == GATEWAY:
        return NO_AGENT
    alias, home = target.removeprefix("@"), os.path.dirname(registry.folder)
    if "/" in alias:
        return ""
    if os.path.exists(os.path.join(home, "external", f"{alias}.json")):
        return f'it is an agent from elsewhere: `synapse external send {alias} "…"`, or through a gateway that runs'
    # A given name, a full id, or a profile and port has left a log.
    if any(os.path.exists(os.path.join(home, "logs", f"{begin}{alias}.log")) for begin in ("", "synapse-")):
        return f"it has ended  (synapse logs {alias}; with `synapse send --queue` a message waits for its next start)"
    return ""


def _post(entry: AgentEntry, path: str, body: "dict[str, Any]", timeout: float, registry: FileRegistry) -> Answer:
    """Ask once more when the connection broke while the host lives: the message id makes that the same request."""
    try:
        return converse(entry, "POST", path, body, timeout=timeout)
    except NoAnswer as silence:
        alive = is_alive(entry)
        if not alive:
            registry.remove_dead(entry)
        # A reply is not repeated: its task is finished by the first one, so the second would go as a new message.
        if not alive or not silence.sent or silence.timed_out or "in_reply_to" in body["metadata"]:
            raise _undecided(entry, body, silence) from silence
    try:
        return converse(entry, "POST", path, body, timeout=timeout)
    except NoAnswer as silence:
        raise _undecided(entry, body, silence) from silence


def _undecided(entry: AgentEntry, body: "dict[str, Any]", silence: NoAnswer) -> "AgentNotResponding":
    """The error for a message that a host may have read: it may still arrive, so a second one must be the same one."""
    error = not_responding(entry, silence)
    if not silence.sent:
        error.hint = f"the message was not sent; {error.hint}"
        return error
    name, remedy = short_name(entry), error.hint
    if not stands_still(entry):
        remedy = f"if the agent is stuck (pid {entry.pid}): `synapse stop {name} --force`, then {remedy}"
    again = f"To send it again, but not twice, add `--message-id {body['message']['message_id']}`"
    if "in_reply_to" in body["metadata"]:
        again = "Look before you reply again: a second reply comes as a new message"
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
    """`claude` for `synapse-claude-8100`."""
    return agent_id.removeprefix("synapse-").rpartition("-")[0] or agent_id


def _speaks_of_home(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"home" in file.read()
    except OSError:
        return False
