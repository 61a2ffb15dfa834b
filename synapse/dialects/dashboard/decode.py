"""Decodes requests of the dashboard into core requests. Every function raises InvalidRequest and no other error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec

from synapse.core.errors import InvalidField, InvalidRequest
from synapse.core.message import FilePart, Message, MessageId, Part, Role, TextPart
from synapse.core.requests import (
    AnswerQuestion,
    GetAgentScreen,
    GetFigures,
    GetTimeline,
    ListTasks,
    MarkSeen,
    ResolveTask,
    SendMessage,
    SubscribeTask,
    WatchOverview,
)
from synapse.core.task import DEFAULT_PRIORITY, TaskState
from synapse.dialects.dialect import AGENT, WireRequest
from synapse.dialects.paths import DASHBOARD
from synapse.dialects.proto_json import check_depth, malformed, parse_instant, too_deep, violation
from synapse.dialects.task_json import STATE_NAMES

TASK: Final = "taskId"
NUMBER: Final = "number"
MOST_FILES: Final = 100
LAST_SEQ: Final = 2**63 - 1

_VERSION: Final = re.compile(r'(?:W/)?"([\w.:-]{1,100})"', re.ASCII)

Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Words = Annotated[str, msgspec.Meta(max_length=65_536)]
Token = Annotated[str, msgspec.Meta(max_length=4096)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=LAST_SEQ)]
Shape = TypeVar("Shape", bound=msgspec.Struct)


class FileShape(msgspec.Struct):
    """A file of a message; `data` is base64."""

    name: GivenName
    data: bytes
    media_type: Name = ""


class MessageShape(msgspec.Struct):
    text: str = ""
    priority: Annotated[int, msgspec.Meta(ge=1, le=5)] = DEFAULT_PRIORITY
    files: Annotated[list[FileShape], msgspec.Meta(max_length=MOST_FILES)] = []
    message_id: Name = ""
    context_id: Name = ""
    task_id: Name = ""


class AnswerShape(msgspec.Struct):
    """An answer has one of `verdict`, `option` and `text`."""

    question_id: GivenName
    verdict: Literal["allow", "deny"] | None = None
    option: Name | None = None
    text: Words | None = None


class ResolveShape(msgspec.Struct):
    verdict: Literal["delivered", "retry", "fail"]
    asked_at: Name = ""


class SeenShape(msgspec.Struct):
    until: Name


class TasksShape(msgspec.Struct, rename={"from_": "from"}):
    """The query of a list of tasks; `state` may name several states with commas between."""

    agent: Name = ""
    state: Name = ""
    from_: Name = ""
    search: Token = ""
    context: Name = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50
    cursor: Token = ""


class TimelineShape(msgspec.Struct):
    after: Seq = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 1000


class EventsShape(msgspec.Struct):
    """The query of a stream; the header `Last-Event-ID` comes before it."""

    after: Seq | None = None


class ScreenShape(msgspec.Struct):
    """The query of a screen; `lines` is how much of its scrollback to show, too."""

    lines: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0


class FiguresShape(msgspec.Struct):
    hours: int = 1


class _Reader(Generic[Shape]):
    """Reads bodies and queries of one shape."""

    def __init__(self, shape: type[Shape], example: str = "") -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder(shape)
        self.hint = f"send JSON such as {example}"

    def read(self, body: bytes) -> Shape:
        """Raises InvalidRequest."""
        if not body:
            raise InvalidRequest("the body is empty", hint=self.hint)
        try:
            return check_depth(body, self._decoder.decode(body))
        except msgspec.ValidationError as error:
            raise violation(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(error) from error
        except RecursionError as error:
            raise too_deep() from error

    def read_query(self, query: Mapping[str, str]) -> Shape:
        """Raises InvalidRequest. An empty field counts as absent."""
        given = {name: value for name, value in query.items() if value}
        try:
            return msgspec.convert(given, self._shape, strict=False)
        except msgspec.ValidationError as error:
            raise violation(error) from error


_MESSAGE: Final = _Reader(MessageShape, '{"text": "Hello!"}')
_ANSWER: Final = _Reader(AnswerShape, '{"question_id": "…", "verdict": "allow"}')
_RESOLVE: Final = _Reader(ResolveShape, '{"verdict": "delivered"}')
_SEEN: Final = _Reader(SeenShape, '{"until": "2026-01-31T10:30:00Z"}')
_TASKS: Final = _Reader(TasksShape)
_TIMELINE: Final = _Reader(TimelineShape)
_EVENTS: Final = _Reader(EventsShape)
_SCREEN: Final = _Reader(ScreenShape)
_FIGURES: Final = _Reader(FiguresShape)


def decode_send(wire: WireRequest) -> SendMessage:
    shape = _MESSAGE.read(wire.body)
    if not shape.text.strip() and not shape.files:
        raise InvalidField("text", "must not be empty", hint=_MESSAGE.hint)
    parts: list[Part] = [TextPart(text=shape.text)] if shape.text.strip() else []
    parts += [FilePart(content=file.data, name=file.name, media_type=file.media_type) for file in shape.files]
    return SendMessage(
        message=Message(message_id=MessageId(shape.message_id), role=Role.USER, parts=tuple(parts)),
        dialect=DASHBOARD,
        priority=shape.priority,
        context_id=shape.context_id,
        task_id=shape.task_id,
        exact=True,
    )


def decode_answer(wire: WireRequest) -> AnswerQuestion:
    """Decodes an answer to the question of a task or, when the path names none, of the agent."""
    shape = _ANSWER.read(wire.body)
    answers = [answer for answer in (shape.verdict, shape.option, shape.text) if answer is not None]
    if len(answers) != 1 or not answers[0].strip():
        raise InvalidField("", "the answer has one of 'verdict', 'option' and 'text'", hint=_ANSWER.hint)
    return AnswerQuestion(
        task_id=wire.params.get(TASK, ""),
        verdict=shape.verdict or "",
        option=shape.option or "",
        text=shape.text or "",
        question_id=shape.question_id,
    )


def decode_resolve(wire: WireRequest) -> ResolveTask:
    shape = _RESOLVE.read(wire.body)
    asked_at = parse_instant("asked_at", shape.asked_at) if shape.asked_at else None
    return ResolveTask(task_id=wire.params[TASK], verdict=shape.verdict, asked_at=asked_at)


def decode_seen(wire: WireRequest) -> MarkSeen:
    return MarkSeen(agent=wire.params[AGENT], until=parse_instant("until", _SEEN.read(wire.body).until))


def decode_tasks(wire: WireRequest) -> ListTasks:
    shape = _TASKS.read_query(wire.query())
    return ListTasks(
        agent=shape.agent,
        states=_states(shape.state),
        sender=shape.from_,
        text=shape.search,
        context_id=shape.context,
        limit=shape.limit,
        cursor=shape.cursor,
    )


def decode_timeline(wire: WireRequest) -> GetTimeline:
    shape = _TIMELINE.read_query(wire.query())
    return GetTimeline(task_id=wire.params[TASK], after=shape.after, limit=shape.limit)


def decode_events(wire: WireRequest) -> WatchOverview:
    return WatchOverview(after=_position(wire))


def decode_task_events(wire: WireRequest) -> SubscribeTask:
    return SubscribeTask(task_id=wire.params[TASK], after=_position(wire))


def decode_screen(wire: WireRequest) -> GetAgentScreen:
    """Decodes a request for a screen; `If-None-Match` names the version that the page has."""
    known = _VERSION.fullmatch(wire.header(b"if-none-match"))
    lines = _SCREEN.read_query(wire.query()).lines
    return GetAgentScreen(agent=wire.params[AGENT], lines=lines, known=known[1] if known else "")


def decode_figures(wire: WireRequest) -> GetFigures:
    return GetFigures(hours=_FIGURES.read_query(wire.query()).hours)


def file_number(wire: WireRequest) -> int:
    """Returns which file of the task the path asks for; 0, which no file has, for what is no number."""
    number = wire.params[NUMBER]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0


def _position(wire: WireRequest) -> int | None:
    """Returns the seq after which a reader resumes, from the header of browsers, else from the query."""
    last = wire.header(b"last-event-id")
    return _EVENTS.read_query({"after": last} if last else wire.query()).after


def _states(words: str) -> frozenset[TaskState]:
    """Returns the core states for a list of states with commas between. One word may mean several states."""
    wanted = {word.strip() for word in words.split(",")} - {""}
    if unknown := wanted - set(STATE_NAMES.values()):
        known = ", ".join(sorted(set(STATE_NAMES.values())))
        raise InvalidField("state", f"'{min(unknown)}' is not a state", hint=f"use one or more of {known}")
    return frozenset(state for state, word in STATE_NAMES.items() if word in wanted)
