"""A scripted agent does what its file says."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable

import pytest

from synapse.core.agent import EXITED, READY, WORKING
from synapse.core.driver import (
    Answered,
    ArtifactProduced,
    Driver,
    Failed,
    InputRequested,
    Progress,
    Refused,
    Submitted,
    TurnEvent,
)
from synapse.core.errors import AgentExited
from synapse.core.message import DataPart, FilePart, TextPart
from synapse.drivers.scripted import driver as scripted
from synapse.drivers.scripted.driver import ScriptedDriver
from synapse.drivers.scripted.script import parse_script
from tests.fakes.clock import FakeClock
from tests.fakes.script_player import Pauses, answer_of, play, turn


def agent(script: str, pauses: Pauses | None = None) -> ScriptedDriver:
    return ScriptedDriver(parse_script(script), FakeClock(), pause=pauses or Pauses())


def default(*steps: str) -> str:
    return f"[default]\nsteps = [{', '.join(steps)}]"


def test_it_is_a_driver() -> None:
    driver: Driver = agent(default('{ answer = "ok" }'))

    assert driver.view().state == READY


async def test_a_turn_begins_with_proof_and_the_name_of_the_rule() -> None:
    driver = agent('[[rule]]\nname = "greeting"\ntext = "hi"\nsteps = [{ answer = "ok" }]')

    async def first_event() -> TurnEvent:
        return await anext(driver.take_turn(turn("hi")))

    assert await first_event() == Submitted("script", "greeting")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deploy web", "glob"),
        ("deploy\nweb", "glob"),
        ("please deploy web", "regex"),
        ("a Deploy", "default"),
        ("anything", "default"),
    ],
)
async def test_the_first_rule_whose_pattern_fits_the_text_wins(text: str, expected: str) -> None:
    driver = agent(
        """
        [[rule]]
        text = "deploy*"
        steps = [{ answer = "glob" }]
        [[rule]]
        text = "/deploy/"
        steps = [{ answer = "regex" }]
        [default]
        steps = [{ answer = "default" }]
        """
    )

    assert answer_of(await play(driver, turn(text))) == expected


async def test_a_rule_with_both_patterns_needs_both() -> None:
    driver = agent(
        """
        [[rule]]
        message_id = "cue-*"
        text = "go"
        steps = [{ answer = "both" }]
        [default]
        steps = [{ answer = "default" }]
        """
    )

    assert answer_of(await play(driver, turn("go", message_id="cue-7"))) == "both"
    assert answer_of(await play(driver, turn("go", message_id="my-cue-7"))) == "default"
    assert answer_of(await play(driver, turn("stay", message_id="cue-7"))) == "default"


async def test_a_message_that_no_rule_fits_is_refused() -> None:
    driver = agent('[[rule]]\ntext = "a"\nsteps = [{ answer = "b" }]')

    assert await play(driver, turn("c")) == [Refused("no rule of the script fits this message")]


async def test_the_text_of_the_message_is_filled_in_once() -> None:
    driver = agent(default('{ say = "<{text}>" }', '{ answer = "you said {text}" }'))

    assert await play(driver, turn("{text} & braces {}")) == [
        Progress("<{text} & braces {}>"),
        Answered(parts=(TextPart(text="you said {text} & braces {}"),), source="script"),
    ]


async def test_a_direct_answer_says_so() -> None:
    driver = agent(default('{ answer = "plain", direct = true }'))

    assert await play(driver, turn()) == [Answered(parts=(TextPart(text="plain"),), source="script", direct=True)]


async def test_a_stream_of_progress_has_its_pauses_between() -> None:
    pauses = Pauses()
    driver = agent(default('{ stream = ["a", "b", "c"], every = 0.5 }', '{ answer = "d" }'), pauses)

    assert (await play(driver, turn()))[:3] == [Progress("a"), Progress("b"), Progress("c")]
    assert pauses.taken == [0.5, 0.5]


async def test_steps_that_run_out_complete_the_task() -> None:
    driver = agent(default('{ say = "almost" }'))

    assert (await play(driver, turn()))[-1] == Answered(parts=(), source="script")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ('{ state = "working", note = "at it" }', Progress("at it")),
        ('{ state = "working" }', Progress("")),
        ('{ state = "input_required", note = "which?" }', InputRequested((TextPart(text="which?"),))),
        (
            '{ state = "auth_required" }',
            InputRequested((TextPart(text="Authorization is required."),), authorization=True),
        ),
        ('{ state = "completed" }', Answered(parts=(), source="script")),
        ('{ state = "failed", note = "broke" }', Failed("scripted", "broke")),
        ('{ state = "rejected", note = "no" }', Refused("no")),
        ('{ reject = "no" }', Refused("no")),
        ('{ fail = "broke", reason = "quota" }', Failed("quota", "broke")),
        ('{ fail = "broke" }', Failed("scripted", "broke")),
        ('{ ask = "which?" }', InputRequested((TextPart(text="which?"),))),
        ('{ ask_authorization = "token?" }', InputRequested((TextPart(text="token?"),), authorization=True)),
    ],
)
async def test_a_step_leads_to_its_state(step: str, expected: TurnEvent) -> None:
    assert (await play(agent(default(step)), turn()))[0] == expected


async def test_artifacts_of_each_kind_are_produced() -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    driver = agent(
        default(
            '{ artifact = "t", text = "<{text}>", media_type = "text/markdown" }',
            f'{{ artifact = "b", id = "b-1", description = "two bytes", base64 = "{encoded}", file = "b.bin" }}',
            '{ artifact = "f", bytes = "é", file = "f.txt", media_type = "text/plain" }',
            '{ artifact = "u", url = "https://example.com/x" }',
            '{ artifact = "d", data = { n = 1, deep = [true, "x", 1.5] } }',
        )
    )

    handed = [event for event in await play(driver, turn("hi")) if isinstance(event, ArtifactProduced)]

    assert [event.artifact.parts[0] for event in handed] == [
        TextPart(text="<hi>", media_type="text/markdown"),
        FilePart(content=b"\x00\xff", name="b.bin"),
        FilePart(content="é".encode(), name="f.txt", media_type="text/plain"),
        FilePart(url="https://example.com/x"),
        DataPart(data={"n": 1, "deep": [True, "x", 1.5]}),
    ]
    assert (handed[1].artifact.artifact_id, handed[1].artifact.name) == ("b-1", "b")
    assert handed[1].artifact.description == "two bytes"
    assert all(event.last_chunk and not event.append for event in handed)


async def test_chunks_append_to_the_first_and_the_last_is_marked() -> None:
    pauses = Pauses()
    driver = agent(default('{ artifact = "log", chunks = ["a", "b", "c"], every = 1 }'), pauses)

    handed = [event for event in await play(driver, turn()) if isinstance(event, ArtifactProduced)]

    assert [(event.artifact.text, event.append, event.last_chunk) for event in handed] == [
        ("a", False, False),
        ("b", True, False),
        ("c", True, True),
    ]
    assert {event.artifact.artifact_id for event in handed} == {"log"}
    assert pauses.taken == [1.0, 1.0]


async def test_chunks_of_a_file_are_bytes() -> None:
    driver = agent(default('{ artifact = "log", chunks = ["a"], file = "log.txt" }'))

    handed = (await play(driver, turn()))[0]

    assert isinstance(handed, ArtifactProduced)
    assert handed.artifact.parts == (FilePart(content=b"a", name="log.txt"),)


async def test_chunks_may_be_written_one_by_one() -> None:
    driver = agent(
        default('{ artifact = "l", text = "a", last = false }', '{ artifact = "l", text = "b", append = true }')
    )

    handed = [event for event in await play(driver, turn()) if isinstance(event, ArtifactProduced)]

    assert [(event.append, event.last_chunk) for event in handed] == [(False, False), (True, True)]


ASKING = default('{ ask = "which?" }', '{ ask_authorization = "token for {text}?" }', '{ answer = "got {text}" }')


async def test_the_steps_behind_a_question_are_played_on_the_follow_up() -> None:
    driver = agent(ASKING)

    assert await play(driver, turn("go")) == [InputRequested((TextPart(text="which?"),))]
    assert await play(driver, turn("this", first=False)) == [
        InputRequested((TextPart(text="token for this?"),), authorization=True)
    ]
    assert answer_of(await play(driver, turn("secret", first=False))) == "got secret"


async def test_questions_of_several_tasks_do_not_mix() -> None:
    driver = agent(
        """
        [[rule]]
        text = "one"
        steps = [{ ask = "1?" }, { answer = "one: {text}" }]
        [[rule]]
        text = "two"
        steps = [{ ask = "2?" }, { answer = "two: {text}" }]
        """
    )
    await play(driver, turn("one", task_id="t-1"))
    await play(driver, turn("two", task_id="t-2"))

    assert answer_of(await play(driver, turn("a", task_id="t-1", first=False))) == "one: a"
    assert answer_of(await play(driver, turn("b", task_id="t-2", first=False))) == "two: b"


async def test_a_follow_up_with_nothing_behind_the_question_is_matched_like_a_new_message() -> None:
    driver = agent(
        """
        [[rule]]
        message_id = "ask*"
        steps = [{ ask = "?" }]
        [default]
        steps = [{ answer = "done" }]
        """
    )
    await play(driver, turn(message_id="ask-1"))

    assert isinstance((await play(driver, turn(message_id="ask-2", first=False)))[-1], InputRequested)
    assert answer_of(await play(driver, turn(message_id="other", first=False))) == "done"


async def test_the_oldest_open_question_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "MAX_OPEN_QUESTIONS", 2)
    driver = agent(default('{ ask = "?" }', '{ answer = "behind" }'))
    for number in range(3):
        await play(driver, turn(task_id=f"t-{number}"))

    assert isinstance((await play(driver, turn(task_id="t-0", first=False)))[-1], InputRequested)
    assert answer_of(await play(driver, turn(task_id="t-2", first=False))) == "behind"


async def test_an_interrupt_ends_a_wait_at_once() -> None:
    driver = ScriptedDriver(
        parse_script(default('{ say = "thinking" }', "{ wait = 3600 }", '{ answer = "late" }')), FakeClock()
    )

    async def interrupted() -> list[TurnEvent]:
        events = driver.take_turn(turn())
        await events_until(events, lambda event: isinstance(event, Progress))
        rest = asyncio.ensure_future(anext(events))
        await driver.interrupt()
        async with asyncio.timeout(10):
            return [await rest, *[event async for event in events]]

    assert await interrupted() == [Failed("interrupted", "the turn was interrupted")]
    assert driver.view().state == READY


async def test_an_interrupt_without_a_turn_does_nothing_to_the_next() -> None:
    driver = agent(default('{ answer = "ok" }'))
    await driver.interrupt()

    assert answer_of(await play(driver, turn())) == "ok"


async def test_a_wait_is_over_when_its_time_has_come() -> None:
    driver = ScriptedDriver(parse_script(default("{ wait = 0.001 }", '{ answer = "rested" }')), FakeClock())

    assert answer_of(await play(driver, turn())) == "rested"


async def test_a_canceled_turn_leaves_the_agent_ready() -> None:
    driver = ScriptedDriver(parse_script(default('{ say = "a" }', "{ wait = 3600 }")), FakeClock())

    events = driver.take_turn(turn())
    await events_until(events, lambda event: isinstance(event, Progress))
    assert driver.view().state == WORKING
    await events.aclose()
    assert driver.view().state == READY
    assert driver.view().why == "the script waits for a message"


async def test_an_agent_that_exits_stays_gone() -> None:
    driver = agent(default('{ say = "bye" }', "{ exit = 3 }"))

    with pytest.raises(AgentExited, match="status 3"):
        await play(driver, turn())

    assert driver.exit_status == 3
    assert driver.view().state == EXITED
    with pytest.raises(AgentExited):
        await driver.wait_ready()
    with pytest.raises(AgentExited):
        await play(driver, turn())


async def events_until(events: AsyncIterator[TurnEvent], seen: Callable[[TurnEvent], bool]) -> None:
    async for event in events:
        if seen(event):
            return


@pytest.mark.parametrize(
    "steps",
    [
        ['{ answer = "you said {text}" }'],
        ['{ say = "one moment" }', '{ answer = "ok" }'],
        ['{ say = "{text}, one moment" }'],
        ['{ reject = "no" }'],
        ['{ fail = "broken" }'],
        ['{ artifact = "{text}.txt", text = "{text}" }'],
    ],
)
async def test_a_rule_that_needs_only_the_message_is_answered_at_once_as_in_a_turn(steps: list[str]) -> None:
    at_once = agent(default(*steps)).answer_at_once(turn("hi").message)

    assert at_once is not None
    assert [*at_once] == await play(agent(default(*steps)), turn("hi"))


@pytest.mark.parametrize(
    "step",
    ["{ wait = 1 }", '{ ask = "which?" }', '{ question = "May I?" }', "{ exit = 3 }"],
    ids=lambda step: step[2:6],
)
def test_a_rule_that_needs_time_or_a_person_is_not_answered_at_once(step: str) -> None:
    steps = [step] if "exit" in step else [step, '{ answer = "ok" }']

    assert agent(default(*steps)).answer_at_once(turn().message) is None


def test_nothing_is_answered_at_once_before_the_agent_is_ready_or_after_its_end() -> None:
    asking = agent('[startup]\nquestion = "Do you trust this folder?"\n' + default('{ answer = "ok" }'))
    stopped = agent(default('{ answer = "ok" }'))
    stopped.stop()

    assert asking.answer_at_once(turn().message) is None
    assert stopped.answer_at_once(turn().message) is None
