"""A program that paints a page, asks a question for each line, and writes down every key that it gets while it asks.

    questioner.py LOG [--arrows | --keys] [--trust]

A line is submitted with Enter. Then a dialog takes the input's place: its options are chosen by their number, or with
`--arrows` by the arrow keys and Enter; the third takes words. With `--keys` Enter is a yes and Esc a no. `twice` asks
the same two times, `stubborn` asks and does not react to keys, `slow` does so after a while, `leave` ends after a no,
`plain` asks nothing. `--trust` begins with a question of its own.
"""

import os
import sys
import time
import tty

RULE = "─" * 40
LABELS = ("Yes", "No", "Say something")
UP, DOWN = b"\x1b[A", b"\x1b[B"
ESC = b"\x1b"


class Questioner:
    def __init__(self, log: int, *, by_arrows: bool, by_keys: bool, asks: int) -> None:
        self.log = log
        self.by_arrows = by_arrows
        self.by_keys = by_keys
        self.asks = asks
        self.is_stubborn = False
        self.line = self.words = ""
        self.marked = 0
        self.about = "start"
        self.said: list[str] = []

    def receive(self, data: bytes) -> None:
        if self.asks:
            os.write(self.log, data)
            if self.about == "slow":
                time.sleep(0.5)
        while data:
            size = len(UP) if data.startswith((UP, DOWN)) else 1
            key, data = data[:size], data[size:]
            if not self.asks:
                self.edit(key)
            elif not self.is_stubborn:
                self.press(key)

    def edit(self, key: bytes) -> None:
        if key != b"\r":
            self.line += key.decode(errors="replace")
            return
        self.about, self.line = self.line.rpartition(" ")[2], ""
        self.asks = {"plain": 0, "twice": 2}.get(self.about, 1)
        self.is_stubborn = self.about == "stubborn"
        if not self.asks:
            self.said.append("answered at once")

    def press(self, key: bytes) -> None:
        if key == b"\r":
            self.choose(self.marked)
        elif self.by_keys:
            self.choose(1 if key == ESC else 2)
        elif key in (UP, DOWN):
            self.marked = (self.marked + (1 if key == DOWN else -1)) % len(LABELS)
        elif self.marked == 2:
            self.words += key.decode(errors="replace")
        elif not self.by_arrows and key in b"123":
            self.marked = int(key) - 1
            if self.marked < 2:
                self.choose(self.marked)

    def choose(self, index: int) -> None:
        if self.about == "leave" and index == 1:
            sys.exit(1)
        self.said.append(f"chose: {self.words or LABELS[index]}")
        self.asks -= 1
        self.marked, self.words = 0, ""

    def paint(self) -> None:
        if self.asks:
            labels = (*LABELS[:2], self.words or LABELS[2])
            signs = [" > " if index == self.marked else "   " for index in range(len(labels))]
            offered = [
                f"{sign}{index}. {label}" for index, (sign, label) in enumerate(zip(signs, labels, strict=True), 1)
            ]
            named = [" Enter to agree · Esc to cancel"]
            below = [RULE, f" run {self.about}", " Go on?", *(named if self.by_keys else [*offered, " Esc to cancel"])]
            cursor = (1, 1)
        else:
            below = [RULE, f"> {self.line}", RULE, "ready"]
            cursor = (len(self.said) + 2, len(self.line) + 3)
        rows = "".join(f"{row}\x1b[K\r\n" for row in (*self.said, *below))
        os.write(1, f"\x1b[?2026h\x1b[H{rows}\x1b[J\x1b[{cursor[0]};{cursor[1]}H\x1b[?2026l".encode())


def main() -> None:
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    page = Questioner(
        log, by_arrows="--arrows" in sys.argv, by_keys="--keys" in sys.argv, asks=int("--trust" in sys.argv)
    )
    tty.setraw(0)
    page.paint()
    while data := os.read(0, 4096):
        page.receive(data)
        page.paint()


main()
