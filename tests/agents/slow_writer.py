"""Answers each line in two halves: the second follows when the file that it was given exists."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main(told: Path) -> None:
    while True:
        sys.stdout.write("> ")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return
        sys.stdout.write("The weather in San Francisco is\ncurrently sunny with a high of\n")
        sys.stdout.flush()
        spins = 0
        while not told.exists():
            # What moves is not part of the answer.
            spins += 1
            sys.stdout.write(f"\r{'|/-'[spins % 3]} {spins}")
            sys.stdout.flush()
            time.sleep(0.02)
        sys.stdout.write("\r\x1b[K72 and a low of 58.\n")


main(Path(sys.argv[1]))
