"""A full-screen program with bracketed paste that writes down, durably, every paste, key and submission.

    page_recorder.py LOG [--slow SECONDS] [--dialogs N] [--trust] [--breaks N]

It paints a frame with `> text`, what was submitted above it, and a mark while it works. A text that ends in `@word` or
`/word` has a completion popup: Enter then picks from it and does not submit. After every Nth submission a dialog takes
the frame's place for a while; what is typed then is written down as typed into a dialog. `--trust` begins with one, and
SIGUSR1 opens one that stays until SIGUSR2. ESC drops the work. The first N Enters are line breaks with `--breaks`, as
where a busy program takes Enter for a part of the paste; Ctrl-U then empties one line, and Backspace joins two.
The log is as in line_recorder.py.
"""

import argparse
import fcntl
import json
import os
import re
import select
import signal
import struct
import termios
import time
import tty
import zlib

DIALOG_SECONDS = 0.4
BEGIN, END = b"\x1b[200~", b"\x1b[201~"
FRAME = "─" * 40
MOST_ROWS = 8


class Page:
    """What is on the screen, and what is in the input."""

    def __init__(self, log: int, options: argparse.Namespace) -> None:
        self.log = log
        self.options = options
        self.text = ""
        self.breaks_left = options.breaks
        self.pending = b""
        self.said: list[str] = []
        self.last = b""
        self.works_until = 0.0
        self.asks_until = 0.0
        self.rows, self.columns = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))[:2]

    def note(self, kind: str, data: bytes) -> None:
        entry = {"kind": kind, "bytes": data.hex(), "pid": os.getpid(), "settings": modes()}
        os.write(self.log, json.dumps(entry).encode() + b"\n")
        os.fsync(self.log)

    def receive(self, data: bytes) -> None:
        if time.monotonic() < self.asks_until:
            self.note("dialog", data)
            return
        self.pending += data
        while self.pending and self.take():
            pass

    def take(self) -> bool:
        """Take one paste or key out of what is pending; False when the rest of it has not come yet."""
        if self.pending.startswith(BEGIN):
            paste, end, rest = self.pending[len(BEGIN) :].partition(END)
            if not end:
                return False
            self.pending = rest
            self.note("paste", paste)
            self.text += paste.decode(errors="replace")
            return True
        if BEGIN.startswith(self.pending) and len(self.pending) > 1:
            return False
        key, self.pending = self.pending[:1], self.pending[1:]
        self.note("key", key)
        self.press(key)
        return True

    def press(self, key: bytes) -> None:
        if key == b"\r":
            self.enter()
        elif key == b"\x1b":
            self.works_until = min(self.works_until, time.monotonic())
        elif key == b"\x15":
            self.text = self.text[: self.text.rfind("\n") + 1] if self.options.breaks else ""
        elif key == b"\x7f":
            self.text = self.text[:-1]
        elif key >= b" ":
            self.text += key.decode(errors="replace")

    def enter(self) -> None:
        if self.breaks_left:
            self.breaks_left -= 1
            self.text += "\n"
            return
        if re.search(r"(?:^|\s)[@/]\S*$", self.text):
            self.note("picked", self.text.encode())
            self.text += "-picked "
            return
        self.last = self.text.encode()
        self.note("submit", self.last)
        self.said.append("• " + " ".join(self.text.split())[: self.columns - 4])
        self.text = ""
        self.works_until = time.monotonic() + 0.06 + self.options.slow * (zlib.crc32(self.last, 7) % 100) / 100

    def finish(self) -> None:
        """The work is done: ask for permission, if it is time for that, then answer."""
        self.works_until = 0.0
        number = zlib.crc32(self.last)
        if self.options.dialogs and number % self.options.dialogs == 0:
            self.asks_until = time.monotonic() + DIALOG_SECONDS
        self.said.append(f"done {number:08x}")

    def paint(self) -> None:
        above = self.said[-(self.rows - MOST_ROWS - 6) :]
        if time.monotonic() < self.asks_until:
            below = [FRAME, "Do you want to proceed?", "  Yes   No", "Esc to cancel"]
        else:
            status = "~ working… (esc to interrupt)" if self.works_until else "ready"
            below = [FRAME, *self.input_rows(), FRAME, status]
        rows = [row[: self.columns - 1] for row in (*above, *below)]
        cursor = len(above) + 2
        painted = "".join(f"\x1b[{y};1H\x1b[K{row}" for y, row in enumerate(rows, 1))
        os.write(1, f"\x1b[?2026h{painted}\x1b[J\x1b[{cursor};3H\x1b[?2026l".encode())

    def input_rows(self) -> list[str]:
        width = self.columns // 2 - 4
        cut = [line[i : i + width] for line in self.text.split("\n") for i in range(0, max(len(line), 1), width)]
        if len(cut) > MOST_ROWS:
            cut = [f"[Pasted text #1 +{len(cut)} lines]"]
        return ["> " + cut[0], *("  " + row for row in cut[1:])]

    def ask(self, seconds: float) -> None:
        self.asks_until = time.monotonic() + seconds
        self.paint()

    def wait(self) -> float | None:
        until = max(self.works_until, self.asks_until)
        return max(0.0, until - time.monotonic()) if until else None


def modes() -> str:
    return f"{zlib.crc32(repr(termios.tcgetattr(0)).encode()):08x}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--dialogs", type=int, default=0)
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("--breaks", type=int, default=0)
    options = parser.parse_args()
    log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    tty.setraw(0)
    os.write(1, b"\x1b[?1049h\x1b[?2004h\x1b[2J")
    page = Page(log, options)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: page.ask(3600.0))
    signal.signal(signal.SIGUSR2, lambda _number, _frame: page.ask(0.0))
    if options.trust:
        page.ask(DIALOG_SECONDS)
    while True:
        page.paint()
        if select.select((0,), (), (), page.wait())[0]:
            data = os.read(0, 65536)
            if not data:
                return
            page.receive(data)
        now = time.monotonic()
        if page.works_until and now >= page.works_until:
            page.finish()
        if page.asks_until and now >= page.asks_until:
            page.asks_until = 0.0


main()
