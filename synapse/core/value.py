"""Frozen values that are made for every request.

A dataclass that is frozen writes each of its fields by name, past a check that refuses it to everybody else: that takes
twice as long. So these are refused by the type checkers, which see every line of ours. Python's development mode
(`python -X dev`) adds checks that are too dear for every day, and there whoever writes to a value is refused, too: the
unit tests run in it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """What `dataclass(frozen=True, slots=True, kw_only=True)` makes, in half of the time."""
    if sys.flags.dev_mode:
        return dataclass(frozen=True, slots=True, kw_only=True)(cls)
    return dataclass(unsafe_hash=True, slots=True, kw_only=True)(cls)
