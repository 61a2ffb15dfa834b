"""Each request needs one action, and an agent that the caller may not use looks like a missing one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from synapse.auth.policy import ACTION_OF, check_access, check_action, may_use
from synapse.core import requests
from synapse.core.caller import ACTIONS, ATTACH, Caller
from synapse.core.errors import AgentNotFound, Forbidden
from synapse.core.message import Message, MessageId, Role
from synapse.core.requests import (
    AnswerQuestion,
    CancelTask,
    ChangeTask,
    DeleteTask,
    ForAgent,
    GetAgent,
    GetTask,
    LeaveTask,
    ListAgents,
    ListTasks,
    OnBehalfOf,
    RegisterAgent,
    RemoveAgent,
    Request,
    ResolveTask,
    SendAndFollow,
    SendAndWait,
    SendMessage,
)
from synapse.core.service import METHODS
from synapse.core.task import TaskState

ALL = Caller(scope="key:1")
SEND = SendMessage(message=Message(message_id=MessageId("m"), role=Role.USER, parts=()), dialect="hub")


def unwrapped(send: SendMessage) -> SendMessage:
    return send


def only(*actions: str, agents: Any = None) -> Caller:
    return Caller(scope="key:1", actions=frozenset(actions), agents=agents)


def test_every_request_has_an_action_but_the_envelope() -> None:
    assert set(ACTION_OF) == set(METHODS) - {ForAgent}
    # Terminals are opened by a WebSocket, whose handler checks the action.
    assert set(ACTION_OF.values()) | {ATTACH} == {*ACTIONS, ""}


@pytest.mark.parametrize(
    ("request_", "action"),
    [
        (GetTask("t"), "read"),
        (ListTasks(), "read"),
        (ListAgents(), "read"),
        (SEND, "send"),
        (ChangeTask(task_id="t", metadata={"a": 1}), "send"),
        (requests.ListPushConfigs(task_id="t"), "read"),
        (CancelTask("t"), "cancel"),
        (DeleteTask(task_id="t"), "cancel"),
        (AnswerQuestion(task_id="t", verdict="allow"), "approve"),
        (RegisterAgent(url="http://a"), "register"),
        (RemoveAgent("a"), "register"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_request_needs_its_action_and_no_other(request_: Request[object], action: str) -> None:
    others = [other for other in ACTIONS if other != action]

    check_access(request_, only(action))
    check_access(ForAgent("claude", request_), only(action))
    check_access(request_, ALL)
    with pytest.raises(Forbidden, match=action):
        check_access(request_, only(*others))
    with pytest.raises(Forbidden, match=action):
        check_access(ForAgent("claude", request_), only(*others))


def test_changing_the_state_of_a_task_needs_the_right_to_cancel() -> None:
    move = ChangeTask(task_id="t", state=TaskState.COMPLETED)

    check_access(move, only("send", "cancel"))
    with pytest.raises(Forbidden, match="cancel"):
        check_access(move, only("send"))


@pytest.mark.parametrize("wrapped", [unwrapped, SendAndWait, SendAndFollow])
def test_a_message_that_interrupts_needs_the_action_cancel_too(
    wrapped: Callable[[SendMessage], Request[object]],
) -> None:
    urgent, ordinary = replace(SEND, priority=5), replace(SEND, priority=4)

    check_access(ForAgent("claude", wrapped(ordinary)), only("send"))
    check_access(ForAgent("claude", wrapped(urgent)), only("send", "cancel"))
    with pytest.raises(Forbidden, match="cancel"):
        check_access(ForAgent("claude", wrapped(urgent)), only("send"))


def test_a_decision_about_a_message_in_doubt_needs_the_action_approve() -> None:
    decision = ResolveTask(task_id="t", verdict="fail")

    check_access(decision, only("approve"))
    with pytest.raises(Forbidden, match="approve"):
        check_access(decision, only("read", "send", "cancel", "register"))


@pytest.mark.parametrize(
    "request_",
    [LeaveTask("t"), OnBehalfOf(ALL, GetTask("t")), requests.ReportSignal(payload={})],
)
def test_requests_of_the_local_machine_are_forbidden_at_a_gateway(request_: Request[object]) -> None:
    with pytest.raises(Forbidden, match="cannot be done through a gateway"):
        check_access(ForAgent("claude", request_), ALL)


@pytest.mark.parametrize("request_", [ForAgent("codex", GetTask("t")), GetAgent("codex"), RemoveAgent("codex")])
def test_an_agent_that_is_not_the_callers_looks_like_a_missing_one(request_: Request[object]) -> None:
    caller = Caller(scope="key:1", agents=frozenset({"claude"}))

    with pytest.raises(AgentNotFound) as refused:
        check_access(request_, caller)

    assert str(refused.value) == str(AgentNotFound("codex"))
    assert refused.value.hint == AgentNotFound("codex").hint


def test_credentials_for_some_agents_cannot_register_others() -> None:
    caller = only("register", agents=frozenset({"claude"}))

    check_access(RemoveAgent("claude"), caller)
    for agent in ("", "claude", "codex"):
        with pytest.raises(Forbidden, match="limited to some agents"):
            check_access(RegisterAgent(url="http://a", agent=agent), caller)


def test_an_agent_of_others_looks_missing_also_for_forbidden_requests() -> None:
    with pytest.raises(AgentNotFound):
        check_access(ForAgent("codex", CancelTask("t")), only("read", agents=frozenset({"claude"})))


def test_a_caller_may_use_its_listed_agents_or_all() -> None:
    assert may_use(ALL, "codex")
    assert may_use(only(agents=frozenset({"codex"})), "codex")
    assert not may_use(only(agents=frozenset({"codex"})), "claude")
    assert not may_use(only(agents=frozenset()), "claude")


def test_terminals_are_open_to_granted_credentials_and_to_people() -> None:
    check_action(ATTACH, only("attach"))
    check_action(ATTACH, Caller(via_socket=True))


@pytest.mark.parametrize(
    "caller",
    [
        only("read", "send", "cancel", "approve", "register"),
        Caller(is_owner=True),
        ALL,
        Caller(via_socket=True, agent_id="synapse-claude-8100"),
        Caller(via_socket=True, doubt="it has exited"),
        Caller(via_socket=True, terminal_doubt="it has no terminal"),
    ],
    ids=["other actions", "owner without credentials", "without limits", "agent", "doubtful", "no terminal"],
)
def test_terminals_are_closed_to_everybody_else(caller: Caller) -> None:
    with pytest.raises(Forbidden):
        check_action(ATTACH, caller)
