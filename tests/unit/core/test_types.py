"""`frozen` makes what a frozen dataclass is, with a faster constructor."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import dataclass, field, replace
from inspect import signature

import pytest

from synapse.core.types import frozen

WRITES = """
from synapse.core.message import TextPart
part = TextPart(text="said")
assert hash(TextPart(text="said", metadata=())) == hash(TextPart(text="said", metadata=()))
part.text = "changed"
print(part.text)
"""


@frozen
class Point:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str])


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", WRITES]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=30, check=False)


def test_fields_have_their_arguments_or_defaults() -> None:
    one = Point(x=1)

    assert (one.x, one.y, one.tags) == (1, 2, [])
    assert Point(x=1, y=5, tags=["a"]).tags == ["a"]


def test_a_default_factory_is_called_for_each_value() -> None:
    assert Point(x=1).tags is not Point(x=1).tags


def test_a_value_has_no_dict() -> None:
    assert not hasattr(Point(x=1), "__dict__")


def test_writing_to_a_value_raises_in_development_mode() -> None:
    told = run("-X", "dev")

    assert told.returncode == 1
    assert "FrozenInstanceError: cannot assign to field 'text'" in told.stderr


def test_without_development_mode_only_type_checkers_refuse_a_write() -> None:
    told = run("-E")

    assert told.returncode == 0, told.stderr
    assert told.stdout == "changed\n"


def test_the_constructor_takes_what_a_dataclass_takes() -> None:
    assert list(signature(Point).parameters) == list(signature(Plain).parameters)
    with pytest.raises(TypeError, match="x"):
        Point()  # type: ignore[call-arg]  # that it is refused is the point
    with pytest.raises(TypeError, match="z"):
        Point(x=1, z=1)  # type: ignore[call-arg]  # as above


def test_values_compare_print_copy_and_replace_like_a_dataclass() -> None:
    one = Point(x=1)

    assert one == Point(x=1)
    assert one != Point(x=2)
    assert repr(one) == "Point(x=1, y=2, tags=[])"
    assert replace(one, y=3) == Point(x=1, y=3)
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
