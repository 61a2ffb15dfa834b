"""Custom authenticators: the callers that they name, and their errors."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from synapse.auth.authenticators import Credentials, Custom, CustomAuthenticator, Verdict, read_caller
from synapse.core.caller import Caller
from synapse.core.errors import InternalFailure, InvalidRequest


async def ask(function: Custom, *, seconds: float = 5.0) -> Verdict:
    credentials = Credentials([(b"x-badge", b"7"), (b"accept", b"*/*")], path="/agents", query=b"a=1&b=")

    return await CustomAuthenticator(function, seconds=seconds).authenticate(credentials)


def saying(answer: object) -> Custom:
    """Returns a function that always returns one answer."""

    def authenticate(_headers: dict[str, str], _query: dict[str, str], _path: str) -> object:
        return answer

    return authenticate


async def test_a_plain_function_gets_the_request_and_returns_the_caller() -> None:
    given: list[Any] = []

    def authenticate(headers: dict[str, str], query: dict[str, str], path: str) -> dict[str, object]:
        given.extend((headers, query, path))
        return {"name": "anne", "actions": ["read"], "agents": ["claude"]}

    assert await ask(authenticate) == Caller(
        name="anne", scope="custom:anne", actions=frozenset({"read"}), agents=frozenset({"claude"})
    )
    assert given == [{"x-badge": "7", "accept": "*/*"}, {"a": "1", "b": ""}, "/agents"]


async def test_an_async_function_and_an_object_with_an_async_call_are_awaited() -> None:
    async def authenticate(headers: dict[str, str], query: dict[str, str], path: str) -> dict[str, object] | None:
        return {"scope": "team-a", "all_tasks": True} if headers["x-badge"] == "7" else None

    class AsyncCall:
        async def __call__(self, headers: dict[str, str], query: dict[str, str], path: str) -> None:
            return None

    assert await ask(authenticate) == Caller(name="team-a", scope="team-a", sees_all=True)
    assert await ask(AsyncCall()) is None


async def test_a_custom_authenticator_may_return_a_caller() -> None:
    caller = Caller(scope="x", name="y")

    assert await ask(saying(caller)) == caller
    assert await ask(saying(replace(caller, via_socket=True, pid=5))) == caller, "these fields need a Unix socket"


@pytest.mark.parametrize(
    "said",
    [
        "anne",
        {},
        {"name": ""},
        {"name": 5},
        {"name": "a", "actions": "read"},
        {"name": "a", "actions": ["fly"]},
        {"name": "a", "agents": [5]},
        {"name": "a", "admin": True},
        True,
    ],
)
async def test_an_invalid_result_admits_no_caller(said: object, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidRequest):
        read_caller(said)
    with pytest.raises(InternalFailure):
        await ask(saying(said))
    assert [record.message for record in caplog.records] == ["custom_authenticator_failed"]


def test_an_empty_list_allows_no_action_and_all_tasks_needs_true() -> None:
    caller = read_caller({"name": "a", "actions": [], "all_tasks": "yes"})

    assert caller is not None
    assert caller.actions == frozenset()
    assert not caller.sees_all


async def test_an_error_in_a_custom_authenticator_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    def authenticate(*_: object) -> None:
        raise RuntimeError("the password of the database is x")

    with pytest.raises(InternalFailure) as failed:
        await ask(authenticate)

    assert "database" not in str(failed.value)
    assert "database" in caplog.text


async def test_a_custom_authenticator_has_a_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    async def authenticate(*_: object) -> None:
        await asyncio.Event().wait()

    with pytest.raises(InternalFailure):
        await ask(authenticate, seconds=0.01)
    assert [record.message for record in caplog.records] == ["custom_authenticator_failed"]
