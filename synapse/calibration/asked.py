"""One request to the model, as all wires read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from synapse.calibration.acts import MARKER

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the CLI asks the model for."""

    said: tuple[str, ...] = ()
    """The person's messages so far, the newest last."""
    results: tuple[str, ...] = ()
    """What the tools answered since the newest message."""
    tools: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Each tool that is offered, with the names of its parameters."""
    freeform: frozenset[str] = frozenset()
    """Those that take a text instead of parameters."""
    structured: bool = False
    """JSON of a given shape is wanted: titles, routing and the like."""
    streams: bool = True
    model: str = "scripted"

    @property
    def prompt(self) -> str:
        """The newest message that is not what a CLI itself puts between: those stand in tags."""
        own = [text for text in self.said if MARKER.search(text) or not text.lstrip().startswith("<")]
        return own[-1] if own else ""

    @property
    def marker(self) -> tuple[str, str]:
        """Scene and number of the turn; two empty words for a side request: a title, a summary, a suggestion."""
        found = None if self.structured or not self.tools else MARKER.search(self.prompt)
        return (found[1], found[2]) if found else ("", "")


def table(value: object) -> Body:
    """`value` if it is a table, else an empty one: a CLI of another version may send something else."""
    return cast("Body", value) if isinstance(value, Mapping) else {}


def tables(value: object) -> list[Body]:
    """The tables of a list."""
    return [table(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def parameters(schema: object) -> frozenset[str]:
    """The names of the parameters in a tool's JSON schema."""
    return frozenset(table(table(schema).get("properties")))


def text_of(content: object) -> str:
    """The text of a message's content: a text, or a list of parts of which some are text."""
    if isinstance(content, str):
        return content
    return "\n".join(texts_of(tables(content)))


def texts_of(parts: Iterable[Body]) -> list[str]:
    return [str(part["text"]) for part in parts if isinstance(part.get("text"), str)]
