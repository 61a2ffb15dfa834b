"""Values are what frozen dataclasses are, only quicker to make."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from inspect import signature

import pytest

from synapse.core.value import value


@value
class Point:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str])


def test_fields_have_their_arguments_and_defaults() -> None:
    one = Point(x=1)

    assert (one.x, one.y, one.tags) == (1, 2, [])
    assert Point(x=1, y=5, tags=["a"]).tags == ["a"]


def test_a_default_that_is_made_is_made_for_each() -> None:
    assert Point(x=1).tags is not Point(x=1).tags


def test_it_is_frozen_and_has_only_its_fields() -> None:
    one = Point(x=1)

    with pytest.raises(FrozenInstanceError):
        one.x = 3  # type: ignore[misc]  # that it is refused is the point
    assert not hasattr(one, "__dict__")


def test_it_takes_what_a_dataclass_takes() -> None:
    assert list(signature(Point).parameters) == list(signature(Plain).parameters)
    with pytest.raises(TypeError, match="x"):
        Point()  # type: ignore[call-arg]  # that it is refused is the point
    with pytest.raises(TypeError, match="z"):
        Point(x=1, z=1)  # type: ignore[call-arg]  # as above


def test_it_is_compared_shown_copied_and_replaced_as_a_dataclass_is() -> None:
    one = Point(x=1)

    assert one == Point(x=1)
    assert one != Point(x=2)
    assert repr(one) == "Point(x=1, y=2, tags=[])"
    assert replace(one, y=3) == Point(x=1, y=3)
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
