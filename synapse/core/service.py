"""The ports of the service: TaskService has a typed method for each request about tasks, Handler takes any request.

    server ──► Handler (access, limits, metrics) ──► METHODS ──► TaskService
                                                                 AgentTasks, GatewayTasks, StoppedTasks

Code that knows which request it makes calls a method of TaskService. A server, which only carries requests, calls
`Handler.handle`, whose result has the type that the request names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar

from synapse.core import requests
from synapse.core.caller import Caller
from synapse.core.push import PushConfig
from synapse.core.requests import ExternalAgent, ExternalAnswer, HostStatus, PendingTask, Replied, Request, TaskStream
from synapse.core.store import TaskPage
from synapse.core.task import Task

R = TypeVar("R")


class TaskService(Protocol):
    """Answers requests about tasks: of one agent, or of all agents behind a gateway.

    A task that the caller must not see looks like a missing one. Every method may raise UnsupportedOperation for what
    an implementation does not do, StoreFailed, and the errors that the implementation names.
    """

    def send(self, request: requests.SendMessage, caller: Caller, /) -> Awaitable[Task]:
        """Returns the new task, or the task that the message continues, once it is durable."""
        ...

    def send_and_wait(self, request: requests.SendAndWait, caller: Caller, /) -> Awaitable[PendingTask]: ...

    def send_and_follow(self, request: requests.SendAndFollow, caller: Caller, /) -> Awaitable[TaskStream]:
        """Returns the updates of the task until it ends or waits for input."""
        ...

    def create(self, request: requests.CreateTask, caller: Caller, /) -> Awaitable[Task]: ...

    def leave(self, request: requests.LeaveTask, caller: Caller, /) -> Awaitable[Task]:
        """Raises TaskNotFound, PersonRequired, or Conflict when the task waits for no reply."""
        ...

    def get(self, request: requests.GetTask, caller: Caller, /) -> Awaitable[Task]:
        """Raises TaskNotFound, or AmbiguousTask for a prefix of several ids."""
        ...

    def get_message(self, request: requests.GetMessage, caller: Caller, /) -> Awaitable[Task]:
        """Raises NotFound."""
        ...

    def list(self, request: requests.ListTasks, caller: Caller, /) -> Awaitable[TaskPage]: ...

    def follow(self, request: requests.FollowTask, caller: Caller, /) -> Awaitable[TaskStream]:
        """Raises TaskNotFound, or UnsupportedOperation when the task has ended."""
        ...

    def subscribe(self, request: requests.SubscribeTask, caller: Caller, /) -> Awaitable[TaskStream]:
        """Raises TaskNotFound."""
        ...

    def cancel(self, request: requests.CancelTask, caller: Caller, /) -> Awaitable[Task]:
        """Raises TaskNotFound or TaskNotCancelable."""
        ...

    def change(self, request: requests.ChangeTask, caller: Caller, /) -> Awaitable[Task]:
        """Raises TaskNotFound, InvalidField, IllegalTransition or TaskFinished."""
        ...

    def delete(self, request: requests.DeleteTask, caller: Caller, /) -> Awaitable[Task]:
        """Raises TaskNotFound."""
        ...

    def resolve(self, request: requests.ResolveTask, caller: Caller, /) -> Awaitable[Task]:
        """Raises TaskNotFound, PersonRequired, or Conflict when the task is not in doubt."""
        ...

    def answer(self, request: requests.AnswerQuestion, caller: Caller, /) -> Awaitable[Task | None]:
        """Returns the task that continues; None if the agent asked outside of a task. Raises NothingAsked."""
        ...

    def reply(self, request: requests.Reply, caller: Caller, /) -> Awaitable[Replied]:
        """Raises TaskNotFound if no agent waits for a reply, or PersonRequired."""
        ...

    def status(self, request: requests.GetStatus, caller: Caller, /) -> Awaitable[HostStatus]: ...

    def set_push(self, request: requests.SetPushConfig, caller: Caller, /) -> Awaitable[PushConfig]:
        """Raises TaskNotFound, InvalidField or PushNotSupported."""
        ...

    def get_push(self, request: requests.GetPushConfig, caller: Caller, /) -> Awaitable[PushConfig]:
        """Raises TaskNotFound, PushConfigNotFound or PushNotSupported."""
        ...

    def list_push(self, request: requests.ListPushConfigs, caller: Caller, /) -> Awaitable[tuple[PushConfig, ...]]:
        """Raises TaskNotFound or PushNotSupported."""
        ...

    def delete_push(self, request: requests.DeletePushConfig, caller: Caller, /) -> Awaitable[None]:
        """Raises TaskNotFound or PushNotSupported."""
        ...


class ExternalAgents(Protocol):
    """Keeps external agents by alias, and sends them messages. Every method may raise StoreFailed."""

    async def add(self, request: requests.AddExternal, /) -> ExternalAgent:
        """Finds an agent by its card and stores it. Raises InvalidRequest, Conflict or ExternalAgentFailed."""
        ...

    async def list(self) -> tuple[ExternalAgent, ...]:
        """Returns the known external agents, sorted by alias."""
        ...

    async def remove(self, request: requests.RemoveExternal, /) -> ExternalAgent:
        """Removes an agent and returns it. Raises ExternalAgentNotFound."""
        ...

    async def send(self, request: requests.SendExternal, /) -> ExternalAnswer:
        """Sends a message; returns the answer so far after a bounded wait.

        Raises ExternalAgentNotFound, ExternalAgentFailed or WaitTimedOut.
        """
        ...


class Handler(Protocol):
    """Answers any request. Access checks, stream limits and metrics are Handlers around another one."""

    def handle(self, request: Request[R], caller: Caller) -> Awaitable[R]:
        """Raises a SynapseError, at once or when it is awaited."""
        ...


METHODS: Final[Mapping[type[Request[object]], str]] = {
    requests.SendMessage: "send",
    requests.SendAndWait: "send_and_wait",
    requests.SendAndFollow: "send_and_follow",
    requests.CreateTask: "create",
    requests.LeaveTask: "leave",
    requests.GetTask: "get",
    requests.GetMessage: "get_message",
    requests.ListTasks: "list",
    requests.FollowTask: "follow",
    requests.SubscribeTask: "subscribe",
    requests.CancelTask: "cancel",
    requests.ChangeTask: "change",
    requests.DeleteTask: "delete",
    requests.ResolveTask: "resolve",
    requests.AnswerQuestion: "answer",
    requests.Reply: "reply",
    requests.GetStatus: "status",
    requests.SetPushConfig: "set_push",
    requests.GetPushConfig: "get_push",
    requests.ListPushConfigs: "list_push",
    requests.DeletePushConfig: "delete_push",
    # Only on the host of one agent, and for one that is not running:
    requests.VoidMessage: "void",
    # Only on the host of one agent:
    requests.AskPerson: "ask_person",
    requests.FollowStatus: "follow_status",
    requests.WatchStatus: "watch_status",
    requests.GetScreen: "screen",
    requests.ReportSignal: "report_signal",
    requests.ReportTools: "report_tools",
    requests.OnBehalfOf: "on_behalf_of",
    requests.AddExternal: "add_external",
    requests.ListExternals: "list_externals",
    requests.RemoveExternal: "remove_external",
    requests.SendExternal: "send_external",
    # Only on a gateway:
    requests.ForAgent: "for_agent",
    requests.ListAgents: "list_agents",
    requests.GetAgent: "get_agent",
    requests.RegisterAgent: "register_agent",
    requests.RemoveAgent: "remove_agent",
    requests.IssueTicket: "issue_ticket",
    requests.GetMetrics: "get_metrics",
    requests.GetFigures: "get_figures",
    requests.GetOverview: "get_overview",
    requests.WatchOverview: "watch_overview",
    requests.GetAgentOverview: "get_agent_overview",
    requests.GetAgentScreen: "get_agent_screen",
    requests.MarkSeen: "mark_seen",
    requests.GetTimeline: "get_timeline",
}
"""The name of the method that handles each request, on every class that handles it."""


def method_for(service: object, request: Request[R]) -> Callable[[Request[R], Caller], Awaitable[R]] | None:
    """Returns the method of `service` that handles `request`, or None if it has none."""
    # That it takes this request and returns its result is checked by tests/unit/gateway/test_service_methods.py.
    method: Callable[[Request[R], Caller], Awaitable[R]] | None = getattr(service, METHODS[type(request)], None)
    return method
