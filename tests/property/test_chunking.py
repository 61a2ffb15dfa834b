"""No picture, verdict, step or answer depends on how the bytes were cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.terminal.answer import answer_text
from synapse.terminal.delivery import Delivery, Intend, Step
from synapse.terminal.evidence import Claim, Evidence, Verdict
from synapse.terminal.picture import Picture
from synapse.terminal.screen import Screen
from synapse.terminal.turn import TurnStep, TurnTracker
from tests.property.simulated_programs import COLUMNS, ROWS, SYNAPSE, LineProgram, Output, PageProgram
from tests.property.simulated_world import PROFILES
from tests.unit.terminal import golden_screens
from tests.unit.terminal.bundled import bundled

TEXT = "[A2A:1a2b3c4d:synapse-codex-8120] 日本語 and a rather long line that wraps in a narrow terminal, twice"
TOKENS = (
    b"\x1b[?2004h", b"\x1b[?2004l", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[2J", b"\x1b[H", b"\x1b[5;9H", b"\x1b[K",
    b"\x1b[2mfaint\x1b[0m", b"\x1b]0;a title\x07", b"\x1b]2;\xe2\x97\x90 busy\x1b\\", b"\x1b[6n", b"\x1b[c", b"\x1b[?u",
    b"\r\n", b"> ", "▸ 日本語".encode(), "e\u0301🎉".encode(), b"\x1b[31;1mred\x1b[0m", b"\x1b[?25l", b"\x1b[>1u",
)  # fmt: skip

outputs = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=6) | st.text(max_size=12).map(str.encode), max_size=40)


@dataclass(frozen=True)
class Judgement:
    """Everything that was concluded from one stream of bytes."""

    pictures: tuple[Picture, ...]
    verdicts: tuple[Verdict, ...]
    claims: tuple[Claim, ...]
    steps: tuple[Step, ...]
    turn: tuple[TurnStep, ...]
    answer: str


@settings(max_examples=200, deadline=None)
@given(pieces=outputs, seed=st.integers(0, 2**32))
def test_a_picture_does_not_depend_on_how_the_bytes_were_cut(pieces: list[bytes], seed: int) -> None:
    whole, cut = Screen(40, 8), Screen(40, 8)
    data = b"".join(pieces)

    whole.feed(data)
    for piece in cuts(data, Random(seed)):
        cut.feed(piece)

    assert cut.picture() == whole.picture()
    assert cut.history(100) == whole.history(100)
    assert cut.take_replies() == whole.take_replies()
    assert cut.redraw() == whole.redraw()


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(("line", "page")), seed=st.integers(0, 2**32))
def test_no_verdict_step_or_answer_depends_on_how_the_bytes_were_cut(kind: str, seed: int) -> None:
    assert judged(kind, Random(seed)) == judged(kind, None)


@pytest.mark.parametrize("cli", ["claude", "codex", "copilot", "gemini", "opencode"])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_recorded_session_of_a_real_cli_is_judged_alike_however_it_is_cut(cli: str, seed: int) -> None:
    assert replayed(cli, Random(seed)) == replayed(cli, None)


def replayed(cli: str, chance: Random | None) -> tuple[list[Picture], list[Verdict], tuple[Claim, ...]]:
    """Feed a recorded session, cut or not, and judge it every 499 bytes."""
    session = (golden_screens.FOLDER / cli / "session.bin").read_bytes()
    screen, evidence = Screen(120, 40), Evidence(bundled(cli), 0.0)
    pictures: list[Picture] = []
    verdicts: list[Verdict] = []
    for tick, start in enumerate(range(0, len(session), 499)):
        for piece in cuts(session[start : start + 499], chance):
            screen.feed(piece)
        evidence.look(screen.picture(), quiet_for=1.0, now=float(tick))
        pictures.append(screen.picture())
        verdicts.append(evidence.verdict)
    return pictures, verdicts, evidence.claims


def judged(kind: str, chance: Random | None) -> Judgement:
    """Deliver a message to a program and follow its turn, with the program's output whole or cut."""
    program = PageProgram() if kind == "page" else LineProgram()
    profile = PROFILES[kind]
    screen, evidence, delivery = Screen(COLUMNS, ROWS), Evidence(profile, 0.0), Delivery(TEXT, profile)
    tracker = TurnTracker(profile, 0.0)
    pictures: list[Picture] = []
    verdicts: list[Verdict] = []
    steps: list[Step] = []
    turn: list[TurnStep] = []
    printed = rendered(program.start())
    for tick in range(12):
        for segment in printed:
            for piece in cuts(segment, chance):
                screen.feed(piece)
        printed = list[bytes]()
        look = evidence.look(screen.picture(), quiet_for=2.0, now=2.0 * tick)
        pictures.append(screen.picture())
        verdicts.append(evidence.verdict)
        for step in delivery.advance(look, 2.0 * tick):
            steps.append(step)
            match step:
                case Intend():
                    delivery.intent_recorded(2.0 * tick)
                case _:
                    printed += rendered(program.receive(getattr(step, "data", b""), SYNAPSE))
        turn += tracker.advance(look, 2.0 * tick)
    answer = answer_text(screen.history(500), TEXT, profile)
    return Judgement(tuple(pictures), tuple(verdicts), evidence.claims, tuple(steps), tuple(turn), answer)


def rendered(outputs: Iterable[Output]) -> list[bytes]:
    """Return everything that a program prints, without its waits."""
    segments: list[bytes] = []
    todo = list(outputs)
    while todo:
        made = todo.pop(0)[1]()
        if isinstance(made, bytes):
            segments.append(made)
        else:
            todo = [*made, *todo]
    return segments


def cuts(data: bytes, chance: Random | None) -> list[bytes]:
    """Return the bytes in random pieces; in one piece without `chance`."""
    if chance is None or len(data) < 2:
        return [data]
    at = sorted(chance.sample(range(1, len(data)), min(chance.randrange(1, 9), len(data) - 1)))
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


def test_the_compared_deliveries_run_to_their_end() -> None:
    """The comparison above would hold for deliveries that never begin."""
    for kind in ("line", "page"):
        judgement = judged(kind, None)

        assert [type(step).__name__ for step in judgement.steps] == ["Intend", "Write", "Write", "Proven"]
        assert judgement.answer == ("working\nan answer" if kind == "line" else "an answer")
        assert type(judgement.turn[-1]).__name__ == "Settled"
