"""What bodies look like on the wire, and one way to read them strictly."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec

from synapse.core.errors import InvalidRequest
from synapse.core.message import Role

Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
Words = Annotated[str, msgspec.Meta(max_length=65_536)]
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Address = Annotated[str, msgspec.Meta(max_length=4096)]

NESTING_LIMIT: Final = 64
"""How deep free JSON (metadata, data parts) may go: whoever stores or prints it later recurses too."""


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
    """The keys of `metadata` that mean something here; all others are kept as they are."""

    sender: SenderShape | None = None
    response_expected: bool | None = None
    sender_task_id: Name | None = None
    in_reply_to: Name | None = None


class ReplyBody(msgspec.Struct):
    message: MessageShape
    task_id: Name | None = None
    failed: bool = False


class ResolveBody(msgspec.Struct):
    verdict: Literal["delivered", "retry", "fail"]


class AnswerBody(msgspec.Struct):
    verdict: Name | None = None
    option: Name | None = None
    text: Words | None = None
    question_id: Name | None = None


class DiscoverBody(msgspec.Struct):
    url: Address
    alias: Name | None = None


class SendExternalBody(msgspec.Struct):
    message: MessageShape


Shape = TypeVar("Shape", bound=msgspec.Struct)


class BodyReader(Generic[Shape]):
    """Reads bodies of one shape; every refusal shows `example`."""

    def __init__(self, shape: type[Shape], example: str) -> None:
        self._decoder = msgspec.json.Decoder(shape)
        self.hint = f"send JSON such as {example}"

    def read(self, body: bytes) -> Shape:
        """Return what `body` says.

        Raises:
            InvalidRequest: it is empty, not JSON, or not of that shape; the sentence names the field.
        """
        if not body:
            raise InvalidRequest("the body is empty", hint=self.hint)
        try:
            shape = self._decoder.decode(body)
            # Counting brackets is far cheaper than walking, and nearly every body has fewer than the limit.
            if body.count(b"{") + body.count(b"[") > NESTING_LIMIT:
                _check_nesting(msgspec.to_builtins(shape, builtin_types=(bytes,)))
        except msgspec.ValidationError as error:
            raise InvalidRequest(sentence(error), hint=self.hint) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = str(error).removeprefix("JSON is malformed: ")
            raise InvalidRequest(f"the body is not JSON: {_lower_first(why)}", hint=self.hint) from error
        except RecursionError as error:
            raise _too_deep() from error
        return shape


_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def read_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object of any shape.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        return _OBJECT.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("the body is not a JSON object", hint='send JSON such as {"key": "value"}') from error


def read_metadata(metadata: dict[str, Any]) -> KnownMetadata:
    """Return the keys that mean something here.

    Raises:
        InvalidRequest: one of them is of the wrong type.
    """
    try:
        return msgspec.convert(metadata, KnownMetadata)
    except msgspec.ValidationError as error:
        raise InvalidRequest(sentence(error, "metadata"), hint="leave the field out if you do not mean it") from error


def sentence(error: msgspec.ValidationError, root: str = "") -> str:
    """Say in words for a person which field is wrong, and how."""
    what, _, place = str(error).partition(" - at `")
    field = f"{root}{place.rstrip('`').removeprefix('$')}".lstrip(".")
    words = _WORDS.get(field.rpartition(".")[2])
    if words and what.startswith("Invalid"):
        return f"{field}: must be {words}"
    for pattern, plain in _PLAINLY:
        what = pattern.sub(plain, what)
    return f"{field or 'the body'}: {_lower_first(what)}"


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


def _check_nesting(value: Any) -> None:
    level = [value]
    for _ in range(NESTING_LIMIT):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise _too_deep()


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] # any JSON
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType] - any JSON


def _too_deep() -> InvalidRequest:
    return InvalidRequest(
        f"the body is nested deeper than {NESTING_LIMIT} levels", hint="send deep structures as a file part"
    )


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
