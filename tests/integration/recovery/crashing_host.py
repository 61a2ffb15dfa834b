"""Lets a host without sockets die at each of its steps, and another take up what it left; see test_crash_matrix.py.

    python crashing_host.py FOLDER

For N = 1, 2, … a process of its own does the same work over a store in FOLDER/N, and is killed, as by `kill -9`, at its
Nth point: before a transaction, in it, before its end, behind it, and before and after its program gets a text. A
second process does what a new host does, with a client that sends everything again and a person who decides about what
is in doubt. That goes on until a first process came to its end.

    FOLDER/N/told       what the client was told, by whichever process
    FOLDER/N/received   what the program got

The product has no code for this: the classes that do these things are wrapped here, in these processes only.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from synapse.core.caller import Caller
from synapse.core.driver import Answered, DeliveryUncertain, Failed, Submitted, Turn, TurnEvent, Typing
from synapse.core.message import Message, TextPart
from synapse.core.push import PushConfig
from synapse.core.requests import ResolveTask, SendMessage
from synapse.core.task import Task, TaskId
from synapse.store import file
from synapse.store.sqlite import SqliteStore
from synapse.store.writer import Work, Writer
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import ME, AgentHarness, say, working
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import settle

LETTERS = ("answered at once", "typed", "doubtful", "with a webhook", "answered at once, too")
"""Each is also the id of its message."""
WEBHOOKS = {"with a webhook": PushConfig(id="c-1", url="https://example.com/h", dialect="a2a_v1")}
MOST_POINTS = 500
_TELLING = ("BEGIN IMMEDIATE", "INSERT INTO appends", "COMMIT")
_PERSON = Caller(via_socket=True)


class Fate:
    """Kills this process at its Nth point; never, if that is 0."""

    def __init__(self, number: int) -> None:
        self._left = number

    def point(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def follow_the_store(self) -> None:
        connect = file.connect
        write = Writer._write  # pyright: ignore[reportPrivateUsage] # see the module's first lines

        def watched(path: Path, *, lock_timeout: float) -> sqlite3.Connection:
            connection = connect(path, lock_timeout=lock_timeout)
            connection.set_trace_callback(lambda statement: self.point() if statement.startswith(_TELLING) else None)
            return connection

        def written(writer: Writer, batch: Sequence[Work]) -> list[Any]:
            outcomes = write(writer, batch)
            self.point()
            return outcomes

        file.connect = watched
        Writer._write = written  # type: ignore[method-assign, assignment] # see the module's first lines


class Program(FakeDriver):
    """Writes down what it gets. A text that is doubtful it gets only when it is typed for the second time."""

    def __init__(self, folder: Path, fate: Fate) -> None:
        super().__init__(self._plot)
        self._folder = folder
        self._fate = fate
        self.on_typing = self._get
        self.holds_before = Failed
        self.go_on.clear()

    def _plot(self, turn: Turn) -> list[TurnEvent]:
        answer = Answered(parts=(TextPart(text="done"),), source="screen")
        if turn.message.text == "doubtful" and "doubtful" not in lines(self._folder / "typed"):
            return [Typing(), DeliveryUncertain("nothing shows that the program took it"), Failed("never", "reached")]
        return [Typing(), Submitted("screen", "the prompt was cleared"), answer]

    def _get(self) -> None:
        text = self.typed[-1]
        self._fate.point()
        gets_it = text != "doubtful" or text in lines(self._folder / "typed")
        note(self._folder / "typed", text)
        if gets_it:
            note(self._folder / "received", text)
        self._fate.point()


def answer_at_once(message: Message) -> Sequence[TurnEvent] | None:
    if not message.text.startswith("answered at once"):
        return None
    return [Submitted("script", "taken"), Answered(parts=(TextPart(text="at once"),), source="script")]


async def live(folder: Path, fate: Fate) -> None:
    """Do what a host does: take up what was left, take in what is sent, and do what a person decides."""
    store = await SqliteStore.open(folder / "store.db")
    lease = await store.acquire(ME.inbox, str(os.getpid()), lambda _holder: False)
    assert lease is not None
    # A harness needs of it what every store has.
    harness = AgentHarness(
        Program(folder, fate),
        cast("MemoryStore", store),
        answer_at_once=answer_at_once,
        new_id=lambda: str(uuid.uuid4()),
        lease=lease,
    )
    await harness.recover()
    async with working(harness):
        for letter in LETTERS:
            sent = SendMessage(message=say(letter, letter), dialect="synapse", push=WEBHOOKS.get(letter))
            if letter.startswith("answered at once"):
                await idle(harness, letter)
                task = await harness.settled(sent)
            else:
                task = await harness.service.send(sent, Caller())
                tell(folder, letter, task)
                task = await decided(harness, folder, task.id)
            tell(folder, letter, task)
    await store.close()


async def idle(harness: AgentHarness, letter: str) -> None:
    """Wait for the end of the turn that was told last, if the letter is new: only then is it answered at once."""
    async with asyncio.timeout(20):
        while await harness.store.find_message("", "", letter) is None and harness.worker.current is not None:
            await settle()


async def decided(harness: AgentHarness, folder: Path, task_id: TaskId) -> Task:
    """The task when it has ended; whenever it is in doubt, a person looks at the program and decides."""
    attention = ""
    async with asyncio.timeout(20):
        async for update in harness.feed.follow(task_id, None):
            task, before = update.task, attention
            attention = task.attention
            if attention and not before:
                verdict = "delivered" if task.message.text in lines(folder / "received") else "retry"
                await harness.service.handle(ResolveTask(task_id=task_id, verdict=verdict), _PERSON)
    return await harness.task(task_id)


def tell(folder: Path, letter: str, task: Task) -> None:
    note(folder / "told", f"{letter}|{task.id}|{task.state.value}")


def note(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def in_a_process(life: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Whether it came to its end, or was killed on the way. This process has one thread, so it can be doubled."""
    child = os.fork()
    if child == 0:
        asyncio.run(life())
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, -signal.SIGKILL):
        sys.exit(f"a life ended in disorder: {code}")
    return code == 0


def main(folder: Path) -> None:
    in_a_process(partial(new_store, folder / "empty.db"))
    for number in range(1, MOST_POINTS):
        place = folder / str(number)
        place.mkdir()
        shutil.copy(folder / "empty.db", place / "store.db")
        is_over = in_a_process(partial(first_life, place, Fate(number)))
        note(place / "told", "ended" if is_over else "killed")
        in_a_process(partial(live, place, Fate(0)))
        if is_over:
            return


async def new_store(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


async def first_life(folder: Path, fate: Fate) -> None:
    fate.follow_the_store()
    await live(folder, fate)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
