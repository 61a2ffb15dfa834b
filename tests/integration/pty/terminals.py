"""Real programs on real terminals, as the tests of the PTY driver need them."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from synapse.config.process import SystemClock
from synapse.config.settings import load_profile
from synapse.core.driver import Answered, SendOutcome, Turn, TurnEvent
from synapse.core.message import Message, MessageId, Part, Role, TextPart, text_of
from synapse.core.question import Choice
from synapse.core.task import TaskId
from synapse.core.usage import UsageRecorder
from synapse.drivers.pty.adapters.adapter import ApiSender
from synapse.drivers.pty.driver import PtyDriver
from synapse.drivers.pty.process import Launch
from synapse.drivers.pty.program import RunningProgram, TerminalUsers, start_program
from synapse.drivers.pty.prompt_files import PromptFiles
from synapse.terminal.profile import Profile, parse_profile

AGENTS = Path(__file__).resolve().parents[2] / "agents"
BOUND = 20.0
"""No wait of these tests is longer; a machine under load is slow."""


def dummy() -> Profile:
    return load_profile("dummy")


def line_program(**more: object) -> Profile:
    """A profile of a program that reads lines at `> `; None takes a part away."""
    fields: dict[str, object] = {
        "title": "Test",
        "command": ["test"],
        "times": {"quiet": 0.02, "settle": 0.05, "echo": 1.0, "proof": 1.0, "person": 0.3},
        "prompt": {"pattern": "^> (?P<text>.*)$", "at_cursor": True},
        "interrupt": {"signal": "SIGINT"},
    }
    chosen = {**fields, **more}
    return parse_profile({key: value for key, value in chosen.items() if value is not None}, "test")


def agent(name: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs one of tests/agents."""
    return (sys.executable, str(AGENTS / f"{name}.py"), *arguments)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1", **(more or {})}


class Forgetful:
    """An API that has no names for messages, so that nobody can ask later what became of one."""

    async def reconcile(self, _key: str, /) -> SendOutcome:
        return SendOutcome.UNKNOWN


class FakeAdapter:
    """The functions of a program's adapter; tests replace those that they need."""

    def __init__(self) -> None:
        self.looks: Callable[[], None] = lambda: None
        self.answers: Callable[[str, Choice], bool] = lambda _question, _choice: False
        self.sends: ApiSender | None = None

    def look(self) -> None:
        self.looks()

    async def answer(self, question_id: str, choice: Choice) -> bool:
        return self.answers(question_id, choice)

    def sender(self) -> ApiSender | None:
        return self.sends


@dataclass(slots=True)
class Stage:
    """A driver with its program, and the folder of its files."""

    driver: PtyDriver
    program: RunningProgram
    files: Path
    adapter: FakeAdapter

    def screen(self) -> str:
        picture = self.program.screen.picture()
        return "\n".join(picture.lines).rstrip() if picture else ""

    async def sees(self, text: str) -> None:
        await until(lambda: text in self.screen(), f"{text!r} on the screen", self.screen)

    async def ready(self) -> None:
        await asyncio.wait_for(self.driver.wait_ready(), BOUND)

    async def turn(self, text: str, *more: Part) -> list[TurnEvent]:
        """Takes one turn, as the worker would."""
        await self.ready()
        return await self.take(text, *more)

    async def take(self, text: str, *more: Part) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        async with asyncio.timeout(BOUND):
            async for event in self.driver.take_turn(new_turn(text, *more)):
                events.append(event)  # noqa: PERF401  # what came before an error is looked at too
        return events


def new_turn(text: str, *more: Part) -> Turn:
    message = Message(message_id=MessageId("m1"), role=Role.USER, parts=(TextPart(text=text), *more))
    return Turn(task_id=TaskId("task-1"), message=message, text=f"[A2A:1a2b3c4d:user] {text}", first=True)


def names(events: list[TurnEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def answer(events: list[TurnEvent]) -> str:
    last = events[-1]
    assert isinstance(last, Answered), events
    return text_of(last.parts)


async def until(condition: Callable[[], bool], what: str, seen: Callable[[], object] = lambda: "") -> None:
    """Waits for a condition that no event announces."""
    loop = asyncio.get_running_loop()
    end = loop.time() + BOUND
    while not condition():
        assert loop.time() < end, f"{what} did not come; there is: {seen()!r}"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def staged(
    command: tuple[str, ...],
    profile: Profile,
    *,
    users: TerminalUsers | None = None,
    launch: Launch | None = None,
    usage: UsageRecorder | None = None,
) -> AsyncGenerator[Stage, None]:
    """Starts a program with its driver, and ends both."""
    clock = SystemClock()
    launch = launch or Launch(command=command, env=environment(), columns=100, rows=30)
    with tempfile.TemporaryDirectory() as folder:
        program = await start_program(launch, profile, clock, users or TerminalUsers())
        files = PromptFiles(Path(folder), profile.limit_bytes, envelope=profile.envelope)
        driver, adapter = PtyDriver(program, profile, clock, files, usage), FakeAdapter()
        driver.use(adapter.look, adapter.answer, adapter.sender)
        program.begin()
        program.load_screen()
        try:
            yield Stage(driver, program, Path(folder), adapter)
        finally:
            await driver.stop()
