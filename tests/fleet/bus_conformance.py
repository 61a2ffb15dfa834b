"""What every implementation of `Bus` does. A subclass gives a pair of machines on one engine."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import TypeVar

import pytest

from synapse.core.waiting import pause
from synapse.fleet import names
from synapse.fleet.bus import Bus, NobodyThere, NoReply, NotLast, TooLarge

Item = TypeVar("Item")
BOUND = 20.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two machines that are connected."""

    laptop: Bus
    box2: Bus
    laptop_name: str
    box2_name: str


async def first(items: AsyncIterator[Item], wanted: Callable[[Item], bool] = lambda _: True) -> Item:
    """Returns the first item that is wanted."""
    async with asyncio.timeout(BOUND):
        async for item in items:
            if wanted(item):
                return item
    raise AssertionError("the iterator has ended")


async def answer(bus: Bus, subject: str, heard: list[bytes]) -> None:
    """Answers each request on a subject, except those that ask for silence."""
    async for arrival in bus.arrivals(subject):
        heard.append(arrival.body)
        if arrival.body != b"be silent":
            await bus.publish(arrival.reply_to, b"heard " + arrival.body)


async def ask(bus: Bus, subject: str, body: bytes) -> bytes:
    """Asks until somebody listens: a subscription takes a moment."""
    async with asyncio.timeout(BOUND):
        while True:
            try:
                return await bus.request(subject, body, 5.0)
            except NobodyThere:
                await pause(0)


async def read_once_and_rest(bus: Bus, is_closing: asyncio.Event) -> None:
    """Reads what a bucket has, and waits for ever."""
    async with aclosing(bus.watch(names.PRESENCE)) as watched:
        await first(watched, lambda change: not change[0])
        is_closing.set()
    await asyncio.Event().wait()


class BusConformance(ABC):
    """The promises of the port."""

    @abstractmethod
    def open_pair(self) -> AbstractAsyncContextManager[Pair]:
        """Opens two machines that have not been there before."""

    @pytest.fixture(name="pair")
    async def _pair(self) -> AsyncGenerator[Pair]:
        async with self.open_pair() as pair:
            yield pair

    async def test_a_request_gets_the_answer_of_the_machine_that_listens(self, pair: Pair) -> None:
        subject = names.ask_subject(pair.box2_name, pair.laptop_name)
        answering = asyncio.create_task(answer(pair.box2, names.ask_subject(pair.box2_name, "*"), []))

        assert await ask(pair.laptop, subject, b"hello") == b"heard hello"

        answering.cancel()

    async def test_a_request_to_nobody_is_told_at_once(self, pair: Pair) -> None:
        with pytest.raises(NobodyThere):
            await pair.laptop.request(names.relay_subject(pair.box2_name, pair.laptop_name), b"hello", 60.0)

    async def test_a_request_that_is_not_answered_in_time_may_have_been_handled(self, pair: Pair) -> None:
        heard: list[bytes] = []
        subject = names.relay_subject(pair.box2_name, pair.laptop_name)
        answering = asyncio.create_task(answer(pair.box2, names.relay_subject(pair.box2_name, "*"), heard))
        await ask(pair.laptop, subject, b"hello")

        with pytest.raises(NoReply) as silence:
            await pair.laptop.request(subject, b"be silent", 0.5)

        async with asyncio.timeout(BOUND):
            while heard[-1] != b"be silent":
                await pause(0.01)
        assert subject not in str(silence.value)
        answering.cancel()

    async def test_an_arrival_names_the_machine_that_sent_it(self, pair: Pair) -> None:
        heard = asyncio.create_task(first(pair.box2.arrivals(names.stream_subject(pair.box2_name, "*", "*"))))

        async with asyncio.timeout(BOUND):
            while not heard.done():
                await pair.laptop.publish(names.stream_subject(pair.box2_name, pair.laptop_name, "7"), b"frame")
                await pause(0)

        arrival = await heard
        assert names.sender_machine(arrival.subject) == pair.laptop_name
        assert (arrival.body, arrival.reply_to, arrival.mail) == (b"frame", "", 0)

    async def test_mail_waits_for_a_machine_that_is_away(self, pair: Pair) -> None:
        await pair.laptop.keep(names.mail_subject(pair.box2_name, pair.laptop_name), b"one", once="1.1.1")
        await pair.laptop.keep(names.mail_subject(pair.box2_name, pair.laptop_name), b"two", once="1.2.1")
        mails = pair.box2.mails(pair.box2_name)

        found = [await first(mails), await first(mails)]

        assert [mail.body for mail in found] == [b"one", b"two"]
        assert [names.sender_machine(mail.subject) for mail in found] == [pair.laptop_name] * 2

    async def test_mail_that_will_expire_arrives_as_any_other(self, pair: Pair) -> None:
        subject = names.mail_subject(pair.box2_name, pair.laptop_name)

        await pair.laptop.keep(subject, b"one", once="1.3.1", ttl=3600.0)

        assert (await first(pair.box2.mails(pair.box2_name))).body == b"one"

    async def test_the_same_mail_is_kept_once(self, pair: Pair) -> None:
        subject = names.mail_subject(pair.box2_name, pair.laptop_name)
        numbers = [await pair.laptop.keep(subject, b"one", once="2.1.1") for _ in range(3)]
        await pair.laptop.keep(subject, b"other", once="2.1.2")
        mails = pair.box2.mails(pair.box2_name)

        assert len(set(numbers)) == 1
        assert [(await first(mails)).body, (await first(mails)).body] == [b"one", b"other"]

    async def test_an_acknowledged_mail_does_not_come_again(self, pair: Pair) -> None:
        subject = names.mail_subject(pair.box2_name, pair.laptop_name)
        await pair.laptop.keep(subject, b"one", once="3.1.1")
        await pair.laptop.keep(subject, b"two", once="3.2.1")
        mails = pair.box2.mails(pair.box2_name)
        await pair.box2.acknowledge(await first(mails))
        two = await first(mails)
        await pair.box2.postpone(two, 0.05)

        again = await first(mails)

        assert again.body == b"two"
        assert again.mail == two.mail

    async def test_mail_for_one_machine_is_not_given_to_another(self, pair: Pair) -> None:
        await pair.laptop.keep(names.mail_subject(pair.box2_name, pair.laptop_name), b"for box2", once="4.1.1")
        await pair.box2.keep(names.mail_subject(pair.laptop_name, pair.box2_name), b"for laptop", once="4.1.1x")

        assert (await first(pair.laptop.mails(pair.laptop_name))).body == b"for laptop"
        assert (await first(pair.box2.mails(pair.box2_name))).body == b"for box2"

    async def test_the_last_kept_message_of_a_subject_can_be_read(self, pair: Pair) -> None:
        subject = names.log_subject(pair.laptop_name)
        assert await pair.laptop.last_kept(subject) is None
        first_number = await pair.laptop.keep(subject, b"batch 1", once="l1", expected_last=0)
        number = await pair.laptop.keep(subject, b"batch 2", once="l2", expected_last=first_number)

        assert await pair.laptop.last_kept(subject) == (number, b"batch 2")

    async def test_a_message_is_refused_if_somebody_else_wrote_the_last_one(self, pair: Pair) -> None:
        subject = names.log_subject(pair.laptop_name)
        number = await pair.laptop.keep(subject, b"batch 1", once="e1", expected_last=0)
        await pair.laptop.keep(subject, b"a clone's", once="e2", expected_last=number)

        with pytest.raises(NotLast):
            await pair.laptop.keep(subject, b"batch 2", once="e3", expected_last=number)

        last = await pair.laptop.last_kept(subject)
        assert last is not None
        assert last[1] == b"a clone's"

    async def test_a_message_that_is_too_large_is_refused(self, pair: Pair) -> None:
        body = bytes(pair.laptop.max_payload + 1)

        with pytest.raises(TooLarge):
            await pair.laptop.request(names.relay_subject(pair.box2_name, pair.laptop_name), body, 5.0)
        with pytest.raises(TooLarge):
            await pair.laptop.keep(names.mail_subject(pair.box2_name, pair.laptop_name), body, once="5.1.1")

    async def test_a_value_is_read_as_it_was_put(self, pair: Pair) -> None:
        assert await pair.box2.get(names.INCARNATIONS, pair.laptop_name) is None
        assert not await pair.box2.is_deleted(names.INCARNATIONS, pair.laptop_name)
        await pair.laptop.put(names.INCARNATIONS, pair.laptop_name, b"\x00one")
        await pair.laptop.put(names.INCARNATIONS, pair.laptop_name, b"\x00two")

        assert await pair.box2.get(names.INCARNATIONS, pair.laptop_name) == b"\x00two"
        assert pair.laptop_name in await pair.box2.keys(names.INCARNATIONS)
        assert not await pair.box2.is_deleted(names.INCARNATIONS, pair.laptop_name)

        await pair.laptop.delete(names.INCARNATIONS, pair.laptop_name)

        assert await pair.box2.get(names.INCARNATIONS, pair.laptop_name) is None
        assert await pair.box2.is_deleted(names.INCARNATIONS, pair.laptop_name)

    async def test_a_watcher_sees_what_is_there_and_then_each_change(self, pair: Pair) -> None:
        ours = (pair.laptop_name, pair.box2_name, "")
        await pair.laptop.put(names.PRESENCE, pair.laptop_name, b"here")
        changes: list[tuple[str, bytes | None]] = []

        async with aclosing(pair.box2.watch(names.PRESENCE)) as watched:
            changes.append(await first(watched, lambda change: change[0] in ours))
            changes.append(await first(watched, lambda change: change[0] in ours))
            await pair.box2.put(names.PRESENCE, pair.box2_name, b"here too")
            changes.append(await first(watched, lambda change: change[0] in ours))
            await pair.laptop.delete(names.PRESENCE, pair.laptop_name)
            changes.append(await first(watched, lambda change: change[0] in ours))

        assert changes == [
            (pair.laptop_name, b"here"),
            ("", None),
            (pair.box2_name, b"here too"),
            (pair.laptop_name, None),
        ]

    async def test_a_reader_that_is_canceled_ends_also_while_it_closes(self, pair: Pair) -> None:
        await pair.laptop.put(names.PRESENCE, pair.laptop_name, b"here")
        for steps in range(8):
            is_closing = asyncio.Event()
            reader = asyncio.create_task(read_once_and_rest(pair.laptop, is_closing))
            await is_closing.wait()
            for _ in range(steps):
                await pause(0)

            reader.cancel()
            await asyncio.wait({reader}, timeout=BOUND)

            assert reader.cancelled(), steps

    async def test_a_bus_tells_that_it_is_connected(self, pair: Pair) -> None:
        assert pair.laptop.connected
        assert pair.laptop.problem == ""
        assert await first(pair.laptop.changes()) is True
