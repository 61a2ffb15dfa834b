"""Random programs, people, dialogs and chunks: nothing is typed twice or into a dialog, and proof is true."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from synapse.terminal.delivery import Phase
from synapse.terminal.reading import cells
from tests.property.simulated_programs import SYNAPSE, Quirk
from tests.property.simulated_world import HEADER, Happening, Scenario, World, bound

LINE_QUIRKS = (Quirk.NONE, Quirk.DRAWS_NO_INPUT, Quirk.HANGS)
QUIRKS = {
    "line": LINE_QUIRKS,
    "quiet": LINE_QUIRKS,
    "editor": (Quirk.NONE, Quirk.HANGS),
    "page": tuple(Quirk),
}

bodies = st.sampled_from(
    ("hello", "see @codex", "one\ntwo", "1\n2\n3\n4\n5\n6", "long " * 60, "日本語のメッセージ", "x")
)
lags = st.sampled_from((0.0, 0.001, 0.05, 0.4, 0.9))
TEXT_KEYS = (b"x", b"half a line", b"\x15", b"\r", b"y\r", b"n", b"a whole line\r", b"\x1b[A", b"\t", b"\x19")
SILENT_KEYS = (
    b"\x1b[B",
    b"\x1b[C",
    b"\x1b[D",
    b"\x1b[H",
    b"\x1b[Z",
    b"\x1b[15~",
    b"\x1b[5~",
    b"\x0c",
    b"\x7f",
    b"\x01",
)
keys = st.sampled_from(TEXT_KEYS + SILENT_KEYS)
seeds = st.integers(0, 2**32)
columns = st.sampled_from((24, 40, 60, 80))


@st.composite
def answers(draw: st.DrawFn, wide: int) -> str:
    """One row, or two, of which the last ends around the right edge: in letters, wide characters, or accents."""
    width = wide + draw(st.integers(-2, 2))
    letter = draw(st.sampled_from(("a", "日", "e\u0301", "> ")))
    row = letter * (width // cells(letter))
    row += "b" * (width - cells(row))
    return row + draw(st.sampled_from(("", "\r\n" + row, "\r\n")))


RUNS = int(os.environ.get("SYNAPSE_RANDOM_DELIVERIES", "300"))
happenings = st.lists(
    st.builds(
        Happening,
        # Most of them happen around the moment when the text is typed.
        at=st.floats(0.0, 12.0) | st.floats(0.99, 1.1) | st.floats(1.0, 2.2),
        what=st.sampled_from(("keys", "dialog", "notice")),
        keys=keys,
    ),
    max_size=6,
).map(tuple)


@st.composite
def scenarios(draw: st.DrawFn, kind: str) -> Scenario:
    wide = draw(columns)
    return Scenario(
        kind=kind,
        body=draw(bodies),
        quirk=draw(st.sampled_from(QUIRKS[kind])),
        lag=draw(lags),
        work=draw(st.sampled_from((0.0, 0.3, 3.0))),
        asks=draw(st.booleans()),
        erases_page=draw(st.booleans()),
        intent_takes=draw(st.sampled_from((0.0, 0.004, 0.3, 2.0))),
        columns=wide,
        says=draw(answers(wide)),
        happenings=draw(happenings),
        seed=draw(seeds),
    )


# CI runs ten thousand in all; split by kind, so that two workers share them. They only compute: 30 to 120 s on a quiet
# machine, and more than 300 s on one that others use.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["line", "editor", "page", "quiet"])
@settings(max_examples=RUNS, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_whatever_happens_a_message_is_typed_at_most_once_and_proof_is_true(kind: str, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(kind))
    world = World(scenario)

    world.run()

    event(f"{scenario.kind} {world.delivery.phase.name}")
    assert len(world.writes) <= 2
    assert world.taken <= 1
    if world.delivery.phase is Phase.PROVEN:
        assert world.taken == 1
    if world.delivery.phase in (Phase.GATED, Phase.INTENDING, Phase.WITHDRAWN):
        assert world.writes == []
    if world.intended_at is not None:
        assert world.ended_at is not None
        assert world.ended_at - world.intended_at <= bound(world.profile, world.dialogs)
    for submission in world.program.submissions:
        if submission.enter_by == SYNAPSE:
            assert submission.authors <= {SYNAPSE}


@settings(max_examples=100, deadline=None)
@given(seed=seeds, keys=st.sampled_from((b"x", b"\x1b[A")), lag=lags, notices=st.lists(st.floats(1.0, 1.5), max_size=3))
@example(seed=0, keys=b"x", lag=0.0, notices=[1.0, 1.0])
def test_a_line_that_the_program_repaints_in_pieces_is_not_taken_for_an_empty_one(
    seed: int, keys: bytes, lag: float, notices: list[float]
) -> None:
    happenings = (Happening(0.0, "keys", keys), *(Happening(at, "notice") for at in notices))
    world = World(Scenario(kind="editor", body="hello", lag=lag, columns=24, happenings=happenings, seed=seed))

    world.run()

    assert world.writes == []


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(("line", "page")), body=bodies, lag=lags, seed=seeds)
def test_a_program_that_behaves_gets_the_message_and_it_is_proven(kind: str, body: str, lag: float, seed: int) -> None:
    world = World(Scenario(kind=kind, body=body, lag=lag, seed=seed))

    world.run()

    assert world.delivery.phase is Phase.PROVEN
    assert world.taken == 1


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(("line", "page")), wide=columns, more=st.integers(-2, 2), seed=seeds, data=st.data())
def test_an_answer_or_a_message_as_wide_as_the_terminal_hides_neither_prompt_nor_proof(
    kind: str, wide: int, more: int, seed: int, data: st.DataObject
) -> None:
    body = "m" * ((-len("> " + HEADER)) % wide + more)
    world = World(Scenario(kind=kind, body=body, columns=wide, says=data.draw(answers(wide)), seed=seed))

    world.run()

    assert world.delivery.phase is Phase.PROVEN
    assert world.taken == 1


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(("editor", "page")),
    silent=st.lists(
        st.sampled_from((*SILENT_KEYS, b"\x1b[I", b"\x1b[<35;3;3M", b"\x1b[<0;3;3M")), min_size=1, max_size=6
    ),
    lag=lags,
    seed=seeds,
)
def test_a_message_does_not_wait_for_keys_that_leave_the_prompt_empty(
    kind: str, silent: list[bytes], lag: float, seed: int
) -> None:
    pressed = tuple(Happening(at=0.002 * number, what="keys", keys=key) for number, key in enumerate(silent))
    world = World(Scenario(kind=kind, body="hello", lag=lag, seed=seed, happenings=pressed))

    world.run()

    assert world.delivery.phase is Phase.PROVEN


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(("line", "editor", "page")), text=st.sampled_from((b"x", b"\x1b[A", b"half")), seed=seeds)
def test_a_message_waits_for_as_long_as_a_person_has_text_in_the_line(kind: str, text: bytes, seed: int) -> None:
    world = World(Scenario(kind=kind, body="hello", seed=seed, happenings=(Happening(at=0.0, what="keys", keys=text),)))

    world.run()

    assert world.delivery.phase is Phase.GATED
    assert world.program.draft


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["line", "editor", "page", "quiet"])
@settings(
    max_examples=min(400, RUNS), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data(), at=st.floats(0.9, 2.5))
def test_a_message_that_is_canceled_in_time_is_never_submitted_by_us(kind: str, data: st.DataObject, at: float) -> None:
    scenario = data.draw(scenarios(kind))
    cancel = Happening(at=at, what="cancel")
    world = World(replace(scenario, happenings=(*scenario.happenings, cancel)))

    world.run()

    event(f"{scenario.kind} {world.delivery.phase.name}")
    if world.dropped_at is not None:
        assert world.delivery.phase is Phase.DROPPED
        assert all(submission.enter_by != SYNAPSE for submission in world.program.submissions)
        assert len(world.writes) <= 1
        assert world.ended_at is not None
        assert world.ended_at - world.dropped_at <= bound(world.profile, world.dialogs)


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(("line", "page")), body=bodies, lag=lags, seed=seeds, at=st.floats(0.9, 2.5))
def test_a_canceled_message_leaves_nothing_in_the_input_of_a_program_that_behaves(
    kind: str, body: str, lag: float, seed: int, at: float
) -> None:
    cancel = Happening(at=at, what="cancel")
    world = World(Scenario(kind=kind, body=body, lag=lag, seed=seed, happenings=(cancel,)))

    world.run()

    if world.dropped_at is not None:
        assert world.taken == 0
        assert world.program.draft == []
