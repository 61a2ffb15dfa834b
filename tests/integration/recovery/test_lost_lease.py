"""A host that is suspended (SIGSTOP) while another takes its inbox over: awake again, it types and records nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from synapse.core.errors import StoreLocked
from synapse.store.file import lock_path
from synapse.store.sqlite import SqliteStore
from tests.integration.chaos.house import LINE_RULES, House, RunningHost, nonces, open_house
from tests.integration.recovery.journal_file import all_events
from tests.integration.waiting import until

pytestmark = pytest.mark.integration


def suspend(host: RunningHost) -> None:
    os.kill(host.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, host.process.pid, os.WSTOPPED | os.WNOWAIT)


def adopt(house: House, inbox: str) -> bool:
    """Acquire the inbox as a successor that sees no living host; False while the suspended one holds the lock."""

    async def run() -> bool:
        store = await SqliteStore.open(house.home / "store.db", lock_timeout=0.5)
        try:
            return await store.acquire(inbox, "1:0", lambda _holder: False) is not None
        except StoreLocked:
            return False
        finally:
            await store.close()

    return asyncio.run(run())


def suspend_and_take_over(host: RunningHost, inbox: str) -> None:
    suspend(host)
    while not adopt(host.house, inbox):
        os.kill(host.process.pid, signal.SIGCONT)
        with lock_path(host.house.home / "store.db").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # once the host has given up the lock that it was suspended with
        suspend(host)


def received(house: House) -> list[str]:
    return [nonce for one in house.received("recorder") for nonce in nonces(one.text)]


def test_a_suspended_host_that_was_replaced_types_nothing_records_nothing_and_ends() -> None:
    with open_house() as house:
        house.add_profile("recorder", LINE_RULES, "line_recorder")
        host = house.start("recorder", name="victor")
        host.finished(host.accepted("<<000000000001>>"))
        suspend_and_take_over(host, "victor")
        before = all_events(house.home / "store.db")

        with ThreadPoolExecutor() as pool:
            # It lies in the socket of the suspended host until that goes on.
            sending = pool.submit(host.send, "<<000000000002>>")
            os.kill(host.process.pid, signal.SIGCONT)
            answer = sending.result(timeout=20)
        host.wait_until_gone()

        assert answer.status == 503
        assert answer.body["error"]["code"] == "lease_lost"
        assert host.process.returncode == 1
        assert received(house) == ["000000000001"]
        assert all_events(house.home / "store.db") == before
        assert "took over its inbox" in (house.folder / "victor.out").read_text(encoding="utf-8")


def test_an_idle_host_that_was_replaced_finds_out_by_itself() -> None:
    with open_house() as house:
        house.add_profile("recorder", LINE_RULES, "line_recorder")
        host = house.start("recorder", name="victor")
        suspend_and_take_over(host, "victor")

        os.kill(host.process.pid, signal.SIGCONT)
        host.wait_until_gone()

        until(lambda: not house.registry.entries(), "its entry to be gone")
        assert host.process.returncode == 1
