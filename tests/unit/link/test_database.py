"""link.db: rows come back as they were written, and a file that cannot be used is never replaced."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import GATEWAY_SCOPE
from synapse.core.errors import StoreCorrupt, StoreFailed, StoreTooNew
from synapse.core.message import TextPart
from synapse.core.task import TaskState
from synapse.fleet.asks import (
    AnswerBody,
    SendBody,
    decode_send_body,
    encode_answer_body,
    encode_send_body,
    part_bodies,
)
from synapse.fleet.log import ChainRow, ForgetChain, Mark
from synapse.fleet.relay_io import (
    ForgetHandled,
    HandledRow,
    Identity,
    LinkRows,
    OutboxRow,
    OutboxState,
    PeerRow,
    TailRow,
)
from synapse.fleet.wire import End, Incarnation
from synapse.link.database import KEPT_SECONDS, LinkDatabase, OpenMessages, WriteOrder
from synapse.link.remote_tasks import task_of_row
from tests.fakes.clock import FakeClock

MINE = Incarnation(3, "9f2c")
THEIRS = Incarnation(2, "aa00")
ROW = OutboxRow(
    message_id="m-1",
    to="box2",
    incarnation=MINE,
    n=7,
    kind="send",
    target="codex",
    task_id="0198c0de-0000-7000-8000-000000000001",
    body=b'{"parts": []}',
    queue=True,
    state=OutboxState.OPEN,
    created_at=1000.25,
    expires_at=2000.5,
    changed_at=1001.0,
    peer=THEIRS,
    why="because",
    error=b"{}",
    attempts=3,
)


@asynccontextmanager
async def opened(folder: Path, clock: FakeClock | None = None, **limits: int) -> AsyncGenerator[LinkDatabase]:
    database = LinkDatabase(folder / "link.db", clock or FakeClock(), **limits)
    try:
        yield database
    finally:
        await database.close()


async def test_all_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    ended = replace(
        ROW, message_id="ended-1", kind="ended", end=End(state="completed", note="ok"), ends="m-9", told=True
    )
    rows = LinkRows(
        identity=Identity(incarnation=MINE, store_id="s", heard=4),
        tail=TailRow(seq=12, mark="abc"),
        outbox=(ROW, ended),
        handled=(HandledRow(machine="box2", incarnation=THEIRS, n=1, message_id="x", kind="send", receipt=b"r"),),
        peers=(PeerRow(machine="box2", incarnation=THEIRS, floor=2, next_n=8),),
    )
    async with opened(tmp_path) as database:
        assert rows.identity is not None
        await database.commit((rows.identity, rows.tail, *rows.outbox, *rows.handled, *rows.peers))

    async with opened(tmp_path) as database:
        read = await database.read_rows()

    assert replace(read, outbox=tuple(sorted(read.outbox, key=lambda row: row.message_id))) == replace(
        rows, outbox=tuple(sorted(rows.outbox, key=lambda row: row.message_id))
    )


async def test_a_new_file_has_no_identity(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        assert await database.read_rows() == LinkRows()


async def test_the_file_is_for_its_user_only(tmp_path: Path) -> None:
    async with opened(tmp_path / "fleet"):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "fleet", tmp_path / "fleet" / "link.db")]

    assert modes == [0o700, 0o600]


async def test_handled_messages_below_the_floor_are_forgotten(tmp_path: Path) -> None:
    def handled(n: int, incarnation: Incarnation = THEIRS) -> HandledRow:
        return HandledRow(machine="box2", incarnation=incarnation, n=n, message_id=f"m{n}", kind="send", receipt=b"")

    async with opened(tmp_path) as database:
        await database.commit((handled(1), handled(2), handled(3), handled(9, MINE)))
        await database.commit((ForgetHandled(machine="box2", incarnation=THEIRS, n=3),))
        read = await database.read_rows()

    assert [row.n for row in read.handled] == [3]


async def test_nothing_is_written_after_a_failure_in_the_same_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        with sqlite3.connect(tmp_path / "link.db") as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON tail WHEN NEW.seq = 10 BEGIN SELECT RAISE(ABORT, 'full'); END"
            )
        order = WriteOrder()
        await database.commit((TailRow(seq=5),), order)

        for seq in (10, 20):
            with pytest.raises(StoreFailed, match="full"):
                await database.commit((TailRow(seq=seq),), order)
        assert (await database.read_rows()).tail.seq == 5
        await database.commit((TailRow(seq=21),), WriteOrder())
        await database.commit((TailRow(seq=22),))
        assert (await database.read_rows()).tail.seq == 22


async def test_the_chain_of_an_earlier_incarnation_is_forgotten(tmp_path: Path) -> None:
    old, new = ChainRow(incarnation=THEIRS, mark=Mark(1, b"a")), ChainRow(incarnation=MINE, mark=Mark(2, b"b"))
    async with opened(tmp_path) as database:
        await database.commit((old, new))
        await database.commit((ForgetChain(incarnation=MINE),))

        assert await database.read_chain() == [new]


async def test_finished_messages_stay_for_people_and_go_after_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    now = clock.now().timestamp()
    finished = replace(ROW, state=OutboxState.SETTLED, told=True, changed_at=now)
    waiting = replace(ROW, message_id="m-2", changed_at=now)
    async with opened(tmp_path, clock) as database:
        await database.commit((finished, waiting))
        before = [row.message_id for row in await database.read_outbox()]
        clock.advance(KEPT_SECONDS + 3601)
        await database.commit((TailRow(seq=1),))
        after = [row.message_id for row in await database.read_outbox()]

    assert (sorted(before), after) == (["m-1", "m-2"], ["m-2"])


TEXT = SendBody(
    parts=part_bodies((TextPart(text="x" * 2000),)),
    sender="key:ci",
    context_id="c-1",
    metadata={GATEWAY_SCOPE: "key:ci", "other": "y" * 2000},
)


def finished(number: int, body: bytes = encode_send_body(TEXT)) -> OutboxRow:
    end = End(state="completed", answer=encode_answer_body(AnswerBody(parts=())) + b" " * 2000)
    return replace(
        ROW,
        message_id=f"m-{number}",
        state=OutboxState.SETTLED,
        told=True,
        changed_at=FakeClock().now().timestamp() + number,
        body=body,
        end=end,
    )


async def test_above_a_size_old_messages_lose_their_texts_and_are_known_nevertheless(tmp_path: Path) -> None:
    unfinished = replace(finished(0), message_id="untold", told=False)
    accepted = replace(finished(0), message_id="accepted", state=OutboxState.ACCEPTED, told=False, end=None)
    async with opened(tmp_path, kept_bytes=15_000) as database:
        await database.commit((unfinished, accepted))
        # Within one hour: a sender that goes on and on must not have filled the disk by then.
        for number in range(1, 9):
            await database.commit((finished(number),))
        rows = [await database.find_message(f"m-{number}") for number in range(1, 9)]

        assert [row is not None and len(row.body) > 2000 for row in rows] == [False] * 6 + [True] * 2
        oldest = rows[0]
        assert oldest is not None
        assert oldest == replace(finished(1), body=oldest.body, end=oldest.end)
        # Whose it is stays.
        told = msgspec.structs.replace(TEXT, parts=(), metadata={GATEWAY_SCOPE: "key:ci"})
        assert decode_send_body(oldest.body) == told
        task = task_of_row(oldest, AgentEntry("codex", "codex"))
        assert (task.state, task.artifacts[0].text) == (
            TaskState.COMPLETED,
            "the answer is not kept on this machine any more",
        )
        assert await database.find_message("untold") == unfinished
        assert await database.find_message("accepted") == accepted


async def test_of_refused_messages_the_newest_stay(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, most_refused=2) as database:
        rows = [replace(finished(number), state=OutboxState.REFUSED, body=b"{}") for number in range(1, 6)]
        untold = replace(rows[0], message_id="untold", told=False)
        await database.commit((*rows, untold, finished(0)))
        clock.advance(3601)
        await database.commit((TailRow(seq=1),))

        assert {row.message_id for row in await database.read_outbox()} == {"m-4", "m-5", "untold", "m-0"}


async def test_messages_that_have_failed_perhaps_unnoticed_are_counted(tmp_path: Path) -> None:
    late = replace(ROW, changed_at=2000.0, queue=True)
    failed = (
        replace(late, message_id="refused", state=OutboxState.REFUSED),
        replace(late, message_id="uncertain", state=OutboxState.UNCERTAIN, queue=False),
        replace(late, message_id="expired", kind="void", why="expired"),
        replace(late, message_id="confirmed", kind="void", why="expired", state=OutboxState.VOID),
    )
    others = (
        replace(failed[0], message_id="long ago", changed_at=1000.0),
        replace(failed[0], message_id="told at once", queue=False),
        replace(late, message_id="taken back", kind="void", why="by a person", state=OutboxState.VOID),
        replace(late, message_id="came first", kind="void", why="expired", state=OutboxState.SETTLED),
        replace(late, message_id="waits"),
        replace(failed[1], message_id="an end", kind="ended"),
    )
    async with opened(tmp_path) as database:
        await database.commit((*failed, *others))

        assert await database.count_failed(1500.0) == len(failed)


async def test_lists_and_counts_do_not_read_what_messages_contain(tmp_path: Path) -> None:
    rows = (
        ROW,
        replace(ROW, message_id="m-2", to="box3", created_at=1500.0),
        replace(ROW, message_id="m-3", to="box4", state=OutboxState.SETTLED, end=End(state="completed", answer=b"x")),
        replace(ROW, message_id="ended-t", to="box5", kind="ended", created_at=500.0),
    )
    cancel = replace(ROW, message_id="m-4", to="box3", created_at=1600.0, kind="void")
    async with opened(tmp_path) as database:
        empty = await database.count_open()
        await database.commit(rows)

        assert empty == []
        assert await database.count_open() == [OpenMessages("box2", 1, 1000.25), OpenMessages("box3", 1, 1500.0)]
        assert await database.read_receivers() == ["box2", "box3", "box5"]
        assert await database.read_overdue(1500.0) == [replace(ROW, body=b"")]
        listed = {row.message_id: row for row in await database.read_outbox()}
        assert listed.keys() == {"m-1", "m-2", "m-3"}
        assert listed["m-3"] == replace(rows[2], body=b"", end=None)
        assert await database.find_message("m-3") == rows[2]
        await database.commit([cancel])
        assert (await database.count_open())[1] == OpenMessages("box3", 2, 1500.0, cancels=1)


async def test_a_message_is_found_by_its_id_or_the_beginning_of_its_tasks(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        await database.commit((ROW, replace(ROW, message_id="m-2", task_id="0198c0ff")))

        found = {
            wanted: len(await database.find_outbox(wanted)) for wanted in ("0198c0de", "0198", "m-2", "%", "0*", "x")
        }

    assert found == {"0198c0de": 1, "0198": 2, "m-2": 1, "%": 0, "0*": 0, "x": 0}


async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        await database.commit((ROW,))
    with sqlite3.connect(tmp_path / "link.db") as connection:
        connection.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreTooNew, match="newer Synapse"):
        LinkDatabase(tmp_path / "link.db", FakeClock())

    with sqlite3.connect(tmp_path / "link.db") as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


async def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "link.db").write_bytes(b"this is no database" * 100)

    with pytest.raises(StoreCorrupt, match="damaged"):
        LinkDatabase(tmp_path / "link.db", FakeClock())

    assert (tmp_path / "link.db").read_bytes().startswith(b"this is no database")


async def test_a_commit_that_fails_changes_nothing_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        await database.commit((ROW,))
        forbid(tmp_path / "link.db", "peers")

        with pytest.raises(StoreFailed):
            await database.commit((replace(ROW, message_id="m-2"), PeerRow(machine="box2")))

        assert [row.message_id for row in await database.read_outbox()] == ["m-1"]


async def test_commits_are_in_the_order_of_the_calls(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        commits = [database.commit((TailRow(seq=number),)) for number in range(1, 50)]
        for commit in commits:
            await commit

        assert (await database.read_rows()).tail.seq == 49


def forbid(path: Path, table: str) -> None:
    """Makes every write to a table fail, as a disk that is full would."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"CREATE TRIGGER no_{table} BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )


async def test_a_row_that_sqlite_cannot_hold_fails_and_the_next_one_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as database, asyncio.timeout(20):
        with pytest.raises(StoreFailed):
            await database.commit((PeerRow(machine="box2", incarnation=THEIRS, floor=2**63, next_n=1),))
        await database.commit((PeerRow(machine="box2", incarnation=THEIRS, floor=2, next_n=1),))

        assert [row.floor for row in (await database.read_rows()).peers] == [2]


async def test_a_row_that_cannot_be_read_fails_and_the_next_read_is_answered(tmp_path: Path) -> None:
    async with opened(tmp_path) as database, asyncio.timeout(20):
        with pytest.raises(StoreFailed):
            await database.find_outbox("x", limit=2**63)

        assert await database.find_outbox("x") == []


async def test_settled_messages_do_not_push_one_that_waits_out_of_the_list(tmp_path: Path) -> None:
    later = [
        replace(ROW, message_id=f"m-{n}", state=OutboxState.SETTLED, created_at=ROW.created_at + n) for n in (2, 3, 4)
    ]
    async with opened(tmp_path) as database:
        await database.commit([ROW, *later])

        listed = await database.read_outbox(limit=3)

    assert [row.message_id for row in listed] == ["m-4", "m-3", "m-1"]


@pytest.mark.parametrize("state", [OutboxState.OPEN, OutboxState.UNCERTAIN])
async def test_messages_that_came_to_nothing_do_not_push_one_that_needs_a_person_out_of_the_list(
    tmp_path: Path, state: OutboxState
) -> None:
    waits = replace(ROW, message_id="waits", state=state, created_at=ROW.created_at - 5 * 24 * 3600)
    refused = [
        replace(ROW, message_id=f"m-{n}", state=OutboxState.REFUSED, created_at=ROW.created_at + n) for n in range(1000)
    ]
    settled = replace(ROW, message_id="settled", state=OutboxState.SETTLED, created_at=ROW.created_at + 1000)
    async with opened(tmp_path) as database:
        await database.commit([waits, *refused, settled])

        listed = await database.read_outbox()

    assert [row.message_id for row in listed] == [*(f"m-{n}" for n in range(999, 0, -1)), "waits"]
