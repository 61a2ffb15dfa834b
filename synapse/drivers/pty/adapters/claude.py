"""Claude Code: hooks by `--settings`, for this launch only, and the transcript for interrupts.

Its prompts are told by a pipe, beside the turn that they begin; the other hooks report over HTTP.

A named pipe that hooks of a CLI write to: nobody answers them, so the CLI need not wait for anybody.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from synapse.config.private_files import make_private
from synapse.core.message import Json
from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import LaunchContext, Listener, Prepared, Sender
from synapse.drivers.pty.adapters.transcript import Tail, Ticker, last_records, read_record, tail_from_now
from synapse.terminal.evidence import Source
from synapse.terminal.signals import claude
from synapse.terminal.signals.claude import GO_ON, hook_answer
from synapse.terminal.signals.report import Record, SignalKind, SignalReport, word

_LOOK_SECONDS: Final = 0.1
_END_LOOK_SECONDS: Final = 0.02
_END_SECONDS: Final = 60.0
"""So long it may take until its terminal shows that it is ready: a person may have opened a menu."""
_EXACT_SECONDS: Final = 2.0
"""So long the transcript may take to have the answer."""
_ANSWER_GLANCE: Final = 1024 * 1024
"""How far from the transcript's end the last answer is looked for; behind it stand snapshots of the prompt."""
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A hook that waits: what it asked, and what it is answered."""

    payload: Record
    report: SignalReport
    answer: asyncio.Future[Json]


class ClaudeSignals:
    """Implements Adapter."""

    def __init__(self, around: LaunchContext) -> None:
        self._around = around
        self._listener: Listener | None = None
        self._missing = ""
        self._turn = self._ended = ""
        """The turn that began last, and the one that was told last to be over."""
        self._prompts = HookPipe(around.folder / "prompts", self._take)
        self._tail: Tail | None = None
        self._last_words = claude.LastWords()
        self._end: SignalReport | None = None
        """What it said when a turn seemed to be over; its terminal has not shown yet that it is ready."""
        self._end_until = self._exact_until = 0.0
        self._asked = 0
        self._shown = ""
        """The question that was told last."""
        self._waiting: dict[str, _Waiting] = {}
        """Hooks that wait for an answer, by question, in their order."""
        self._ticker = Ticker(_LOOK_SECONDS, self._look)

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Add our hooks to the person's own `--settings`, if they give one."""
        theirs, rest = claude.settings_argument(arguments)
        around = self._around
        ours = claude.hook_settings(around.url, around.secret_header, around.secret, self._prompts.make())
        try:
            settings = claude.merged(self._read(theirs), ours)
        except (OSError, ValueError) as error:
            # It is Claude's to say what is wrong with them.
            self._missing = f"its hooks are off: --settings cannot be read ({error})"
            return Prepared(arguments=arguments)
        if settings.get("disableAllHooks") is True:
            self._missing = "its hooks are off: --settings says disableAllHooks"
            return Prepared(arguments=arguments)
        return Prepared(arguments=("--settings", str(self._write(settings)), *rest), env=self._proxies())

    def start(self, listener: Listener, _pid: int, /) -> None:
        self._listener = listener
        if self._missing:
            listener.mark_missing(Source.SIGNAL, self._missing)
        else:
            listener.expect(Source.SIGNAL, "its hooks are switched on, and have said nothing yet")
            self._prompts.open()

    def look(self) -> None:
        self._look()

    def receive(self, payload: Record) -> asyncio.Future[Json] | None:
        # What became of a prompt may be told before anybody has read that there is one.
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

    def sender(self) -> Sender | None:
        return None

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        self._ticker.stop()
        self._prompts.close()
        self._listener = None
        for question_id in tuple(self._waiting):
            self._release(question_id)
        shutil.rmtree(self._around.folder, ignore_errors=True)

    def _take(self, payload: Record) -> asyncio.Future[Json] | None:
        if self._listener is None:
            return None
        self._asked += 1
        report = claude.read_hook(payload, f"{self._around.new_session}-{self._asked}")
        if report is None:
            return None
        if report.told is SignalKind.WAITING:
            return self._hold(payload, report)
        if report.told is SignalKind.SUBMITTED:
            self._begin(payload, report)
        else:
            self._finish(report)
        self._look()
        self._ticker.start()
        return None

    def _begin(self, payload: Record, report: SignalReport) -> None:
        if report.turn == self._ended != "":
            # The command was slow: the turn is over by now, and nothing may say that it works.
            return
        self._turn = report.turn
        transcript = Path(word(payload, "transcript_path"))
        self._tail, self._last_words = tail_from_now(transcript), claude.LastWords()
        self._tell(report)
        for record in last_records(transcript):
            # A person with Esc may have been faster than the command.
            interrupted = claude.read_record(record)
            if interrupted is not None and interrupted.turn == self._turn != "":
                self._tell(interrupted)
                return

    def _finish(self, report: SignalReport) -> None:
        self._ended = report.turn
        if report.told is SignalKind.ANSWERED:
            # A Stop hook of the person's own may make it go on: then it is not ready, and another Stop follows.
            now = asyncio.get_running_loop().time()
            self._end, self._end_until = report, now + _END_SECONDS
            has_transcript = self._tail is not None and self._tail.path.name != "" and self._tail.path.parent.is_dir()
            self._exact_until = now + _EXACT_SECONDS if has_transcript else now
            # Its last words may have been written before there was news of its prompt.
            for record in last_records(self._tail.path, _ANSWER_GLANCE) if self._tail else ():
                self._last_words.read(record)
        else:
            self._tell(report)

    def _hold(self, payload: Record, report: SignalReport) -> asyncio.Future[Json] | None:
        """Let the hook wait for an answer from elsewhere while its dialog is shown."""
        if report.question is None or self._listener is None:
            return None
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[report.question.id] = _Waiting(payload, report, answer)
        self._look_at_dialogs(self._listener)
        self._ticker.start()
        return answer

    def _look(self) -> float | None:
        """Look for what no hook tells: an interrupt, a dialog that was answered, that it is ready."""
        if self._listener is None:
            return None
        self._look_at_dialogs(self._listener)
        records = self._tail.read() if self._tail else []
        for record in records:
            self._last_words.read(record)
        if self._end and self._is_over(self._end, self._listener):
            self._tell(replace(self._end, text=self._last_words.exact(self._end.text) or self._end.text))
            records = []
        for record in records:
            report = claude.read_record(record)
            if report is not None and report.turn in ("", self._turn):
                self._tell(report)
                break
        if self._end:
            return _END_LOOK_SECONDS
        return _LOOK_SECONDS if self._tail or self._waiting else None

    def _is_over(self, end: SignalReport, listener: Listener) -> bool:
        """Whether the turn is over, and its answer is in the transcript: the hook's is without the blanks around it."""
        now = asyncio.get_running_loop().time()
        if now > self._end_until:
            return True
        if not listener.seems_ready():
            return False
        # A busy machine writes it some moments behind the hook.
        return self._last_words.exact(end.text) is not None or now > self._exact_until

    def _look_at_dialogs(self, listener: Listener) -> None:
        """Let go the hook whose dialog is gone, and tell what is asked next: of several, one dialog is shown."""
        for question_id, waiting in tuple(self._waiting.items()):
            if question_id != self._shown:
                self._shown = question_id
                listener.report(waiting.report)
                return
            if listener.asks(question_id):
                return
            self._release(question_id)

    def _release(self, question_id: str) -> None:
        answer = self._waiting.pop(question_id).answer
        if not answer.done():
            answer.set_result(GO_ON)

    def _tell(self, report: SignalReport) -> None:
        self._end = None
        if report.told is not SignalKind.SUBMITTED:
            self._tail = None
        if self._listener is not None:
            self._listener.report(report)

    def _read(self, settings: str) -> Record:
        """The person's settings: JSON, or a file of it, as the flag takes them."""
        if not settings:
            return {}
        text = settings if settings.lstrip().startswith("{") else self._file(settings).read_text(encoding="utf-8")
        value: object = json.loads(text)
        if not isinstance(value, Mapping):
            raise ValueError("they are no JSON object")  # noqa: TRY004  # the caller knows one error for bad settings
        return cast("Record", value)

    def _file(self, name: str) -> Path:
        return self._around.working_dir / Path(name).expanduser()

    def _write(self, settings: dict[str, Any]) -> Path:
        make_private(self._around.folder)
        path = self._around.folder / "settings.json"
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  # opened with its mode above
            json.dump(settings, file)
        return path

    def _proxies(self) -> dict[str, str]:
        """Hooks must not go by way of a proxy; without one there is nothing to say."""
        if not any(name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name in self._around.env):
            return {}
        known = next((value for name in _NO_PROXY if (value := self._around.env.get(name))), "")
        return dict.fromkeys(_NO_PROXY, f"{known},127.0.0.1" if known else "127.0.0.1")


_READ_SIZE: Final = 65536
_LONGEST_LINE: Final = 4 * 1024 * 1024


class HookPipe:
    """Calls `take` for each JSON object that is written to it, one on each line. The loop's thread, but for `make`."""

    def __init__(self, path: Path, take: Callable[[Record], object]) -> None:
        self._path = path
        self._take = take
        self._number: int | None = None
        self._rest = b""

    def make(self) -> str:
        """Make it; return the shell command that writes its input to it, or nothing where that cannot be."""
        try:
            make_private(self._path.parent)
            self._path.unlink(missing_ok=True)
            os.mkfifo(self._path, 0o600)
        except OSError:
            return ""
        # Some end their input without the end of a line; and what another left half written is no part of this.
        return f"{{ echo; cat; echo; }} >{shlex.quote(str(self._path))}"

    def open(self) -> None:
        """Hear what is written from now on; who began to write before has waited."""
        try:
            # For writing too: with no other writer there would be an end of file again and again.
            self._number = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        except OSError:
            return
        asyncio.get_running_loop().add_reader(self._number, self.read)

    def read(self) -> None:
        """Take what has been written by now."""
        while self._number is not None:
            try:
                data = os.read(self._number, _READ_SIZE)
            except OSError:
                # Nothing more, for now.
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                self._rest = b""
            for line in lines:
                record = read_record(line)
                if record is not None:
                    self._take(record)

    def close(self) -> None:
        if self._number is not None:
            asyncio.get_running_loop().remove_reader(self._number)
            os.close(self._number)
            self._number = None
