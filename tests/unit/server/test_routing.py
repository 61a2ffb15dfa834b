"""RouteTable finds the route of a path."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.errors import MethodNotAllowed, RouteNotFound, SynapseError
from synapse.core.events import Update
from synapse.core.requests import GetStatus, SubscribeTask
from synapse.dialects.dialect import AnyRoute, Dialect, Route, StreamRoute, WireAnswer, WireEvent
from synapse.server.routing import Match, RouteTable


def route(method: str, path: str) -> Route[Any]:
    return Route(method=method, path=path, decode=lambda _: GetStatus(), encode=lambda _: b"")


def stream(path: str) -> StreamRoute[Update]:
    event = WireEvent("1", "snapshot", b"{}")
    return StreamRoute(method="GET", path=path, decode=lambda _: SubscribeTask(task_id="t"), encode=lambda _: event)


def dialect(name: str, *routes: AnyRoute) -> Dialect:
    def encode_error(_error: SynapseError) -> WireAnswer:
        raise AssertionError("routing tells no errors")

    return Dialect(name=name, routes=routes, encode_error=encode_error)


TABLE = RouteTable(
    [
        dialect(
            "one",
            route("GET", "/"),
            route("POST", "/tasks/send"),
            route("GET", "/tasks"),
            route("GET", "/tasks/{id}"),
            route("DELETE", "/tasks/{id}"),
            route("POST", "/tasks/{id}/cancel"),
            route("POST", "/tasks/{id}:cancel"),
            route("GET", "/tasks/{id}:subscribe"),
            route("GET", "/agents/{agent}/tasks/{id}"),
            route("GET", "/.well-known/agent.json"),
            stream("/tasks/{id}/subscribe"),
        ),
        dialect("two", route("GET", "/agents/{agentId}/tasks/{taskId}")),
    ]
)


def found(match: Match) -> tuple[str, dict[str, str]]:
    endpoint = match.endpoints[0]
    return endpoint.route.path, dict(match.params(endpoint))


@pytest.mark.parametrize(
    ("method", "path", "expected", "params"),
    [
        ("GET", b"/", "/", {}),
        ("POST", b"/tasks/send", "/tasks/send", {}),
        ("POST", b"/tasks/send/", "/tasks/send", {}),
        ("GET", b"/tasks", "/tasks", {}),
        ("GET", b"/tasks/", "/tasks", {}),
        ("GET", b"/tasks/54241e7e", "/tasks/{id}", {"id": "54241e7e"}),
        ("DELETE", b"/tasks/54241e7e", "/tasks/{id}", {"id": "54241e7e"}),
        ("POST", b"/tasks/54241e7e/cancel", "/tasks/{id}/cancel", {"id": "54241e7e"}),
        ("GET", b"/tasks/a%2Fb", "/tasks/{id}", {"id": "a/b"}),
        ("GET", b"/tasks/%E3%81%82", "/tasks/{id}", {"id": "\u3042"}),
        ("GET", b"/tasks/agent1:task-1", "/tasks/{id}", {"id": "agent1:task-1"}),
        ("GET", b"/.well-known/agent.json", "/.well-known/agent.json", {}),
        ("HEAD", b"/tasks", "/tasks", {}),
        ("HEAD", b"/tasks/x", "/tasks/{id}", {"id": "x"}),
    ],
)
def test_a_path_is_found(method: str, path: bytes, expected: str, params: dict[str, str]) -> None:
    assert found(TABLE.match(method, path)) == (expected, params)


@pytest.mark.parametrize(
    "path",
    [
        b"/nothing",
        b"/tasks/a/b/c",
        b"/tasks//",
        b"//tasks",
        b"/Tasks",
        b"/tasks%2Fsend",
        b"/agents",
        b"/tasks/%00",
        b"/tasks/%ff",
        b"/tasks/a%0Ab",
        b"/tasks/" + b"a/" * 5000,
        b"*",
        b"",
    ],
)
def test_another_path_is_not_found_and_the_error_says_what_to_do(path: bytes) -> None:
    with pytest.raises(RouteNotFound) as caught:
        TABLE.match("GET", path)

    assert caught.value.hint
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", b"/tasks/send", ["POST"]),
        ("PUT", b"/tasks/1", ["DELETE", "GET"]),
        ("POST", b"/tasks", ["GET"]),
        ("HEAD", b"/tasks/send", ["POST"]),
        ("HEAD", b"/tasks/1/subscribe", ["GET"]),
        ("OPTIONS", b"/tasks", ["GET"]),
    ],
)
def test_a_wrong_method_is_refused_with_the_allowed_ones(method: str, path: bytes, allowed: list[str]) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        TABLE.match(method, path)

    assert caught.value.allowed == allowed


def test_dialects_that_share_a_path_are_all_found_each_with_its_own_names() -> None:
    match = TABLE.match("GET", b"/agents/a/tasks/7")

    assert [endpoint.dialect.name for endpoint in match.endpoints] == ["one", "two"]
    assert [dict(match.params(endpoint)) for endpoint in match.endpoints] == [
        {"agent": "a", "id": "7"},
        {"agentId": "a", "taskId": "7"},
    ]


@pytest.mark.parametrize(
    ("method", "path", "place", "task_id"),
    [
        ("POST", "/tasks/54241e7e:cancel", "/tasks/{id}:cancel", "54241e7e"),
        ("POST", "/tasks/54241e7e:cancel/", "/tasks/{id}:cancel", "54241e7e"),
        ("GET", "/tasks/agent:task:subscribe", "/tasks/{id}:subscribe", "agent:task"),
        ("GET", "/tasks/agent:task", "/tasks/{id}", "agent:task"),
        ("GET", "/tasks/cancel", "/tasks/{id}", "cancel"),
        ("GET", "/tasks/x:pause", "/tasks/{id}", "x:pause"),
        ("GET", "/tasks/a%3Acancel", "/tasks/{id}", "a:cancel"),
    ],
)
def test_a_verb_after_a_colon_is_not_part_of_the_id_where_a_route_has_it(
    method: str, path: str, place: str, task_id: str
) -> None:
    assert found(TABLE.match(method, path.encode())) == (place, {"id": task_id})


def test_a_verb_without_an_id_is_not_found() -> None:
    with pytest.raises(RouteNotFound):
        TABLE.match("POST", b"/tasks/:cancel")
