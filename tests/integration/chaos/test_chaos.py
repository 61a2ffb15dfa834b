"""The short form of a chaos run (`scripts/chaos` is the long one), and that its judge finds what it has to find."""

from __future__ import annotations

import dataclasses
import os
import random
from datetime import UTC, datetime

import pytest

from synapse.core.events import Recorded, StateChanged
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.task import Receipt, ReceiptStep, Task, TaskId, TaskState
from tests.integration.chaos.house import Received
from tests.integration.chaos.house_campaign import VICTIMS, open_campaign
from tests.integration.chaos.letters import Letter
from tests.integration.chaos.verdict import Verdict, judge

pytestmark = pytest.mark.integration

MESSAGES = 240


@pytest.mark.timeout(180)
def test_whatever_is_killed_nothing_is_lost_twice_or_typed_into_a_dialog() -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    with open_campaign(seed, MESSAGES, every=4.0) as campaign:
        verdict = campaign.run()

    assert verdict.complaints == [], f"CHAOS_SEED={seed}\n{campaign.report(verdict)}"
    assert verdict.accepted > MESSAGES * 0.9
    assert set(campaign.accidents) >= set(VICTIMS)
    assert verdict.received > MESSAGES / 2


NONCE = "0123456789ab"
NOW = datetime(2026, 1, 15, tzinfo=UTC)
TASK = Task(
    id=TaskId("11111111-0000-4000-8000-000000000000"),
    agent_id="synapse-plain-21000",
    inbox="plain",
    context_id="c",
    scope="local",
    dialect="synapse",
    state=TaskState.COMPLETED,
    history=(Message(message_id=MessageId("m"), role=Role.USER, parts=(TextPart(text=f"do <<{NONCE}>>"),)),),
    created_at=NOW,
    updated_at=NOW,
    version=3,
    receipts=(Receipt(step=ReceiptStep.TYPED, at=NOW, source="journal"),),
)
ENDED = Recorded(7, StateChanged(task_id=TASK.id, at=NOW, state=TaskState.COMPLETED))
LINE = Received("line", f"[A2A:11111111:user] do <<{NONCE}>>\n".encode(), 1, "")
LETTER = Letter(nonce=NONCE, target="plain", text=f"do <<{NONCE}>>")


def judged(task: Task = TASK, got: tuple[Received, ...] = (LINE,), ends: int = 1, agent: str = "plain") -> Verdict:
    return judge([task], [ENDED] * ends, {agent: got}, {NONCE: {task.id}}, {NONCE: LETTER})


def test_the_judge_has_no_complaint_about_a_message_that_came_once() -> None:
    assert judged().complaints == []


def test_the_judge_finds_what_was_lost() -> None:
    assert judged(got=()).lost
    assert judge([], [], {}, {NONCE: {"a task that nobody knows"}}, {NONCE: LETTER}).lost
    assert judge([TASK], [ENDED], {"plain": (LINE,)}, {NONCE: {TASK.id, "another"}}, {NONCE: LETTER}).lost


def test_the_judge_finds_what_came_twice() -> None:
    assert judged(got=(LINE, LINE)).twice
    assert judged(got=(dataclasses.replace(LINE, data=LINE.data.strip() + LINE.data),)).twice


def test_the_judge_finds_what_was_typed_into_a_dialog() -> None:
    assert judged(got=(LINE, Received("dialog", b"y", 1, ""))).into_dialogs


def test_the_judge_finds_what_was_changed_or_came_to_another_agent_or_though_it_was_canceled() -> None:
    assert judged(got=(dataclasses.replace(LINE, data=LINE.data.replace(b"do", b"du")),)).changed
    assert judged(agent="slow").changed
    canceled = dataclasses.replace(TASK, state=TaskState.CANCELED, reason="canceled", receipts=())
    assert judged(canceled).changed


def test_the_judge_finds_what_has_no_end_or_two() -> None:
    assert judged(ends=0).unended
    assert judged(ends=2).unended
