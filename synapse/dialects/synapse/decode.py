"""Decodes requests of the synapse dialect into core requests. Functions raise InvalidRequest and no other error."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, assert_never
from urllib.parse import urlsplit

import msgspec

from synapse.core.errors import InvalidRequest, PriorityOutOfRange
from synapse.core.message import DataPart, FilePart, Message, MessageId, Part, Role, Sender, TextPart
from synapse.core.overview import StyledScreen
from synapse.core.requests import (
    MOST_FINISHED,
    SECRET_HEADER,
    AddExternal,
    AnswerQuestion,
    AskPerson,
    CancelTask,
    CreateTask,
    FollowStatus,
    GetScreen,
    GetStatus,
    GetTask,
    LeaveTask,
    ListExternals,
    ListTasks,
    RemoveExternal,
    Reply,
    ReportSignal,
    ReportTools,
    ResolveTask,
    SendExternal,
    SendMessage,
    SubscribeTask,
    WatchStatus,
)
from synapse.core.task import DEFAULT_PRIORITY, TaskState
from synapse.dialects.dialect import Call, WireRequest
from synapse.dialects.proto_json import check_depth, parse_instant, too_deep
from synapse.dialects.synapse.encode import answer_screen, encode_screen, encode_screen_error
from synapse.dialects.task_json import STATE_NAMES

DIALECT: Final = "synapse"
DEFAULT_PAGE: Final = 50
LARGEST_PAGE: Final = 500
MOST_LINES: Final = 1000

Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
Words = Annotated[str, msgspec.Meta(max_length=65_536)]
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Address = Annotated[str, msgspec.Meta(max_length=4096)]


class TextShape(msgspec.Struct, tag_field="type", tag="text"):
    text: str
    name: Name = ""
    media_type: Name = msgspec.field(default="", name="mimeType")
    metadata: dict[str, Any] | None = None


class FileBody(msgspec.Struct):
    name: Name | None = None
    media_type: Name | None = msgspec.field(default=None, name="mimeType")
    content: bytes | None = msgspec.field(default=None, name="bytes")
    uri: Address | None = None


class FileShape(msgspec.Struct, tag_field="type", tag="file"):
    file: FileBody
    metadata: dict[str, Any] | None = None


class DataShape(msgspec.Struct, tag_field="type", tag="data"):
    data: Any
    name: Name = ""
    media_type: Name = msgspec.field(default="", name="mimeType")
    metadata: dict[str, Any] | None = None


PartShape = TextShape | FileShape | DataShape


class MessageShape(msgspec.Struct):
    role: Role
    parts: Annotated[list[PartShape], msgspec.Meta(min_length=1, max_length=1000)]
    message_id: Name | None = None
    standard_message_id: Name | None = msgspec.field(default=None, name="messageId")
    context_id: Name | None = None
    task_id: Name | None = None
    metadata: dict[str, Any] | None = None


class SendBody(msgspec.Struct):
    """The body of /tasks/send, /tasks/send-priority and /tasks/create."""

    message: MessageShape
    metadata: dict[str, Any] | None = None
    context_id: Name | None = None
    task_id: Name | None = None


class SenderShape(msgspec.Struct):
    sender_id: GivenName
    sender_type: Name | None = None
    sender_endpoint: Address | None = None


class KnownMetadata(msgspec.Struct):
    """The keys of `metadata` that Synapse reads. All others stay unchanged."""

    sender: SenderShape | None = None
    response_expected: bool | None = None
    sender_task_id: Name | None = None
    in_reply_to: Name | None = None


class ReplyBody(msgspec.Struct):
    message: MessageShape
    task_id: Name | None = None
    failed: bool = False


class AskBody(msgspec.Struct):
    message: MessageShape
    options: Annotated[list[Words], msgspec.Meta(max_length=1000)] | None = None


class ResolveBody(msgspec.Struct):
    verdict: Literal["delivered", "retry", "fail"]
    asked_at: Name | None = None


class AnswerBody(msgspec.Struct):
    verdict: Name | None = None
    option: Name | None = None
    text: Words | None = None
    question_id: Name | None = None


class ToolsBody(msgspec.Struct):
    client: Words = ""
    protocol: Words = ""


class DiscoverBody(msgspec.Struct):
    url: Address
    alias: Name | None = None


class SendExternalBody(msgspec.Struct):
    message: MessageShape


Shape = TypeVar("Shape", bound=msgspec.Struct)

_WORDS: Final = {
    "role": "'user' or 'agent'",
    "type": "'text', 'file' or 'data'",
    "verdict": "'delivered', 'retry' or 'fail'",
}
_PLAINLY: Final = (
    (re.compile(r"Object missing required field `(\w+)`"), r"the field '\1' is missing"),
    (re.compile(r"Expected `\w+` of length >= 1"), "must not be empty"),
    (re.compile(r"`(\w+) \| null`|`(\w+)`"), r"\1\2"),
)


class BodyReader(Generic[Shape]):
    """Reads bodies of one shape. The hint of every error shows `example`."""

    def __init__(self, shape: type[Shape], example: str) -> None:
        self._decoder = msgspec.json.Decoder(shape)
        self.hint = f"send JSON such as {example}"

    def read(self, body: bytes) -> Shape:
        """Returns the shape in `body`.

        Raises:
            InvalidRequest: the body is empty, not JSON, or not of that shape; the message names the field.
        """
        if not body:
            raise InvalidRequest("the body is empty", hint=self.hint)
        try:
            return check_depth(body, self._decoder.decode(body))
        except msgspec.ValidationError as error:
            raise InvalidRequest(_sentence(error), hint=self.hint) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = str(error).removeprefix("JSON is malformed: ")
            raise InvalidRequest(f"the body is not JSON: {_lower_first(why)}", hint=self.hint) from error
        except RecursionError as error:
            raise too_deep() from error


_MESSAGE: Final = '{"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}'
_SEND: Final = BodyReader(SendBody, f'{{"message": {_MESSAGE}}}')
_REPLY: Final = BodyReader(ReplyBody, f'{{"message": {_MESSAGE}, "task_id": "54241e7e"}}')
_ASK: Final = BodyReader(AskBody, f'{{"message": {_MESSAGE}, "options": ["yes", "no"]}}')
_RESOLVE: Final = BodyReader(ResolveBody, '{"verdict": "delivered"}')
_ANSWER: Final = BodyReader(AnswerBody, '{"verdict": "allow"}, {"option": "2"} or {"text": "the second one"}')
_TOOLS: Final = BodyReader(ToolsBody, '{"client": "claude-code 2.1", "protocol": "2025-11-25"}')
_DISCOVER: Final = BodyReader(DiscoverBody, '{"url": "http://other-agent:9000", "alias": "other"}')
_SEND_EXTERNAL: Final = BodyReader(SendExternalBody, f'{{"message": {_MESSAGE}}}')
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_PRIORITIES: Final = frozenset("12345")


def decode_send(wire: WireRequest) -> SendMessage:
    body = _SEND.read(wire.body)
    metadata = body.metadata or {}
    known = _read_metadata(metadata)
    return SendMessage(
        message=_message(body.message),
        dialect=DIALECT,
        priority=_priority(wire),
        sender=_sender(known.sender),
        response_expected=known.response_expected is True,
        sender_task_id=known.sender_task_id or "",
        in_reply_to=known.in_reply_to or "",
        context_id=body.context_id or body.message.context_id or "",
        task_id=body.task_id or body.message.task_id or "",
        metadata=metadata,
    )


def decode_create(wire: WireRequest) -> CreateTask:
    body = _SEND.read(wire.body)
    metadata = body.metadata or {}
    return CreateTask(
        message=_message(body.message),
        dialect=DIALECT,
        sender=_sender(_read_metadata(metadata).sender),
        context_id=body.context_id or body.message.context_id or "",
        metadata=metadata,
    )


def decode_get(wire: WireRequest) -> GetTask:
    return GetTask(wire.params["id"])


def decode_cancel(wire: WireRequest) -> CancelTask:
    return CancelTask(wire.params["id"])


def decode_ask(wire: WireRequest) -> AskPerson:
    body = _ASK.read(wire.body)
    return AskPerson(message=_message(body.message), dialect=DIALECT, options=tuple(body.options or ()))


def decode_leave(wire: WireRequest) -> LeaveTask:
    return LeaveTask(wire.params["id"])


def decode_list(wire: WireRequest) -> ListTasks:
    query = wire.query()
    return ListTasks(
        states=_states(query.get("status", "")),
        context_id=query.get("context_id", ""),
        parent_id=query.get("parent_id", ""),
        updated_after=_instant("updated_after", query.get("updated_after", "")),
        limit=_whole_number("limit", query.get("limit", str(DEFAULT_PAGE)), 1, LARGEST_PAGE),
        cursor=query.get("cursor", ""),
    )


def decode_subscribe(wire: WireRequest) -> SubscribeTask:
    # Browsers resume with the header; the query is easier with curl.
    after = wire.header(b"last-event-id") or wire.query().get("after", "")
    number = _whole_number("Last-Event-ID", after, 0, 2**63 - 1) if after else None
    return SubscribeTask(task_id=wire.params["id"], after=number)


def decode_reply(wire: WireRequest) -> Reply:
    body = _REPLY.read(wire.body)
    return Reply(message=_message(body.message), task_id=body.task_id or "", failed=body.failed)


def decode_resolve(wire: WireRequest) -> ResolveTask:
    body = _RESOLVE.read(wire.body)
    asked_at = parse_instant("asked_at", body.asked_at) if body.asked_at else None
    return ResolveTask(task_id=wire.params["id"], verdict=body.verdict, asked_at=asked_at)


def decode_answer(wire: WireRequest) -> AnswerQuestion:
    """Decodes an answer to the question of a task or, when the path names none, of the agent."""
    body = _ANSWER.read(wire.body)
    answers = [answer for answer in (body.verdict, body.option, body.text) if answer is not None]
    if len(answers) != 1 or not answers[0].strip():
        raise InvalidRequest("the body: must have one of 'verdict', 'option' and 'text'", hint=_ANSWER.hint)
    if body.verdict not in (None, "allow", "deny"):
        raise InvalidRequest("verdict: must be 'allow' or 'deny'", hint=_ANSWER.hint)
    return AnswerQuestion(
        task_id=wire.params.get("id", ""),
        verdict=body.verdict or "",
        option=body.option or "",
        text=body.text or "",
        question_id=body.question_id or "",
    )


def decode_signal(wire: WireRequest) -> ReportSignal:
    try:
        payload = _OBJECT.decode(wire.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("the body is not a JSON object", hint='send JSON such as {"key": "value"}') from error
    return ReportSignal(payload=payload, secret=wire.header(SECRET_HEADER.lower().encode()))


def decode_tools(wire: WireRequest) -> ReportTools:
    body = _TOOLS.read(wire.body)
    return ReportTools(client=body.client, protocol=body.protocol)


def decode_status(wire: WireRequest) -> GetStatus:
    return GetStatus(_finished(wire))


def decode_follow_status(_wire: WireRequest) -> FollowStatus:
    return FollowStatus()


def decode_watch_status(wire: WireRequest) -> WatchStatus:
    return WatchStatus(_finished(wire))


def ask_screen(wire: WireRequest) -> Call[StyledScreen | None]:
    """Decodes a request for the screen; `If-None-Match` names the version that the reader has."""
    lines = _whole_number("lines", wire.query().get("lines", "0"), 0, MOST_LINES)
    known = wire.header(b"if-none-match").strip().removeprefix("W/").strip('"')
    return Call(GetScreen(lines=lines, known=known), encode_screen, encode_screen_error, answer=answer_screen)


def decode_queue(_wire: WireRequest) -> GetStatus:
    return GetStatus()


def decode_discover(wire: WireRequest) -> AddExternal:
    body = _DISCOVER.read(wire.body)
    return AddExternal(url=_http_url(body.url), alias=body.alias or "")


def decode_externals(_wire: WireRequest) -> ListExternals:
    return ListExternals()


def decode_remove_external(wire: WireRequest) -> RemoveExternal:
    return RemoveExternal(wire.params["alias"])


def decode_send_external(wire: WireRequest) -> SendExternal:
    body = _SEND_EXTERNAL.read(wire.body)
    return SendExternal(alias=wire.params["alias"], message=_message(body.message))


def _read_metadata(metadata: dict[str, Any]) -> KnownMetadata:
    """Returns the keys that Synapse reads.

    Raises:
        InvalidRequest: one of them is of the wrong type.
    """
    try:
        return msgspec.convert(metadata, KnownMetadata)
    except msgspec.ValidationError as error:
        raise InvalidRequest(_sentence(error, "metadata"), hint="leave the field out if you do not need it") from error


def _sentence(error: msgspec.ValidationError, root: str = "") -> str:
    """Says in plain words which field is wrong, and why."""
    what, _, place = str(error).partition(" - at `")
    field = f"{root}{place.rstrip('`').removeprefix('$')}".lstrip(".")
    words = _WORDS.get(field.rpartition(".")[2])
    if words and what.startswith("Invalid"):
        return f"{field}: must be {words}"
    for pattern, plain in _PLAINLY:
        what = pattern.sub(plain, what)
    return f"{field or 'the body'}: {_lower_first(what)}"


def _message(shape: MessageShape) -> Message:
    return Message(
        message_id=MessageId(shape.message_id or shape.standard_message_id or ""),
        role=shape.role,
        parts=tuple([_part(part, index) for index, part in enumerate(shape.parts)]),
        metadata=shape.metadata or {},
    )


def _part(shape: PartShape, index: int) -> Part:
    metadata = shape.metadata or {}
    match shape:
        case TextShape():
            return TextPart(text=shape.text, name=shape.name, media_type=shape.media_type, metadata=metadata)
        case DataShape():
            return DataPart(data=shape.data, name=shape.name, media_type=shape.media_type, metadata=metadata)
        case FileShape(file=file):
            if (file.content is None) == (not file.uri):
                raise InvalidRequest(
                    f"message.parts[{index}].file: must have either 'bytes' or 'uri'",
                    hint='send {"name": "doc.pdf", "mimeType": "application/pdf", "bytes": "<base64>"}',
                )
            return FilePart(
                content=file.content,
                url=file.uri or "",
                name=file.name or "",
                media_type=file.media_type or "",
                metadata=metadata,
            )
        case _:
            assert_never(shape)


def _sender(shape: SenderShape | None) -> Sender | None:
    if shape is None:
        return None
    return Sender(
        sender_id=shape.sender_id, sender_type=shape.sender_type or "", sender_endpoint=shape.sender_endpoint or ""
    )


def _priority(wire: WireRequest) -> int:
    if not wire.query_string:
        return DEFAULT_PRIORITY
    given = wire.query().get("priority", str(DEFAULT_PRIORITY))
    if given not in _PRIORITIES:
        raise PriorityOutOfRange(given)
    return int(given)


def _states(words: str) -> frozenset[TaskState]:
    """Returns the core states for a list of states with commas between. One word may mean several states."""
    wanted = {word.strip() for word in words.split(",")} - {""}
    unknown = wanted - set(STATE_NAMES.values())
    if unknown:
        known = ", ".join(sorted(set(STATE_NAMES.values())))
        raise InvalidRequest(f"status: '{min(unknown)}' is not a state", hint=f"use one or more of {known}")
    return frozenset(state for state, word in STATE_NAMES.items() if word in wanted)


def _whole_number(field: str, text: str, least: int, most: int) -> int:
    # int() accepts far more than digits (signs, underscores, other scripts), and refuses very long numbers.
    if text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most:
        return int(text)
    raise InvalidRequest(f"{field}: must be a whole number from {least} to {most}", hint=f"{field}={least}")


def _finished(wire: WireRequest) -> int:
    return _whole_number("finished", wire.query().get("finished", "0"), 0, MOST_FINISHED)


def _instant(field: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            return instant.astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # not a time, or one before the year 1 in UTC
    raise InvalidRequest(f"{field}: must be a time with its zone", hint=f"{field}=2026-01-31T10:30:00Z")


def _http_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise InvalidRequest("url: must be an http or https address", hint='"url": "http://other-agent:9000"')
    return text


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
