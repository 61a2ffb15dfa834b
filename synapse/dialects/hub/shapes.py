"""What the requests of the hub dialect look like on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from synapse.dialects.proto_json import ProtoReader, Spellings

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
    """The content of an image or a file; either `data` or `url` is there."""

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
    """Other fields of a task may be there: a client puts back what it got."""

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
    """What every message on the WebSocket has."""

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
