"""A program that prints as much as it is told: asks for a number of megabytes, prints them, and asks again."""

from __future__ import annotations

import os
import sys

LINES_PER_MEGABYTE = 12_500
LINE = b"the quick brown fox jumps over the lazy dog and prints seventy-eight characters"[:78] + b"\n"
"""The terminal makes two bytes of the newline, so a line is 80 bytes when it arrives."""
_LINES_AT_ONCE = 500


def main() -> None:
    block = LINE * _LINES_AT_ONCE
    while True:
        os.write(1, b"> ")
        line = sys.stdin.buffer.readline()
        if not line:
            return
        for _ in range(int(line) * LINES_PER_MEGABYTE // _LINES_AT_ONCE):
            rest = block
            while rest:
                rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main()
