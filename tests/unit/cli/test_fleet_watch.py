"""`synapse watch` over machines, against a fake link: what it says about machines that show little or nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from synapse.cli import fleet_watch
from synapse.cli.fleet_watch import FleetWatch, Outages, watch_machine
from synapse.client.link import START_HINT
from synapse.core.errors import AgentNotResponding, LinkDown, MachineAway
from synapse.core.waiting import pause
from tests.fakes.facts import numbered, opened
from tests.fakes.link import FakeLink


@pytest.fixture
def link(tmp_path: Path) -> Iterator[FakeLink]:
    with FakeLink(tmp_path).serving() as link:
        yield link


async def notices(home: Path, capsys: pytest.CaptureFixture[str], enough: Callable[[str], bool]) -> str:
    """Watches all machines until enough has been said; returns what was said."""
    said = ""
    watching = asyncio.create_task(FleetWatch(str(home), lambda _update: None).run(lambda: None))
    async with asyncio.timeout(20):
        while not enough(said):
            await pause(0.02)
            said += capsys.readouterr().err
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return said


async def test_machines_that_show_only_what_was_sent_are_named_with_the_command_that_helps(
    link: FakeLink, capsys: pytest.CaptureFixture[str]
) -> None:
    link.start("box2").tell(sightings=[{"source": "screen", "state": "ready"}])
    link.start("box3")

    said = await notices(link.home, capsys, lambda said: "box3" in said)

    assert said == (
        "box3 shows only tasks that this machine sent (to see all: `synapse fleet allow laptop read` on box3)\n"
    )


async def test_events_are_shown_while_an_agent_of_the_machine_does_not_answer(link: FakeLink) -> None:
    link.start("box2")
    answers, shown = threading.Event(), asyncio.Event()

    def be_silent(_target: str) -> None:
        answers.wait(20)

    def begun() -> None:
        link.log["box2"] = [opened(numbered(1))]

    link.on_proxy = be_silent
    watching = asyncio.create_task(watch_machine(str(link.home), "box2", "", lambda _update: shown.set(), begun))
    try:
        async with asyncio.timeout(5):
            await shown.wait()
    finally:
        answers.set()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def test_one_agent_of_a_machine_is_asked_and_none_that_does_not_answer(
    link: FakeLink, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def refuse(target: str) -> None:
        asked.append(target)
        raise AgentNotResponding(target, 0, "codex")

    link.start("box2", port=8120).tell(state="")
    link.start("box2", port=8121)
    link.start("box2", port=8122)
    link.on_proxy = refuse

    fleet_watch.say_limits(str(link.home), {"box2"})

    assert (asked, capsys.readouterr().err) == (["codex-8121@box2"], "")


def test_a_link_that_has_stopped_does_not_come_back_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    outages = Outages()

    outages.lost("box2", LinkDown("the link of this machine does not run", hint=START_HINT))
    outages.lost("box3", LinkDown("the link of this machine does not run", hint=START_HINT))
    outages.lost("box2", MachineAway("box2"))

    here, there = capsys.readouterr().err.splitlines()
    assert here.startswith("the link of this machine does not run; events of other machines follow when it is back")
    assert "`synapse fleet start` starts it" in here
    assert there == "the machine box2 is away; events of box2 follow when it is back"


def test_a_notice_breaks_between_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_watch, "line_width", lambda: 40)

    fleet_watch.say("the link of this machine does not run; events of other machines follow when it is back")

    assert capsys.readouterr().err.splitlines() == [
        "the link of this machine does not run;",
        "events of other machines follow when it",
        "is back",
    ]
