"""The tools on this machine: asks the hosts of agents, for the agent that launched this process or for a person.

    an agent's launch   a task on its own host waits for the answer; when the call ends first, the waiter leaves, and
                        the host delivers the answer as a message
    a person's app      it has no host of its own, so it follows the receiver's task

`synapse mcp` must start quickly: what only a waiting or failing call needs is loaded then.
"""

import _thread
import os

from synapse.client.hosts import (
    ask,
    current_folder,
    find_agent,
    own_agent,
    post_message,
    post_reply,
    require_own_agent,
    sender_fields,
)
from synapse.client.views import has_left, is_answered, reply_of, status_of
from synapse.core.address import PERSON, is_marked, short_name, split_inbox, split_machine
from synapse.core.agent import WAITING, AgentEntry
from synapse.core.json_text import object_in
from synapse.mcp import tools
from synapse.mcp.tools import (
    AgentsCall,
    AskPersonCall,
    CancelCall,
    ReplyCall,
    SendCall,
    StatusCall,
    ToolResult,
)
from synapse.registry.files import FileRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from synapse.client.watch import TaskWatch
    from synapse.core.errors import SynapseError
    from synapse.mcp.tools import Call

    TaskFields = dict[str, Any]
    FindTask = Callable[[str, FileRegistry], tuple[AgentEntry, TaskFields]]
    CancelStored = Callable[[list[str]], list[TaskFields | SynapseError]]

SHORTEST_WAIT = 1.0
"""A shorter wait could end before the message is sent."""
PROGRESS_SECONDS = 3.9
"""A wait looks up every 2 s, so progress is reported every 4 s. The most impatient client gives up after 60."""
STATUS_SECONDS = 1.0
SHORTEST_TASK_ID = 4


class RunningCall:
    """A call in progress: reports progress to its client, and lets the transport end its wait."""

    __slots__ = ("_lock", "_watch", "doing", "hand_over", "is_left", "report", "reported")

    def __init__(self, report: "Callable[[str], None]") -> None:
        self._lock = _thread.allocate_lock()
        self._watch: TaskWatch | None = None
        self.report = report
        self.reported = 0.0
        self.doing = ""
        self.hand_over: Callable[[], None] | None = None
        """Delivers the answer in the result as a message. The transport calls it if its client does not get it."""
        self.is_left = False
        """Whether nobody reads the result any more: the client canceled the call, or has gone."""

    def watch(self, watch: "TaskWatch") -> None:
        """Makes `leave` end this wait."""
        with self._lock:
            self._watch = watch
            if self.is_left:
                watch.interrupt()

    def leave(self) -> None:
        """Ends the wait of the call, if it waits, now or later."""
        with self._lock:
            self.is_left = True
            if self._watch is not None:
                self._watch.interrupt()


class LocalTools:
    """Runs calls; several at once, each in its own thread."""

    def __init__(
        self,
        registry: FileRegistry,
        monotonic: "Callable[[], float]",
        *,
        longest_wait: float,
        find_task: "FindTask",
        cancel_stored: "CancelStored",
    ) -> None:
        """`find_task` and `cancel_stored` also know the tasks of agents that are not running."""
        self._registry = registry
        self._monotonic = monotonic
        self._longest_wait = longest_wait
        self._find_task = find_task
        self._cancel_stored = cancel_stored

    def run(self, call: "Call", running: RunningCall) -> ToolResult:
        """Runs the call and returns its result.

        Raises:
            SynapseError: a host refuses or does not answer.
        """
        match call:
            case AgentsCall():
                return self._agents()
            case SendCall():
                return self._send(call, running)
            case ReplyCall():
                return self._reply(call)
            case StatusCall():
                return self._status(call)
            case AskPersonCall():
                return self._ask_person(call, running)
            case CancelCall():
                return self._cancel(call)

    def _agents(self) -> ToolResult:
        from synapse.client.fan_out import ask_all

        own = own_agent(self._registry)
        lines: list[str] = []
        for reply in ask_all(self._registry.entries(), "GET", "/status"):
            entry = reply.entry
            status = reply.body
            if reply.error is not None:
                # One that refuses us runs, whatever it does.
                state = "" if isinstance(reply.error, _not_responding()) else "unknown"
                status = {"state": state, "why": str(reply.error), "agent_type": entry.agent_type}
            is_self = own is not None and own.agent_id == entry.agent_id
            lines.append(tools.agent_line(short_name(entry), status, role=entry.role, is_self=is_self))
        lines += self._remote_agents()
        return ToolResult("\n".join(lines) or "No agent is running.")

    def _remote_agents(self) -> "list[str]":
        """Returns the lines of `agents` for the other machines of the fleet; none for a machine that is in no fleet."""
        home = os.path.dirname(self._registry.folder)
        if not os.path.exists(os.path.join(home, "fleet")):
            return []
        from synapse.client.link import fleet_agents, is_in_fleet

        if not is_in_fleet(home):
            return []
        try:
            agents, machines = fleet_agents(home, fresh=True)
        except _any_error() as error:
            return [f"Agents on other machines are not known now: {error}"]
        lines = [tools.agent_line(entry.name, fields, role=entry.role) for entry, fields in agents]
        return lines + [tools.away_line(one) for one in machines if one.get("present") is False]

    def _send(self, call: SendCall, running: RunningCall) -> ToolResult:
        name, own = call.to.removeprefix("@"), own_agent(self._registry)
        if split_machine(name)[0] == PERSON or is_marked(name):
            step = "Answer its request with `reply`." if own else "Call `agents` to see who is here."
            return ToolResult(f"'{name}' is not an agent. {step}", is_error=True)
        entry = find_agent(call.to, self._registry)
        if call.waits and own is not None and own.agent_id == entry.agent_id:
            return ToolResult(
                f"You are {short_name(entry)}: you cannot answer while you wait. Nothing was sent.", is_error=True
            )
        key = call.key or os.urandom(8).hex()
        # Message ids of all senders share one space at the receiver; keys of models are short and collide.
        mine = (own.inbox or own.agent_id) if own else PERSON
        parts = [{"type": "text", "text": call.text}, *self._files(call.files)]
        body: dict[str, Any] = {
            "message": {"role": "user", "parts": parts, "message_id": f"{mine}:{key}"},
            "metadata": {"sender": sender_fields(self._registry)},
        }
        try:
            if not call.waits:
                return tools.sent(self._post(entry, body, call), short_name(entry))
            body["metadata"]["response_expected"] = True
            if own is None:
                return self._wait_at_receiver(entry, body, call, running)
            return self._wait_at_home(own, entry, body, call, running)
        except _not_responding() as error:
            error.hint = "the message was not sent"
            # The task that waits comes first: without it nothing was sent.
            is_tried = own is None or not call.waits or "sender_task_id" in body["metadata"]
            if is_tried and _is_in_doubt(error):
                error.hint = f'it may have arrived nevertheless; to send it again only once: idempotency_key="{key}"'
            raise

    def _post(self, entry: AgentEntry, body: "dict[str, Any]", call: SendCall) -> "TaskFields":
        return post_message(entry, body, self._registry, warn=lambda _notice: None, priority=call.priority)

    def _wait_at_receiver(
        self, entry: AgentEntry, body: "dict[str, Any]", call: SendCall, running: RunningCall
    ) -> ToolResult:
        """Sends as a person and follows the receiver's task."""
        sent = self._post(entry, body, call)
        task_id, name = str(sent.get("id", "")), short_name(entry)
        watch = self._new_watch(entry, entry, call.timeout, running, f"waiting for {name}")
        task, why = self._follow(watch, task_id, running)
        watch.close()
        if task is not None:
            return tools.answered(task, name)
        return tools.look_later(task_id, name, why or self._obstacle(entry))

    def _wait_at_home(
        self, own: AgentEntry, entry: AgentEntry, body: "dict[str, Any]", call: SendCall, running: RunningCall
    ) -> ToolResult:
        """Sends as an agent: a task on its own host waits for the reply."""
        from synapse.client.watch import WaitLeft, leave, open_waiting

        name, waiting_id = short_name(entry), open_waiting(own, entry, body)
        watch = self._new_watch(own, entry, call.timeout, running, f"waiting for {name}")
        try:
            # Followed before it is sent: a reply without a waiter would be typed into our own prompt as well.
            watch.follow(waiting_id)
            sent = self._post(entry, body, call)
        except (WaitLeft, TimeoutError):
            watch.close()
            self._cancel_quietly(own, waiting_id)
            return ToolResult("The call ended before anything was sent.", is_error=True)
        except BaseException as error:
            watch.close()
            if _is_in_doubt(error):
                # It may still be answered; then the answer arrives as a message.
                leave(own, waiting_id)
            else:
                self._cancel_quietly(own, waiting_id)
            raise
        sent_id = str(sent.get("id", ""))
        if str(object_in(sent, "metadata").get("sender_task_id") or waiting_id) != waiting_id:
            # The same key was sent before: that message's own waiting task gets the answer, not this one.
            watch.close()
            self._cancel_quietly(own, waiting_id)
            if is_answered(sent):
                return tools.answered(sent, name)
            return tools.arrives_later(sent_id, name, "this message was sent before")
        task, why = self._follow_or_leave(own, watch, waiting_id, running)
        if task is None:
            return tools.arrives_later(sent_id, name, why or self._obstacle(entry))
        running.hand_over = lambda: self._hand_over(own, task, name)
        return tools.answered(task, name, sent_id)

    def _new_watch(
        self, host: AgentEntry, receiver: AgentEntry, timeout: "float | None", running: RunningCall, doing: str
    ) -> "TaskWatch":
        from synapse.client.watch import TaskWatch

        wait = max(SHORTEST_WAIT, min(timeout or self._longest_wait, self._longest_wait))
        deadline = self._monotonic() + wait
        running.doing, running.reported = doing, self._monotonic()

        def pulse(_receiver: AgentEntry) -> None:
            self._report(running)

        watch = TaskWatch(host, receiver, self._registry, self._monotonic, deadline, pulse)
        running.watch(watch)
        return watch

    def _follow_or_leave(
        self, own: AgentEntry, watch: "TaskWatch", task_id: str, running: RunningCall
    ) -> "tuple[TaskFields | None, str]":
        """Returns a task of our own host with its answer, or None if that arrives as a message, and why."""
        from synapse.client.watch import leave

        task, why = self._follow(watch, task_id, running)
        # A stream that broke for a while has left, and its answer was typed: it must not be told twice.
        found = leave(own, task_id) if task is None else {} if has_left(task) else task
        watch.close()
        return found or None, why

    def _report(self, running: RunningCall) -> None:
        """Tells the client now and then that the call goes on: some then do not give it up."""
        if self._monotonic() - running.reported >= PROGRESS_SECONDS:
            running.reported = self._monotonic()
            running.report(running.doing)

    def _follow(self, watch: "TaskWatch", task_id: str, running: RunningCall) -> "tuple[TaskFields | None, str]":
        """Returns the task once it is answered, or None and why the wait ended first."""
        from synapse.client.watch import WaitLeft

        try:
            return watch.wait(task_id, is_answered, lambda _task: self._report(running)), ""
        except (TimeoutError, WaitLeft):
            return None, "the call was canceled" if running.is_left else ""
        except _not_responding() as error:
            return None, str(error)

    def _hand_over(self, own: AgentEntry, task: "TaskFields", name: str) -> None:
        """Sends the agent an answer that came while its client canceled the call or went, so that it is not lost."""
        text = f"The answer of {name} to your canceled question:\n{reply_of(task) or status_of(task)}"
        message = {
            "role": "user",
            "parts": [{"type": "text", "text": text}],
            "message_id": f"handed-over:{task.get('id', '')}",
        }
        body = {"message": message, "metadata": {"sender": sender_fields(self._registry)}}
        try:
            post_message(own, body, self._registry, warn=lambda _notice: None)
        except _any_error():
            return  # the agent's host is gone, and the task keeps the answer

    def _obstacle(self, entry: AgentEntry) -> str:
        """Returns what the receiver is doing, in a few words; empty if it does not say."""
        try:
            status = ask(entry, "GET", "/status", timeout=STATUS_SECONDS)
        except _any_error():
            return "it does not respond"
        state = str(status.get("state") or "")
        return "it waits for a person" if state == WAITING else f"it is {state}" if state else ""

    def _reply(self, call: ReplyCall) -> ToolResult:
        own = require_own_agent(self._registry)
        parts = [{"type": "text", "text": call.text}, *self._files(call.files)]
        try:
            replied = post_reply(own, parts, task_id=call.task, failed=call.failed)
        except _any_error() as error:
            if error.code != "task_not_found":
                raise
            if call.task:
                return ToolResult(f"No open request has the id '{call.task}'. Nothing was sent.", is_error=True)
            return ToolResult(
                "No request waits for your reply. Nothing was sent. A message without `:R` needs none; to write to an "
                "agent on your own account use `send`.",
                is_error=True,
            )
        return ToolResult(f"task {str(replied.get('task_id', ''))[:8]}, replied to {replied.get('to', '')}.")

    def _status(self, call: StatusCall) -> ToolResult:
        from synapse.core.errors import AgentNotFound, Ambiguous, TaskNotFound

        try:
            entry = find_agent(call.of, self._registry)
        except AgentNotFound as error:
            try:
                owner, task = self._find_task(call.of, self._registry)
            except (TaskNotFound, Ambiguous) as missing:
                # A short name such as `d1` is the beginning of many ids, but not meant as one.
                raise (error if len(call.of) < SHORTEST_TASK_ID else missing) from None
            return tools.task_status(task, short_name(owner))
        return tools.agent_status(short_name(entry), ask(entry, "GET", "/status"))

    def _ask_person(self, call: AskPersonCall, running: RunningCall) -> ToolResult:
        own = require_own_agent(self._registry)
        message = {
            "role": "user",
            "parts": [{"type": "text", "text": call.question}],
            "message_id": os.urandom(16).hex(),
        }
        try:
            created = ask(own, "POST", "/questions", {"message": message, "options": call.options})
        except _any_error() as error:
            if error.code != "route_not_found":
                raise
            return ToolResult("This agent's host is too old for questions: ask in your own words.", is_error=True)
        task_id = str(object_in(created, "task").get("id", ""))
        watch = self._new_watch(own, own, call.timeout, running, "waiting for a person")
        task, why = self._follow_or_leave(own, watch, task_id, running)
        if task is None:
            return tools.arrives_later(task_id, "the person", why)
        running.hand_over = lambda: self._hand_over(own, task, "the person")
        return tools.person_answered(task)

    def _cancel(self, call: CancelCall) -> ToolResult:
        own = own_agent(self._registry)
        entry, task = self._find_task(call.task, self._registry)
        if own is not None and not self._is_from(own, task):
            return ToolResult(
                f"Task {call.task} is not yours: only its sender or a person may cancel it. A request that you cannot "
                "do is answered with reply(failed=true).",
                is_error=True,
            )
        waiting_id = str(object_in(task, "metadata").get("sender_task_id") or "")
        if own is not None and waiting_id:
            # First: otherwise the end of the canceled task would arrive as an answer.
            self._cancel_quietly(own, waiting_id)
        if entry.pid:
            done = object_in(ask(entry, "POST", f"/tasks/{task['id']}/cancel", {}), "task")
            return tools.canceled(done, short_name(entry))
        (stored,) = self._cancel_stored([str(task["id"])])
        if isinstance(stored, dict):
            return tools.canceled(stored, short_name(entry))
        raise stored

    def _is_from(self, own: AgentEntry, task: "TaskFields") -> bool:
        """Decides whether the agent is the proven sender of the task. After a restart it may have another id."""
        metadata = object_in(task, "metadata")
        if metadata.get("sender_verified") is not True:
            return False
        inbox, machine = split_inbox(str(metadata.get("sender_inbox") or ""))
        sender_id = str(object_in(metadata, "sender").get("sender_id") or "")
        if machine:
            # A task on another machine names its sender with this machine; one here, with that of the sender.
            from synapse.client.link import own_machine

            if machine != own_machine(os.path.dirname(self._registry.folder)):
                return False
            sender_id = split_machine(sender_id)[0]
        return (bool(own.inbox) and inbox == own.inbox) or sender_id == own.agent_id

    def _cancel_quietly(self, own: AgentEntry, task_id: str) -> None:
        """Cancels a task of our own host that nothing will answer, if it is still open."""
        try:
            ask(own, "POST", f"/tasks/{task_id}/cancel", {})
        except _any_error():
            return  # it has ended, or its host is gone

    def _files(self, paths: "list[str]") -> "list[dict[str, Any]]":
        if not paths:
            return []
        from synapse.mcp.files import file_parts

        own = own_agent(self._registry)
        return file_parts(paths, (own.working_dir if own else "") or current_folder())


def _is_in_doubt(error: BaseException) -> bool:
    """Decides whether a host may have read the request despite the error."""
    return getattr(error.__cause__, "sent", False) is True


def _any_error() -> "type[SynapseError]":
    """Returns the class of our errors. Called only after one: the error classes are slow to load."""
    from synapse.core.errors import SynapseError

    return SynapseError


def _not_responding() -> "type[SynapseError]":
    """Returns the class of errors of a host that does not answer, as `_any_error` does."""
    from synapse.core.errors import AgentNotResponding

    return AgentNotResponding
