"""Claude Code's hooks are switched on by a file of the launch, and its interrupts are read from its transcript."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synapse.core.question import Choice
from synapse.drivers.pty.adapters.claude import ClaudeSignals
from synapse.terminal.evidence import Source
from synapse.terminal.signals.report import SignalKind
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.signals.recordings import recorded


def test_the_settings_of_a_launch_are_private_and_go_with_it(tmp_path: Path) -> None:
    signals = ClaudeSignals(launch_in(tmp_path))

    prepared = signals.prepare(("--permission-mode", "manual"))

    flag, path, *rest = prepared.arguments
    assert (flag, rest, prepared.env) == ("--settings", ["--permission-mode", "manual"], {})
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    assert "s3cret" not in " ".join(prepared.arguments)
    signals.stop()
    assert not Path(path).parent.exists()


@pytest.mark.parametrize("given", ["own.json", '{"model": "m"}'])
def test_the_persons_own_settings_keep_working(tmp_path: Path, given: str) -> None:
    (tmp_path / "own.json").write_text('{"model": "m"}', encoding="utf-8")

    prepared = ClaudeSignals(launch_in(tmp_path)).prepare(("--settings", given))

    settings = json.loads(Path(prepared.arguments[1]).read_text(encoding="utf-8"))
    assert settings["model"] == "m"
    assert "Stop" in settings["hooks"]


@pytest.mark.parametrize("given", ["missing.json", "{", "[]", '{"disableAllHooks": true}'])
def test_settings_that_switch_hooks_off_are_passed_on_and_reported(tmp_path: Path, given: str) -> None:
    (tmp_path / "[]").write_text("[]", encoding="utf-8")
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()

    prepared = signals.prepare(("--settings", given))
    signals.start(listener, 0)

    assert prepared.arguments == ("--settings", given)
    assert "its hooks are off" in listener.missing[Source.SIGNAL]


@pytest.mark.parametrize(
    ("env", "added"),
    [
        ({"no_proxy": "intranet"}, {}),
        ({"HTTPS_PROXY": "http://proxy"}, {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}),
        (
            {"http_proxy": "http://proxy", "no_proxy": "intranet"},
            {"NO_PROXY": "intranet,127.0.0.1", "no_proxy": "intranet,127.0.0.1"},
        ),
    ],
)
def test_hooks_do_not_use_a_proxy(tmp_path: Path, env: dict[str, str], added: dict[str, str]) -> None:
    assert ClaudeSignals(launch_in(tmp_path, env)).prepare(()).env == added


async def test_an_interrupt_in_the_transcript_ends_the_turn(tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    taken = next(hook for hook in recorded("claude", "hooks.jsonl") if hook.get("prompt") == "SLOW one")
    lines = [line for line in recorded("claude", "transcript.jsonl") if line.get("promptId") == taken["prompt_id"]]

    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    signals.start(listener, 0)
    signals.receive({**taken, "transcript_path": str(transcript)})
    with transcript.open("a", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(line) for line in lines) + "\nnot JSON\n")
    await until(lambda: len(listener.reports) == 2)
    signals.stop()

    assert [report.kind for report in listener.reports] == [SignalKind.SUBMITTED, SignalKind.FAILED]
    assert listener.reports[1].reason == "interrupted"


async def test_an_answer_ends_the_watch_over_the_transcript(tmp_path: Path) -> None:
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    listener.is_ready = True
    signals.start(listener, 0)
    for hook in recorded("claude", "hooks.jsonl")[:2]:
        signals.receive(hook)
    signals.receive({"hook_event_name": "SessionEnd"})
    signals.look()
    signals.stop()

    assert [report.kind for report in listener.reports] == [SignalKind.SUBMITTED, SignalKind.ANSWERED]


def hook(name: str, **more: object) -> dict[str, object]:
    return {"hook_event_name": name, "prompt_id": "p", **more}


def told_by(listener: KeepingListener) -> list[str]:
    return [f"{report.kind}:{report.text}" for report in listener.reports]


async def test_a_stop_hook_of_the_persons_own_makes_the_last_stop_count(tmp_path: Path) -> None:
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    signals.start(listener, 0)
    signals.receive(hook("Stop", last_assistant_message="so far"))
    signals.look()
    assert listener.reports == []
    signals.receive(hook("Stop", last_assistant_message="all of it", stop_hook_active=True))
    listener.is_ready = True
    await until(lambda: bool(listener.reports))
    signals.stop()

    assert told_by(listener) == ["answered:all of it"]


def spoken(*texts: str, message: str = "m1", **more: object) -> str:
    """A line of the transcript with words of the assistant."""
    content = [{"type": "text", "text": text} for text in texts]
    line = {"type": "assistant", "uuid": f"{message} {texts}", "message": {"id": message, "content": content}}
    return json.dumps({**line, **more}) + "\n"


@pytest.mark.parametrize("when", ["before its prompt is known", "before it stops", "after it has stopped"])
@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ([spoken("    indented\n  tail  \n\n")], "    indented\n  tail  \n\n"),
        ([spoken("let me see", message="m0"), spoken("  indented\n  tail")], "  indented\n  tail"),
        ([spoken("  indented"), spoken("  tail\n")], "  indented\n  tail\n"),
        ([spoken("  indented\n  tail "), spoken("of a helper", isSidechain=True)], "  indented\n  tail "),
        ([spoken("something else")], "indented\n  tail"),
        ([], "indented\n  tail"),
    ],
)
async def test_an_answer_keeps_the_blanks_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], answer: str, when: str
) -> None:
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text("", encoding="utf-8")
    if answer == "indented\n  tail":
        # It is never found there, and not waited for very long.
        monkeypatch.setattr("synapse.drivers.pty.adapters.claude._EXACT_SECONDS", 0.05)

    def write(moment: str) -> None:
        if when == moment:
            transcript.write_text("".join(lines), encoding="utf-8")

    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    listener.is_ready = True
    signals.start(listener, 0)
    write("before its prompt is known")
    signals.receive(hook("UserPromptSubmit", prompt="hello", transcript_path=str(transcript)))
    write("before it stops")
    signals.receive(hook("Stop", last_assistant_message="indented\n  tail"))
    write("after it has stopped")
    await until(lambda: len(listener.reports) > 1)
    signals.stop()

    assert told_by(listener) == ["submitted:hello", f"answered:{answer}"]


async def test_a_hook_that_asks_waits_for_the_answer(tmp_path: Path) -> None:
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    signals.start(listener, 0)
    waiting = signals.receive(hook("PermissionRequest", tool_name="Bash"))
    assert waiting is not None
    question = listener.reports[0].question
    assert question is not None
    assert await signals.answer("another", Choice(option="yes")) is False
    assert await signals.answer(question.id, Choice(option="9")) is False
    assert not waiting.done()

    assert await signals.answer(question.id, Choice(option="yes")) is True
    assert waiting.result()["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    assert await signals.answer(question.id, Choice(option="1")) is False
    signals.stop()


async def test_a_hook_whose_dialog_a_person_answered_is_released_and_the_next_is_reported(tmp_path: Path) -> None:
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    signals.start(listener, 0)
    first = signals.receive(hook("PermissionRequest", tool_name="Bash"))
    second = signals.receive(hook("PermissionRequest", tool_name="Write"))
    assert first is not None
    assert second is not None
    assert told_by(listener) == ["waiting:Bash"]
    question = listener.reports[0].question
    assert question is not None

    listener.answered.add(question.id)
    await until(first.done)
    assert first.result() == {}
    assert told_by(listener) == ["waiting:Bash", "waiting:Write"]
    assert not second.done()
    signals.stop()
    assert second.result() == {}


async def test_a_hook_that_has_gone_is_not_answered(tmp_path: Path) -> None:
    signals, listener = ClaudeSignals(launch_in(tmp_path)), KeepingListener()
    signals.start(listener, 0)
    waiting = signals.receive(hook("PermissionRequest", tool_name="Bash"))
    question = listener.reports[0].question
    assert waiting is not None
    assert question is not None
    waiting.cancel()

    assert await signals.answer(question.id, Choice(option="1")) is False
    signals.stop()


def test_only_the_hook_that_asks_may_wait_long(tmp_path: Path) -> None:
    prepared = ClaudeSignals(launch_in(tmp_path)).prepare(())
    hooks = json.loads(Path(prepared.arguments[1]).read_text(encoding="utf-8"))["hooks"]

    assert {name: groups[0]["hooks"][0]["timeout"] for name, groups in hooks.items()} == {
        "UserPromptSubmit": 5,
        "PermissionRequest": 86400,
        "Stop": 5,
        "StopFailure": 5,
        "SessionStart": 5,
    }
