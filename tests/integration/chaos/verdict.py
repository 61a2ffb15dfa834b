"""After a chaos run: what the programs received, next to what the journal says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from synapse.core.address import UNVERIFIED
from synapse.core.events import Recorded, StateChanged
from synapse.core.task import ReceiptStep, Task, TaskState
from synapse.core.text import wrap
from tests.integration.chaos.house import Received, nonces
from tests.integration.chaos.letters import Letter

WHOLE_MESSAGES = ("line", "submit")
"""What a program got as a message; everything else is on the way there."""


@dataclass(slots=True)
class Verdict:
    """The figures of a run. Every list of complaints has to be empty."""

    tasks: int = 0
    accepted: int = 0
    received: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    lost: list[str] = field(default_factory=list[str])
    twice: list[str] = field(default_factory=list[str])
    into_dialogs: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    """Received, but not as it was sent, or by another agent."""
    unended: list[str] = field(default_factory=list[str])
    """Without exactly one final state."""
    told_wrong: list[str] = field(default_factory=list[str])
    """The sender's machine says otherwise than the receiver's."""

    @property
    def complaints(self) -> list[str]:
        return [
            f"{kind}: {one}"
            for kind in ("lost", "twice", "into_dialogs", "changed", "unended", "told_wrong")
            for one in getattr(self, kind)
        ]


def judge(
    tasks: Sequence[Task],
    events: Sequence[Recorded],
    received: Mapping[str, Sequence[Received]],
    accepted: Mapping[str, set[str]],
    letters: Mapping[str, Letter],
    sender_of: Callable[[Task], str] = lambda _: "user",
) -> Verdict:
    """`received` is by agent, `accepted` has the task ids that senders were told, by nonce."""
    verdict = Verdict(tasks=len(tasks), accepted=len(accepted))
    by_id = {task.id: task for task in tasks}
    got = _got(received, verdict)
    verdict.received = sum(got.values())
    for nonce, told in accepted.items():
        if len(told) != 1 or not told <= by_id.keys():
            verdict.lost.append(f"{nonce} was accepted as {sorted(told)}")
    for nonce, count in got.items():
        if count > 1:
            verdict.twice.append(f"{nonce} was received {count} times")
    finals = Counter(
        recorded.event.task_id
        for recorded in events
        if isinstance(recorded.event, StateChanged) and recorded.event.state.is_terminal
    )
    for task in tasks:
        (nonce,) = nonces(task.message.text)
        _judge_task(verdict, task, got[nonce], finals[task.id])
    known = {nonce for task in tasks for nonce in nonces(task.message.text)}
    verdict.changed += [f"{nonce} came from nowhere" for nonce in got if nonce not in known]
    wanted = {
        nonce: _envelope(task, _typed_sender(letters.get(nonce), task, sender_of(task)))
        for task in tasks
        for nonce in nonces(task.message.text)
    }
    _compare_texts(verdict, wanted, received, letters)
    return verdict


def _got(received: Mapping[str, Sequence[Received]], verdict: Verdict) -> Counter[str]:
    got: Counter[str] = Counter()
    for agent, things in received.items():
        for one in things:
            if one.kind in WHOLE_MESSAGES:
                got.update(nonces(one.text))
            elif one.kind == "dialog":
                verdict.into_dialogs.append(f"{agent}: {one.data!r}")
    return got


def _judge_task(verdict: Verdict, task: Task, count: int, finals: int) -> None:
    what = f"{task.id} {task.state.value} {task.reason} {[receipt.step.value for receipt in task.receipts]}"
    verdict.ends[task.reason if task.state is not TaskState.COMPLETED else task.state.value] += 1
    if finals != 1 or not task.state.is_terminal:
        verdict.unended.append(what)
    was_typed = any(receipt.step is ReceiptStep.TYPED for receipt in task.receipts)
    must_have_come = task.state is TaskState.COMPLETED or task.reason == "interrupted"
    if must_have_come and count == 0:
        verdict.lost.append(what)
    if count and (not was_typed or task.reason == "resolved_failed"):
        verdict.changed.append(f"received, though it was not delivered: {what}")


def _compare_texts(
    verdict: Verdict,
    wanted: Mapping[str, str],
    received: Mapping[str, Sequence[Received]],
    letters: Mapping[str, Letter],
) -> None:
    """Each message came to its own agent, alone, and word for word; a line program has one line for it."""
    for agent, things in received.items():
        for one in things:
            if one.kind not in WHOLE_MESSAGES:
                continue
            found = nonces(one.text)
            text = one.text.rstrip(" ")
            if len(found) != 1 or letters[found[0]].target != agent:
                verdict.changed.append(f"{agent} got {one.text!r}")
            elif text not in (wanted[found[0]], " ".join(wanted[found[0]].split())):
                verdict.changed.append(f"{agent} got {text!r} for {wanted[found[0]]!r}")


def _typed_sender(letter: Letter | None, task: Task, sender: str) -> str:
    """Returns the sender in the header: of a command that was killed at once, the host cannot prove whose it was."""
    is_doubtful = letter is not None and letter.kill_after is not None and not task.sender_verified
    return f"{UNVERIFIED}{sender}" if is_doubtful else sender


def _envelope(task: Task, sender: str) -> str:
    return wrap(task.message.text, short_id=task.short_id, sender=sender, response_expected=False)
