"""The bytes that are written for a message: after the rest of another one is dropped, and once the program reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from synapse.core.driver import DeliveryUncertain, Submitted, TurnEvent, Typing
from synapse.drivers.pty.context import PtyContext, SignalBuffer
from synapse.drivers.pty.submit import KeySubmitter
from synapse.terminal.delivery import Delivery
from synapse.terminal.evidence import Look
from synapse.terminal.picture import Picture
from synapse.terminal.profile import Profile
from tests.unit.terminal.scenes import TEXT, line_profile, look_at, page, page_profile, screen_of

STEP = 0.25
CLEAR = "\x15"
PROMPT = screen_of("hello", "> ")
SUBMITTED = screen_of("hello", "> " + TEXT, "done", "> ")


@dataclass
class FakeProgram:
    """Notes what is written to it, and when."""

    has_line_editor: bool = False
    written: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    now: float = 0.0
    read_at: float = 0.0
    """When it reads what was written."""

    def write(self, data: bytes) -> None:
        self.written.append((self.now, data.decode()))

    def drop_unread(self) -> bool:
        self.written.append((self.now, "drop"))
        return not self.has_line_editor

    @property
    def pump(self) -> FakeProgram:
        return self

    @property
    def input(self) -> FakeProgram:
        return self

    @property
    def pending(self) -> int:
        return int(self.now < self.read_at)

    @property
    def words(self) -> list[str]:
        return [word for _, word in self.written]


class FakeContext:
    """Shows the program as it is before or after Enter; time passes whenever a caller waits."""

    def __init__(self, program: FakeProgram, profile: Profile, before: Picture) -> None:
        self.program = program
        self.profile = profile
        self.signals = SignalBuffer()
        self.watcher = self
        self.recheck: Callable[[], None] = lambda: None
        self.before = self.after = before
        self.begun_at = 0

    def now(self) -> float:
        return self.program.now

    def look(self) -> Look:
        is_entered = "\r" in self.program.words[self.begun_at :]
        return look_at(self.after if is_entered else self.before)

    async def next_look(self, *_deadlines: float | None) -> None:
        self.program.now += STEP


def a_submitter(
    program: FakeProgram, profile: Profile | None = None, before: Picture = PROMPT
) -> tuple[KeySubmitter, FakeContext]:
    context = FakeContext(program, profile or line_profile(), before)
    # The submitter needs no more of one than this.
    return KeySubmitter(cast("PtyContext", cast("Any", context))), context


async def deliver(submitter: KeySubmitter, context: FakeContext, *, is_taken: bool) -> list[TurnEvent]:
    """Types a message until there is proof, or doubt that no caller waits to end."""
    context.after = SUBMITTED if is_taken else context.before
    context.begun_at = len(context.program.words)

    async with asyncio.timeout(10):
        events: list[TurnEvent] = []
        typing = submitter.deliver(Delivery(TEXT, context.profile))
        async for event in typing:
            events.append(event)
            if isinstance(event, DeliveryUncertain):
                break
        await typing.aclose()
        return events


@pytest.mark.parametrize(
    ("has_line_editor", "cleared"),
    [(False, ["drop"]), (True, ["drop", CLEAR])],
    ids=["it waits in the kernel", "it is in the line that the program edits"],
)
async def test_a_line_that_was_never_proven_is_dropped_before_the_next(
    has_line_editor: bool, cleared: list[str]
) -> None:
    program = FakeProgram(has_line_editor)
    submitter, context = a_submitter(program)

    assert [type(event) for event in await deliver(submitter, context, is_taken=False)] == [Typing, DeliveryUncertain]
    assert program.words == [TEXT, "\r"]
    assert [type(event) for event in await deliver(submitter, context, is_taken=True)] == [Typing, Submitted]
    assert program.words[2:] == [*cleared, TEXT, "\r"]


async def test_a_proven_message_leaves_nothing_to_drop() -> None:
    program = FakeProgram()
    submitter, context = a_submitter(program)
    for _ in range(2):
        await deliver(submitter, context, is_taken=True)

    assert program.words == [TEXT, "\r"] * 2


async def test_text_in_a_full_screen_prompt_is_not_cleared_unseen() -> None:
    program = FakeProgram()
    submitter, context = a_submitter(program, page_profile(), page())
    for _ in range(2):
        await deliver(submitter, context, is_taken=False)

    assert "drop" not in program.words
    assert CLEAR not in program.words
    assert len(program.words) == 4


async def test_the_time_of_a_program_that_reads_slowly_begins_when_it_has_read() -> None:
    program = FakeProgram(read_at=0.75)
    submitter, context = a_submitter(program)
    await deliver(submitter, context, is_taken=False)

    (_, text), (entered_at, enter) = program.written
    assert (text, enter) == (TEXT, "\r")
    assert entered_at == 0.75 + context.profile.times.echo
