"""Frozen values that are made for every request.

A dataclass that is frozen writes each of its fields by name, through a check that refuses it to everybody else. Writing
the slots themselves takes less than half of that time, and the values stay as frozen as any.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, get_origin

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """What `dataclass(frozen=True, slots=True, kw_only=True)` makes, quicker to make."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    made.__init__ = _initialiser(made)  # type: ignore[method-assign]  # it has the same parameters
    return made


def _initialiser(cls: type[Any]) -> Any:
    """`def __init__(self, *, name=…, …)`, which puts each argument into its slot."""
    known: dict[str, Any] = {"MISSING": MISSING}
    parameters = [_parameter(one, known) for one in fields(cls)]
    writes = [_write(cls, one, known) for one in fields(cls)]
    # The text consists of names of fields alone, as in `dataclasses` itself.
    exec(f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(writes), known)  # noqa: S102 - see above
    return known["__init__"]


def _parameter(one: Field[Any], known: dict[str, Any]) -> str:
    if one.default is not MISSING:
        known[f"default_{one.name}"] = one.default
        return f"{one.name}=default_{one.name}"
    return one.name if one.default_factory is MISSING else f"{one.name}=MISSING"


def _write(cls: type[Any], one: Field[Any], known: dict[str, Any]) -> str:
    known[f"put_{one.name}"] = getattr(cls, one.name).__set__
    if one.default_factory is MISSING:
        return f"    put_{one.name}(self, {one.name})"
    # `dict[str, Any]` is a name for readers: called, it takes five times as long as `dict` to make the same.
    known[f"make_{one.name}"] = get_origin(one.default_factory) or one.default_factory
    return f"    put_{one.name}(self, make_{one.name}() if {one.name} is MISSING else {one.name})"
