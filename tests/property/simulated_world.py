"""A delivery in a simulated world: one program, one person, one screen, and a clock that jumps from event to event."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from synapse.core.agent import READY
from synapse.terminal.delivery import Clear, Delivery, Dropped, Intend, Phase, Withdrawn, Write
from synapse.terminal.evidence import Evidence, Look
from synapse.terminal.line_editor import LineKeys, PersonDraft
from synapse.terminal.profile import Profile
from synapse.terminal.proof import Shown, shown
from synapse.terminal.reading import compact, find_dialog, read_prompt
from synapse.terminal.screen import Screen
from tests.property.simulated_programs import (
    COLUMNS,
    PERSON,
    ROWS,
    SYNAPSE,
    EditorProgram,
    LineProgram,
    Output,
    PageProgram,
    Quirk,
)
from tests.unit.terminal.scenes import line_profile, page_profile, quiet_profile

COOKED = LineKeys(kill=frozenset(b"\x15"), ignored=frozenset(), literal=frozenset(), erase_word=frozenset())
"""The keys that the simulated kernel has."""
HEADER = "[A2A:1a2b3c4d:synapse-codex-8120] "
PROFILES = {
    "line": line_profile(
        times={"quiet": 0.02, "person": 1.0, "echo": 1.0, "proof": 3.0, "dialog": 60.0},
        regions={"bottom": {"last": 1}},
        dialogs=[
            {"name": "permission", "hint": "say y or n", "region": "bottom", "every": [r"^Do you want to proceed\?"]}
        ],
    ),
    "page": page_profile(),
    "editor": line_profile(times={"quiet": 0.02, "person": 1.0, "echo": 1.0, "proof": 3.0}),
    "quiet": quiet_profile(times={"dialog": 60.0}),
}
ENDED = (Phase.PROVEN, Phase.DOUBTFUL, Phase.WITHDRAWN, Phase.DROPPED)
END_OF_TIME = 200.0
GRAIN = 1e-6


def bound(profile: Profile, dialogs: int) -> float:
    """Return how long a delivery may take from intent to end; after each dialog its waits start again."""
    times = profile.times
    return 3.0 + times.dialog + (1 + dialogs) * (3 * times.echo + 2 * times.proof) + dialogs * times.dialog


@dataclass(frozen=True)
class Happening:
    """Something that comes from outside: a person's keys, a dialog, a notice, a cancel."""

    at: float
    what: str
    keys: bytes = b""


@dataclass(frozen=True)
class Scenario:
    """The program, the message and what happens; the seed decides the rest."""

    kind: str
    body: str
    quirk: Quirk = Quirk.NONE
    lag: float = 0.0
    work: float = 0.3
    asks: bool = False
    erases_page: bool = True
    intent_takes: float = 0.004
    columns: int = COLUMNS
    says: str = "an answer"
    happenings: tuple[Happening, ...] = ()
    seed: int = 0

    @property
    def text(self) -> str:
        return HEADER + self.body

    @property
    def kernel(self) -> LineKeys | None:
        """The kernel's keys, if the kernel edits the lines."""
        return COOKED if self.kind in ("line", "quiet") else None

    def program(self) -> LineProgram | EditorProgram | PageProgram:
        if self.kind != "page":
            kind = LineProgram if self.kernel is not None else EditorProgram
            return kind(
                quirk=self.quirk,
                lag=self.lag,
                work=self.work,
                asks=self.asks,
                columns=self.columns,
                says=self.says,
            )
        return PageProgram(
            quirk=self.quirk,
            lag=self.lag,
            work=self.work,
            asks=self.asks,
            columns=self.columns,
            says=self.says,
            erases_page=self.erases_page,
        )


class World:
    """Runs one scenario to its end, and checks at each write that it is allowed."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.profile = PROFILES[scenario.kind]
        self.program = scenario.program()
        self.screen = Screen(scenario.columns, ROWS, scrollback_lines=100)
        self.evidence = Evidence(self.profile, 0.0)
        self.delivery = Delivery(scenario.text, self.profile)
        self.now = 0.0
        self.writes: list[bytes] = []
        self.intended_at: float | None = None
        self.ended_at: float | None = None
        self.typed_at: float | None = None
        self.dropped_at: float | None = None
        self._chance = Random(scenario.seed)
        self._recorded = False
        self._last_output = 0.0
        self._last_key = float("-inf")
        self._draft = PersonDraft()
        self._hidden_keys = False
        """A person typed while the last page of a program that then hangs was on its way: it looks like a reaction.
        Or pressed Enter, which such a program drops without a sign: the line looks submitted."""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._stream_free_at = 0.0
        self._wakes_at: float | None = None

    def run(self) -> None:
        """Run all events in the order of their time."""
        self._schedule(self.program.start())
        for happening in self.scenario.happenings:
            self._at(happening.at, partial(self._happen, happening))
        self._at(1.0, self._look)
        while self._agenda and self._agenda[0][0] <= END_OF_TIME:
            self.now, _, action = heapq.heappop(self._agenda)
            action()

    @property
    def dialogs(self) -> int:
        """How many dialogs may come, one after the other."""
        return sum(one.what == "dialog" for one in self.scenario.happenings) + self.scenario.asks

    @property
    def taken(self) -> int:
        """How often the program was given the message."""
        return sum(
            compact(self.scenario.text)[:30] in compact(submission.text) for submission in self.program.submissions
        )

    def _happen(self, happening: Happening) -> None:
        match happening.what:
            case "keys":
                hangs = self.scenario.quirk is Quirk.HANGS
                is_hidden = self.now <= self._stream_free_at + GRAIN or b"\r" in happening.keys
                self._hidden_keys = self._hidden_keys or (hangs and is_hidden)
                if self._draft.typed(happening.keys, self.scenario.kernel):
                    self._last_key = self.now
                self._schedule(self.program.receive(happening.keys, PERSON))
                self._look()
            case "dialog":
                self._schedule(self.program.open_dialog())
            case "cancel":
                if self.delivery.drop(self.now):
                    self.dropped_at = self.now
                self._look()
            case _:
                self._schedule(self.program.chatter())

    def _schedule(self, outputs: Iterator[Output]) -> None:
        for delay, make in outputs:
            self._at(self.now + delay, partial(self._make, make))

    def _make(self, make: Callable[[], bytes | Iterator[Output]]) -> None:
        self._emit(make())

    def _emit(self, output: bytes | Iterator[Output]) -> None:
        if not isinstance(output, bytes):
            self._schedule(output)
            return
        # Later output waits for the pieces before it: a terminal's bytes stay in order.
        at = max(self.now, self._stream_free_at)
        while output:
            # Right after the prompt's sign a row may look empty though it is not.
            sign = output.find(b"\xe2\x96\xb8 ") + 4
            cut = self._chance.choice((len(output), 1 + self._chance.randrange(len(output)), sign if sign > 3 else 1))
            self._at(at, partial(self._feed, output[:cut]))
            output = output[cut:]
            at += self._chance.choice((0.0, 0.0, 0.002, 0.03))
        self._stream_free_at = at

    def _feed(self, piece: bytes) -> None:
        self.screen.feed(piece)
        self._last_output = self.now
        if self._chance.random() < 0.5:
            self._look()
        self._at(self.now + self.profile.times.quiet + GRAIN, self._look)

    def _look(self) -> None:
        look = self.evidence.look(
            self.screen.picture(),
            quiet_for=self.now - self._last_output,
            person_idle_for=self.now - self._last_key,
            draft=self._draft.state(
                kernel_edits=self.scenario.kernel is not None, has_unread=lambda: self.program.has_unread
            ),
            now=self.now,
        )
        for step in self.delivery.advance(look, self.now):
            match step:
                case Intend():
                    self.intended_at = self.now
                    self._at(self.now + self.scenario.intent_takes, self._record)
                case Write(data):
                    self._write(data, look)
                case Clear():
                    self._clear()
                case Dropped():
                    assert self.dropped_at is not None, "dropped without being asked"
                case Withdrawn():
                    assert not self.writes, "withdrawn after bytes were written"
                case _:
                    pass
        if self.delivery.phase in ENDED and self.ended_at is None:
            self.ended_at = self.now
        self._wake()

    def _wake(self) -> None:
        at = self.delivery.deadline
        if at is not None and at != self._wakes_at:
            self._wakes_at = at
            self._at(max(at, self.now), self._look)

    def _record(self) -> None:
        self._recorded = True
        self.delivery.intent_recorded(self.now)
        self._look()

    def _write(self, data: bytes, look: Look) -> None:
        assert self._recorded, "written before the intent was durable"
        assert self.dropped_at is None, "written although it was canceled"
        assert find_dialog(self.screen.picture(), self.profile) is None, "written while a dialog is on the screen"
        if not self.writes:
            self.typed_at = self.now
            assert look.state == READY, "written while the program is not ready"
            assert self.now - self._last_key >= self.profile.times.person - GRAIN, "written while a person types"
            prompt = read_prompt(self.screen.picture(), self.profile)
            assert self.profile.prompt is None or (prompt is not None and prompt.is_empty), "written over a text"
        elif self.profile.prompt is not None:
            seen = shown(self.screen.picture(), self.profile, self.scenario.text)
            assert seen is not Shown.FOREIGN, "Enter pressed on a text that is not ours"
        if not self.writes and self.profile.prompt is not None and not self._hidden_keys:
            assert not self.program.draft, "typed behind what a person has in the line"
        self.writes.append(data)
        self._schedule(self.program.receive(data, SYNAPSE))
        self.delivery.written(self.now)

    def _clear(self) -> None:
        assert self.dropped_at is not None, "cleared without being asked"
        assert find_dialog(self.screen.picture(), self.profile) is None, "cleared while a dialog is on the screen"
        assert self.typed_at is not None, "cleared though nothing was typed"
        assert self._last_key <= self.typed_at, "cleared a person's line"
        self._schedule(self.program.receive(self.profile.clear_keys, SYNAPSE))

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (when, self._order, action))
