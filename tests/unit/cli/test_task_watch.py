"""Following a task whose agent is restarted at another port: it is found by its inbox."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from synapse.client.views import is_answered
from synapse.client.watch import TaskFields, TaskWatch, WaitLeft
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentNotResponding
from synapse.registry.files import FileRegistry
from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import Fields

NO_SUCH_PID = 2**22 + 1
QUESTION: Fields = {"message": {"role": "user", "parts": [{"type": "text", "text": "review this"}]}}


def killed(inbox: str) -> AgentEntry:
    """An agent as it was before it was killed."""
    return AgentEntry("synapse-codex-8119", "codex", name=inbox, port=8119, pid=NO_SUCH_PID, inbox=inbox)


def watching(home: Path, agent: AgentEntry) -> TaskWatch:
    clock = SystemClock()
    return TaskWatch(agent, agent, FileRegistry(home / "registry"), clock.monotonic, clock.monotonic() + 10)


def nothing(_task: TaskFields) -> None:
    """Does nothing."""


def test_a_task_is_followed_at_the_host_that_has_taken_it_over(home: Path, start: HostFactory) -> None:
    again = start(name="bert")
    task = again.open(QUESTION)
    again.answer(task, "done")
    watch = watching(home, killed("bert"))

    assert watch.wait(task["id"], is_answered, nothing)["status"] == "completed"
    assert watch.receiver.agent_id == again.entry.agent_id
    watch.close()


@pytest.mark.parametrize("inbox", ["carl", ""])
def test_another_agent_is_not_asked_for_the_task(home: Path, start: HostFactory, inbox: str) -> None:
    task = start(name="bert").open(QUESTION)

    with pytest.raises(AgentNotResponding, match="8119"):
        watching(home, killed(inbox)).follow(task["id"])


def test_a_receiver_that_was_restarted_is_watched_at_its_new_port(
    synapse: Cli, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert, claude = start(name="bert"), start("claude", 8100)
    become(claude, monkeypatch)
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.01)

    def move(_task: Fields) -> None:
        start("codex", 8121, "bert").state |= {"state": "waiting", "why": "it asks at its new place"}
        bert.entry.pid, bert.entry.socket = NO_SUCH_PID, ""
        bert.registry.write(bert.entry)

    bert.on_send = move

    ran = synapse("send", "bert", "hi", "--response", "--exit-on-wait", "--timeout", "20")

    (waiting,) = claude.tasks.values()
    assert (waiting["metadata"]["waits_for"], waiting["metadata"]["waits_for_inbox"]) == ("synapse-codex-8120", "bert")
    assert (ran.code, ran.out) == (6, "bert waits for a person: it asks at its new place\n"), ran.err


def test_another_thread_ends_a_wait_at_once(home: Path, start: HostFactory) -> None:
    bert = start(name="bert")
    task, is_waiting = bert.open(QUESTION), threading.Event()
    watch = watching(home, bert.entry)
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            watch.wait(task["id"], is_answered, lambda _task: is_waiting.set())
        except WaitLeft as left:
            outcome.append(left)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert is_waiting.wait(10)
    watch.interrupt()
    waiter.join(1)

    assert not waiter.is_alive()
    assert len(outcome) == 1
    assert len(bert.resumed_after) == 1
    watch.close()


def test_a_wait_that_was_ended_before_it_began_opens_no_stream(home: Path, start: HostFactory) -> None:
    bert = start(name="bert")
    task = bert.open(QUESTION)
    watch = watching(home, bert.entry)
    watch.interrupt()

    with pytest.raises(WaitLeft):
        watch.wait(task["id"], is_answered, nothing)
    assert bert.resumed_after == []
