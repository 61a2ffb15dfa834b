"""Each request has one method, which returns the result type that the request names."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from synapse.core import requests
from synapse.core.requests import ForAgent, GetTask, ListAgents, Request
from synapse.core.service import METHODS, Handler, TaskService, method_for
from synapse.gateway.metrics import ObservedService
from synapse.gateway.service import GatewayService, LimitedStreams
from synapse.gateway.tasks import GatewayTasks
from synapse.tasks.service import AgentTasks
from synapse.tasks.stopped import StoppedTasks
from tests.fakes.harness import AgentHarness

Kind = type[Request[object]]


def task_services(agent: AgentTasks, gateway: GatewayTasks, stopped: StoppedTasks) -> tuple[TaskService, ...]:
    """Is never called: the type checkers compare each implementation with the protocol."""
    return agent, gateway, stopped


def handlers(
    agent: AgentTasks, gateway: GatewayService, counted: LimitedStreams, observed: ObservedService
) -> tuple[Handler, ...]:
    """As above, for those that take any request."""
    return agent, gateway, counted, observed


TASK_METHODS = {name for name in vars(TaskService) if not name.startswith("_")}
ABOUT_TASKS = [kind for kind, name in METHODS.items() if name in TASK_METHODS]
OF_A_HOST = [kind for kind, name in METHODS.items() if hasattr(AgentTasks, name) and kind not in ABOUT_TASKS]
OF_A_GATEWAY = [kind for kind, name in METHODS.items() if hasattr(GatewayService, name) and kind is not ForAgent]


def named_by(kind: Kind) -> object:
    """The result that a request class names."""
    (result,) = get_args(next(iter(kind.__dict__["__orig_bases__"])))
    return result


def taken_and_returned(method: Callable[..., Any]) -> tuple[object, object]:
    """The request that a method takes, and what it returns when it is awaited."""
    hints = get_type_hints(method)
    result = hints.pop("return")
    if not inspect.iscoroutinefunction(method):
        assert get_origin(result) is Awaitable
        (result,) = get_args(result)
    # Inside an Awaitable, typing does not replace None by its type.
    return next(iter(hints.values())), type(None) if result is None else result


def test_every_request_has_a_method_on_a_class_that_does_it() -> None:
    classes = (one for _, one in inspect.getmembers(requests, inspect.isclass))
    known: set[Kind] = {one for one in classes if issubclass(one, Request) and one is not Request}

    assert set(METHODS) == known
    assert {*ABOUT_TASKS, *OF_A_HOST, *OF_A_GATEWAY, ForAgent} == known
    assert {METHODS[kind] for kind in ABOUT_TASKS} == TASK_METHODS


@pytest.mark.parametrize("service", [TaskService, AgentTasks, GatewayTasks, StoppedTasks])
@pytest.mark.parametrize("kind", ABOUT_TASKS)
def test_every_task_service_returns_what_a_request_about_tasks_names(service: type, kind: Kind) -> None:
    assert taken_and_returned(getattr(service, METHODS[kind])) == (kind, named_by(kind))


@pytest.mark.parametrize("kind", OF_A_HOST)
def test_a_host_returns_what_a_request_of_its_own_names(kind: Kind) -> None:
    assert taken_and_returned(getattr(AgentTasks, METHODS[kind])) == (kind, named_by(kind))


@pytest.mark.parametrize("kind", OF_A_GATEWAY)
def test_a_gateway_returns_what_a_request_of_its_own_names(kind: Kind) -> None:
    assert taken_and_returned(getattr(GatewayService, METHODS[kind])) == (kind, named_by(kind))


def test_a_request_goes_to_its_method_and_one_of_others_to_none() -> None:
    tasks = AgentHarness().service

    assert method_for(tasks, GetTask("t")) == tasks.get
    assert method_for(tasks, ListAgents()) is None
