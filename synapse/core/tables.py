"""Reads TOML tables strictly: a wrong type or an unknown key is an error that names its place.

    profile 'claude': prompt.pattern must be text, not 5
    hello.toml: rule 2, step 1: `wait` must be a number of seconds from 0 to 3600, not 'long'

`Table` reads values, and a `Wording` says how its errors speak about one kind of file. `ProfileTable` and `ScriptTable`
are the tables of profiles and scripts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from synapse.core.address import nearest
from synapse.core.errors import InvalidProfile, InvalidScript, InvalidSettings

MAX_WAIT_SECONDS: Final = 3600
"""A longer wait is probably a typo."""
_NAMED_KEYS: Final = {
    "enter": b"\r",
    "newline": b"\n",
    "esc": b"\x1b",
    "tab": b"\t",
    "backspace": b"\x7f",
    "space": b" ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """How errors speak about one kind of file."""

    error: type[InvalidProfile | InvalidScript | InvalidSettings]
    key: str
    """A format for a key or its path."""
    text: str
    """The rule for a value that must be text."""
    found: Callable[[object], str]
    """Returns the end of an error: the value that was found instead, or that there is none (None: TOML has no null)."""
    suggest: Callable[[Sequence[str], Collection[str]], str]
    """Returns the hint for unknown keys, of which the error names the first: the known one that was probably meant, or
    where to look."""
    hint: str = ""
    """The hint for a wrong value."""


class Table:
    """Reads one TOML table. Every reader raises the error of the wording and names the key.

    A reader with a default returns it for a missing key; a reader without one requires the key.
    """

    def __init__(self, table: Mapping[str, Any], where: str, wording: Wording, path: str = "") -> None:
        self._table = table
        self.where = where
        """The place of the table as an error names it: `hello.toml: rule 2, step 1`."""
        self._wording = wording
        self._path = path
        self._asked: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __contains__(self, key: str) -> bool:
        self._asked.add(key)
        return key in self._table

    def value(self, key: str, default: object = None) -> object:
        """Returns the value unchecked."""
        self._asked.add(key)
        return self._table.get(key, default)

    def text(self, key: str, default: str = "") -> str:
        value = self.value(key, default)
        return value if isinstance(value, str) else self.refuse(key, self._wording.text, value)

    def required_text(self, key: str) -> str:
        """Returns a text that is not empty."""
        value = self.value(key)
        return value if isinstance(value, str) and value else self.refuse(key, self._wording.text, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts, possibly empty; a single text counts as a list of one."""
        value = self.value(key, ())
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list | tuple):
            self.refuse(key, "must be a list of texts", value)
        return tuple(
            item if isinstance(item, str) else self.refuse(key, "must hold only texts", item)
            for item in cast("list[object]", value)
        )

    def required_texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of at least one text, none of them empty."""
        value = self.value(key)
        items = cast("list[object]", value) if isinstance(value, list) else []
        texts = tuple(item for item in items if isinstance(item, str) and item)
        if not texts or len(texts) != len(items):
            self.refuse(key, "must be a list of texts", self.value(key))
        return texts

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self.value(key, default)
        return value if isinstance(value, bool) else self.refuse(key, "must be true or false", value)

    def number(self, key: str, default: float) -> float:
        value = self.value(key, default)
        # In Python a bool is a number, and NaN fits no comparison: both are refused, here and below.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            self.refuse(key, "must be a number that is not negative", value)
        return float(value)

    def seconds(self, key: str, default: float | None = None) -> float:
        """Returns a time that is not longer than MAX_WAIT_SECONDS."""
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_WAIT_SECONDS:
            self.refuse(key, f"must be a number of seconds from 0 to {MAX_WAIT_SECONDS}", value)
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse(key, "must be a whole number that is not negative", value)
        return value

    def exit_status(self, key: str) -> int:
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
            self.refuse(key, "must be an exit status from 0 to 255", value)
        return value

    def pattern(self, key: str) -> re.Pattern[str] | None:
        return self._compiled(key, self.text(key)) if key in self else None

    def patterns(self, key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(self._compiled(key, text) for text in self.texts(key))

    def keys(self, key: str) -> tuple[bytes, ...]:
        """Returns the bytes of named keys (`esc`, `enter`, `ctrl-u`); one name or a list of them."""
        return tuple(self._named_key(key, name) for name in self.texts(key))

    def refuse(self, key: str, rule: str, value: object = None) -> NoReturn:
        """Raises the error for a value of `key` that breaks `rule`."""
        raise self._error(f"{self._at(key)} {rule}{self._wording.found(value)}", self._wording.hint)

    def forbid(self, key: str, why: str) -> None:
        """Raises an error if the table has `key`, which makes no sense in it."""
        if key in self._table:
            raise self._error(f"{self._at(key)} makes no sense here: {why}")

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raises an error for the first key that is not in `known`: a misspelt key would silently have no effect."""
        unknown = [key for key in self if key not in known]
        if unknown:
            raise self._error(f"there is no key {self._at(unknown[0])}", self._wording.suggest(unknown, known))

    def done(self) -> None:
        """Raises an error for the first key that no reader has asked for."""
        self.refuse_unknown(self._asked)

    def _at(self, key: str) -> str:
        """Returns the key as an error names it."""
        return self._wording.key.format(f"{self._path}.{key}" if self._path else key)

    def _error(self, message: str, hint: str = "") -> InvalidProfile | InvalidScript | InvalidSettings:
        return self._wording.error(f"{self.where}: {message}", hint=hint)

    def _compiled(self, key: str, text: str) -> re.Pattern[str]:
        try:
            return re.compile(text)
        except re.error as error:
            hint = "write it in single quotes, so that TOML leaves backslashes alone"
            raise self._error(f"{self._at(key)} is not a regular expression: {error}", hint) from error

    def _named_key(self, key: str, name: str) -> bytes:
        if name in _NAMED_KEYS:
            return _NAMED_KEYS[name]
        letter = name.removeprefix("ctrl-")
        if letter != name and len(letter) == 1 and "a" <= letter <= "z":
            return bytes([ord(letter) - ord("a") + 1])
        return self.refuse(key, f"must hold names of keys ({', '.join(_NAMED_KEYS)}, ctrl-a to ctrl-z)", name)


class ProfileTable(Table):
    """A table of a profile. An error names the key by its path: `prompt.pattern`."""

    def __init__(self, table: Mapping[str, Any], profile: str, path: str = "") -> None:
        super().__init__(table, f"profile '{profile}'", _PROFILE, path)
        self._profile = profile

    def table(self, key: str) -> ProfileTable:
        """Returns the table under `key`; empty if there is none."""
        return self._nested(key, self.value(key, {}))

    def tables(self, key: str) -> list[ProfileTable]:
        value = self.value(key, [])
        if not isinstance(value, list):
            self.refuse(key, "must be a list of tables", value)
        return [self._nested(f"{key}[{index}]", item) for index, item in enumerate(cast("list[object]", value))]

    def named(self) -> Iterator[tuple[str, ProfileTable]]:
        """Yields the tables of this table with their names."""
        for key in self:
            yield key, self.table(key)

    def mapping(self, key: str) -> dict[str, str]:
        """Returns a table of texts."""
        table = self.table(key)
        return {name: table.text(name) for name in table}

    def _nested(self, key: str, value: object) -> ProfileTable:
        if not isinstance(value, Mapping):
            self.refuse(key, "must be a table", value)
        return ProfileTable(cast("Mapping[str, Any]", value), self._profile, self._at(key))


class ScriptTable(Table):
    """A table of a script. An error names the table by its place and the key in backticks."""

    def __init__(self, table: object, where: str) -> None:
        """Raises InvalidScript if `table` is something else."""
        if not isinstance(table, Mapping):
            raise InvalidScript(f"{where} must be a table, not {shortened(table)}")
        super().__init__(cast("Mapping[str, Any]", table), where, _SCRIPT)

    def suggest(self, known: Collection[str]) -> str:
        """Returns a hint: the known key that an unknown one was probably meant to be, or all known keys."""
        return _suggest_for_script([key for key in self if key not in known], known)


def shortened(value: object) -> str:
    """Returns `repr(value)`, at most 60 characters of it, for an error."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _suggest_for_profile(unknown: Sequence[str], known: Collection[str]) -> str:
    meant = nearest(unknown[0], sorted(known))
    return f"Did you mean '{meant}'?" if meant else "docs/howto/wrap-a-cli.md lists every key"


def _suggest_for_script(unknown: Sequence[str], known: Collection[str]) -> str:
    for key in unknown:
        if meant := nearest(key, sorted(known)):
            return f"did you mean `{meant}`?"
    return "known here: " + ", ".join(sorted(known))


_PROFILE: Final = Wording(
    error=InvalidProfile,
    key="{}",
    text="must be text",
    found=lambda value: "" if value is None else f", not {value!r}",
    suggest=_suggest_for_profile,
    hint="docs/howto/wrap-a-cli.md explains every key",
)
_SCRIPT: Final = Wording(
    error=InvalidScript,
    key="`{}`",
    text="must be a text",
    found=lambda value: ", but it is missing" if value is None else f", not {shortened(value)}",
    suggest=_suggest_for_script,
)
