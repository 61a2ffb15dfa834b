"""The shapes of hub requests, and the parts of a message: text, image, file and custom types, each with `content`."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Final, Literal, assert_never

import msgspec

from synapse.core.errors import InvalidField
from synapse.core.message import DataPart, FilePart, Part, TextPart
from synapse.dialects.proto_json import ProtoReader, Spellings, violation

Wire = dict[str, Any]

TEXT: Final = "text"
IMAGE: Final = "image"
FILE: Final = "file"
TYPE: Final = "type"
"""The key of a part's metadata that keeps a type which its content does not show."""

Name = Annotated[str, msgspec.Meta(max_length=256)]
"""An id or a name: short enough to be a key."""
GivenName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Token = Annotated[str, msgspec.Meta(max_length=4096)]
Metadata = dict[str, Any]


class PartShape(msgspec.Struct):
    type: GivenName
    content: Any
    metadata: Metadata = {}


class FileShape(msgspec.Struct, rename="camel"):
    """The content of an image or a file, which has either `data` or `url`."""

    data: bytes | None = None
    url: Token = ""
    name: Name = ""
    mime_type: Name = ""


Parts = Annotated[list[PartShape], msgspec.Meta(min_length=1, max_length=1000)]


class MessageShape(msgspec.Struct, rename="camel"):
    message: Parts
    stream: bool = False
    message_id: Name = ""
    task_id: Name = ""
    context_id: Name = ""
    parent_id: Name = ""
    metadata: Metadata = {}


class ChangeShape(msgspec.Struct):
    """The fields that a PUT may change. Other fields are ignored: clients send back the task that they got."""

    state: Literal["pending", "in_progress", "completed", "failed"] | None = None
    metadata: Metadata | None = None


class ListShape(msgspec.Struct, rename="camel"):
    agent_id: Name = ""
    state: Name = ""
    parent_id: Name = ""
    user_id: Name = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    cursor: Token = ""


class FrameShape(msgspec.Struct):
    """The field that every frame of the WebSocket has."""

    type: Literal["message", "subscribe", "ping"]


class MessageFrameShape(MessageShape, rename="camel", kw_only=True):
    agent_id: GivenName


class SubscribeFrameShape(msgspec.Struct, rename="camel"):
    task_id: GivenName
    after: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None


_SPELLINGS: Final = Spellings(free=frozenset({"metadata", "content"}))

MESSAGE: Final = ProtoReader(MessageShape, _SPELLINGS)
CHANGE: Final = ProtoReader(ChangeShape, _SPELLINGS)
LIST: Final = ProtoReader(ListShape, _SPELLINGS)
FRAME: Final = ProtoReader(FrameShape, _SPELLINGS)
MESSAGE_FRAME: Final = ProtoReader(MessageFrameShape, _SPELLINGS)
SUBSCRIBE_FRAME: Final = ProtoReader(SubscribeFrameShape, _SPELLINGS)


def decode_part(shape: PartShape, index: int) -> Part:
    """Returns the part at `index` of a message.

    Raises InvalidField.
    """
    place = f"message[{index}].content"
    if shape.type == TEXT:
        if not isinstance(shape.content, str):
            raise InvalidField(place, "must be a string", hint='{"type": "text", "content": "Hello!"}')
        return TextPart(text=shape.content, metadata=shape.metadata)
    if shape.type in (IMAGE, FILE):
        return _file_part(shape, place)
    return DataPart(data=shape.content, metadata={**shape.metadata, TYPE: shape.type})


def part_object(part: Part) -> Wire:
    match part:
        case TextPart():
            wire: Wire = {"type": TEXT, "content": part.text}
        case FilePart():
            is_image = part.media_type.startswith("image/") or part.metadata.get(TYPE) == IMAGE
            wire = {"type": IMAGE if is_image else FILE, "content": file_content(part)}
        case DataPart():
            kind = part.metadata.get(TYPE)
            # Other dialects let the sender choose metadata, so the type may be one that means something else here.
            is_custom = isinstance(kind, str) and kind not in (TEXT, IMAGE, FILE)
            wire = {"type": kind if is_custom else "custom", "content": part.data}
        case _:
            assert_never(part)
    if metadata := {key: value for key, value in part.metadata.items() if key != TYPE}:
        wire["metadata"] = metadata
    return wire


def file_content(part: FilePart) -> Wire:
    """Returns the `content` of an image or a file."""
    wire: Wire = {}
    if part.name:
        wire["name"] = part.name
    if part.media_type:
        wire["mimeType"] = part.media_type
    if part.content is None:
        wire["url"] = part.url
    else:
        wire["data"] = base64.b64encode(part.content).decode("ascii")
    return wire


def _file_part(shape: PartShape, place: str) -> FilePart:
    file = _text_file(shape.content, place) if isinstance(shape.content, str) else _file_shape(shape.content, place)
    if (file.data is None) == (not file.url):
        raise InvalidField(
            place,
            "must have either 'data' or 'url'",
            hint='{"name": "a.png", "mimeType": "image/png", "data": …}',
        )
    media_type = file.mime_type or _text_value(shape.metadata, "mimeType")
    metadata = {key: value for key, value in shape.metadata.items() if key not in ("mimeType", "name")}
    if shape.type == IMAGE and not media_type.startswith("image/"):
        metadata[TYPE] = IMAGE
    return FilePart(
        content=file.data,
        url=file.url,
        name=file.name or _text_value(shape.metadata, "name"),
        media_type=media_type,
        metadata=metadata,
    )


def _file_shape(content: Any, place: str) -> FileShape:
    try:
        return msgspec.convert(content, FileShape)
    except msgspec.ValidationError as error:
        wrong = violation(error)
        raise InvalidField(f"{place}.{wrong.field}".rstrip("."), wrong.why) from error


def _text_file(text: str, place: str) -> FileShape:
    """Reads a file that is one string: a data URL, an address, or base64."""
    if text.startswith("data:"):
        head, _, data = text.removeprefix("data:").partition(",")
        media_type, semicolon, coding = head.rpartition(";")
        if not semicolon or coding != "base64":
            raise InvalidField(place, "a data URL must be in base64", hint="data:image/png;base64,…")
        return FileShape(data=_from_base64(data, place), mime_type=media_type)
    if "://" in text:
        return FileShape(url=text)
    return FileShape(data=_from_base64(text, place))


def _from_base64(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidField(place, "is neither an address nor base64") from error


def _text_value(metadata: Wire, key: str) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""
