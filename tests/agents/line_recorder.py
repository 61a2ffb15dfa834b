"""Reads lines at a prompt and writes each of them down, durably, before it does anything with it.

    line_recorder.py LOG [--echoless] [--slow SECONDS | --works SECONDS] [--dialogs N] [--flood KILOBYTES] [--trust]

The log has one JSON object in a line: what kind of input it was, its bytes in hex, and the terminal's settings then.
`--slow` works for up to so long on a message, `--works` for just so long; `--flood` prints so much for it, and
`--dialogs` asks for permission after every Nth message; which ones depends only on what they say, so a run can be
repeated. `--trust` asks at the start. Nobody answers the dialog: it goes away by itself, and what was typed meanwhile
is written down as typed into a dialog. SIGINT drops the work; SIGUSR1 opens a dialog that stays until SIGUSR2; SIGALRM
prints a notice at the prompt.
"""

import argparse
import json
import os
import select
import signal
import sys
import termios
import tty
import zlib

DIALOG_SECONDS = 0.4
SLICE = 0.01


class Interrupt:
    """Remembers that SIGINT came; only work looks at it, so that no line is lost to it."""

    def __init__(self) -> None:
        self.came = False
        signal.signal(signal.SIGINT, lambda _number, _frame: setattr(self, "came", True))


class Dialog:
    """Takes keys without Enter, as those of coding agents do."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._is_open = False
        signal.signal(signal.SIGUSR1, lambda _number, _frame: self.open(3600.0, then="> "))
        signal.signal(signal.SIGUSR2, lambda _number, _frame: setattr(self, "_is_open", False))

    def open(self, seconds: float, *, then: str = "") -> None:
        settings = termios.tcgetattr(0)
        tty.setcbreak(0, termios.TCSANOW)
        self._is_open = True
        say("Do you want to proceed? [y/n] " if not then else "\nDo you want to proceed? [y/n] ")
        for _ in range(int(seconds / SLICE)):
            if not self._is_open:
                break
            if select.select((0,), (), (), SLICE)[0]:
                note(self._log, "dialog", os.read(0, 65536))
        termios.tcsetattr(0, termios.TCSANOW, settings)
        say("\n" + then)


def main() -> None:
    options = parsed()
    log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    interrupt = Interrupt()
    if options.echoless:
        settings = termios.tcgetattr(0)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(0, termios.TCSANOW, settings)
    asked = Dialog(log)
    signal.signal(signal.SIGALRM, lambda _number, _frame: say("\na notice that nobody asked for\n> "))
    if options.trust:
        asked.open(DIALOG_SECONDS)
    while True:
        say("> ")
        line = os.read(0, 65536)
        if not line:
            return
        note(log, "line", line)
        interrupt.came = False
        work(line, options, interrupt)
        number = zlib.crc32(line)
        if options.dialogs and number % options.dialogs == 0:
            asked.open(DIALOG_SECONDS)
        say("interrupted\n" if interrupt.came else f"done {number:08x}\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("--echoless", action="store_true")
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--works", type=float, default=0.0)
    parser.add_argument("--dialogs", type=int, default=0)
    parser.add_argument("--flood", type=int, default=0)
    parser.add_argument("--trust", action="store_true")
    return parser.parse_args()


def note(log: int, kind: str, data: bytes) -> None:
    settings = repr(termios.tcgetattr(0))
    entry = {"kind": kind, "bytes": data.hex(), "pid": os.getpid(), "settings": f"{zlib.crc32(settings.encode()):08x}"}
    os.write(log, json.dumps(entry).encode() + b"\n")
    os.fsync(log)


def work(line: bytes, options: argparse.Namespace, interrupt: Interrupt) -> None:
    row = "a row of the flood that comes before the answer, for programs that talk much\n"
    say(row * (options.flood * 1000 // len(row)))
    slices = int((options.works or options.slow * (zlib.crc32(line, 7) % 100) / 100) / SLICE)
    for _ in range(slices):
        if interrupt.came:
            return
        select.select((), (), (), SLICE)


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


main()
