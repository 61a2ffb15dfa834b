"""Reading a script's tables strictly: every key is known, every value has its type, and an error says where."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from synapse.core.address import nearest
from synapse.core.errors import InvalidScript
from synapse.drivers.scripted.steps import Step, Wait

LONGEST_WAIT: Final = 3600
"""Seconds; a script that waits longer is a slip of the pen."""


class Fields:
    """One table of a script. `where` is how a person finds it: `hello.toml: rule 2, step 1`."""

    def __init__(self, given: object, where: str) -> None:
        if not isinstance(given, Mapping):
            raise InvalidScript(f"{where} must be a table, not {_shown(given)}")
        self._given = cast("Mapping[str, Any]", given)
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raises InvalidScript for the first key that is not in `known`."""
        for key in self._given:
            if key not in known:
                raise InvalidScript(f"{self.where}: there is no key `{key}`", hint=self.meant(known))

    def meant(self, known: Collection[str]) -> str:
        """A hint: the known key that an unknown one was probably meant to be, else all of them."""
        for key in self._given:
            if key not in known and (word := nearest(key, sorted(known))):
                return f"did you mean `{word}`?"
        return "known here: " + ", ".join(sorted(known))

    def refuse(self, key: str, why: str) -> None:
        """Raises InvalidScript when a key stands where it makes no sense."""
        if key in self._given:
            raise InvalidScript(f"{self.where}: `{key}` makes no sense here: {why}")

    def raw(self, key: str) -> Any:
        """Whatever is there, or None."""
        return self._given.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        """A text; without a default it must be there and not be empty."""
        value = self._given.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.wrong(key, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of at least one text."""
        value = self._given.get(key)
        items = cast("list[object]", value) if isinstance(value, list) else []
        texts = tuple(item for item in items if isinstance(item, str) and item)
        if not texts or len(texts) != len(items):
            raise self.wrong(key, "a list of texts")
        return texts

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._given.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def seconds(self, key: str, default: float | None = None) -> float:
        """A bounded time."""
        value = self._given.get(key, default)
        # To Python a bool is a number, and not-a-number fits no comparison: both are refused.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_WAIT:
            raise self.wrong(key, f"a number of seconds from 0 to {LONGEST_WAIT}")
        return float(value)

    def status(self, key: str) -> int:
        """An exit status."""
        value = self._given.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
            raise self.wrong(key, "an exit status from 0 to 255")
        return value

    def wrong(self, key: str, wanted: str) -> InvalidScript:
        """The error for a value that is not what its key wants."""
        found = f"not {_shown(self._given[key])}" if key in self._given else "but it is missing"
        return InvalidScript(f"{self.where}: `{key}` must be {wanted}, {found}")


def spaced(steps: Sequence[Step], fields: Fields) -> Iterator[Step]:
    """The steps, with a pause of `every` seconds between them."""
    every = fields.seconds("every", 0)
    for index, step in enumerate(steps):
        if index and every:
            yield Wait(every)
        yield step


def _shown(value: object) -> str:
    """A value as an error quotes it: short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
