"""What a link asks another one about its agents and tasks, the answers, and the bodies of relayed messages.

    on `ask` subjects       Ask ─► AskAnswer, LogRequest (`fleet.log`) ─► its own answers
    on `command` subjects   Command ─► CommandDone, EventsRead or AskFailed
    in relayed messages     SendBody as the body of a `send` or `void`, AnswerBody as the answer of an End

Everything is MessagePack, written and read by msgspec, except the two bodies, which are JSON. A reader ignores fields
that it does not know. It refuses a type that it does not know: UnreadableBody, which a link answers with AskFailed.

Tasks and events are texts that the store's codec writes. Nothing is kept on the other side between two asks: a stream
is a series of FollowRemoteTask or FollowRemoteTasks, each with the seq that the reader has, so it goes on after a
restart of either link.

On the wire a type is its tag, as `cancel`; the names of the classes are only ours.

`sender` names who asks on the asking machine, by its agent id there or as `user` for a person. That machine vouches for
it; which machine asks is proven by the subject.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from synapse.core.address import PERSON
from synapse.core.caller import GATEWAY_SCOPE
from synapse.core.errors import InvalidRequest, SynapseError, from_wire, to_wire
from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, TextPart
from synapse.fleet.log import LogRequest
from synapse.fleet.wire import UnreadableBody

NOBODY: Final = ""
"""The sender of an ask that needs no person."""
LONG_POLL_SECONDS: Final = 3.0
"""How long an ask with `seconds` waits at most for something new. Short, because nothing tells whether the other link
was killed meanwhile."""


class _Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all types on the wire here."""


# Asks


class ResolveAgent(_Struct, frozen=True, tag="resolve"):
    """Asks which agent a name means: AgentResolved, or AgentNotFound, AmbiguousTarget."""

    target: str
    queue: bool = False
    """Also an agent that does not run now, but has tasks: messages can be kept for it."""
    exact: bool = False
    """Only the agent of exactly this inbox, name or id: the keys of gateways name agents so."""


class ListRemoteAgents(_Struct, frozen=True, tag="agents"):
    """Asks for the running agents and their states: AgentsListed."""


class ReadStatus(_Struct, frozen=True, tag="status"):
    """Asks what an agent does: StatusRead. With `known` and `seconds`, as soon as it is another status than that.

    Without the right `read`, the answer has the state, its reason, since when, and how many messages wait; for a person
    on a machine that may approve, also what the agent asks.
    """

    target: str
    sender: str = PERSON
    finished: int = 0
    known: str = ""
    seconds: float = 0.0


class ReadTask(_Struct, frozen=True, tag="task"):
    """Asks for a task by its id, or by a prefix of it unless `exact`: TaskRead.

    A person on a machine that may approve sees every task while it asks something.
    """

    task_id: str
    exact: bool = False
    sender: str = NOBODY


class ReadMessage(_Struct, frozen=True, tag="message"):
    """Asks for the task that has a message: TaskRead."""

    message_id: str


class ReadTasks(_Struct, frozen=True, tag="tasks"):
    """Asks for a page of tasks, newest change first: TasksListed. An empty target means all agents."""

    target: str = ""
    states: tuple[str, ...] = ()
    context_id: str = ""
    parent_id: str = ""
    updated_after: str = ""
    """ISO 8601."""
    text: str = ""
    limit: int = 50
    cursor: str = ""


class FollowRemoteTask(_Struct, frozen=True, tag="follow"):
    """Asks for the events of a task after a seq: EventsRead, as soon as there is one or after `seconds`."""

    task_id: str
    after: int = 0
    seconds: float = LONG_POLL_SECONDS


class FollowRemoteTasks(_Struct, frozen=True, tag="follow_all"):
    """Asks for the events of all tasks after a seq, or of one agent's: UpdatesRead, as soon as there is one or after
    `seconds`. The machine gets those of tasks that it may read."""

    target: str = ""
    after: int = -1
    """-1 asks where the log ends now."""
    seconds: float = LONG_POLL_SECONDS


class CancelRemoteTask(_Struct, frozen=True, tag="cancel"):
    """Cancels a task: TaskRead. A task that is canceled already is a success."""

    task_id: str
    exact: bool = False
    sender: str = PERSON


class AnswerRemoteQuestion(_Struct, frozen=True, tag="answer"):
    """Answers the question of a task or, without one, of an agent: TaskRead, empty without a task."""

    target: str = ""
    task_id: str = ""
    verdict: str = ""
    option: str = ""
    text: str = ""
    question_id: str = ""
    sender: str = PERSON


class ResolveRemoteTask(_Struct, frozen=True, tag="decide"):
    """Decides about a task in doubt: TaskRead."""

    task_id: str
    verdict: str
    asked_at: str = ""
    """ISO 8601."""
    sender: str = PERSON


class ReadScreen(_Struct, frozen=True, tag="screen"):
    """Asks what an agent's terminal shows: ScreenRead."""

    target: str
    lines: int = 0
    known: str = ""
    sender: str = PERSON


class OpenTerminal(_Struct, frozen=True, tag="attach"):
    """Opens a stream to an agent's terminal, with an id that the asker has chosen: Opened. See `link.streams`."""

    target: str
    kind: str
    """`attach` or `terminal`: which of the host's WebSockets."""
    stream_id: str
    sender: str = PERSON


class Greet(_Struct, frozen=True, tag="greet"):
    """Asks which process of a machine listens: Greeted. A link that starts asks its own name, to find a twin."""

    instance: str


class ReadQuestions(_Struct, frozen=True, tag="questions"):
    """Asks for the open questions of all agents: QuestionsListed."""

    sender: str = PERSON


Ask = (
    ResolveAgent
    | ListRemoteAgents
    | ReadStatus
    | ReadTask
    | ReadMessage
    | ReadTasks
    | FollowRemoteTask
    | FollowRemoteTasks
    | CancelRemoteTask
    | AnswerRemoteQuestion
    | ResolveRemoteTask
    | ReadScreen
    | OpenTerminal
    | ReadQuestions
    | Greet
)


class RunCommand(_Struct, frozen=True, tag="command"):
    """A command of a gateway on behalf of one of its callers, to an agent or about a task: CommandDone."""

    body: bytes
    """As in `POST /commands` of a host; see `dialects.synapse.commands`."""
    target: str = ""
    inbox: str = ""
    """The inbox of the agent, as it is known on its own machine; empty finds the agent by its name."""


class FollowForCaller(_Struct, frozen=True, tag="follow_for"):
    """Asks for the events of a task after a seq, as FollowRemoteTask, for a caller of a gateway: EventsRead.

    So a gateway reads the tasks of a machine that ships no log.
    """

    task_id: str
    caller: dict[str, Any]
    """As in `POST /commands` of a host; see `dialects.synapse.commands`."""
    after: int = 0
    seconds: float = LONG_POLL_SECONDS


Command = RunCommand | FollowForCaller
"""What only gateways ask."""


# Answers


class AskFailed(_Struct, frozen=True, tag="failed"):
    """The error that answers an ask; see `core.errors.to_wire`."""

    error: dict[str, Any]

    @property
    def as_error(self) -> SynapseError:
        return from_wire(self.error, "the other machine answered something that cannot be understood")


class AgentResolved(_Struct, frozen=True, tag="agent"):
    """An agent: the fields of its registry entry that others may see."""

    agent: dict[str, Any]
    running: bool = True


class AgentsListed(_Struct, frozen=True, tag="agent_list"):
    """All running agents: the fields of each entry, and `state`, `why`, `since`."""

    agents: tuple[dict[str, Any], ...] = ()


class StatusRead(_Struct, frozen=True, tag="status_read"):
    """The JSON of `GET /status`, reduced for those without the right `read`; None if it is still the one `known`."""

    status: dict[str, Any] | None
    version: str = ""
    may_attach: bool = True
    """Whether the machine that asks has the right `attach`."""


class TaskRead(_Struct, frozen=True, tag="task_read"):
    """A task as a snapshot of the store's codec. `seq` is that of its last event, for FollowRemoteTask."""

    task: str = ""
    seq: int = 0


class TasksListed(_Struct, frozen=True, tag="task_list"):
    """One page of tasks. It may have fewer than the limit, if they are large, and yet a next one."""

    tasks: tuple[str, ...] = ()
    next_cursor: str = ""
    total: int = 0
    is_counted: bool = True


class EventText(msgspec.Struct, frozen=True, array_like=True):
    """One event of a task: its seq, and the text of an append with this event alone."""

    seq: int
    event: str


class EventsRead(_Struct, frozen=True, tag="events"):
    """The events of a task after a seq, in order; empty if none came in time.

    One that is too large has the beginnings of its texts, without its files, data and largest metadata.
    """

    events: tuple[EventText, ...] = ()
    more: bool = False
    """There are further ones: ask at once."""


class UpdateText(msgspec.Struct, frozen=True, array_like=True):
    """One event of any task: its seq, its task, the text of an append with this event alone, and the task after it.

    The task is a snapshot in its first event of an answer, and empty in later ones: these follow from it.
    """

    seq: int
    task_id: str
    event: str
    task: str = ""


class UpdatesRead(_Struct, frozen=True, tag="updates"):
    """The events of several tasks, in order; empty if none came in time."""

    seq: int
    """After which the next ask goes on. It is less than the asked one if the machine has another store now."""
    updates: tuple[UpdateText, ...] = ()
    more: bool = False
    """There may be further ones: ask at once."""
    left_out: int = 0
    """How many events are too large for an answer."""


class ScreenRead(_Struct, frozen=True, tag="screen_read"):
    """The JSON of `GET /screen`; None if it is still the version `known`."""

    screen: dict[str, Any] | None


class QuestionsListed(_Struct, frozen=True, tag="question_list"):
    """Open questions, as in `GET /status`, each with `agent`."""

    questions: tuple[dict[str, Any], ...] = ()


class Opened(_Struct, frozen=True, tag="opened"):
    """The stream is open."""


class Greeted(_Struct, frozen=True, tag="greeted"):
    """The process of a machine's link."""

    instance: str
    version: str = ""
    since: str = ""


class CommandDone(_Struct, frozen=True, tag="command_done"):
    """The answer of a host to a command, as in `POST /commands`."""

    body: bytes


AskAnswer = (
    AskFailed
    | AgentResolved
    | AgentsListed
    | StatusRead
    | TaskRead
    | TasksListed
    | EventsRead
    | UpdatesRead
    | ScreenRead
    | QuestionsListed
    | Opened
    | Greeted
    | CommandDone
)


# Bodies of relayed messages


class _PartBody(_Struct, frozen=True):
    """A part of a message. Its fields decide its kind: `text`, `data`, or a file with `content` or `url`."""

    text: str | None = None
    data: Any = msgspec.UNSET
    content: bytes | None = None
    url: str = ""
    name: str = ""
    media_type: str = ""
    metadata: dict[str, Any] = {}


class SendBody(_Struct, frozen=True):
    """A message for an agent on another machine, with all that SendMessage says about it."""

    parts: tuple[_PartBody, ...]
    role: str = Role.USER.value
    message_metadata: dict[str, Any] = {}
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()
    dialect: str = ""
    priority: int = 0
    """0 means the default."""
    sender: str = PERSON
    """The agent that sends, by its id on its machine; `user` for a person."""
    sender_type: str = ""
    sender_inbox: str = ""
    """The sender's inbox on its own machine; empty if it has none."""
    response_expected: bool = False
    sender_task_id: str = ""
    in_reply_to: str = ""
    context_id: str = ""
    task_id: str = ""
    """The task that the message continues."""
    parent_id: str = ""
    ttl: float | None = None
    """Seconds until it expires in the agent's queue. From its acceptance there at the latest: no clock of two machines
    is compared, but the relay says how much of it is left (`RelayedMessage.expires_in`).

    The time that a copy lies in the engine's mailbox is not taken off: only the engine's clock could tell it, and in a
    cluster that is several clocks. An engine that knows `KeepMail.ttl` delivers no mail after its time, so a message
    may be typed until twice its `ttl`.
    """
    metadata: dict[str, Any] = {}
    waiting: tuple[str, ...] = ()
    """The inboxes of all who wait behind this message, with their machines."""


class AnswerBody(_Struct, frozen=True):
    """The answer of a task that has ended."""

    parts: tuple[_PartBody, ...] = ()
    failed: bool = False
    inferred: bool = False
    """The text of a turn that ended without an explicit reply."""


# Codec


def encode_ask(ask: Ask | Command) -> bytes:
    """Returns the bytes of a request to another link."""
    return _encoder.encode(ask)


def decode_ask(body: bytes) -> Ask | Command | LogRequest:
    """Returns the request of another link. Raises UnreadableBody for damaged bytes and types of a newer version."""
    try:
        return _ask_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBody(str(error)) from error


def encode_answer(answer: AskAnswer) -> bytes:
    """Returns the bytes of an answer."""
    return _encoder.encode(answer)


def decode_answer(body: bytes) -> AskAnswer:
    """Returns the answer of another link. Raises UnreadableBody."""
    try:
        return _answer_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBody(str(error)) from error


def failed(error: SynapseError) -> AskFailed:
    """Returns the answer for an error."""
    return AskFailed(error=to_wire(error))


def unreadable(error: UnreadableBody) -> AskFailed:
    """Returns the answer to a request that this version cannot read."""
    return failed(
        InvalidRequest(
            f"this machine does not understand the request: {error}",
            hint="update Synapse on both machines to the same version",
        )
    )


def encode_send_body(body: SendBody) -> bytes:
    """Returns the body of a relayed `send`."""
    return _json.encode(body)


def decode_send_body(body: bytes) -> SendBody:
    """Returns the body of a relayed `send`. Raises UnreadableBody."""
    try:
        return _send_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBody(str(error)) from error


def without_text(body: bytes) -> bytes:
    """Returns the body of a message without its parts: who sent it, and for whom, says whose its task is.

    Returns nothing for a body of another version.
    """
    try:
        told = decode_send_body(body)
    except UnreadableBody:
        return b""
    metadata = {key: value for key, value in told.metadata.items() if key == GATEWAY_SCOPE}
    return encode_send_body(msgspec.structs.replace(told, parts=(), message_metadata={}, metadata=metadata))


def encode_answer_body(body: AnswerBody) -> bytes:
    """Returns the answer of an End."""
    return _json.encode(body)


def decode_answer_body(body: bytes) -> AnswerBody:
    """Returns the answer of an End; an empty one for empty bytes. Raises UnreadableBody."""
    if not body:
        return AnswerBody()
    try:
        return _answer_body_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBody(str(error)) from error


def part_bodies(parts: tuple[Part, ...]) -> tuple[_PartBody, ...]:
    """Returns the parts of a message as they go over the wire."""
    return tuple(map(_part_body, parts))


def parts_of(bodies: tuple[_PartBody, ...]) -> tuple[Part, ...]:
    """Returns the parts that came over the wire."""
    return tuple(map(_part, bodies))


def message_of(body: SendBody, message_id: str) -> Message:
    """Returns the message of a relayed `send`."""
    return Message(
        message_id=MessageId(message_id),
        role=Role.AGENT if body.role == Role.AGENT.value else Role.USER,
        parts=parts_of(body.parts),
        metadata=body.message_metadata,
        extensions=body.extensions,
        reference_task_ids=body.reference_task_ids,
    )


def _part_body(part: Part) -> _PartBody:
    about: dict[str, Any] = {"name": part.name, "media_type": part.media_type, "metadata": dict(part.metadata)}
    if isinstance(part, TextPart):
        return _PartBody(text=part.text, **about)
    if isinstance(part, DataPart):
        return _PartBody(data=part.data, **about)
    return _PartBody(content=part.content, url=part.url, **about)


def _part(body: _PartBody) -> Part:
    about: dict[str, Any] = {"name": body.name, "media_type": body.media_type, "metadata": body.metadata}
    if body.text is not None:
        return TextPart(text=body.text, **about)
    if body.data is not msgspec.UNSET:
        return DataPart(data=body.data, **about)
    return FilePart(content=body.content, url=body.url, **about)


_encoder: Final = msgspec.msgpack.Encoder()
_json: Final = msgspec.json.Encoder()
_ask_decoder: Final[msgspec.msgpack.Decoder[Ask | Command | LogRequest]] = msgspec.msgpack.Decoder(
    Ask | Command | LogRequest
)
_answer_decoder: Final[msgspec.msgpack.Decoder[AskAnswer]] = msgspec.msgpack.Decoder(AskAnswer)
_send_decoder: Final[msgspec.json.Decoder[SendBody]] = msgspec.json.Decoder(SendBody)
_answer_body_decoder: Final[msgspec.json.Decoder[AnswerBody]] = msgspec.json.Decoder(AnswerBody)
