"""After any appends, deletions, prunes, restarts and cut-off updates, the search index finds what a scan finds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.errors import Conflict
from synapse.core.events import ArtifactAdded, MessageAdded, StateChanged, TaskEvent, TaskHidden, TaskOpened
from synapse.core.lifecycle import apply, replay
from synapse.core.message import Artifact, Message, MessageId, Part, Role, TextPart
from synapse.core.store import TaskQuery
from synapse.core.task import Task, TaskId, TaskState
from synapse.store.search_words import Search, text_of_task
from tests.fakes.facts import START, numbered
from tests.fakes.leased_store import LeasedStore
from tests.fakes.memory_store import MemoryStore

# Few words, so that searches find something; any characters, so that they find nothing that is not there.
WORDS = ("parser", "pars", "lexer", "Café", "cafe", "日本", "本", "a-b", "b", "ﬁne", "x_y", "\ud800", "İ", "ß")
texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=4).map(" ".join)
quoted = st.tuples(texts, st.sampled_from(['"', ""])).map(lambda one: f'"{one[0]}{one[1]}')
searches = (
    st.lists(st.sampled_from(WORDS) | st.text(max_size=3) | quoted, min_size=1, max_size=3).map(" ".join).filter(bool)
)
ids = itertools.count(1)


def parts(text: str) -> tuple[Part, ...]:
    return (TextPart(text=text),)


def message(text: str) -> Message:
    return Message(message_id=MessageId(f"m-{next(ids)}"), role=Role.USER, parts=parts(text))


def changes(task: TaskId, at: datetime, text: str) -> st.SearchStrategy[TaskEvent]:
    artifact = Artifact(artifact_id="answer", parts=parts(text))
    return st.one_of(
        st.just(MessageAdded(task_id=task, at=at, message=message(text))),
        st.builds(
            ArtifactAdded, task_id=st.just(task), at=st.just(at), artifact=st.just(artifact), append=st.booleans()
        ),
        st.builds(StateChanged, task_id=st.just(task), at=st.just(at), state=st.sampled_from(TaskState)),
        st.just(TaskHidden(task_id=task, at=at)),
    )


class Stores:
    """The store in SQLite, which may be opened anew, and the one that scans."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.scanned = MemoryStore()
        self.tasks: dict[TaskId, Task] = {}

    async def open(self) -> None:
        self.indexed = await LeasedStore.open(self._folder / "store.db")

    async def restart(self) -> None:
        await self.indexed.close()
        await self.open()

    async def append(self, task: Task, events: Sequence[TaskEvent]) -> None:
        self.tasks[task.id] = task
        await self.indexed.append(task, events)
        await self.scanned.append(task, events)

    async def prune(self, before: datetime) -> None:
        await self.indexed.prune(before)
        await self.scanned.prune(before)
        old = [one.id for one in self.tasks.values() if one.state.is_terminal and one.updated_at < before]
        for task_id in old:
            del self.tasks[task_id]

    async def check(self, text: str) -> None:
        for query in (TaskQuery(text=text), TaskQuery(text=text, scope="local", limit=2)):
            assert await self.indexed.list(query) == await self.scanned.list(query)
        visible = [task for task in self.tasks.values() if not task.hidden]
        expected = {task.id for task in visible if Search.parse(text).finds(text_of_task(task))}
        assert {task.id for task in (await self.indexed.list(TaskQuery(text=text))).tasks} == expected


class Story:
    """Does one thing after another to the stores, as `data` decides."""

    def __init__(self, stores: Stores, data: st.DataObject) -> None:
        self._stores = stores
        self._data = data
        self._at = START
        self._opened = 0

    async def go_on(self) -> None:
        self._at += timedelta(seconds=1)
        acts = (self.open, self.change, self.change, self.prune, self._stores.restart, self.update, self.search)
        await self._data.draw(st.sampled_from(acts))()

    async def open(self) -> None:
        self._opened += 1
        await self._stores.append(*opening(self._opened, self._at, self._data.draw(texts)))

    async def change(self) -> None:
        if not self._stores.tasks:
            return
        task = self._stores.tasks[self._data.draw(st.sampled_from(sorted(self._stores.tasks)))]
        event = self._data.draw(changes(task.id, self._at, self._data.draw(texts)))
        with suppress(Conflict):
            await self._stores.append(apply(task, event), [event])

    async def prune(self) -> None:
        await self._stores.prune(self._at - timedelta(seconds=self._data.draw(st.integers(0, 5))))

    async def update(self) -> None:
        await self._stores.indexed.update_search(self._data.draw(st.sampled_from([0.0, 0.001, 1.0])))

    async def search(self) -> None:
        await self._stores.check(self._data.draw(searches))


@settings(max_examples=25)
@given(data=st.data())
def test_the_index_finds_what_a_scan_finds(data: st.DataObject) -> None:
    async def run() -> None:
        with TemporaryDirectory(prefix="synapse-search-") as folder:
            stores = Stores(Path(folder))
            await stores.open()
            story = Story(stores, data)
            try:
                async with asyncio.timeout(20):
                    for _ in range(data.draw(st.integers(1, 14), label="steps")):
                        await story.go_on()
                    await story.search()
            finally:
                await stores.indexed.close()

    asyncio.run(run())


def opening(number: int, at: datetime, text: str) -> tuple[Task, list[TaskEvent]]:
    events: list[TaskEvent] = [
        TaskOpened(
            task_id=numbered(number),
            at=at.astimezone(UTC),
            agent_id="synapse-codex-8120",
            inbox="codex@/proj",
            context_id="context",
            scope="local",
            dialect="synapse",
            message=message(text),
        )
    ]
    return replay(events), events
