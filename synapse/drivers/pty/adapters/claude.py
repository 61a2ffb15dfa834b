"""Claude Code: hooks by `--settings`, tools by `--mcp-config`, for this launch only; the transcript for interrupts.

The hook for prompts writes to a named pipe and gets no answer, so that Claude does not wait for it; the other hooks
report over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from synapse.client.hosts import WAIT_VARIABLE
from synapse.config.private_files import make_private
from synapse.core.message import Json
from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import (
    SERVER_NAME,
    ApiSender,
    LaunchContext,
    Prepared,
    SignalListener,
    values_of,
    why_anew,
)
from synapse.drivers.pty.adapters.transcript import (
    Tail,
    Ticker,
    UsageTail,
    all_records,
    first_records,
    last_records,
    read_record,
    tail_from_now,
)
from synapse.terminal.evidence import Source
from synapse.terminal.signals import claude
from synapse.terminal.signals.claude import GO_ON, hook_answer
from synapse.terminal.signals.report import Record, SignalKind, SignalReport, table_at, text_at
from synapse.terminal.signals.usage import ClaudeUsage

_LOOK_SECONDS: Final = 0.1
_END_LOOK_SECONDS: Final = 0.02
_END_SECONDS: Final = 60.0
"""How long its terminal may take to show that it is ready: a person may have opened a menu."""
_EXACT_SECONDS: Final = 2.0
"""How long the transcript may take to have the answer."""
_ANSWER_BYTES: Final = 1024 * 1024
"""How far from the transcript's end the last answer is searched; snapshots of the prompt follow it."""
_MCP_FLAG: Final = "--mcp-config"
_BACKGROUND_VARIABLE: Final = "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"
"""After so many milliseconds Claude moves a tool call to the background and ends the turn; 0 means never."""
_BACKGROUND_MS: Final = 120_000
_MARGIN_SECONDS: Final = 20.0
"""How much longer than a call waits Claude waits for it: the answer has to be fetched and sent."""
_SUB_AGENTS: Final = "subagents/*.jsonl"
"""The transcripts of sub-agents, in a folder with the name of the session."""
_RESUME_FLAG: Final = "--resume"
_CHOOSING_FLAGS: Final = (
    *("-r", _RESUME_FLAG, "-c", "--continue", "--session-id", "--fork-session", "--from-pr", "--teleport", "--cloud"),
    *("-p", "--print"),
)
"""By these a person chooses the conversation, or has none that could go on."""
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_READ_SIZE: Final = 65536
_MAX_LINE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _WaitingHook:
    """A hook that waits for the answer to its question."""

    payload: Record
    report: SignalReport
    answer: asyncio.Future[Json]


class ClaudeSignals:
    """Implements Adapter for Claude Code."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._listener: SignalListener | None = None
        self._missing = ""
        self._turn = self._ended = ""
        """The turn that began last, and the last one that was reported to be over."""
        self._prompts = HookPipe(launch.folder / "prompts", self._take)
        self._tail: Tail | None = None
        self._last_words = claude.LastWords()
        self._usage: UsageTail | None = None
        self._end: SignalReport | None = None
        """The report of a turn's end, until its terminal shows that it is ready."""
        self._end_until = self._exact_until = 0.0
        self._hook_count = 0
        self._reported = ""
        """The last question that was reported."""
        self._waiting: dict[str, _WaitingHook] = {}
        """Question → the hook that waits for its answer, oldest first."""
        self._ticker = Ticker(_LOOK_SECONDS, self._tick)

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Adds our hooks to the person's own `--settings`, if there are any, and our tools to their MCP servers.

        The tools are allowed by a flag and not by the settings, which may be unreadable. What a person denies stays
        denied: in Claude a denial is stronger than any permission.
        """
        hooked = self._with_hooks(arguments)
        anew = why_anew(
            self._launch, arguments, knows=_RESUME_FLAG, choosing=_CHOOSING_FLAGS, folder_of=self._folder_of
        )
        resumes = bool(self._launch.resume) and not anew
        tools = self._launch.tools
        lacks = self._conflict(arguments) if tools.command else ""
        has_server = bool(tools.command) and not lacks
        flags, env = list[str](), dict[str, str]()
        if has_server:
            env = self._waiting_variables(arguments)
            # Each with `=`: both flags take all words that follow, also a prompt.
            flags.append(f"{_MCP_FLAG}={self._write('mcp.json', self._server(env))}")
        allowed = claude.permissions(tools.allowed_commands, server=SERVER_NAME if has_server else "")
        if allowed:
            flags.append(f"--allowedTools={','.join(allowed)}")
        if resumes:
            flags += [_RESUME_FLAG, self._launch.resume]
        return Prepared(
            arguments=(*flags, *hooked.arguments),
            env={**hooked.env, **env},
            lacks_tools=lacks,
            resumes=resumes,
            begins_anew=anew,
        )

    def start(self, listener: SignalListener, _pid: int, /) -> None:
        self._listener = listener
        self._usage = UsageTail(ClaudeUsage, self._launch.started, listener.note_usage)
        if self._missing:
            listener.mark_missing(Source.SIGNAL, self._missing)
        else:
            listener.expect(Source.SIGNAL, "its hooks are switched on, and have said nothing yet")
            self._prompts.open()

    def look(self) -> None:
        self._tick()

    def receive(self, payload: Record) -> asyncio.Future[Json] | None:
        # A later hook of a turn may report before we have read the prompt that began it.
        self._prompts.read()
        return self._take(payload)

    async def answer(self, question_id: str, choice: Choice, /) -> bool:
        waiting = self._waiting.get(question_id)
        given = hook_answer(waiting.payload, choice) if waiting and not waiting.answer.done() else None
        if waiting is None or given is None:
            return False
        del self._waiting[question_id]
        waiting.answer.set_result(given)
        return True

    def sender(self) -> ApiSender | None:
        return None

    def prompts(self, session: str, /) -> Iterator[str]:
        for transcript in self._transcripts(session):
            yield from filter(None, map(claude.prompt_in, all_records(transcript)))

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        self._ticker.stop()
        self._prompts.close()
        if self._usage is not None:
            # At its end Claude writes what the session has cost.
            self._usage.follow_folders(_SUB_AGENTS)
            self._usage.read()
        self._listener = None
        for question_id in tuple(self._waiting):
            self._release(question_id)
        shutil.rmtree(self._launch.folder, ignore_errors=True)

    def _with_hooks(self, arguments: tuple[str, ...]) -> Prepared:
        theirs, rest = claude.settings_argument(arguments)
        launch = self._launch
        ours = claude.hook_settings(launch.url, launch.secret_header, launch.secret, self._prompts.make())
        try:
            settings = claude.merged(self._read_settings(theirs), ours)
        except (OSError, ValueError) as error:
            # Claude itself tells the person what is wrong with them.
            self._missing = f"its hooks are off: --settings cannot be read ({error})"
            return Prepared(arguments=arguments)
        if settings.get("disableAllHooks") is True:
            self._missing = "its hooks are off: --settings says disableAllHooks"
            return Prepared(arguments=arguments)
        return Prepared(
            arguments=("--settings", str(self._write("settings.json", settings)), *rest), env=self._proxy_variables()
        )

    def _take(self, payload: Record) -> asyncio.Future[Json] | None:
        if self._listener is None:
            return None
        if session := claude.session_in(payload):
            self._launch.converse(session)
        elif claude.is_cleared(payload):
            self._launch.converse("")
        self._hook_count += 1
        report = claude.read_hook(payload, f"{self._launch.new_session}-{self._hook_count}")
        if report is None:
            return None
        if report.kind is SignalKind.WAITING:
            return self._hold(payload, report)
        if report.kind is SignalKind.SUBMITTED:
            self._begin(payload, report)
        else:
            self._finish(report)
        self._tick()
        self._ticker.start()
        return None

    def _begin(self, payload: Record, report: SignalReport) -> None:
        if report.turn == self._ended != "":
            # The hook was slow: the turn is over by now and must not be reported as working.
            return
        self._turn = report.turn
        transcript = Path(text_at(payload, "transcript_path"))
        self._tail, self._last_words = tail_from_now(transcript), claude.LastWords()
        if self._usage is not None and transcript.name:
            self._usage.follow(transcript)
        self._report(report)
        for record in last_records(transcript):
            # A person may have pressed Esc before the hook reported.
            interrupted = claude.read_record(record)
            if interrupted is not None and interrupted.turn == self._turn != "":
                self._report(interrupted)
                return

    def _finish(self, report: SignalReport) -> None:
        self._ended = report.turn
        if report.kind is SignalKind.ANSWERED:
            # A person's own Stop hook may make Claude go on: then it is not ready, and another Stop follows.
            now = asyncio.get_running_loop().time()
            self._end, self._end_until = report, now + _END_SECONDS
            has_transcript = self._tail is not None and self._tail.path.name != "" and self._tail.path.parent.is_dir()
            self._exact_until = now + _EXACT_SECONDS if has_transcript else now
            # The answer may have been written before we read the prompt, which started the tail.
            for record in last_records(self._tail.path, _ANSWER_BYTES) if self._tail else ():
                self._last_words.read(record)
        else:
            self._report(report)

    def _hold(self, payload: Record, report: SignalReport) -> asyncio.Future[Json] | None:
        """Lets the hook wait for an answer from us while its dialog is shown."""
        if report.question is None or self._listener is None:
            return None
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[report.question.id] = _WaitingHook(payload, report, answer)
        self._check_dialogs(self._listener)
        self._ticker.start()
        return answer

    def _tick(self) -> float | None:
        """Looks for what no hook reports: an interrupt, a dialog that was answered, that Claude is ready."""
        if self._listener is None:
            return None
        self._check_dialogs(self._listener)
        records = self._tail.read() if self._tail else []
        for record in records:
            self._last_words.read(record)
        if self._end and self._is_over(self._end, self._listener):
            self._report(replace(self._end, text=self._last_words.exact(self._end.text) or self._end.text))
            records = []
        for record in records:
            report = claude.read_record(record)
            if report is not None and report.turn in ("", self._turn):
                self._report(report)
                break
        if self._usage is not None:
            self._usage.read()
        if self._end:
            return _END_LOOK_SECONDS
        return _LOOK_SECONDS if self._tail or self._waiting else None

    def _is_over(self, end: SignalReport, listener: SignalListener) -> bool:
        """Returns whether the turn is over and the transcript has its answer; the hook's answer lacks outer blanks."""
        now = asyncio.get_running_loop().time()
        if now > self._end_until:
            return True
        if not listener.seems_ready():
            return False
        # On a busy machine the transcript has the answer some moments after the hook.
        return self._last_words.exact(end.text) is not None or now > self._exact_until

    def _check_dialogs(self, listener: SignalListener) -> None:
        """Releases the hook whose dialog is gone, and reports the next question: only one dialog is shown at a time."""
        for question_id, waiting in tuple(self._waiting.items()):
            if question_id != self._reported:
                self._reported = question_id
                listener.report(waiting.report)
                return
            if listener.asks(question_id):
                return
            self._release(question_id)

    def _release(self, question_id: str) -> None:
        answer = self._waiting.pop(question_id).answer
        if not answer.done():
            answer.set_result(GO_ON)

    def _report(self, report: SignalReport) -> None:
        self._end = None
        if report.kind is not SignalKind.SUBMITTED:
            self._tail = None
            if self._usage is not None:
                self._usage.follow_folders(_SUB_AGENTS)
        if self._listener is not None:
            self._listener.report(report)

    def _read_settings(self, settings: str) -> Record:
        """Returns the person's settings: the flag takes JSON, or the path of a JSON file."""
        if not settings:
            return {}
        text = settings
        if not settings.lstrip().startswith("{"):
            text = (self._launch.working_dir / Path(settings).expanduser()).read_text(encoding="utf-8")
        value: object = json.loads(text)
        if not isinstance(value, Mapping):
            raise ValueError("they are no JSON object")  # noqa: TRY004  # the caller knows one error for bad settings
        return cast("Record", value)

    def _conflict(self, arguments: tuple[str, ...]) -> str:
        """Returns why Claude gets no server of ours: the person's own arguments have one of that name."""
        for given in values_of(_MCP_FLAG, arguments):
            with suppress(OSError, ValueError):
                if SERVER_NAME in table_at(self._read_settings(given), "mcpServers"):
                    return f"{_MCP_FLAG} has a server named {SERVER_NAME}, which is left alone"
        return ""

    def _server(self, env: Mapping[str, str]) -> dict[str, Any]:
        """Returns the configuration of our MCP server."""
        tools = self._launch.tools
        server = {
            "type": "stdio",
            "command": tools.command[0],
            "args": tools.command[1:],
            # Claude passes its environment on to servers, unless a variable or policy tells it not to.
            "env": {**tools.env, WAIT_VARIABLE: env[WAIT_VARIABLE]},
            "timeout": _milliseconds(tools.wait_seconds + _MARGIN_SECONDS),
            # Otherwise the model would see only the names of the tools, and would have to search for them first.
            "alwaysLoad": True,
        }
        return {"mcpServers": {SERVER_NAME: server}}

    def _waiting_variables(self, arguments: tuple[str, ...]) -> dict[str, str]:
        """Returns the variables that keep a waiting call in the foreground: a person's own limit shortens the wait."""
        wait = self._launch.tools.wait_seconds
        given = self._given_limit(arguments)
        if given is None:
            limit = str(_milliseconds(wait + _MARGIN_SECONDS))
            return {_BACKGROUND_VARIABLE: limit, WAIT_VARIABLE: f"{wait:g}"}
        seconds = (int(given) if given.isascii() and given.isdigit() else _BACKGROUND_MS) / 1000
        if seconds:
            wait = min(wait, max(seconds - _MARGIN_SECONDS, seconds / 2))
        return {WAIT_VARIABLE: f"{wait:g}"}

    def _given_limit(self, arguments: tuple[str, ...]) -> str | None:
        """Returns the limit that the person has set for calls in the foreground; settings override the environment."""
        home = self._claude_home
        project = self._launch.working_dir / ".claude"
        files = (home / "settings.json", project / "settings.json", project / "settings.local.json")
        limit = self._launch.env.get(_BACKGROUND_VARIABLE)
        for settings in (*map(str, files), claude.settings_argument(arguments)[0]):
            with suppress(OSError, ValueError):
                found = table_at(self._read_settings(settings), "env").get(_BACKGROUND_VARIABLE)
                limit = limit if found is None else str(found)
        return limit

    @property
    def _claude_home(self) -> Path:
        return Path(self._launch.env.get("CLAUDE_CONFIG_DIR") or self._launch.home / ".claude")

    def _transcripts(self, session: str) -> Iterator[Path]:
        return (self._claude_home / "projects").glob(f"*/{session}.jsonl")

    def _folder_of(self, session: str) -> str | None:
        """Returns the folder in which a conversation began, by its transcript."""
        for transcript in self._transcripts(session):
            for record in first_records(transcript):
                if folder := text_at(record, "cwd"):
                    return folder
        return None

    def _write(self, name: str, content: Mapping[str, object]) -> Path:
        """Writes a private file of the launch."""
        make_private(self._launch.folder)
        path = self._launch.folder / name
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  # opened with its mode above
            json.dump(content, file)
        return path

    def _proxy_variables(self) -> dict[str, str]:
        """Returns the variables that keep hooks away from a proxy; empty if there is no proxy."""
        if not any(name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name in self._launch.env):
            return {}
        known = next((value for name in _NO_PROXY if (value := self._launch.env.get(name))), "")
        return dict.fromkeys(_NO_PROXY, f"{known},127.0.0.1" if known else "127.0.0.1")


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


class HookPipe:
    """A named pipe for hooks: calls `take` for each JSON object that is written to it, one on each line.

    Call its methods in the loop's thread, except `make`.
    """

    def __init__(self, path: Path, take: Callable[[Record], object]) -> None:
        self._path = path
        self._take = take
        self._fileno: int | None = None
        self._rest = b""

    def make(self) -> str:
        """Makes the pipe; returns the shell command that copies its input to it, or an empty text if that fails."""
        try:
            make_private(self._path.parent)
            self._path.unlink(missing_ok=True)
            os.mkfifo(self._path, 0o600)
        except OSError:
            return ""
        # Some inputs have no newline at their end, and another hook may have left a line half written.
        return f"{{ echo; cat; echo; }} >{shlex.quote(str(self._path))}"

    def open(self) -> None:
        """Reads what is written from now on; a hook that began to write before has waited."""
        try:
            # Open it for writing too: without another writer, each read would return an end of file.
            self._fileno = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        except OSError:
            return
        asyncio.get_running_loop().add_reader(self._fileno, self.read)

    def read(self) -> None:
        """Reads what has been written by now."""
        while self._fileno is not None:
            try:
                data = os.read(self._fileno, _READ_SIZE)
            except OSError:
                # Nothing more for now.
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _MAX_LINE_BYTES:
                self._rest = b""
            for line in lines:
                record = read_record(line)
                if record is not None:
                    self._take(record)

    def close(self) -> None:
        if self._fileno is not None:
            asyncio.get_running_loop().remove_reader(self._fileno)
            os.close(self._fileno)
            self._fileno = None
