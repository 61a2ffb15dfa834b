"""Reading a TOML table so that an error names the key: `profile 'claude': prompt.pattern must be text, not 5`.

Reading a script's tables strictly: every key is known, every value has its type, and an error says where.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NoReturn, cast

from synapse.core.address import nearest
from synapse.core.errors import InvalidProfile, InvalidScript

_NAMED_KEYS: Final = {
    "enter": b"\r",
    "newline": b"\n",
    "esc": b"\x1b",
    "tab": b"\t",
    "backspace": b"\x7f",
    "space": b" ",
}


class ProfileTable:
    """One table of a profile. Every reader raises InvalidProfile with the key's path."""

    def __init__(self, table: Mapping[str, Any], profile: str, path: str = "") -> None:
        self._table = table
        self._profile = profile
        self._path = path
        self._known: set[str] = set()

    def value(self, key: str, default: object = None) -> object:
        """What stands there, unread."""
        self._known.add(key)
        return self._table.get(key, default)

    def text(self, key: str, default: str = "") -> str:
        value = self.value(key, default)
        return value if isinstance(value, str) else self.refuse(key, "must be text", value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value(key, ())
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list | tuple):
            self.refuse(key, "must be a list of texts", value)
        items = cast("list[object]", words)
        return tuple(
            item if isinstance(item, str) else self.refuse(key, "must hold only texts", item) for item in items
        )

    def number(self, key: str, default: float) -> float:
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            self.refuse(key, "must be a number that is not negative", value)
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse(key, "must be a whole number that is not negative", value)
        return value

    def yes(self, key: str, *, default: bool = False) -> bool:
        value = self.value(key, default)
        return value if isinstance(value, bool) else self.refuse(key, "must be true or false", value)

    def pattern(self, key: str) -> re.Pattern[str] | None:
        return self._compiled(key, self.text(key)) if key in self else None

    def patterns(self, key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(self._compiled(key, text) for text in self.texts(key))

    def keys(self, key: str) -> tuple[bytes, ...]:
        """Named keys: `esc`, `enter`, `ctrl-u`; one name or a list of them."""
        return tuple(self._key(key, name) for name in self.texts(key))

    def table(self, key: str) -> ProfileTable:
        value = self.value(key, {})
        if not isinstance(value, Mapping):
            self.refuse(key, "must be a table", value)
        return ProfileTable(cast("Mapping[str, Any]", value), self._profile, self._at(key))

    def tables(self, key: str) -> list[ProfileTable]:
        value = self.value(key, [])
        if not isinstance(value, list):
            self.refuse(key, "must be a list of tables", value)
        items = cast("list[object]", value)
        return [self._item(key, index, item) for index, item in enumerate(items)]

    def named(self) -> Iterator[tuple[str, ProfileTable]]:
        """The tables of this table, by name."""
        for key in self:
            yield key, self.table(key)

    def mapping(self, key: str) -> dict[str, str]:
        """A table of texts."""
        table = self.table(key)
        return {name: table.text(name) for name in table}

    def done(self) -> None:
        """Refuse what nobody asked for: a misspelt key would be silently without effect."""
        for key in self._table:
            if key not in self._known:
                meant = nearest(key, sorted(self._known))
                raise InvalidProfile(
                    f"profile '{self._profile}': there is no key {self._at(key)}",
                    hint=f"Did you mean '{meant}'?" if meant else "docs/howto/wrap-a-cli.md lists every key",
                )

    def refuse(self, key: str, rule: str, value: object = None) -> NoReturn:
        given = "" if value is None else f", not {value!r}"
        raise InvalidProfile(
            f"profile '{self._profile}': {self._at(key)} {rule}{given}",
            hint="docs/howto/wrap-a-cli.md explains every key",
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self._table

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _item(self, key: str, index: int, item: object) -> ProfileTable:
        if not isinstance(item, Mapping):
            self.refuse(f"{key}[{index}]", "must be a table", item)
        return ProfileTable(cast("Mapping[str, Any]", item), self._profile, self._at(f"{key}[{index}]"))

    def _compiled(self, key: str, text: str) -> re.Pattern[str]:
        try:
            return re.compile(text)
        except re.error as error:
            raise InvalidProfile(
                f"profile '{self._profile}': {self._at(key)} is not a regular expression: {error}",
                hint="write it in single quotes, so that TOML leaves backslashes alone",
            ) from error

    def _key(self, key: str, name: str) -> bytes:
        if name in _NAMED_KEYS:
            return _NAMED_KEYS[name]
        letter = name.removeprefix("ctrl-")
        if letter != name and len(letter) == 1 and "a" <= letter <= "z":
            return bytes([ord(letter) - ord("a") + 1])
        return self.refuse(key, f"must hold names of keys ({', '.join(_NAMED_KEYS)}, ctrl-a to ctrl-z)", name)


LONGEST_WAIT: Final = 3600
"""Seconds; a script that waits longer is a slip of the pen."""


class ScriptTable:
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


def _shown(value: object) -> str:
    """A value as an error quotes it: short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
