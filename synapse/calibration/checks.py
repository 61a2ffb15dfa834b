"""The rows of a calibration: what each does to the agent, and what Synapse must conclude.

A row ends early if nothing after a wrong finding could be right.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from synapse.calibration.model_server import Fact
from synapse.calibration.sandbox import AGENT, WhenLimited
from synapse.calibration.scripted_model import ASKED, COLOURS, MADE_BY_TOOL
from synapse.calibration.trial import (
    ANSWER_SECONDS,
    Finding,
    FindingVerdict,
    Trial,
    TrialTurn,
    compared,
    delay_between,
    reason,
)
from synapse.core.agent import READY, AgentEntry
from synapse.core.json_text import object_in

Row = Callable[[Trial], Iterator[Finding]]

WAIT_SECONDS: Final = 20.0
EXIT_SECONDS: Final = 15.0
READY_SECONDS: Final = 60.0
_LINES: Final = 40
# A trailing `@word` opens a completion in all five CLIs; the rest is text that terminals tend to change.
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
    """A tool needs permission; another message arrives and must wait; then the tool is allowed."""
    row, made = "approve", trial.sandbox.project / MADE_BY_TOOL
    turn = trial.send(row, "approve")
    yield (waiting := _waiting(trial, turn, MADE_BY_TOOL, "permission"))
    if waiting.verdict is FindingVerdict.WRONG:
        return
    other = trial.send("queued", "queued")
    ran = trial.sandbox.synapse("approve", turn.task_id)
    yield compared(row, "approved", "taken", "taken" if ran.code == 0 else ran.notices.strip())
    yield trial.answered(turn)
    yield compared(row, "tool", "has run", "has run" if made.exists() else "has not run")
    yield trial.answered(other)
    yield _kept_apart(trial, turn, other)
    made.unlink(missing_ok=True)


def deny(trial: Trial) -> Iterator[Finding]:
    """A tool needs permission and is denied. Some CLIs then end the turn, others ask the model again."""
    row, made = "deny", trial.sandbox.project / MADE_BY_TOOL
    turn = trial.send(row, "deny")
    yield (waiting := _waiting(trial, turn, MADE_BY_TOOL, "permission"))
    if waiting.verdict is FindingVerdict.WRONG:
        return
    ran = trial.sandbox.synapse("deny", turn.task_id)
    yield compared(row, "denied", "taken", "taken" if ran.code == 0 else ran.notices.strip())
    end = turn.follower.until_finished(ANSWER_SECONDS)
    if trial.truth.last(turn.name, Fact.SAID) is None:
        seen = f"{end.status}: {reason(end)}" if end else "nothing"
        yield compared(row, "failed", "failed: interrupted", seen)
    else:
        yield trial.answered(turn)
    yield compared(row, "tool", "has not run", "has run" if made.exists() else "has not run")
    made.unlink(missing_ok=True)


def question(trial: Trial) -> Iterator[Finding]:
    """The model asks a person with the CLI's own tool."""
    row, colour = "question", COLOURS[0]
    turn = trial.send(row, "question")
    trial.truth.wait_for(turn.name, Fact.CALLED, Fact.LACKED, seconds=ANSWER_SECONDS)
    # Codex offers the tool to the model even in modes where it refuses the call.
    trial.wait_until(
        lambda: bool(object_in(trial.sandbox.ask("/status"), "question") or trial.truth.last(turn.name, Fact.SAID)),
        WAIT_SECONDS,
    )
    if trial.truth.last(turn.name, Fact.SAID) is not None:
        turn.follower.until_finished(ANSWER_SECONDS)
        refused = trial.truth.last(turn.name, Fact.RESULT)
        why = refused.text if refused else "it has no tool for questions"
        yield Finding(row=row, event="waiting", expected="-", seen=why, verdict=FindingVerdict.NOT_OFFERED)
        return
    yield (waiting := _waiting(trial, turn, ASKED, "choice"))
    if waiting.verdict is FindingVerdict.WRONG:
        return
    ran = trial.sandbox.synapse("answer", turn.task_id, colour)
    yield compared(row, "answered by", "taken", "taken" if ran.code == 0 else ran.notices.strip())
    yield trial.answered(turn)
    result = trial.truth.last(turn.name, Fact.RESULT)
    answer = colour if result is not None and colour in result.text else f"{result.text if result else 'nothing'}"
    yield compared(row, "model is told", colour, answer)


def usage(trial: Trial) -> Iterator[Finding]:
    """A turn with one request to the model, and one with a tool and so with two, are told what they cost."""
    row = "usage"
    plain = trial.send(row, "one-line")
    yield trial.answered(plain)
    yield trial.counted(plain)
    turn = trial.send(row, "approve")
    yield (waiting := _waiting(trial, turn, MADE_BY_TOOL, "permission"))
    if waiting.verdict is FindingVerdict.WRONG:
        return
    trial.sandbox.synapse("approve", turn.task_id)
    yield trial.answered(turn)
    yield trial.counted(turn)
    (trial.sandbox.project / MADE_BY_TOOL).unlink(missing_ok=True)


def interrupt(trial: Trial) -> Iterator[Finding]:
    """A message of the highest priority arrives while the model is slow."""
    row = "interrupt"
    turn = trial.send(row, "slow")
    held = trial.truth.wait_for(turn.name, Fact.HELD, seconds=ANSWER_SECONDS)
    working = turn.follower.until(lambda seen: seen.status == "working", WAIT_SECONDS)
    yield compared(row, "working", "working", working.status if held and working else "the model was not asked")
    urgent = trial.send(row, "urgent", "please", "--priority", "5")
    yield (first := trial.failed(turn, "canceled: interrupted", Fact.LEFT))
    if first.verdict is FindingVerdict.RIGHT:
        yield trial.taken(urgent)
        yield trial.answered(urgent)
    trial.model.release(turn.name)


def api_error(trial: Trial) -> Iterator[Finding]:
    turn = trial.send("api-error", "api-error")
    yield trial.failed(turn, "failed: api_error", Fact.REFUSED)


def rate_limit(trial: Trial) -> Iterator[Finding]:
    """The model answers "too many requests". Each CLI reacts differently; Synapse must report what it does."""
    turn = trial.send("rate-limit", "rate-limit")
    match trial.sandbox.recipe.when_limited:
        case WhenLimited.ASKS:
            yield (waiting := _waiting(trial, turn, "limit", "choice", Fact.REFUSED))
            if waiting.verdict is FindingVerdict.WRONG:
                return
            ran = trial.sandbox.synapse("answer", turn.task_id, "Stop")
            yield compared(turn.row, "answered by", "taken", "taken" if ran.code == 0 else ran.notices.strip())
        case WhenLimited.RETRIES:
            yield _retrying(trial, turn)
            return
        case WhenLimited.FAILS:
            pass
    yield trial.failed(turn, "failed: rate_limited", Fact.REFUSED)


def resume(trial: Trial) -> Iterator[Finding]:
    """Host and CLI are killed; the agent that is started again goes on with the conversation."""
    row, entry = "resume", trial.sandbox.entry()
    first = trial.send(row, "remember")
    yield (answered := trial.answered(first))
    if answered.verdict is FindingVerdict.WRONG or entry is None:
        return
    _kill(trial, entry)
    yield from _restarted(trial, row)
    second = trial.send(row, "after")
    yield trial.taken(second)
    yield (again := trial.answered(second))
    yield compared(row, "answer from", answered.source, again.source)
    yield compared(row, "model sees", "the earlier turn", _seen_of(first, second, trial))


def crash(trial: Trial) -> Iterator[Finding]:
    """Host and CLI are killed in the middle of a turn: its task fails, nothing is typed twice, and the CLI goes on."""
    row = "crash"
    before = trial.send(row, "remember")
    yield trial.answered(before)
    turn = trial.send(row, "slow")
    trial.truth.wait_for(turn.name, Fact.HELD, seconds=ANSWER_SECONDS)
    turn.follower.until(lambda seen: seen.says("receipt_changed", "step", "submitted"), WAIT_SECONDS)
    if (entry := trial.sandbox.entry()) is not None:
        _kill(trial, entry)
    yield from _restarted(trial, row)
    task = object_in(trial.sandbox.synapse("status", turn.task_id, "--json").fields, "task")
    why = object_in(task, "metadata").get("reason", "")
    yield compared(row, "failed", "failed: agent_exited", f"{task.get('status')}: {why}")
    after = trial.send(row, "after")
    yield trial.taken(after)
    yield trial.answered(after)
    asked = [one for one in trial.truth.of(turn.name) if one.fact is Fact.ASKED]
    yield compared(row, "asked", "once", "once" if len(asked) == 1 else f"{len(asked)} times")
    yield compared(row, "model sees", "the earlier turn", _seen_of(before, after, trial))


def fresh(trial: Trial) -> Iterator[Finding]:
    """The agent is restarted with `--fresh`: its model sees nothing of the conversation before."""
    row = "fresh"
    first = trial.send(row, "remember")
    yield trial.answered(first)
    yield from _restarted(trial, row, "--fresh")
    second = trial.send(row, "after")
    yield trial.taken(second)
    yield trial.answered(second)
    yield compared(row, "model sees", "nothing earlier", _seen_of(first, second, trial))


def ended(trial: Trial) -> Iterator[Finding]:
    """The CLI is killed during a turn: the task must fail, and the agent and all its processes must be gone."""
    row, entry = "exit", trial.sandbox.entry()
    turn = trial.send(row, "slow")
    trial.truth.wait_for(turn.name, Fact.HELD, seconds=ANSWER_SECONDS)
    if entry is not None and entry.cli_pid:
        # All of its processes at once, so that it can neither end the turn properly nor leave a child behind.
        os.killpg(os.getpgid(entry.cli_pid), signal.SIGKILL)
    gone = trial.wait_until(lambda: trial.sandbox.entry() is None, EXIT_SECONDS)
    yield compared(row, "exited", "gone", "gone" if gone else "still registered")
    task = object_in(trial.sandbox.synapse("status", turn.task_id, "--json").fields, "task")
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
    "usage": usage,
    "interrupt": interrupt,
    "api-error": api_error,
    "rate-limit": rate_limit,
    "resume": resume,
    "crash": crash,
    "fresh": fresh,
    "exit": ended,
}
"""In the order of a run; the last row kills the agent."""


def _kill(trial: Trial, entry: AgentEntry) -> None:
    """Kills host and CLI; the host first, which would see the end of its program, and end properly."""
    os.kill(entry.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(os.getpgid(entry.cli_pid), signal.SIGKILL)
    trial.wait_until(lambda: not trial.sandbox.processes(), EXIT_SECONDS)


def _restarted(trial: Trial, row: str, *options: str) -> Iterator[Finding]:
    ran = trial.sandbox.synapse("restart", AGENT, *options)
    trial.wait_until(lambda: trial.sandbox.ask("/status").get("state") == READY, READY_SECONDS)
    status = trial.sandbox.ask("/status")
    seen = str(status.get("state", "gone")) if ran.code == 0 else ran.notices.strip()
    yield compared(row, "restarted", READY, seen, source=str(status.get("source", "")))


def _seen_of(first: TrialTurn, second: TrialTurn, trial: Trial) -> str:
    """Returns what the model was told of the first turn when it was asked for the second."""
    asked = next((text for body in reversed(trial.model.requests) if second.text in (text := json.dumps(body))), "")
    if not asked:
        return "no request"
    said = trial.truth.last(first.name, Fact.SAID)
    parts = (first.text in asked, said is not None and said.text in asked)
    return {(True, True): "the earlier turn", (False, False): "nothing earlier"}.get(parts, "a part of it")


def _plain_turn(trial: Trial, row: str, rest: str) -> Iterator[Finding]:
    turn = trial.send(row, row, rest)
    yield trial.taken(turn)
    yield trial.answered(turn)


def _turn_and_another(trial: Trial, row: str) -> Iterator[Finding]:
    """Runs a turn whose answer is longer than the screen, and another turn: old lines may be left on the screen."""
    turn = trial.send(row, row)
    yield trial.taken(turn)
    yield (answered := trial.answered(turn))
    if answered.verdict is FindingVerdict.RIGHT:
        after = trial.send(row, "after")
        yield trial.taken(after)
        yield trial.answered(after)


def _left_behind(trial: Trial, row: str) -> Finding:
    if not trial.sandbox.sees_processes:
        seen = "unknown on this system"
        return Finding(row=row, event="processes", expected="-", seen=seen, verdict=FindingVerdict.NOT_OFFERED)
    trial.wait_until(lambda: not trial.sandbox.processes(), EXIT_SECONDS)
    left = trial.sandbox.processes()
    return compared(row, "processes", "none left", "; ".join(left.values()) or "none left")


def _retrying(trial: Trial, turn: TrialTurn) -> Finding:
    """Checks that the agent's status says that it retries, and when."""
    truth = trial.truth.wait_for(turn.name, Fact.REFUSED, seconds=ANSWER_SECONDS)
    trial.wait_until(lambda: "tries again at" in _why(trial), WAIT_SECONDS)
    status, why = trial.sandbox.ask("/status"), _why(trial)
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
    return str(trial.sandbox.ask("/status").get("why", ""))


def _waiting(trial: Trial, turn: TrialTurn, about: str, kind: str, fact: Fact = Fact.CALLED) -> Finding:
    """Checks that the task waits for a person and has the question."""
    truth = trial.truth.wait_for(turn.name, fact, seconds=ANSWER_SECONDS)
    seen = turn.follower.until(lambda seen: seen.status == "input_required", WAIT_SECONDS)
    shown = object_in(object_in(seen.task, "metadata"), "question") if seen else {}
    conclusion = f"waiting, {shown.get('kind')}: {about if about in str(shown) else shown}" if seen else "not waiting"
    return compared(
        turn.row,
        "waiting",
        f"waiting, {kind}: {about}",
        conclusion,
        source=str(shown.get("source", "")),
        delay=delay_between(truth.at if truth else None, seen.at if seen else None),
    )


def _kept_apart(trial: Trial, first: TrialTurn, second: TrialTurn) -> Finding:
    """Checks that the second message was typed only after the first turn had ended."""
    ended, begun = trial.truth.last(first.name, Fact.SAID), trial.truth.first(second.name, Fact.ASKED)
    is_apart = ended is not None and begun is not None and ended.at < begun.at
    return compared(
        second.row,
        "own turn",
        "a turn of its own, later",
        "a turn of its own, later" if is_apart else "typed into the dialog, or lost",
    )
