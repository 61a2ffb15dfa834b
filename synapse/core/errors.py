"""All errors of Synapse as one tree, grouped by cause, and their JSON form between processes.

    SynapseError
    ├── InvalidRequest            the request itself is wrong
    │   ├── BodyTooLarge · BodyTooSlow · UnsupportedMediaType · MethodNotAllowed · PriorityOutOfRange
    │   ├── UnknownProfile · InvalidSettings · InvalidProfile · InvalidScript
    │   ├── UnsupportedOperation  PushNotSupported · ExtendedCardMissing
    │   ├── Ambiguous             AmbiguousTarget · AmbiguousTask
    │   ├── InvalidField          names the field; NoAgentThere
    │   └── InvalidChoice · MalformedJson · MalformedCall · VersionNotSupported · ExtensionRequired
    ├── NotFound                  TaskNotFound (PushConfigNotFound) · AgentNotFound · ExternalAgentNotFound
    │                             RouteNotFound · KeyNotFound · MachineNotFound
    ├── Conflict                  well-formed, but not possible now
    │   ├── IllegalTransition · TaskFinished · TaskNotCancelable · VersionConflict · MessageIdReused
    │   ├── QueueFull (QuotaExceeded) · WaitCycle · NameTaken · PortTaken · NotInFleet · FeedLagged
    │   └── RateLimited (TooManyStreams) · NothingAsked · QuestionGone
    ├── AccessDenied              SenderMismatch · SenderNotAccepted · PersonRequired · ForeignOrigin · Forbidden
    │                             InvitationRefused
    │   └── Unauthenticated       CredentialsRefused
    ├── AgentFailed               AgentExited · AgentUnresponsive · CommandMissing · FileNotStored
    │                             LinkDown · MachineAway
    │   ├── AgentNotResponding    ConnectionForbidden · OutcomeUnknown
    │   └── ExternalAgentFailed   ExternalAgentUnreachable · ExternalAddressRefused
    ├── WaitTimedOut · WaitingForPerson
    ├── StoreFailed               our own durability: StoreLocked · StoreCorrupt · StoreTooNew · StoreFull
    │                             StoreLost · StoreInUse · StoreUnsafe · LeaseLost · RegistryFailed
    └── InternalFailure           a bug in Synapse; the log has the details, the caller gets none

Each class has a stable `code`, used in wire errors, logs and tests; `str(error)` is the sentence for a person and
`hint` the next step. Each dialect maps errors to its own status codes.

`to_wire` turns an error into JSON values, and `from_wire` turns them back into an error of the same class. The two
ends may be of different versions, so `from_wire` reads what it knows and ignores the rest.

A failing `synapse send` loads this module before it can print the error, so it imports nothing heavy.
"""

from synapse.core.json_text import object_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Self

_NO_SENTENCE = "the agent's host answered something that cannot be understood"

BY_CODE: "dict[str, type[SynapseError]]" = {}
"""The class of each code, parents before their children. Classes register themselves."""


class SynapseError(Exception):
    """Anything Synapse refuses or fails at, with a sentence for a person and a hint for what to do next."""

    # Subclasses set `code`; a subclass without one is sent as its parent. `fields` names the attributes that an error
    # has beside its sentence and hint. Each has a default on the class (a string, a number or a tuple of strings),
    # because a peer of another version may not send it.
    code = "error"
    hint = ""
    fields: "tuple[str, ...]" = ()

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])
        if hint:
            self.hint = hint

    def __init_subclass__(cls) -> None:  # type: ignore[explicit-override]  # its import costs as much as ten classes
        """Registers the class in BY_CODE. Raises TypeError if its code is taken."""
        if "code" in vars(cls) and (taken := BY_CODE.setdefault(cls.code, cls)) is not cls:
            raise TypeError(f"{cls.__name__}: the code '{cls.code}' is taken by {taken.__name__}; choose another")

    def reworded(self, message: str) -> "Self":
        """Returns a copy of the error with another sentence."""
        error = type(self).__new__(type(self), message)
        vars(error).update(vars(self))
        return error


BY_CODE[SynapseError.code] = SynapseError


def describe(error: SynapseError) -> "dict[str, str]":
    """Returns the public part of an error: its code, sentence and hint."""
    return {"code": error.code, "message": str(error), "hint": error.hint}


def to_wire(error: SynapseError) -> "dict[str, object]":
    """Returns the error as JSON values that `from_wire` of this and other versions reads."""
    own = vars(error)
    fields = {name: own[name] for name in error.fields if name in own}
    # `describe` has the hint too; older gateways read it here.
    if "hint" in own:
        fields["hint"] = error.hint
    return {**describe(error), "fields": fields}


def from_wire(told: "dict[str, Any]", otherwise: str = _NO_SENTENCE) -> SynapseError:
    """Returns the error that `told` describes; `otherwise` is the sentence if it has none.

    Never fails: an unknown code makes a SynapseError with that code, and a field that is missing or has a wrong type
    keeps the default of its class.
    """
    code, message, hint = (
        value if isinstance(value := told.get(name), str) else "" for name in ("code", "message", "hint")
    )
    kind = BY_CODE.get(code, SynapseError)
    # Does not call the class's own constructor, which builds the sentence from other arguments.
    error = kind.__new__(kind)
    SynapseError.__init__(error, message or otherwise, hint=hint)
    if code and code != kind.code:
        error.code = code
    fields = object_in(told, "fields")
    for name in kind.fields:
        # JSON has lists for tuples.
        value = _texts(fields.get(name)) if getattr(kind, name) == () else fields.get(name)
        if type(value) is type(getattr(kind, name)):
            setattr(error, name, value)
    return error


def _texts(value: "Any") -> "tuple[str, ...] | None":
    return tuple(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # the type inside Any is unknown


class InvalidRequest(SynapseError):
    """The request cannot be understood."""

    code = "invalid_request"


class BodyTooLarge(InvalidRequest):
    """The body is larger than this agent accepts."""

    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the body is larger than {limit} bytes",
            hint="send a file reference, or raise `max_body_bytes` in the settings",
        )


class BodyTooSlow(InvalidRequest):
    """The body did not arrive in time."""

    code = "body_too_slow"


class UnsupportedMediaType(InvalidRequest):
    """The body, or a part of a message, is not of a type that is understood here."""

    code = "unsupported_media_type"


class MethodNotAllowed(InvalidRequest):
    """The path is served, but not with that method."""

    code = "method_not_allowed"
    fields = ("allowed",)
    allowed: "Sequence[str]" = ()

    def __init__(self, method: str, path: str, allowed: "Sequence[str]") -> None:
        self.allowed = allowed
        super().__init__(f"{path} does not take {method}", hint="use " + " or ".join(allowed))


class PriorityOutOfRange(InvalidRequest):
    """A priority is a whole number from 1 to 5."""

    code = "priority_out_of_range"

    def __init__(self, given: object) -> None:
        super().__init__(f"priority must be a whole number from 1 to 5, not {given!r}")


class UnknownProfile(InvalidRequest):
    """There is no profile of that name."""

    code = "unknown_profile"


class InvalidSettings(InvalidRequest):
    """A settings file or variable has a value that cannot be used."""

    code = "invalid_settings"


class InvalidProfile(InvalidRequest):
    """A profile file cannot be used."""

    code = "invalid_profile"


class InvalidScript(InvalidRequest):
    """The script of a scripted agent cannot be used."""

    code = "invalid_script"


class UnsupportedOperation(InvalidRequest):
    """This agent does not do that."""

    code = "unsupported_operation"


class PushNotSupported(UnsupportedOperation):
    """This agent sends no push notifications."""

    code = "push_not_supported"


class ExtendedCardMissing(UnsupportedOperation):
    """This agent has no extended card."""

    code = "extended_card_missing"


class Ambiguous(InvalidRequest):
    """The name fits more than one."""

    code = "ambiguous"


class AmbiguousTarget(Ambiguous):
    """The target fits more than one agent."""

    code = "ambiguous_target"
    fields = ("candidates",)
    candidates: "Sequence[str]" = ()

    def __init__(self, target: str, candidates: "Sequence[str]") -> None:
        self.candidates = candidates
        super().__init__(
            f"Ambiguous target '{target}'. Multiple agents found.",
            hint="use one of: " + ", ".join(candidates),
        )


class AmbiguousTask(Ambiguous):
    """The short id fits more than one task."""

    code = "ambiguous_task"
    fields = ("candidates",)
    candidates: "Sequence[str]" = ()

    def __init__(self, prefix: str, candidates: "Sequence[str]") -> None:
        self.candidates = candidates
        super().__init__(f"'{prefix}' fits more than one task", hint="use one of: " + ", ".join(candidates))


class InvalidChoice(InvalidRequest):
    """The question does not offer that answer."""

    code = "invalid_choice"

    def __init__(self, message: str, offered: "Iterable[str]") -> None:
        answers = ", ".join(offered)
        super().__init__(message, hint=f"choose one of: {answers}" if answers else "`synapse attach` and answer there")


class InvalidField(InvalidRequest):
    """A field of the request is missing, or is not what it should be."""

    code = "invalid_field"
    fields = ("field", "why")
    field = ""
    why = ""

    def __init__(self, field: str, why: str, *, hint: str = "") -> None:
        self.field = field
        self.why = why
        super().__init__(f"{field}: {why}" if field else why, hint=hint)


class NoAgentThere(InvalidField):
    """No agent was found at the address that was given."""

    code = "no_agent_there"

    def __init__(self, why: str, *, hint: str = "") -> None:
        super().__init__("url", why, hint=hint)


class MalformedJson(InvalidRequest):
    """The body is not JSON."""

    code = "malformed_json"


class MalformedCall(InvalidRequest):
    """The body is JSON, but not a JSON-RPC 2.0 call."""

    code = "malformed_call"


class VersionNotSupported(InvalidRequest):
    """The protocol version that the request names is not spoken here."""

    code = "version_not_supported"

    def __init__(self, version: str, spoken: "Iterable[str]") -> None:
        super().__init__(f"A2A version '{version}' is not supported", hint="this agent speaks " + " and ".join(spoken))


class ExtensionRequired(InvalidRequest):
    """The agent demands an extension that the request does not name."""

    code = "extension_required"

    def __init__(self, uris: "Iterable[str]") -> None:
        missing = ", ".join(sorted(uris))
        super().__init__(f"this agent requires the extension {missing}", hint="name it in the A2A-Extensions header")


class NotFound(SynapseError):
    """There is no such thing."""

    code = "not_found"


class TaskNotFound(NotFound):
    """There is no such task."""

    code = "task_not_found"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"no task '{task_id}'")


class PushConfigNotFound(TaskNotFound):
    """The task has no such push configuration."""

    # A subclass of TaskNotFound because A2A answers both with one error.
    code = "push_config_not_found"

    def __init__(self, task_id: str, config_id: str) -> None:
        super(TaskNotFound, self).__init__(
            f"task '{task_id}' has no push configuration '{config_id}'"
            if config_id
            else f"task '{task_id}' has no push configuration",
            hint="list the task's push configurations",
        )


class AgentNotFound(NotFound):
    """No agent of that name is here."""

    code = "agent_not_found"

    def __init__(self, target: str, *, hint: str = "") -> None:
        super().__init__(f"No agent found matching '{target}'", hint=hint or "`synapse list` shows who is here")


class ExternalAgentNotFound(NotFound):
    """No external agent has that alias."""

    code = "external_agent_not_found"

    def __init__(self, alias: str) -> None:
        super().__init__(f"no external agent '{alias}'", hint="`synapse external list` shows the known ones")


class MachineNotFound(NotFound):
    """The fleet has no machine of that name."""

    code = "machine_not_found"


class RouteNotFound(NotFound):
    """Nothing is served at that path."""

    code = "route_not_found"


class KeyNotFound(NotFound):
    """No API key has that name."""

    code = "key_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no API key '{name}'", hint="`synapse keys list` shows them")


class Conflict(SynapseError):
    """The request is well-formed, but not possible now."""

    code = "conflict"


class IllegalTransition(Conflict):
    """The lifecycle has no such edge."""

    code = "illegal_transition"


class TaskFinished(Conflict):
    """The task is finished and takes nothing more."""

    code = "task_finished"


class TaskNotCancelable(Conflict):
    """The task is finished already, so it cannot be canceled."""

    code = "task_not_cancelable"


class VersionConflict(Conflict):
    """Somebody else changed the task first."""

    code = "version_conflict"


class MessageIdReused(Conflict):
    """The message id was used before with other content."""

    code = "message_id_reused"


class QueueFull(Conflict):
    """The agent's queue is full."""

    code = "queue_full"


class QuotaExceeded(QueueFull):
    """As much is kept for the agent, or for the caller's key, as may be."""

    code = "quota_exceeded"


class WaitCycle(Conflict):
    """The agents would wait for each other for ever."""

    code = "wait_cycle"
    fields = ("agents",)
    agents: "tuple[str, ...]" = ()

    def __init__(self, agents: "tuple[str, ...]") -> None:
        self.agents = agents
        super().__init__(
            "waiting for a reply would never end: " + " waits for ".join(agents),
            hint="answer the request you are working on first (`synapse reply`), or send with --no-response",
        )


class NotInFleet(Conflict):
    """This machine belongs to no fleet."""

    code = "not_in_fleet"
    hint = "`synapse fleet create` makes one, `synapse fleet join INVITATION` joins one"


class NameTaken(Conflict):
    """Another running agent has that name."""

    code = "name_taken"


class PortTaken(Conflict):
    """Another program listens on that port."""

    code = "port_taken"


class FeedLagged(Conflict):
    """The reader was too slow; it can resume after the last seq it saw."""

    code = "feed_lagged"
    fields = ("last_seq",)
    last_seq = 0

    def __init__(self, last_seq: int) -> None:
        self.last_seq = last_seq
        super().__init__(f"the reader fell behind after event {last_seq}", hint=f"resume after {last_seq}")


class RateLimited(Conflict):
    """Too many requests in too short a time."""

    code = "rate_limited"
    fields = ("retry_after",)
    retry_after = 1
    """Whole seconds to wait before the next try."""

    def __init__(self, message: str, *, seconds: float) -> None:
        self.retry_after = max(1, -int(-seconds // 1))  # rounded up
        super().__init__(message, hint=f"try again in {self.retry_after} s")


class TooManyStreams(RateLimited):
    """Too many streams are open with the same credentials."""

    code = "too_many_streams"

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} streams are open with these credentials already", seconds=1)
        self.hint = "close one first; `open_streams` in the gateway's configuration says how many there may be"


class SearchNotReady(Conflict):
    """The search index is being built, so a search would miss tasks."""

    code = "search_not_ready"
    hint = "search again in a moment"


class NothingAsked(Conflict):
    """Nobody is asked anything there."""

    code = "nothing_asked"
    hint = "`synapse approvals` shows what agents wait for"


class QuestionGone(Conflict):
    """Somebody answered first, or the question is not asked any more."""

    code = "question_gone"
    hint = "`synapse approvals` shows what is asked now"
    fields = ("answered_by",)
    answered_by = ""
    """Who answered first, as the task records it; empty if that is not known, as after an answer in the terminal."""


class AccessDenied(SynapseError):
    """The caller may not do that."""

    code = "access_denied"


class SenderMismatch(AccessDenied):
    """The claimed sender is not the agent that the calling process belongs to."""

    code = "sender_mismatch"


class InvitationRefused(AccessDenied):
    """The invitation does not let this machine join the fleet."""

    code = "invitation_refused"
    hint = "ask for a new one: `synapse fleet invite NAME` on the machine that runs the fleet's server"


class SenderNotAccepted(AccessDenied):
    """The agent does not accept messages from this sender."""

    code = "sender_not_accepted"


class PersonRequired(AccessDenied):
    """Only a person may do that; the calling process belongs to an agent."""

    code = "person_required"


class Unauthenticated(AccessDenied):
    """The caller is not known here."""

    code = "unauthenticated"
    fields = ("challenge",)
    challenge = "Bearer"


class CredentialsRefused(Unauthenticated):
    """The request has no credentials, or none that are valid here."""

    code = "credentials_refused"

    def __init__(self, message: str = "", *, challenge: str, hint: str = "") -> None:
        self.challenge = challenge
        super().__init__(message, hint=hint)


class ForeignOrigin(AccessDenied):
    """The request comes from a web page or a host name that is not ours."""

    code = "foreign_origin"


class Forbidden(AccessDenied):
    """The caller is known, but may not do that."""

    code = "forbidden"


class AgentFailed(SynapseError):
    """The agent could not do it."""

    code = "agent_failed"


class AgentExited(AgentFailed):
    """The agent's program has ended."""

    code = "agent_exited"


class AgentUnresponsive(AgentFailed):
    """The agent's program does not react."""

    code = "agent_unresponsive"


class AgentNotResponding(AgentFailed):
    """The agent's host does not answer."""

    code = "agent_not_responding"

    def __init__(self, agent_id: str, port: object, agent_type: str) -> None:
        super().__init__(
            f"Agent '{agent_id}' server on port {port} is not responding.",
            hint=f"restart the agent with `synapse {agent_type}`",
        )


class ConnectionForbidden(AgentNotResponding):
    """The calling process may not connect to the agent's host, so it cannot find out whether the agent runs.

    `has_tools` says that the process runs in an agent whose launch gave its CLI the MCP server.
    """

    code = "connection_forbidden"

    def __init__(self, agent_id: str, why: str, *, has_tools: bool = False) -> None:
        tools = "use the tools of the MCP server `synapse` instead (send, reply, agents, status), or "
        SynapseError.__init__(
            self,
            f"Agent '{agent_id}' cannot be reached from this process, and may well be running: {why}.",
            hint=f"this sandbox may not connect: {tools if has_tools else ''}"
            "ask to run the command outside of the sandbox",
        )


class OutcomeUnknown(AgentNotResponding):
    """The agent's host was asked and did not answer: it may have done what was asked, or not."""

    code = "outcome_unknown"

    def __init__(self, agent_id: str, port: object, agent_type: str, message_id: str = "") -> None:
        super().__init__(agent_id, port, agent_type)
        self.args = (f"{self} It is not known whether it took the request: it may still do so.",)
        again = f"the message id '{message_id}'" if message_id else "the same message id"
        self.hint = (
            f"send it again with {again}: a message is never taken twice; or look first, at the tasks of the agent; "
            f"if it stays silent, {self.hint}"
        )


class CommandMissing(AgentFailed):
    """The program that the profile starts is not installed."""

    code = "command_missing"


class FileNotStored(AgentFailed):
    """A file of the message could not be stored where the agent could read it."""

    code = "file_not_stored"
    hint = "free some room, and send it again"


class LinkDown(AgentFailed):
    """The link of this machine does not run, or has no connection to the fleet's server."""

    code = "link_down"
    hint = "`synapse fleet status` shows it"


class MachineAway(AgentFailed):
    """The machine is in the fleet, but not connected now."""

    code = "machine_away"
    hint = "`synapse fleet status` shows the machines"
    later_hint = "try again when the machine is back; `synapse fleet status` shows the machines"
    """For a request that nobody keeps until then."""
    fields = ("machine", "since")
    machine: str = ""
    since: str = ""

    def __init__(self, machine: str, since: str = "", *, hint: str = "") -> None:
        when = f" (since {since})" if since else ""
        super().__init__(f"the machine {machine} is away{when}", hint=hint)
        self.machine = machine
        self.since = since


class ExternalAgentFailed(AgentFailed):
    """The external agent refused, or answered something that cannot be understood."""

    code = "external_agent_failed"


class ExternalAgentUnreachable(ExternalAgentFailed):
    """The external agent does not answer."""

    code = "external_agent_unreachable"


class ExternalAddressRefused(ExternalAgentFailed):
    """The external agent leads to an address that is not called."""

    code = "external_address_refused"


class WaitTimedOut(SynapseError):
    """The answer did not come in time; the task goes on."""

    code = "timeout"


class WaitingForPerson(SynapseError):
    """The agent waits for a person to answer a dialog."""

    code = "waiting_for_person"


class StoreFailed(SynapseError):
    """The store could not do it; nothing was changed."""

    code = "store_failed"


class StoreLocked(StoreFailed):
    """Another process holds the store's lock."""

    code = "store_locked"


class StoreCorrupt(StoreFailed):
    """The store's file is damaged."""

    code = "store_corrupt"


class StoreTooNew(StoreFailed):
    """The store was written by a newer version of Synapse."""

    code = "store_too_new"


class StoreFull(StoreFailed):
    """The disk is full."""

    code = "store_full"


class StoreLost(StoreFailed):
    """The store's files were deleted, replaced or moved while they were open."""

    code = "store_lost"


class StoreInUse(StoreFailed):
    """The store has to be upgraded, and agents of an older version still use it."""

    code = "store_in_use"


class LeaseLost(StoreFailed):
    """Another process has acquired the inbox, so nothing was stored."""

    code = "lease_lost"


class StoreUnsafe(StoreFailed):
    """The state folder lies on a file system where the store is not safe."""

    code = "store_unsafe"


class RegistryFailed(StoreFailed):
    """The registry of running agents cannot be read or written."""

    code = "registry_failed"
    hint = "its folder must be yours, readable and writable; `synapse doctor` checks it"


class InternalFailure(SynapseError):
    """Something went wrong here; it was logged."""

    code = "internal"
