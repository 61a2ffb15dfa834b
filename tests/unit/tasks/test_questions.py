"""Who may answer what an agent asks in the middle of a turn, and who wins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from synapse.core.caller import APPROVE, Caller
from synapse.core.driver import AgentView, DeliveryUncertain, QuestionRaised, Resumed, Submitted, Typing
from synapse.core.errors import NothingAsked, PersonRequired, QuestionGone, TaskNotFound
from synapse.core.override import override
from synapse.core.question import Choice, Question
from synapse.core.requests import GetStatus, GetTask, HostStatus
from synapse.core.task import Task, TaskState
from synapse.tasks.questions import RECORD_SECONDS
from tests.fakes.driver import FakeDriver
from tests.fakes.harness import AgentHarness, working
from tests.fakes.questions import (
    CHOICE,
    DONE,
    GATEWAY_APPROVER,
    GATEWAY_SENDER,
    ITSELF,
    LEFT_BEHIND,
    OTHER_AGENT,
    OVER_TCP,
    PERMISSION,
    PERSON,
    STARTUP,
    TAKEN,
    WITHOUT_TERMINAL,
    answer,
    asked,
    asks,
    is_asked,
)


async def test_an_answer_lets_the_turn_go_on_and_the_record_says_who_gave_it() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        harness.driver.go_on.clear()

        going_on = await answer(harness, task_id=task.short_id, verdict="allow")

        assert going_on is not None
        assert (going_on.state, going_on.note) == (TaskState.WORKING, "answered: keys")
        assert "question" not in going_on.metadata
        assert going_on.metadata["answered"] == {
            "question": "Run the command?",
            "id": PERMISSION.id,
            "choice": "Yes",
            "by": "person",
            "how": "keys",
        }
        assert harness.driver.choices == [Choice(option="1")]
        harness.driver.go_on.set()
        assert (await harness.finished(task)).state is TaskState.COMPLETED


async def test_what_is_asked_before_there_is_proof_of_the_message_can_be_answered() -> None:
    driver = FakeDriver(lambda _: [Typing(), DeliveryUncertain("a dialog covers the page"), TAKEN, DONE])
    driver.holds_before = Submitted
    driver.go_on.clear()
    async with working(AgentHarness(driver)) as harness:
        task = await harness.reached(await harness.send("work"), "typed")
        driver.question = PERMISSION

        async with asyncio.timeout(RECORD_SECONDS / 2):
            await answer(harness, task_id=task.id, verdict="allow")
        driver.question = replace(PERMISSION, id="q-2")
        await answer(harness, verdict="deny")

        assert driver.choices == [Choice(option="1"), Choice(option="2")]
        with pytest.raises(NothingAsked):
            await answer(harness, task_id=task.id, verdict="allow")


async def test_a_person_at_the_terminal_can_always_answer() -> None:
    driver = FakeDriver(lambda _: [TAKEN, QuestionRaised(PERMISSION), Resumed("person"), DONE])
    async with working(AgentHarness(driver)) as harness:
        task = await asked(harness)
        notes: list[str] = []
        harness.journal.listen(lambda update: notes.append(update.task.note))

        driver.answer_at_terminal()

        ended = await harness.finished(task)
        assert "question" not in ended.metadata
        assert "answered: person" in notes
        with pytest.raises(NothingAsked):
            await answer(harness, task_id=task.id, verdict="allow")


async def test_the_second_answer_gets_question_gone() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        results = await asyncio.gather(
            answer(harness, task_id=task.id, verdict="allow"),
            answer(harness, task_id=task.id, verdict="deny"),
            return_exceptions=True,
        )

        assert isinstance(results[0], Task)
        assert isinstance(results[1], QuestionGone)
        assert str(results[1]) == "'Run the command?' was answered meanwhile"
        assert results[1].answered_by == "person"
        assert harness.driver.choices == [Choice(option="1")]


async def test_a_question_that_was_answered_says_by_whom_and_any_other_does_not() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        await answer(harness, task_id=task.id, verdict="allow", question_id=PERMISSION.id)
        await harness.finished(task)

        with pytest.raises(QuestionGone) as gone:
            await answer(harness, task_id=task.id, verdict="deny", question_id=PERMISSION.id)
        with pytest.raises(NothingAsked):
            await answer(harness, task_id=task.id, verdict="deny", question_id="q-0")
        with pytest.raises(NothingAsked):
            await answer(harness, task_id=task.id, verdict="deny")

        assert gone.value.answered_by == "person"
        assert harness.driver.choices == [Choice(option="1")]


async def test_an_answer_to_another_question_than_the_open_one_is_refused() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)

        with pytest.raises(QuestionGone):
            await answer(harness, task_id=task.id, verdict="allow", question_id="q-0")
        assert harness.driver.choices == []


async def test_an_answer_may_come_before_the_task_says_what_is_asked() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        harness.driver.holds_before = QuestionRaised
        harness.driver.go_on.clear()
        task = await harness.reached(await harness.send("work"), "submitted")
        harness.driver.question = PERMISSION
        early = [asyncio.ensure_future(answer(harness, task_id=wanted, verdict="allow")) for wanted in (task.id, "")]
        assert not (await asyncio.wait(early, timeout=0.05))[0]
        harness.driver.go_on.set()
        results = await asyncio.gather(*early, return_exceptions=True)

        assert [type(result) for result in results] == [Task, QuestionGone]
        assert (await harness.finished(task)).metadata["answered"]["choice"] == "Yes"


async def test_the_driver_has_the_last_word_on_what_is_on_the_screen() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        harness.driver.question = replace(PERMISSION, id="q-2")

        with pytest.raises(QuestionGone):
            await answer(harness, task_id=task.id, verdict="allow")


def on_laptop(sender: str, *actions: str) -> Caller:
    return Caller(
        scope="machine:laptop", machine="laptop", remote_sender=sender, actions=frozenset(actions), sees_all=True
    )


PERSON_ON_LAPTOP = on_laptop("user", APPROVE)
BROWSER_ON_LAPTOP = on_laptop("", APPROVE)
AGENT_ON_LAPTOP = on_laptop("synapse-claude-8100", APPROVE)
CLAIM_ON_LAPTOP = on_laptop("unverified.user", APPROVE)
PERSON_WITHOUT_RIGHT = on_laptop("user", "read")


def named(one: object) -> str:
    """For the names of the tests."""
    return one.kind.value if isinstance(one, Question) else NAMES[cast("Caller", one)]


NAMES = {
    PERSON: "a person",
    OVER_TCP: "somebody over TCP",
    OTHER_AGENT: "another agent",
    ITSELF: "the agent itself",
    LEFT_BEHIND: "a process that an agent left behind",
    WITHOUT_TERMINAL: "a person without a terminal where one is demanded",
    GATEWAY_APPROVER: "a key that may approve",
    GATEWAY_SENDER: "a key that may send",
    PERSON_ON_LAPTOP: "a person on a machine that may approve",
    BROWSER_ON_LAPTOP: "a caller of the gateway of a machine that may approve",
    AGENT_ON_LAPTOP: "an agent on a machine that may approve",
    CLAIM_ON_LAPTOP: "nobody known on a machine that may approve",
    PERSON_WITHOUT_RIGHT: "a person on a machine that may not approve",
}
ALLOWED = [
    (PERMISSION, PERSON),
    (PERMISSION, GATEWAY_APPROVER),
    (CHOICE, PERSON),
    (CHOICE, GATEWAY_APPROVER),
    (CHOICE, GATEWAY_SENDER),
    (CHOICE, OTHER_AGENT),
    (CHOICE, OVER_TCP),
    (PERMISSION, PERSON_ON_LAPTOP),
    (PERMISSION, BROWSER_ON_LAPTOP),
    (CHOICE, PERSON_ON_LAPTOP),
]
REFUSED = [
    (PERMISSION, OVER_TCP),
    (PERMISSION, OTHER_AGENT),
    (PERMISSION, ITSELF),
    (PERMISSION, LEFT_BEHIND),
    (PERMISSION, GATEWAY_SENDER),
    (STARTUP, OVER_TCP),
    (STARTUP, OTHER_AGENT),
    (STARTUP, ITSELF),
    (STARTUP, LEFT_BEHIND),
    (PERMISSION, WITHOUT_TERMINAL),
    (STARTUP, WITHOUT_TERMINAL),
    (CHOICE, ITSELF),
    (CHOICE, LEFT_BEHIND),
    (PERMISSION, AGENT_ON_LAPTOP),
    (PERMISSION, CLAIM_ON_LAPTOP),
    (PERMISSION, PERSON_WITHOUT_RIGHT),
    (CHOICE, AGENT_ON_LAPTOP),
    (CHOICE, CLAIM_ON_LAPTOP),
    (CHOICE, PERSON_WITHOUT_RIGHT),
]


@pytest.mark.parametrize(("question", "caller"), ALLOWED, ids=named)
async def test_these_may_answer(question: Question, caller: Caller) -> None:
    async with working(AgentHarness(asks(question))) as harness:
        task = await asked(harness)
        await answer(harness, caller, task_id=task.id, option="1")

        assert harness.driver.choices == [Choice(option="1")]


@pytest.mark.parametrize(("question", "caller"), REFUSED, ids=named)
async def test_these_may_not_answer_neither_by_a_command_nor_by_a_message(question: Question, caller: Caller) -> None:
    async with working(AgentHarness(asks(question))) as harness:
        task = await asked(harness)
        with pytest.raises(PersonRequired) as refusal:
            await answer(harness, caller, task_id=task.id, option="1")
        with pytest.raises(PersonRequired):
            await harness.send("1", caller=caller, task_id=task.id)

        assert f"synapse approve {task.short_id}" in refusal.value.hint
        assert harness.driver.choices == []
        assert len((await harness.task(task.id)).history) == 1


@pytest.mark.parametrize("caller", [OTHER_AGENT, ITSELF, LEFT_BEHIND, OVER_TCP], ids=named)
async def test_a_setting_lets_agents_answer(caller: Caller) -> None:
    async with working(AgentHarness(asks(PERMISSION), agents_may_answer=True)) as harness:
        task = await asked(harness)
        await answer(harness, caller, task_id=task.id, verdict="deny")

        assert harness.driver.choices == [Choice(option="2")]


@pytest.mark.parametrize("caller", [AGENT_ON_LAPTOP, PERSON_WITHOUT_RIGHT], ids=named)
async def test_a_setting_about_agents_here_gives_no_right_to_other_machines(caller: Caller) -> None:
    async with working(AgentHarness(asks(PERMISSION), agents_may_answer=True)) as harness:
        task = await asked(harness)
        with pytest.raises(PersonRequired):
            await answer(harness, caller, task_id=task.id, verdict="deny")


async def test_the_record_says_on_which_machine_the_person_is_who_answered() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        answered = await answer(harness, PERSON_ON_LAPTOP, task_id=task.id, option="1")

        assert answered is not None
        assert answered.metadata["answered"]["by"] == "user@laptop"


@pytest.mark.parametrize("caller", [GATEWAY_APPROVER, PERSON_ON_LAPTOP], ids=named)
async def test_where_a_terminal_is_demanded_no_key_and_no_machine_approves(caller: Caller) -> None:
    async with working(AgentHarness(asks(PERMISSION), keys_may_answer=False)) as harness:
        task = await asked(harness)
        with pytest.raises(PersonRequired):
            await answer(harness, caller, task_id=task.id, option="1")
        await answer(harness, PERSON, task_id=task.id, option="1")

        assert harness.driver.choices == [Choice(option="1")]


async def test_a_foreign_task_is_missing() -> None:
    stranger = Caller(scope="key-2", actions=frozenset({APPROVE}))

    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)

        with pytest.raises(TaskNotFound):
            await answer(harness, stranger, task_id=task.id, verdict="allow")
        with pytest.raises(NothingAsked):
            await answer(harness, stranger, verdict="allow")


@pytest.mark.parametrize("names_task", [True, False])
async def test_a_person_decides_what_the_agent_asks_in_the_task_of_a_key(names_task: bool) -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await is_asked(harness, await harness.send("work", caller=Caller(scope="key-1")))

        told = await answer(harness, PERSON, task_id=task.id if names_task else "", verdict="allow")

        assert told is None, "the task itself stays the key's"
        assert harness.driver.choices == [Choice(option="1")]
        with pytest.raises(TaskNotFound):
            await harness.service.handle(GetTask(task.id), PERSON)


@pytest.mark.parametrize("caller", [OVER_TCP, OTHER_AGENT, ITSELF, LEFT_BEHIND, WITHOUT_TERMINAL])
async def test_others_here_do_not_find_what_is_asked_in_the_task_of_a_key(caller: Caller) -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await is_asked(harness, await harness.send("work", caller=Caller(scope="key-1")))

        with pytest.raises(TaskNotFound):
            await answer(harness, caller, task_id=task.id, verdict="allow")
        with pytest.raises(NothingAsked):
            await answer(harness, caller, verdict="allow")
        assert harness.driver.choices == []


async def test_without_a_task_it_is_whatever_the_agent_asks_now() -> None:
    async with working(AgentHarness(asks(PERMISSION))) as harness:
        task = await asked(harness)
        going_on = await answer(harness, verdict="allow")

        assert going_on is not None
        assert going_on.id == task.id


async def test_a_question_that_goes_while_the_status_is_told_does_not_stand_there_without_its_task() -> None:
    class Blinking(FakeDriver):
        """Sees a question in the first look, and none in the next."""

        @override
        def view(self) -> AgentView:
            seen = super().view()
            self.question = None
            return seen

    async with working(AgentHarness(Blinking(lambda _: [Typing(), TAKEN, DONE]))) as harness:
        harness.driver.go_on.clear()
        task = await harness.reached(await harness.send("work"), "submitted")
        harness.driver.question = PERMISSION

        status: HostStatus = await harness.service.handle(GetStatus(), PERSON)

        assert status.view.question == PERMISSION
        assert status.asking is not None
        assert status.asking.id == task.id


async def test_a_question_at_the_start_belongs_to_no_task() -> None:
    harness = AgentHarness()
    harness.driver.question = STARTUP
    status: HostStatus = await harness.service.handle(GetStatus(), PERSON)

    assert (status.view.question, status.asking) == (STARTUP, None)
    with pytest.raises(PersonRequired):
        await answer(harness, OTHER_AGENT, verdict="allow")
    assert await answer(harness, verdict="allow") is None
    with pytest.raises(NothingAsked, match="synapse-codex-8120 has no open question"):
        await answer(harness, verdict="allow")
