"""The registry of errors by code, and the codec by which an error keeps its class between processes and versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synapse.core.errors import (
    BY_CODE,
    Conflict,
    FeedLagged,
    InvalidField,
    MethodNotAllowed,
    QueueFull,
    RateLimited,
    SynapseError,
    Unauthenticated,
    WaitCycle,
    describe,
    from_wire,
    to_wire,
)
from synapse.dialects.dialect import error_headers
from tests.unit.dialects.error_samples import BARE, SAMPLES


@pytest.mark.parametrize("error", [*SAMPLES, *BARE], ids=lambda error: error.code)
def test_every_error_keeps_its_class_and_fields_on_the_wire(error: SynapseError) -> None:
    again = from_wire(json.loads(json.dumps(to_wire(error))))

    assert (type(again), describe(again)) == (type(error), describe(error))
    for name in error.fields:
        carried: Any = getattr(error, name)
        assert getattr(again, name) == (carried if isinstance(carried, str | int) else tuple(carried))


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: error.code)
def test_every_attribute_of_an_error_is_one_of_its_fields(error: SynapseError) -> None:
    assert vars(error).keys() <= {*error.fields, "hint"}


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=BY_CODE)
def test_the_default_of_every_field_can_be_sent(kind: type[SynapseError]) -> None:
    assert {type(getattr(kind, name)) for name in kind.fields} <= {str, int, tuple}


def test_a_code_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="'queue_full' is taken by QueueFull"):
        type("Twin", (Conflict,), {"code": QueueFull.code})

    assert BY_CODE[QueueFull.code] is QueueFull


def test_a_class_without_its_own_code_is_sent_as_its_parent() -> None:
    class _Special(QueueFull):
        """A queue that is full in a special way."""

    again = from_wire(to_wire(_Special("full", hint="wait")))

    assert (type(again), str(again), again.hint) == (QueueFull, "full", "wait")


def test_an_unknown_code_stays_with_the_error() -> None:
    error = from_wire({"code": "from_the_future", "message": "m", "hint": "h", "fields": {"code": 1, "args": [2]}})

    assert (type(error), describe(error)) == (SynapseError, {"code": "from_the_future", "message": "m", "hint": "h"})
    assert SynapseError.code == "error"
    assert to_wire(error)["code"] == "from_the_future"


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        (MethodNotAllowed.code, ((b"allow", b""),)),
        (RateLimited.code, ((b"retry-after", b"1"),)),
        (Unauthenticated.code, ((b"www-authenticate", b"Bearer"),)),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        {},
        {"since": "then"},
        {"allowed": "GET", "retry_after": "soon", "challenge": 7},
        {"allowed": [1], "retry_after": True, "challenge": None},
    ],
    ids=str,
)
def test_an_error_with_unknown_or_wrong_fields_is_read(
    code: str, headers: tuple[tuple[bytes, bytes], ...], fields: Any
) -> None:
    error = from_wire({"code": code, "message": "m", "fields": fields})

    assert type(error) is BY_CODE[code]
    assert error_headers(error) == headers
    assert "since" not in vars(error)


@pytest.mark.parametrize("told", [{}, {"code": 1, "message": [], "hint": {}}, {"fields": 7}], ids=str)
def test_an_invalid_description_becomes_an_error_with_a_default_sentence(told: dict[str, Any]) -> None:
    assert describe(from_wire(told, "it makes no sense")) == {
        "code": "error",
        "message": "it makes no sense",
        "hint": "",
    }


def test_a_missing_hint_comes_from_the_class() -> None:
    assert from_wire({"code": "question_gone", "message": "m"}).hint == BY_CODE["question_gone"].hint


@pytest.mark.parametrize(
    "error", [InvalidField("f", "is missing", hint="h"), FeedLagged(7), WaitCycle(("a", "b", "a"))], ids=str
)
def test_a_reworded_error_changes_only_its_sentence(error: SynapseError) -> None:
    again = error.reworded("another sentence")

    assert type(again) is type(error)
    assert to_wire(again) == {**to_wire(error), "message": "another sentence"}
    assert str(error) != str(again)
