"""Claude Code: HTTP hooks by `--settings`, for this launch only, and the transcript for interrupts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from synapse.drivers.pty.signals.adapter import Listener, Prepared, Surroundings
from synapse.drivers.pty.signals.tail import Tail, tail_from_now
from synapse.drivers.pty.signals.ticker import Ticker
from synapse.terminal.evidence import Source
from synapse.terminal.signals import claude
from synapse.terminal.signals.report import Record, Told, word

_LOOK_SECONDS: Final = 0.1
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")


class ClaudeSignals:
    """Implements Adapter."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._listener: Listener | None = None
        self._missing = ""
        self._turn = ""
        self._tail: Tail | None = None
        self._ticker = Ticker(_LOOK_SECONDS, self._look)

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        """Add our hooks to the person's own `--settings`, if they give one."""
        theirs, rest = claude.settings_argument(arguments)
        ours = claude.hook_settings(self._around.url, self._around.secret_header, self._around.secret)
        try:
            settings = claude.merged(self._read(theirs), ours)
        except (OSError, ValueError) as error:
            # It is Claude's to say what is wrong with them.
            self._missing = f"its hooks are off: --settings cannot be read ({error})"
            return Prepared(arguments=arguments, missing=self._missing)
        if settings.get("disableAllHooks") is True:
            self._missing = "its hooks are off: --settings says disableAllHooks"
            return Prepared(arguments=arguments, missing=self._missing)
        return Prepared(arguments=("--settings", str(self._write(settings)), *rest), env=self._proxies())

    def start(self, listener: Listener, _pid: int, /) -> None:
        self._listener = listener
        if self._missing:
            listener.lack(Source.SIGNAL, self._missing)
        else:
            listener.expect(Source.SIGNAL, "its hooks are switched on, and have said nothing yet")

    def look(self) -> None:
        self._look()

    def receive(self, payload: Record) -> None:
        report = claude.read_hook(payload)
        if report is None or self._listener is None:
            return
        if report.told is Told.SUBMITTED:
            self._turn = report.turn
            self._tail = tail_from_now(Path(word(payload, "transcript_path")))
            self._ticker.start()
        elif report.told in (Told.ANSWERED, Told.FAILED):
            self._tail = None
        self._listener.report(report)

    def stop(self) -> None:
        self._ticker.stop()
        self._listener = None
        shutil.rmtree(self._around.folder, ignore_errors=True)

    def _look(self) -> float | None:
        """Look for an interrupt while a turn runs."""
        if self._tail is None or self._listener is None:
            return None
        for record in self._tail.read():
            report = claude.read_record(record)
            if report is not None and report.turn in ("", self._turn):
                self._tail = None
                self._listener.report(report)
                return None
        return _LOOK_SECONDS

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
        self._around.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
