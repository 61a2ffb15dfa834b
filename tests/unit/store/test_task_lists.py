"""The contract of `TaskStore.list`, for every implementation: order, pages and filters."""

from __future__ import annotations

import pytest

from synapse.core.errors import InvalidRequest
from synapse.core.events import TaskEvent
from synapse.core.store import TaskQuery
from synapse.core.task import TaskId, TaskState
from tests.fakes.facts import after, handed, hidden, moved, noted, numbered, opened
from tests.unit.store.stories import AnyStore, keep


async def test_the_list_is_newest_change_first_and_filters(store: AnyStore) -> None:
    await keep(store, opened("a", at=1, context_id="c"), moved(TaskState.WORKING, "a", at=9))
    await keep(store, opened("b", at=2, context_id="c", scope="other"))
    await keep(store, opened("c", at=3, parent_id="a", agent_id="x"))
    await keep(store, opened("d", at=4, inbox="other"), moved(TaskState.FAILED, "d", at=5))
    await keep(store, opened("e", at=6), hidden("e", at=7))

    async def ids(**wanted: object) -> list[str]:
        page = await store.list(TaskQuery(**wanted))  # type: ignore[arg-type] # the fields of the query by name
        assert page.total == len(page.tasks)
        return [task.id for task in page.tasks]

    assert await ids() == ["a", "d", "c", "b"]
    assert await ids(inbox="codex@/proj") == ["a", "c", "b"]
    assert await ids(agent_id="x") == ["c"]
    assert await ids(scope="local") == ["a", "d", "c"]
    assert await ids(context_id="c") == ["a", "b"]
    assert await ids(parent_id="a") == ["c"]
    assert await ids(states=frozenset({TaskState.SUBMITTED})) == ["c", "b"]
    assert await ids(states=frozenset({TaskState.WORKING, TaskState.FAILED})) == ["a", "d"]
    assert await ids(updated_after=after(3)) == ["a", "d"]
    assert await ids(context_id="nothing") == []


async def test_the_list_filters_by_metadata(store: AnyStore) -> None:
    stranger = {"user": "ada", "request": {"project": "x", "deep": {"n": 1, "m": 2}}}
    await keep(store, opened("a", at=1, metadata=stranger), moved(TaskState.COMPLETED, "a", at=2))
    await keep(store, opened("b", at=3, metadata={"user": "bob", "flag": True, "of": 'x"y\N{SNOWMAN}'}))
    await keep(store, opened("c", at=4), moved(TaskState.WORKING, "c", at=5), noted({"user": "ada"}, "c", at=6))
    await keep(store, opened("d", at=7, metadata={"user": "ada"}), noted({"user": None}, "d", at=8))

    async def ids(metadata: dict[str, object], **wanted: object) -> list[str]:
        page = await store.list(TaskQuery(metadata=metadata, **wanted))  # type: ignore[arg-type] # its fields by name
        assert page.total == len(page.tasks)
        return [task.id for task in page.tasks]

    assert await ids({"user": "ada"}) == ["c", "a"]
    assert await ids({"user": "ada"}, states=frozenset({TaskState.COMPLETED})) == ["a"]
    assert await ids({"request": {"project": "x"}}) == ["a"]
    assert await ids({"request": {"deep": {"n": 1.0}}}) == ["a"]
    assert await ids({"request": {"deep": {"n": 2}}}) == []
    assert await ids({"flag": True}) == ["b"]
    assert await ids({"flag": 1}) == []
    assert await ids({"of": 'x"y\N{SNOWMAN}'}) == ["b"]
    assert await ids({"nobody": "has this"}) == []


async def test_pages_of_a_filtered_list_lose_and_repeat_nothing(store: AnyStore) -> None:
    for number in range(12):
        metadata = {"user": "ada"} if number % 2 else {"user": "bob"}
        await keep(store, opened(numbered(number), at=number // 4, metadata=metadata))

    seen: list[TaskId] = []
    cursor = ""
    for _ in range(3):
        page = await store.list(TaskQuery(metadata={"user": "ada"}, limit=2, cursor=cursor))
        seen += [task.id for task in page.tasks]
        cursor = page.next_cursor
        assert page.total == 6

    assert seen == [numbered(number) for number in (11, 9, 7, 5, 3, 1)]
    assert cursor == ""


async def test_the_list_tells_expired_tasks_from_others(store: AnyStore) -> None:
    await keep(store, opened("a", at=1), moved(TaskState.FAILED, "a", at=2, reason="expired"))
    await keep(store, opened("b", at=3), moved(TaskState.FAILED, "b", at=4, reason="agent_exited"))
    await keep(store, opened("c", at=5))
    of_others = opened("d", at=6, metadata={"request": {"reason": "expired"}})
    await keep(store, of_others, moved(TaskState.FAILED, "d", at=7, reason="agent_exited"))

    async def ids(**wanted: object) -> list[str]:
        page = await store.list(TaskQuery(**wanted))  # type: ignore[arg-type] # by name
        assert page.total == len(page.tasks)
        return [task.id for task in page.tasks]

    assert await ids(expired=True) == ["a"]
    assert await ids(expired=False) == ["d", "c", "b"]
    assert await ids(expired=False, states=frozenset({TaskState.FAILED})) == ["d", "b"]


async def test_the_total_follows_changes_of_state(store: AnyStore) -> None:
    async def total(**wanted: object) -> int:
        return (await store.list(TaskQuery(limit=1, **wanted))).total  # type: ignore[arg-type] # by name

    for number in range(4):
        await keep(store, opened(numbered(number), scope="s" if number else "t", inbox=f"i{number % 2}"))
    assert (await total(), await total(scope="s"), await total(inbox="i1"), await total(scope="x")) == (4, 3, 2, 0)

    before = [opened(numbered(1), scope="s", inbox="i1")]
    await keep(store, moved(TaskState.COMPLETED, numbered(1)), before=before)
    assert await total(states=frozenset({TaskState.SUBMITTED})) == 3
    assert await total(states=frozenset({TaskState.COMPLETED, TaskState.FAILED})) == 1

    await keep(store, hidden(numbered(2)), before=[opened(numbered(2), scope="s", inbox="i0")])
    assert (await total(), await total(scope="s", inbox="i0")) == (3, 0)
    assert await store.prune(after(60)) == 1
    assert await total() == 2


async def test_the_listed_tasks_are_whole(store: AnyStore) -> None:
    log: list[TaskEvent] = [opened(), moved(TaskState.WORKING), handed("a"), noted({"x": 1})]
    await keep(store, *log[:2])
    task = await keep(store, *log[2:], before=log[:2])

    assert (await store.list(TaskQuery())).tasks == (task,)


async def test_pages_lose_and_repeat_nothing(store: AnyStore) -> None:
    # Several share a moment, so the time alone does not tell where a page ends.
    for number in range(10):
        await keep(store, opened(numbered(number), at=number // 4))

    seen: list[TaskId] = []
    page = await store.list(TaskQuery(limit=3))
    seen += [task.id for task in page.tasks]
    while page.next_cursor:
        page = await store.list(TaskQuery(limit=3, cursor=page.next_cursor))
        seen += [task.id for task in page.tasks]
        assert page.total == 10

    assert seen == [numbered(number) for number in reversed(range(10))]


async def test_a_full_last_page_has_no_next(store: AnyStore) -> None:
    for number in range(4):
        await keep(store, opened(numbered(number), at=number))

    page = await store.list(TaskQuery(limit=2))
    page = await store.list(TaskQuery(limit=2, cursor=page.next_cursor))

    assert len(page.tasks) == 2
    assert page.next_cursor == ""


@pytest.mark.parametrize("cursor", ["x", "1", "1.2.3", "99999999999999999999.1", "."])
async def test_a_cursor_that_is_not_ours_is_refused(store: AnyStore, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        await store.list(TaskQuery(cursor=cursor))


async def test_the_user_of_a_machine_also_sees_what_other_machines_sent_to_it(store: AnyStore) -> None:
    for number, scope in enumerate(("local", "machine:laptop", "machine:box3", "machines", "key:1")):
        await keep(store, opened(numbered(number), at=number, scope=scope))

    page = await store.list(TaskQuery(scope="local"))
    assert [task.scope for task in page.tasks] == ["machine:box3", "machine:laptop", "local"]
    first = await store.list(TaskQuery(scope="local", limit=1))
    assert (first.total, bool(first.next_cursor)) == (3, True)
    assert [task.scope for task in (await store.list(TaskQuery(scope="machine:box3"))).tasks] == ["machine:box3"]
