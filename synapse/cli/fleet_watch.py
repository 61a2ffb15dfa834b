"""`synapse watch` over machines: follows events of other machines, and goes on after every loss of a connection."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar, cast

from synapse.cli.output import print_notice
from synapse.cli.tables import line_width, wrapped
from synapse.client.fleet_log import BEGIN, POLL_SECONDS, EventPage, FleetLog
from synapse.client.hosts import ask
from synapse.client.link import allow_step, ask_link, find_remote, fleet_agents
from synapse.core.errors import InvalidRequest, LinkDown, MachineAway, OutcomeUnknown, RateLimited, SynapseError
from synapse.core.events import StateChanged, Update
from synapse.core.json_text import objects_in
from synapse.core.task import TaskState
from synapse.core.waiting import pause
from synapse.registry.files import FileRegistry

RETRY_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 10.0
"""How often to look for machines that have joined the fleet."""
MOST_MACHINES: Final = 64
"""How many machines one command follows: each is asked every three seconds."""
Show = Callable[[Update], None]
T = TypeVar("T")


def say(text: str) -> None:
    """Prints a notice; on a terminal its lines end between words."""
    print_notice("\n".join(wrapped(text, line_width())))


def say_limits(home: str, machines: Collection[str]) -> None:
    """Says which of these machines show this one only the tasks that it sent, and how to see all.

    What a machine lets this one read is told by the status of any of its agents. Nothing is said of a machine without
    agents that answer.
    """
    registry = FileRegistry(os.path.join(home, "registry"))
    asked: set[str] = set()
    try:
        agents, _ = fleet_agents(home)
    except SynapseError:
        return  # those who follow machines say it
    for entry, fields in agents:
        machine = str(fields.get("machine"))
        # An agent without a state does not answer its own machine.
        if machine not in machines or machine in asked or not fields.get("state"):
            continue
        asked.add(machine)
        with suppress(SynapseError):
            status = ask(find_remote(entry.name, registry), "GET", "/status")
            if not status.get("sightings"):
                all_of_them = f"to see all: {allow_step(home, machine, 'read')}"
                say(f"{machine} shows only tasks that this machine sent  ({all_of_them})")


class Outages:
    """Says once that a machine, or this machine's link, cannot be asked, and once that it can again."""

    def __init__(self) -> None:
        self._lost: set[str] = set()

    def lost(self, machine: str, error: SynapseError) -> None:
        is_here = isinstance(error, LinkDown)
        what = "" if is_here else machine
        if what not in self._lost:
            self._lost.add(what)
            whose = "other machines" if is_here else machine
            # A machine that is away comes back by itself; a link that does not run needs a person.
            step = f"  ({error.hint})" if is_here and error.hint else ""
            say(f"{error}; events of {whose} follow when it is back{step}")

    def back(self, machine: str) -> None:
        for what in self._lost & {machine, ""}:
            self._lost.discard(what)
            say(f"{what or 'the connection to the fleet'} is back")


class _Reader:
    """Reads the next events of one machine, however often it has to ask."""

    def __init__(self, machine: str, outages: Outages) -> None:
        self._machine = machine
        self._outages = outages
        self._waits = False
        """Whether the machine may wait for something new. Not at first, nor after a loss: it says at once that it is
        back."""

    def lose(self, error: SynapseError) -> None:
        self._waits = False
        self._outages.lost(self._machine, error)

    async def read(self, ask: Callable[[int], EventPage]) -> EventPage:
        """Returns what `ask` returns, given how many seconds it may wait. Raises SynapseError when it is refused."""
        while True:
            seconds = POLL_SECONDS if self._waits else 0
            try:
                page = await in_thread(partial(ask, seconds))
            except RateLimited as error:
                await pause(error.retry_after)
                continue
            except SynapseError as error:
                if not is_temporary(error):
                    raise
                self.lose(error)
                await pause(RETRY_SECONDS)
                continue
            self._outages.back(self._machine)
            self._waits = not page.more
            return page


class MachineWatch:
    """Follows the events of all tasks of a machine, or of one agent there, by its inbox."""

    def __init__(self, log: FleetLog, agent: str, show: Show, outages: Outages) -> None:
        self._log = log
        self._agent = agent
        self._show = show
        self._reader = _Reader(log.machine, outages)
        self._seq = BEGIN

    @property
    def machine(self) -> str:
        return self._log.machine

    async def begin(self) -> None:
        """Finds the end of the machine's log: what comes after it is shown. Raises what `ask_link` raises."""
        self._seq = (await in_thread(lambda: self._log.follow_all(self._agent, BEGIN))).seq

    def lose(self, error: SynapseError) -> None:
        """Notes that the machine cannot be asked now."""
        self._reader.lose(error)

    async def run(self) -> None:
        """Shows events until it is cancelled. Raises SynapseError when the machine refuses."""
        while True:
            page = await self._reader.read(lambda seconds: self._log.follow_all(self._agent, self._seq, seconds))
            self._seq = page.seq
            for update in page.updates:
                self._show(update)
            if page.left_out:
                say(f"events of {self.machine} that are too large to be sent here: {page.left_out}")


async def watch_machine(home: str, machine: str, agent: str, show: Show, begun: Callable[[], None]) -> None:
    """Shows the events of a machine, or of one agent there, by its inbox, until it is cancelled.

    Calls `begun` when it is followed. Raises what `ask_link` raises; after that, in a group.
    """
    watch = MachineWatch(FleetLog(home, machine), agent, show, Outages())
    await watch.begin()
    begun()
    async with asyncio.TaskGroup() as group:
        group.create_task(in_thread(partial(say_limits, home, {machine})))
        await watch.run()


class FleetWatch:
    """Follows the events of all other machines, also of those that join meanwhile."""

    def __init__(self, home: str, show: Show) -> None:
        self._home = home
        self._show = show
        self._outages = Outages()
        self._followed: set[str] = set()

    async def run(self, begun: Callable[[], None]) -> None:
        """Shows events until it is cancelled; calls `begun` when the machines that are here are followed.

        Raises NotInFleet, LinkDown, or InvalidRequest if there are too many machines.
        """
        watches = await self._new_machines()
        async with asyncio.TaskGroup() as group:
            for watch in watches:
                group.create_task(self._follow(watch))
            begun()
            group.create_task(in_thread(partial(say_limits, self._home, {watch.machine for watch in watches})))
            while True:
                await pause(LOOK_SECONDS)
                with suppress(LinkDown):  # those who follow machines say it
                    for watch in await self._new_machines():
                        group.create_task(self._follow(watch))

    async def _new_machines(self) -> list[MachineWatch]:
        """Returns the machines that are not followed yet, each at the end of its log."""
        status = await in_thread(lambda: ask_link(self._home, "GET", "/fleet/status"))
        names = {str(machine.get("name")) for machine in objects_in(status, "machines")}
        if len(names | self._followed) > MOST_MACHINES:
            raise InvalidRequest(
                f"the fleet has {len(names) + 1} machines, and one command follows at most {MOST_MACHINES} others",
                hint="`--machine NAME` follows one",
            )
        new = sorted(names - self._followed)
        self._followed |= names
        watches = [MachineWatch(FleetLog(self._home, name), "", self._show, self._outages) for name in new]
        is_followed = await asyncio.gather(*map(self._begin, watches))
        return [watch for watch, is_one in zip(watches, is_followed, strict=True) if is_one]

    async def _begin(self, watch: MachineWatch) -> bool:
        try:
            await watch.begin()
        except SynapseError as error:
            if not is_temporary(error):
                say(f"{watch.machine} is not followed: {error}")
                return False
            watch.lose(error)
        return True

    async def _follow(self, watch: MachineWatch) -> None:
        try:
            await watch.run()
        except SynapseError as error:
            say(f"{watch.machine} is not followed any more: {error}")
            self._followed.discard(watch.machine)


async def watch_remote_task(log: FleetLog, task_id: str, show: Show) -> TaskState:
    """Shows the events of a task on another machine from its beginning, and returns the state in which it ended.

    Raises what `ask_link` raises, except while the machine cannot be asked.
    """
    reader = _Reader(log.machine, Outages())
    seq, told = 0, ""
    while True:
        page = await reader.read(partial(log.follow_task, task_id, seq))
        seq = page.seq
        for update in page.updates:
            show(update)
            if isinstance(update.event, StateChanged) and update.event.state.is_terminal:
                return update.event.state
        if page.kept is not None and page.kept.note != told:
            told = page.kept.note
            show(Update(0, None, page.kept))
        if page.kept is not None and page.kept.state.is_terminal:
            return page.kept.state


def is_temporary(error: SynapseError) -> bool:
    """Decides whether an error says only that the other machine cannot be asked now."""
    return isinstance(error, LinkDown | MachineAway | OutcomeUnknown)


async def in_thread(call: Callable[[], T]) -> T:
    """Returns what `call` returns in a thread that nobody waits for: Ctrl-C ends the command at once."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        outcome: T | None = None
        failure: BaseException | None = None
        try:
            outcome = call()
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            failure = error
        with suppress(RuntimeError):  # the loop is closed: the command has ended
            loop.call_soon_threadsafe(_settle, done, outcome, failure)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _settle(done: asyncio.Future[T], outcome: T | None, failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is not None:
        done.set_exception(failure)
    else:
        done.set_result(cast("T", outcome))
