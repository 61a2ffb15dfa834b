"""What the link of a machine does with a real host: it relays messages of other machines, takes them back, answers."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from synapse.client.http import HostAddress, request
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import APPROVE, Caller
from synapse.core.errors import PersonRequired, SenderMismatch, TaskNotFound, WaitCycle
from synapse.core.message import Message, MessageId, Role, Sender, TextPart
from synapse.core.requests import AnswerQuestion, CommandResult, HostCommand, SendMessage, VoidMessage
from synapse.core.store import TaskStore
from synapse.core.task import Task, TaskId
from synapse.host.open_store import open_store
from synapse.host.stopped import stopped_tasks
from synapse.net.hosts import UnixHostClient
from synapse.registry.local import open_local_registry
from tests.conformance.real_hosts import scripted_host, synapse

pytestmark = pytest.mark.integration

SCRIPT = """\
[[rule]]
text = "deploy"
steps = [
  { question = "Deploy?" },
  { answer = "deployed" },
]

[[rule]]
text = "wait"
steps = [
  { question = "Go on?" },
  { answer = "done" },
]

[default]
steps = [{ answer = "hello from here" }]
"""
GEMINI = Sender(sender_id="synapse-gemini-8110", sender_type="gemini", inbox="gemini")


def on_laptop(sender: str = GEMINI.sender_id, *actions: str) -> Caller:
    return Caller(
        scope="machine:laptop",
        machine="laptop",
        remote_sender=sender,
        actions=frozenset({"read", "send", "cancel", *actions}),
        sees_all=bool(actions),
    )


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Link:
    """The parts of a link that speak with one host."""

    entry: AgentEntry
    hosts: UnixHostClient
    store: TaskStore
    home: Path

    async def ask(self, command: HostCommand, caller: Caller | None = None) -> CommandResult:
        return await self.hosts.command(self.entry, command, caller or on_laptop())

    async def task_when(self, task_id: str, holds: Callable[[Task], bool]) -> Task:
        """Waits for a state of the task, as the link does: by the log."""
        while True:
            seq = await self.store.last_seq()
            task = await self.store.load(TaskId(task_id))
            if holds(task):
                return task
            await self.store.wait_after(seq, 60)

    async def ended(self, task_id: str) -> Task:
        return await self.task_when(task_id, lambda task: task.state.is_terminal)

    def create_wait(self, **waits_for: str) -> str:
        """Opens a task that waits for a reply, as `synapse send --response` does."""
        body: dict[str, Any] = {"message": {"role": "user", "parts": [{"type": "text", "text": "review"}]}}
        created = request(HostAddress(self.entry.socket), "POST", "/tasks/create", {**body, "metadata": waits_for})
        return str(created.body["task"]["id"])


@asynccontextmanager
async def link() -> AsyncGenerator[Link]:
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        home = Path(folder)
        (home / "script.toml").write_text(SCRIPT, encoding="utf-8")
        with scripted_host(home, home / "script.toml", "ada") as entry:
            clock = SystemClock()
            hosts = UnixHostClient(open_local_registry(home / "registry", clock.monotonic), clock)
            store = await open_store(load_settings(environ={"SYNAPSE_HOME": folder}))
            try:
                yield Link(entry, hosts, store, home)
            finally:
                hosts.close()
                await store.close()


def relayed(text: str = "hello", **more: Any) -> SendMessage:
    message = Message(message_id=MessageId(new_id()), role=Role.USER, parts=(TextPart(text=text),))
    return SendMessage(message=message, dialect="synapse", sender=GEMINI, opens=new_id(), **more)


async def test_a_relayed_message_opens_its_task_once_and_its_end_stands_in_the_log() -> None:
    async with link() as here:
        sent = relayed(response_expected=True, sender_task_id="t-1")
        first, again = await here.ask(sent), await here.ask(sent)
        task = await here.ended(sent.opens)

        assert first.task_id == again.task_id == sent.opens
        assert (task.sender_name, task.artifacts[-1].text) == ("synapse-gemini-8110@laptop", "hello from here")
        assert "gemini@laptop" in synapse(here.home, "tasks")
        known = await here.store.find_message("", "machine:laptop", sent.message.message_id)
        assert known is not None
        assert known.task_id == sent.opens


async def test_a_message_is_taken_back_before_and_after_it_arrives() -> None:
    async with link() as here:
        late, waiting = relayed(), relayed("wait")
        voids = [VoidMessage(message_id=one.message.message_id, opens=one.opens) for one in (late, waiting)]
        assert (await here.ask(voids[0])).state == "canceled"
        assert (await here.ask(late)).state == "canceled"
        await here.ask(waiting)
        told = await here.ask(voids[1])

        assert (told.task_id, told.state) == (waiting.opens, "canceled")
        assert [(await here.ask(one)).state for one in voids] == ["canceled", "canceled"]
        assert not (await here.ended(late.opens)).artifacts


async def test_an_agent_here_gets_the_reply_of_the_machine_that_it_asked_and_of_no_other() -> None:
    async with link() as here:
        waiting = here.create_wait(waits_for="synapse-gemini-8110@laptop", waits_for_inbox="laptop!gemini")
        reply = relayed("looks good", in_reply_to=waiting)
        box3 = Caller(scope="machine:box3", machine="box3", remote_sender="user")
        with pytest.raises(SenderMismatch):
            await here.ask(reply, box3)

        assert [(await here.ask(reply)).state for _ in range(2)] == ["completed", "completed"]
        assert (await here.ended(waiting)).artifacts[-1].text == "looks good"
        with pytest.raises(TaskNotFound):
            await here.ask(relayed("too late", in_reply_to=waiting))


async def test_a_request_that_closes_a_cycle_over_machines_is_refused() -> None:
    async with link() as here:
        asked = relayed(response_expected=True, sender_task_id="t-1", waiting=("box3!aider", here.entry.inbox))
        with pytest.raises(WaitCycle, match=r"gemini-8110@laptop waits for ada waits for gemini-8110@laptop"):
            await here.ask(asked)

        assert (await here.ask(asked)).state == "failed"


async def test_only_a_person_on_a_machine_that_may_approve_answers_a_question() -> None:
    async with link() as here:
        sent = await here.ask(relayed("deploy"))
        await here.task_when(sent.task_id, lambda task: task.question is not None)
        answer = AnswerQuestion(task_id=sent.task_id, verdict="allow")
        for caller in (on_laptop(), on_laptop(GEMINI.sender_id, APPROVE), on_laptop("user")):
            with pytest.raises(PersonRequired):
                await here.ask(answer, caller)
        await here.ask(answer, on_laptop("user", APPROVE))

        task = await here.ended(sent.task_id)
        assert (task.artifacts[-1].text, task.metadata["answered"]["by"]) == ("deployed", "user@laptop")


async def test_messages_for_an_agent_that_is_away_are_kept_and_taken_back() -> None:
    async with link() as here:
        stopped = stopped_tasks(here.store, load_settings(environ={"SYNAPSE_HOME": str(here.home)}))
        bob = stopped.of("bob", "bob")
        kept, recalled = relayed(), relayed()
        await bob.send(kept, on_laptop())
        void = VoidMessage(message_id=recalled.message.message_id, opens=recalled.opens)
        assert (await bob.void(void, on_laptop())).state == "canceled"
        assert (await bob.send(recalled, on_laptop())).state == "canceled"

        with scripted_host(here.home, here.home / "script.toml", "bob"):
            assert (await here.ended(kept.opens)).artifacts[-1].text == "hello from here"
