"""Messages, their parts and senders, and the artifacts that agents return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, NewType

from synapse.core.address import PERSON, split_inbox
from synapse.core.types import frozen

MessageId = NewType("MessageId", str)

Json = Mapping[str, Any]
"""A JSON object, as read from a wire or written to it."""


def empty_object() -> Json:
    """Returns the default of a field that holds a JSON object. (`dict[str, Any]()` takes five times as long.)"""
    return {}


class Role(StrEnum):
    """Who wrote a message."""

    USER = "user"
    AGENT = "agent"

    __hash__ = str.__hash__  # see TaskState


@frozen
class TextPart:
    """Plain text."""

    text: str
    name: str = ""
    media_type: str = ""
    metadata: Json = field(default_factory=empty_object)


@frozen
class FilePart:
    """A file: its bytes, or the URL where they are."""

    content: bytes | None = None
    url: str = ""
    name: str = ""
    media_type: str = ""
    metadata: Json = field(default_factory=empty_object)


@frozen
class DataPart:
    """Structured data: any JSON value."""

    data: Any
    name: str = ""
    media_type: str = ""
    metadata: Json = field(default_factory=empty_object)


Part = TextPart | FilePart | DataPart


@frozen
class Message:
    """One message of a caller or an agent."""

    message_id: MessageId
    role: Role
    parts: tuple[Part, ...]
    metadata: Json = field(default_factory=empty_object)
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return text_of(self.parts)


@frozen
class Sender:
    """The sender of a message. One that a message claims is checked against the caller by the service."""

    sender_id: str
    sender_type: str = ""
    sender_endpoint: str = ""
    inbox: str = ""
    """The inbox for replies, valid also after the port changes. It comes from the registry, never from a message."""

    @property
    def machine(self) -> str:
        """The machine of an agent on another machine; empty for one here, and for people."""
        return split_inbox(self.inbox)[1]


A_PERSON: Final = Sender(sender_id=PERSON, sender_type="user")


@frozen
class Artifact:
    """A result of an agent; `metadata["source"]` says where its text was taken from."""

    artifact_id: str
    parts: tuple[Part, ...]
    name: str = ""
    description: str = ""
    metadata: Json = field(default_factory=empty_object)
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined without a separator: an artifact that arrives in chunks has one part for each."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def media_type_of(part: Part) -> str:
    """Returns the media type of a part without its parameters; empty if the part names none."""
    return part.media_type.partition(";")[0].strip().lower()


def text_of(parts: tuple[Part, ...]) -> str:
    """Returns the text parts, joined by newlines."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text  # the usual case
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
