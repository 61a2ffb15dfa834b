"""The rows of a calibration: what is done to the agent, and what Synapse must conclude.

A row ends early where nothing that follows could be right any more.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from synapse.calibration.model_server import Fact
from synapse.calibration.sandbox import WhenLimited
from synapse.calibration.scripted_model import ASKED, COLOURS, MADE_BY_TOOL
from synapse.calibration.trial import (
    ANSWER_SECONDS,
    Finding,
    Seen,
    Trial,
    Turn,
    Verdict,
    compared,
    delay_between,
    reason,
)
from synapse.core.json_text import object_in

Row = Callable[[Trial], Iterator[Finding]]

WAIT_SECONDS: Final = 20.0
EXIT_SECONDS: Final = 15.0
_LINES: Final = 40
# A trailing `@word` opens a completion in all five CLIs; the rest is what terminals like to change.
_MANY_LINES: Final = "\n".join(
    [
        *(f"line {number}: Ünïcödé 日本語 🙂 {'-' * number}" for number in range(_LINES)),
        "and at the end of it all comes @nobody",
    ]
)


def one_line(trial: Trial) -> Iterator[Finding]:
    yield from _plain_turn(trial, "one-line", "please")


def multi_line(trial: Trial) -> Iterator[Finding]:
    yield from _plain_turn(trial, "multi-line", _MANY_LINES)


def long_answer(trial: Trial) -> Iterator[Finding]:
    yield from _plain_turn(trial, "long", "please")


def tall_answer(trial: Trial) -> Iterator[Finding]:
    yield from _turn_and_another(trial, "tall")


def huge_answer(trial: Trial) -> Iterator[Finding]:
    yield from _turn_and_another(trial, "huge")


def approve(trial: Trial) -> Iterator[Finding]:
    """A tool needs a permission; meanwhile another message comes, which must wait; then the tool is allowed."""
    row, made = "approve", trial.bench.project / MADE_BY_TOOL
    turn = trial.send(row, "approve")
    yield (waiting := _waiting(trial, turn, MADE_BY_TOOL, "permission"))
    if waiting.verdict is Verdict.WRONG:
        return
    other = trial.send("queued", "queued")
    said = trial.bench.synapse("approve", turn.task_id)
    yield compared(row, "approved", "taken", "taken" if said.code == 0 else said.talk.strip())
    yield trial.answered(turn)
    yield compared(row, "tool", "has run", "has run" if made.exists() else "has not run")
    yield trial.answered(other)
    yield _kept_apart(trial, turn, other)
    made.unlink(missing_ok=True)


def deny(trial: Trial) -> Iterator[Finding]:
    """A tool needs a permission and does not get it. Some CLIs then end the turn, others ask the model again."""
    row, made = "deny", trial.bench.project / MADE_BY_TOOL
    turn = trial.send(row, "deny")
    yield (waiting := _waiting(trial, turn, MADE_BY_TOOL, "permission"))
    if waiting.verdict is Verdict.WRONG:
        return
    said = trial.bench.synapse("deny", turn.task_id)
    yield compared(row, "denied", "taken", "taken" if said.code == 0 else said.talk.strip())
    end = turn.following.until_finished(ANSWER_SECONDS)
    if trial.truth.last(turn.name, Fact.SAID) is None:
        told = f"{end.status}: {reason(end)}" if end else "nothing"
        yield compared(row, "failed", "failed: interrupted", told)
    else:
        yield trial.answered(turn)
    yield compared(row, "tool", "has not run", "has run" if made.exists() else "has not run")
    made.unlink(missing_ok=True)


def question(trial: Trial) -> Iterator[Finding]:
    """The model asks a person by the CLI's own tool for that."""
    row, colour = "question", COLOURS[0]
    turn = trial.send(row, "question")
    trial.truth.wait_for(turn.name, Fact.CALLED, Fact.LACKED, seconds=ANSWER_SECONDS)
    # Codex offers the tool to the model also in modes where it then refuses it by itself.
    trial.wait_until(lambda: bool(_question_now(trial) or trial.truth.last(turn.name, Fact.SAID)), WAIT_SECONDS)
    if trial.truth.last(turn.name, Fact.SAID) is not None:
        turn.following.until_finished(ANSWER_SECONDS)
        yield Finding(row=row, event="waiting", expected="-", seen=_why_not(trial, turn), verdict=Verdict.NOT_OFFERED)
        return
    yield (waiting := _waiting(trial, turn, ASKED, "choice"))
    if waiting.verdict is Verdict.WRONG:
        return
    said = trial.bench.synapse("answer", turn.task_id, colour)
    yield compared(row, "answered by", "taken", "taken" if said.code == 0 else said.talk.strip())
    yield trial.answered(turn)
    result = trial.truth.last(turn.name, Fact.RESULT)
    told = colour if result is not None and colour in result.text else f"{result.text if result else 'nothing'}"
    yield compared(row, "model is told", colour, told)


def interrupt(trial: Trial) -> Iterator[Finding]:
    """A message of the highest priority comes while the model is slow."""
    row = "interrupt"
    turn = trial.send(row, "slow")
    held = trial.truth.wait_for(turn.name, Fact.HELD, seconds=ANSWER_SECONDS)
    working = turn.following.until(lambda seen: seen.status == "working", WAIT_SECONDS)
    yield compared(row, "working", "working", working.status if held and working else "the model was not asked")
    urgent = trial.send(row, "urgent", "please", "--priority", "5")
    yield (first := trial.failed(turn, "canceled: interrupted", Fact.LEFT))
    if first.verdict is Verdict.RIGHT:
        yield trial.taken(urgent)
        yield trial.answered(urgent)
    trial.model.release(turn.name)


def api_error(trial: Trial) -> Iterator[Finding]:
    turn = trial.send("api-error", "api-error")
    yield trial.failed(turn, "failed: api_error", Fact.REFUSED)


def rate_limit(trial: Trial) -> Iterator[Finding]:
    """The model says: too many requests. What a CLI makes of it differs; each time it must be told as that."""
    turn = trial.send("rate-limit", "rate-limit")
    match trial.bench.recipe.when_limited:
        case WhenLimited.ASKS:
            yield (waiting := _waiting(trial, turn, "limit", "choice", Fact.REFUSED))
            if waiting.verdict is Verdict.WRONG:
                return
            said = trial.bench.synapse("answer", turn.task_id, "Stop")
            yield compared(turn.row, "answered by", "taken", "taken" if said.code == 0 else said.talk.strip())
        case WhenLimited.RETRIES:
            yield _retrying(trial, turn)
            return
        case WhenLimited.FAILS:
            pass
    yield trial.failed(turn, "failed: rate_limited", Fact.REFUSED)


def ended(trial: Trial) -> Iterator[Finding]:
    """The CLI ends in the middle of a turn: the task has failed, the agent is gone, and so is every process."""
    row, entry = "exit", trial.bench.entry()
    turn = trial.send(row, "slow")
    trial.truth.wait_for(turn.name, Fact.HELD, seconds=ANSWER_SECONDS)
    if entry is not None and entry.cli_pid:
        # All of its processes at once, so that it can neither end the turn politely nor leave a child behind by itself.
        os.killpg(os.getpgid(entry.cli_pid), signal.SIGKILL)
    gone = trial.wait_until(lambda: trial.bench.entry() is None, EXIT_SECONDS)
    yield compared(row, "exited", "gone", "gone" if gone else "still registered")
    task = object_in(trial.bench.synapse("status", turn.task_id, "--json").fields, "task")
    why = object_in(task, "metadata").get("reason", "")
    yield compared(row, "failed", "failed: agent_exited", f"{task.get('status')}: {why}")
    yield _left_behind(trial, row)


ROWS: Final[dict[str, Row]] = {
    "one-line": one_line,
    "multi-line": multi_line,
    "long": long_answer,
    "tall": tall_answer,
    "huge": huge_answer,
    "approve": approve,
    "deny": deny,
    "question": question,
    "interrupt": interrupt,
    "api-error": api_error,
    "rate-limit": rate_limit,
    "exit": ended,
}
"""In the order in which they are run; the last one ends the agent."""


def _plain_turn(trial: Trial, row: str, rest: str) -> Iterator[Finding]:
    turn = trial.send(row, row, rest)
    yield trial.taken(turn)
    yield trial.answered(turn)


def _turn_and_another(trial: Trial, row: str) -> Iterator[Finding]:
    """An answer of more lines than a screen has, and a message behind it: old rows may be left on the screen."""
    turn = trial.send(row, row)
    yield trial.taken(turn)
    yield (answered := trial.answered(turn))
    if answered.verdict is Verdict.RIGHT:
        after = trial.send(row, "after")
        yield trial.taken(after)
        yield trial.answered(after)


def _left_behind(trial: Trial, row: str) -> Finding:
    if not trial.bench.sees_processes:
        seen = "this system does not tell"
        return Finding(row=row, event="processes", expected="-", seen=seen, verdict=Verdict.NOT_OFFERED)
    trial.wait_until(lambda: not trial.bench.processes(), EXIT_SECONDS)
    left = trial.bench.processes()
    return compared(row, "processes", "none left", "; ".join(left.values()) or "none left")


def _retrying(trial: Trial, turn: Turn) -> Finding:
    """Does the agent's status say that it tries again, and when?"""
    truth = trial.truth.wait_for(turn.name, Fact.REFUSED, seconds=ANSWER_SECONDS)
    trial.wait_until(lambda: "tries again at" in _why(trial), WAIT_SECONDS)
    status, why = trial.bench.ask("/status"), _why(trial)
    since = str(status.get("since", ""))
    return compared(
        turn.row,
        "limited",
        "working: tries again at",
        f"{status.get('state')}: {'tries again at' if 'tries again at' in why else why}",
        source=str(status.get("source", "")),
        delay=delay_between(truth.at if truth else None, datetime.fromisoformat(since) if since else None),
    )


def _why(trial: Trial) -> str:
    return str(trial.bench.ask("/status").get("why", ""))


def _waiting(trial: Trial, turn: Turn, about: str, kind: str, fact: Fact = Fact.CALLED) -> Finding:
    """Does the task wait for a person, and say what is asked?"""
    truth = trial.truth.wait_for(turn.name, fact, seconds=ANSWER_SECONDS)
    seen = turn.following.until(lambda seen: seen.status == "input_required", WAIT_SECONDS)
    asked = _question(seen) if seen else {}
    told = f"waiting, {asked.get('kind')}: {about if about in str(asked) else asked}" if seen else "not waiting"
    return compared(
        turn.row,
        "waiting",
        f"waiting, {kind}: {about}",
        told,
        source=str(asked.get("source", "")),
        delay=delay_between(truth.at if truth else None, seen.at if seen else None),
    )


def _question_now(trial: Trial) -> dict[str, Any]:
    return object_in(trial.bench.ask("/status"), "question")


def _why_not(trial: Trial, turn: Turn) -> str:
    refused = trial.truth.last(turn.name, Fact.RESULT)
    return refused.text if refused else "it has no tool for questions"


def _question(seen: Seen) -> dict[str, Any]:
    return object_in(object_in(seen.task, "metadata"), "question")


def _kept_apart(trial: Trial, first: Turn, second: Turn) -> Finding:
    """Was the second message typed only after the first turn had ended?"""
    ended, begun = trial.truth.last(first.name, Fact.SAID), trial.truth.first(second.name, Fact.ASKED)
    is_apart = ended is not None and begun is not None and ended.at < begun.at
    return compared(
        second.row,
        "own turn",
        "a turn of its own, later",
        "a turn of its own, later" if is_apart else "typed into the dialog, or lost",
    )
