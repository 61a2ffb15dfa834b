"""Every error has a status and says what to do next."""

from __future__ import annotations

import json

import pytest

from synapse.core import errors
from synapse.core.errors import AmbiguousTask, MethodNotAllowed, SynapseError, TaskNotFound, Unauthenticated
from synapse.dialects.synapse.encode import HTTP_STATUS, encode_error, status_of
from tests.unit.dialects.all_errors import ALL_ERRORS, blank

EXPECTED = {
    "BodyTooLarge": 413,
    "PriorityOutOfRange": 400,
    "AmbiguousTask": 400,
    "TaskNotFound": 404,
    "RouteNotFound": 404,
    "TaskNotCancelable": 409,
    "MessageIdReused": 409,
    "NothingAsked": 409,
    "QuestionGone": 409,
    "InvalidChoice": 400,
    "QueueFull": 429,
    "SenderMismatch": 403,
    "ForeignOrigin": 403,
    "Unauthenticated": 401,
    "StoreLocked": 503,
    "AgentNotResponding": 502,
    "InternalFailure": 500,
}


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_told_with_its_code_and_a_status(kind: type[SynapseError]) -> None:
    answer = encode_error(blank(kind))

    told = json.loads(answer.body)["error"]
    assert told == {"code": kind.code, "message": "what happened", "hint": kind.hint}
    assert 400 <= answer.status <= 599


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_only_the_root_and_our_own_defects_are_internal(kind: type[SynapseError]) -> None:
    assert (status_of(kind) == 500) == (kind.__name__ in ("SynapseError", "InternalFailure"))


@pytest.mark.parametrize(("name", "status"), EXPECTED.items())
def test_the_statuses_of_the_contract(name: str, status: int) -> None:
    assert status_of(next(kind for kind in ALL_ERRORS if kind.__name__ == name)) == status


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in ALL_ERRORS]

    assert len(set(codes)) == len(codes)


def test_an_error_made_elsewhere_gets_the_status_of_its_family() -> None:
    class NewRefusal(errors.QueueFull):
        """Not known to the table."""

    assert NewRefusal not in HTTP_STATUS
    assert status_of(NewRefusal) == 429


def test_the_message_and_the_hint_are_those_of_the_error() -> None:
    told = json.loads(encode_error(AmbiguousTask("54", ["54241e7e", "54aa"])).body)["error"]

    assert told == {
        "code": "ambiguous_task",
        "message": "'54' fits more than one task",
        "hint": "use one of: 54241e7e, 54aa",
    }
    assert json.loads(encode_error(TaskNotFound("x")).body)["error"]["hint"] == ""


def test_a_wrong_method_is_told_the_right_ones() -> None:
    answer = encode_error(MethodNotAllowed("PUT", "/tasks", ["GET", "POST"]))

    assert (answer.status, answer.headers) == (405, ((b"allow", b"GET, POST"),))


def test_a_stranger_is_told_how_to_introduce_himself() -> None:
    assert encode_error(Unauthenticated()).headers == ((b"www-authenticate", b"Bearer"),)
