"""Terminals of another machine: two homes on this computer, real links and gateway, the fleet's own server."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass

import pytest

from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.fleet.waiting import until
from tests.fleet.world import Machine, World, open_world
from tests.integration.attach.seat import Seat, seated
from tests.integration.gateway.terminal_client import terminal_page

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Pair:
    """Two machines of a fleet: `laptop` has the server and a gateway, `box2` has the agent bob."""

    world: World
    laptop: Machine
    box2: Machine

    def attach(self, *words: str, **environ: str) -> AbstractContextManager[Seat]:
        """A person at the laptop attaches to bob."""
        env = [f"{name}={value}" for name, value in {**self.laptop.environment, **environ}.items()]
        return seated("env", "-i", *env, *self.laptop.command("attach", "bob@box2", *words))

    @contextmanager
    def allowed(self, *actions: str) -> Generator[None]:
        """box2 lets the laptop do more, until the end of the block."""
        self.box2.run("fleet", "allow", "laptop", ",".join(actions))
        until(self._may_attach, "the link to read the rule")
        try:
            yield
        finally:
            self.box2.run("fleet", "allow", "laptop", "none")

    def _may_attach(self) -> bool:
        with self.attach("--read-only") as seat:
            seat.reads_until(lambda: b"\x1b[?1049h" in seat.seen or b"may not" in seat.seen, "an answer")
            return b"may not" not in seat.seen


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with open_world("laptop", "box2", namespaces=False) as world:
        world.form()
        laptop, box2 = world
        box2.start_dummy("bob")
        until(lambda: laptop.synapse("status", "bob@box2").code == 0, "bob to be known at the laptop")
        yield Pair(world, laptop, box2)


def test_a_machine_that_was_not_allowed_is_refused(pair: Pair) -> None:
    with pair.attach() as seat:
        seat.sees("laptop may not do that on this machine")
        seat.sees("synapse fleet allow laptop attach")


def test_an_agent_is_refused_although_its_machine_is_allowed(pair: Pair) -> None:
    with pair.allowed("attach"), pair.attach(SYNAPSE_AGENT_ID="synapse-claude-8100", SYNAPSE_SOCKET="x") as seat:
        seat.sees("only a person may attach")


def test_a_person_sees_types_resizes_and_leaves(pair: Pair) -> None:
    with pair.allowed("attach"), pair.attach() as seat:
        seat.sees("leaves it running")
        seat.types("hello from afar\r")
        seat.sees("echo: hello from afar")
        seat.resizes(90, 20)
        seat.sees("\x1b[20;1H")  # the last row of the picture for the new size
        seat.types("\x1d")
        seat.sees("[bob@box2] detached")


def test_a_person_goes_on_after_the_other_link_was_killed(pair: Pair) -> None:
    with pair.allowed("attach"), pair.attach() as seat:
        seat.sees("leaves it running")
        seat.types("before the crash\r")
        seat.sees("echo: before the crash")

        pair.box2.kill_link()
        seat.types("lost")
        seat.sees("no connection to box2")
        pair.box2.start_link()

        seat.sees("echo: before the crash")
        seat.types("after the crash\r")
        seat.sees("echo: after the crash")


def test_a_person_goes_on_after_the_link_here_was_killed(pair: Pair) -> None:
    with pair.allowed("attach"), pair.attach() as seat:
        seat.sees("leaves it running")
        seat.types("before the crash\r")
        seat.sees("echo: before the crash")

        pair.laptop.kill_link()
        seat.types("lost")
        seat.sees("the link here has stopped: `synapse fleet start` · Ctrl-] leaves")
        pair.laptop.start_link()

        seat.sees("echo: before the crash")
        # The other machine may not have noticed the loss yet: takes the keyboard from the lost viewer.
        seat.types("\x1cafter the crash\r")
        seat.sees("echo: after the crash")
        pair.laptop.stop_link()
        seat.sees("the link here has stopped")
        seat.types("\x1d")
        seat.sees("[bob@box2] detached")
    pair.laptop.start_link()
    pair.laptop.wait_connected()


def test_a_right_that_is_withdrawn_ends_the_view_and_says_why(pair: Pair) -> None:
    with ExitStack() as rule:
        rule.enter_context(pair.allowed("attach"))
        with pair.attach() as seat:
            seat.sees("leaves it running")

            rule.close()

            seat.sees("the other machine no longer allows it")


@pytest.fixture(scope="module")
def page_of(pair: Pair) -> Iterator[tuple[RunningGateway, str]]:
    with gateway(pair.laptop.home, "") as running:
        yield running, new_key(pair.laptop.home, "page", "--actions", "all")


async def test_a_page_of_a_gateway_shows_types_and_goes_on_after_the_server_was_killed(
    pair: Pair, page_of: tuple[RunningGateway, str]
) -> None:
    running, key = page_of
    with pair.allowed("attach"):
        async with terminal_page(running.entry.port, key) as page:
            shown = page.terminal(1)
            await asyncio.to_thread(
                until, lambda: "bob@box2" in str(running.ask("GET", "/agents", key=key).json), "bob"
            )
            await shown.open("bob@box2")
            await shown.until(lambda: shown.types is True, "the keyboard")
            await shown.type("from a page\r")
            await shown.shows("echo: from a page")

            pair.world.kill_server()

            # The server may be back so soon that nothing was lost, or what is typed meanwhile is lost.
            async with asyncio.timeout(30):
                while "echo: after the server" not in shown.text:
                    await shown.type("after the server\r")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1):
                            await shown.shows("echo: after the server")
