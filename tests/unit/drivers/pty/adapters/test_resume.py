"""Each CLI goes on with exactly the session of the last run, or begins anew and says why."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from synapse.core.waiting import pause
from synapse.drivers.pty.adapters import copilot
from synapse.drivers.pty.adapters import gemini as gemini_module
from synapse.drivers.pty.adapters.adapter import Adapter, LaunchContext
from synapse.drivers.pty.adapters.claude import ClaudeSignals
from synapse.drivers.pty.adapters.codex import CodexSignals, has_words
from synapse.drivers.pty.adapters.copilot import CopilotSignals
from synapse.drivers.pty.adapters.gemini import GeminiSignals
from synapse.drivers.pty.adapters.opencode import OpenCodeSignals
from tests.unit.drivers.pty.adapters.fake_opencode import FakeOpenCode
from tests.unit.drivers.pty.adapters.launches import launch_in, until
from tests.unit.drivers.pty.adapters.listeners import KeepingListener
from tests.unit.terminal.golden_screens import picture

SESSION = "7cbe5f9e-2d57-4b3c-9c60-0d6c8c1f5b1a"
TYPED = "[A2A:12345678:bob] do this"
OLD = "2026-11-15T09:00:00.000Z"
"""Before the launch."""


def write(path: Path, *records: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def claude(home: Path, folder: Path) -> None:
    message = {"role": "user", "content": TYPED}
    write(
        home / ".claude" / "projects" / "-somewhere" / f"{SESSION}.jsonl",
        {"type": "summary"},
        {"type": "user", "cwd": str(folder), "message": message},
    )


def codex(home: Path, folder: Path) -> None:
    item = {"type": "UserMessage", "content": [{"type": "text", "text": TYPED}]}
    write(
        home / ".codex" / "sessions" / "2026" / "11" / "15" / f"rollout-2026-11-15T09-00-00-{SESSION}.jsonl",
        {"timestamp": OLD, "type": "session_meta", "payload": {"id": SESSION, "cwd": str(folder), "source": "cli"}},
        {"timestamp": OLD, "type": "event_msg", "payload": {"type": "item_completed", "turn_id": "1", "item": item}},
    )


def gemini(home: Path, folder: Path) -> None:
    project = hashlib.sha256(bytes(folder.resolve())).hexdigest()
    write(
        home / ".gemini" / "tmp" / "proj" / "chats" / f"session-2026-{SESSION[:8]}.jsonl",
        {"sessionId": SESSION, "projectHash": project},
        {"id": "1", "timestamp": OLD, "type": "user", "content": [{"text": TYPED}]},
    )


def copilot_session(home: Path, folder: Path) -> None:
    write(
        home / ".copilot" / "session-state" / SESSION / "events.jsonl",
        {"type": "session.start", "timestamp": OLD, "data": {"context": {"cwd": str(folder)}}},
        {"type": "user.message", "timestamp": OLD, "data": {"interactionId": "1", "content": TYPED}},
    )


def opencode(home: Path, folder: Path) -> None:
    database = home / ".local" / "share" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("CREATE TABLE session (id TEXT, directory TEXT)")
        opened.execute("CREATE TABLE message (id TEXT, session_id TEXT, data TEXT)")
        opened.execute("CREATE TABLE part (message_id TEXT, session_id TEXT, data TEXT)")
        opened.execute("INSERT INTO session VALUES (?, ?)", (SESSION, str(folder)))
        for role, text in (("user", TYPED), ("assistant", "[A2A:12345678:bob] quoted")):
            opened.execute("INSERT INTO message VALUES (?, ?, ?)", (role, SESSION, json.dumps({"role": role})))
            part = json.dumps({"type": "text", "text": text})
            opened.execute("INSERT INTO part VALUES (?, ?, ?)", (role, SESSION, part))
        opened.commit()


@dataclass(frozen=True)
class Cli:
    adapter: Callable[[LaunchContext], Adapter]
    remember: Callable[[Path, Path], None]
    """Writes what the CLI keeps of the session, in a home, for a folder."""
    words: tuple[str, ...]
    theirs: tuple[str, ...]
    """Arguments by which a person chooses the conversation."""


CLIS = {
    "claude": Cli(ClaudeSignals, claude, ("--resume", SESSION), ("--continue",)),
    "codex": Cli(CodexSignals, codex, ("resume", SESSION), ("resume", "--last")),
    "gemini": Cli(GeminiSignals, gemini, ("--resume", SESSION), ("--resume", "latest")),
    "copilot": Cli(CopilotSignals, copilot_session, (f"--resume={SESSION}",), ("--continue",)),
    "opencode": Cli(OpenCodeSignals, opencode, ("--session", SESSION), ("-s", "another")),
}


@pytest.fixture(params=CLIS)
def cli(request: pytest.FixtureRequest) -> Cli:
    return CLIS[request.param]


def launch(folder: Path, *, resume: str = SESSION, help_text: str = "--resume resume --session-id") -> LaunchContext:
    program = folder / "cli"
    program.write_text(f"#!/bin/sh\necho '{help_text}'\n", encoding="utf-8")
    program.chmod(0o755)
    return replace(launch_in(folder, command=str(program)), resume=resume)


def has(arguments: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return any(arguments[at : at + len(words)] == words for at in range(len(arguments)))


def test_it_goes_on_with_the_session_of_the_last_run(tmp_path: Path, cli: Cli) -> None:
    cli.remember(tmp_path, tmp_path)

    prepared = cli.adapter(launch(tmp_path)).prepare(("-m", "x"))

    assert (prepared.resumes, prepared.begins_anew) == (True, "")
    assert has(prepared.arguments, cli.words)
    assert has(prepared.arguments, ("-m", "x"))


def test_without_such_a_session_nothing_is_resumed_and_nothing_said(tmp_path: Path, cli: Cli) -> None:
    cli.remember(tmp_path, tmp_path)

    prepared = cli.adapter(launch(tmp_path, resume="")).prepare(())

    assert (prepared.resumes, prepared.begins_anew) == (False, "")
    assert SESSION not in " ".join(prepared.arguments)


def test_a_session_that_the_cli_has_lost_is_not_asked_for(tmp_path: Path, cli: Cli) -> None:
    prepared = cli.adapter(launch(tmp_path)).prepare(())

    assert prepared.begins_anew == "its CLI no longer has the conversation of the last run"
    assert not prepared.resumes
    assert SESSION not in " ".join(prepared.arguments)


def test_a_session_of_another_folder_is_not_resumed(tmp_path: Path, cli: Cli) -> None:
    cli.remember(tmp_path, tmp_path / "elsewhere")

    prepared = cli.adapter(launch(tmp_path)).prepare(())

    assert "another folder" in prepared.begins_anew
    assert SESSION not in " ".join(prepared.arguments)


def test_a_persons_own_choice_wins(tmp_path: Path, cli: Cli) -> None:
    cli.remember(tmp_path, tmp_path)

    prepared = cli.adapter(launch(tmp_path)).prepare(cli.theirs)

    assert "its own arguments choose" in prepared.begins_anew
    assert has(prepared.arguments, cli.theirs)
    assert SESSION not in " ".join(prepared.arguments)


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "copilot"])
def test_a_version_that_cannot_resume_begins_anew(tmp_path: Path, name: str) -> None:
    CLIS[name].remember(tmp_path, tmp_path)

    prepared = CLIS[name].adapter(launch(tmp_path, help_text="an old version")).prepare(())

    assert "does not know" in prepared.begins_anew


def test_the_prompts_of_a_session_are_known_and_nothing_else_of_it(tmp_path: Path, cli: Cli) -> None:
    cli.remember(tmp_path, tmp_path)
    adapter = cli.adapter(launch(tmp_path))

    assert list(adapter.prompts(SESSION)) == [TYPED]
    assert list(adapter.prompts("another")) == []


async def test_turns_of_the_earlier_run_are_not_reported_again(tmp_path: Path, cli: Cli) -> None:
    cli.remember(tmp_path, tmp_path)
    adapter, listener = cli.adapter(launch(tmp_path)), KeepingListener()
    adapter.prepare(())
    adapter.start(listener, os.getpid())

    adapter.look()
    adapter.stop()

    assert listener.reports == []


def test_a_session_that_another_copilot_has_open_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copilot, "_MAX_LOOKS", 2)
    copilot_session(tmp_path, tmp_path)
    session = tmp_path / ".copilot" / "session-state" / SESSION
    (session / f"inuse.{os.getpid()}.lock").touch()

    prepared = CopilotSignals(launch(tmp_path)).prepare(())

    assert prepared.begins_anew.endswith(f"open in another Copilot (pid {os.getpid()})")


def test_the_lock_of_a_copilot_that_was_killed_is_no_hindrance(tmp_path: Path) -> None:
    copilot_session(tmp_path, tmp_path)
    (tmp_path / ".copilot" / "session-state" / SESSION / f"inuse.{2**22 + 1}.lock").touch()

    assert CopilotSignals(launch(tmp_path)).prepare(()).resumes


class Noted:
    """A launch, and the sessions that its adapter has noted."""

    def __init__(self, folder: Path, *, resume: str = SESSION) -> None:
        self.sessions: list[str] = []
        self.launch = replace(launch(folder, resume=resume), converse=self.sessions.append)


async def test_claudes_hooks_name_the_session(tmp_path: Path) -> None:
    noted = Noted(tmp_path, resume="")
    signals = ClaudeSignals(noted.launch)
    signals.start(KeepingListener(), 0)

    signals.receive({"hook_event_name": "SessionStart", "source": "startup", "session_id": "none yet"})
    signals.receive({"hook_event_name": "UserPromptSubmit", "prompt": "x", "session_id": "first"})
    signals.receive({"hook_event_name": "Stop", "session_id": "first"})
    signals.receive({"hook_event_name": "SessionStart", "source": "clear", "session_id": "second"})
    signals.receive({"hook_event_name": "SessionStart", "source": "resume", "session_id": "third"})
    signals.stop()

    assert noted.sessions == ["first", "", "third"]


async def test_the_session_of_a_copilot_is_the_one_that_it_has_open(tmp_path: Path) -> None:
    copilot_session(tmp_path, tmp_path)
    noted = Noted(tmp_path)
    sessions = tmp_path / ".copilot" / "session-state"
    signals = CopilotSignals(noted.launch)
    signals.prepare(())
    signals.start(KeepingListener(), os.getpid())

    signals.look()
    other = sessions / "other" / "events.jsonl"
    other.parent.mkdir()
    with (other.parent / f"inuse.{os.getpid()}.hold").open("w", encoding="utf-8"):
        signals.look()
        prompt = {"type": "user.message", "timestamp": "2026-11-15T11:00:00.000Z", "data": {"content": "x"}}
        write(other, {"type": "session.start", "timestamp": OLD, "data": {}}, prompt)
        signals.look()
    signals.stop()

    assert noted.sessions == [SESSION, "", "other"]


async def test_a_turn_of_gemini_names_its_session(tmp_path: Path) -> None:
    gemini(tmp_path, tmp_path)
    noted = Noted(tmp_path)
    signals = GeminiSignals(noted.launch)
    signals.prepare(())
    signals.start(KeepingListener(), 0)
    signals.look()
    before = list(noted.sessions)

    chat = next((tmp_path / ".gemini").glob("tmp/*/chats/*"))
    with chat.open("a", encoding="utf-8") as file:
        record = {"id": "2", "timestamp": "2026-11-15T11:00:00.000Z", "type": "user", "content": [{"text": "x"}]}
        file.write(json.dumps(record) + "\n")
    signals.look()
    signals.stop()

    assert (before, noted.sessions) == ([], [SESSION])


async def test_the_first_message_goes_into_the_resumed_conversation_though_opencode_does_not_show_it_yet(
    tmp_path: Path,
) -> None:
    opencode(tmp_path, tmp_path)
    noted, server = Noted(tmp_path), FakeOpenCode(sessions=[{"id": SESSION, "title": "Our work"}])
    signals, listener = OpenCodeSignals(noted.launch), KeepingListener()
    listener.shown = replace(picture("opencode/ready_empty"), title="OpenCode")
    await server.open(int(signals.prepare(()).arguments[-1]))
    signals.start(listener, 0)
    try:
        await until(lambda: signals.sender() is not None)
        sender = signals.sender()
        assert sender is not None
        await sender.send("hello", "")
    finally:
        signals.stop()
        await server.close()

    assert [asked.path for asked in server.posts()] == ["/tui/select-session", f"/session/{SESSION}/prompt_async"]
    assert noted.sessions == [SESSION]


async def test_nothing_is_typed_into_gemini_before_it_has_loaded_the_session(tmp_path: Path) -> None:
    gemini(tmp_path, tmp_path)
    signals, listener = GeminiSignals(launch(tmp_path)), KeepingListener()
    signals.prepare(())
    chat = next((tmp_path / ".gemini").glob("tmp/*/chats/*"))
    signals.start(listener, 0)
    listener.is_ready = True

    with chat.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"sessionId": SESSION, "kind": "main"}) + "\n")
    await pause(0.2)
    before = list(listener.held)
    with chat.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"$set": {"sessionId": SESSION}}) + "\n")
    await until(lambda: len(listener.held) > 1)
    signals.stop()

    assert before == ["it loads the conversation that it goes on with"]
    assert listener.held[1:] == [""]


async def test_a_gemini_that_does_not_say_that_it_has_loaded_is_believed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemini_module, "_LOADING_SECONDS", 0.1)
    gemini(tmp_path, tmp_path)
    signals, listener = GeminiSignals(launch(tmp_path)), KeepingListener()
    signals.prepare(())
    signals.start(listener, 0)
    listener.is_ready = True

    await until(lambda: listener.held[-1:] == [""])
    signals.stop()


async def test_a_gemini_that_was_resumed_before_goes_on_in_its_first_chat(tmp_path: Path) -> None:
    gemini(tmp_path, tmp_path)
    (chat,) = (tmp_path / ".gemini").glob("tmp/*/chats/*")
    head = json.loads(chat.read_text(encoding="utf-8").splitlines()[0])
    # Gemini leaves such a chat behind at each resume; whichever the folder lists first, it is not this session's.
    for number in range(16):
        write(chat.with_name(f"session-2026-11-{number:02}-{SESSION[:8]}.jsonl"), head, {"$set": {"messages": []}})
    chat = chat.rename(chat.with_name(f"session-2026-10-31-{SESSION[:8]}.jsonl"))
    signals, listener = GeminiSignals(launch(tmp_path)), KeepingListener()
    signals.prepare(())
    signals.start(listener, 0)
    listener.is_ready = True

    with chat.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"$set": {"sessionId": SESSION}}) + "\n")
    await until(lambda: listener.held[-1:] == [""])
    known = list(signals.prompts(SESSION))
    signals.stop()

    assert known == [TYPED]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), False),
        (("-m", "x", "--search", "-c", "a=b"), False),
        (("--config=a=b",), False),
        (("fix it",), True),
        (("-m", "x", "fix it"), True),
        (("exec", "--json"), True),
        (("--", "fix it"), True),
    ],
)
def test_codex_arguments_with_a_verb_or_a_prompt_are_known(arguments: tuple[str, ...], *, expected: bool) -> None:
    assert has_words(arguments) == expected
