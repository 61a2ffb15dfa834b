"""What is said: messages, their parts, and the artifacts an agent hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, NewType

from synapse.core.types import frozen

MessageId = NewType("MessageId", str)

Json = Mapping[str, Any]
"""A JSON object as it came from, or goes to, a wire."""


def empty_object() -> Json:
    """What a field that holds an object has when nothing was said. (`dict[str, Any]()` takes five times as long.)"""
    return {}


class Role(StrEnum):
    """Who speaks."""

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
    """A file: either its bytes, or the address where they are."""

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
    """One thing said, by a caller or by an agent."""

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
class Artifact:
    """Something an agent hands back; `metadata["source"]` says where a text was taken from."""

    artifact_id: str
    parts: tuple[Part, ...]
    name: str = ""
    description: str = ""
    metadata: Json = field(default_factory=empty_object)
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, as one: an artifact that comes in chunks has a part for each."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def media_type_of(part: Part) -> str:
    """The type that a part says it has, without its parameters; empty if it says none."""
    return part.media_type.partition(";")[0].strip().lower()


def text_of(parts: tuple[Part, ...]) -> str:
    """Return what a person would read of these parts."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text  # nearly all messages are this
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
