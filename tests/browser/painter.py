"""A program for terminals in a browser: reads lines, and paints what they name."""

from __future__ import annotations

import os
import subprocess
import sys

LINE = b"the quick brown fox jumps over the lazy dog and prints seventy-eight characters"[:78] + b"\n"
PAINTED = {
    "colours": "\x1b[38;2;250;1;2mtrue red\x1b[0m \x1b[32mpalette\x1b[0m \x1b[48;5;27mground\x1b[0m",
    "markup": '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>',
    "far": "said above" + "\n" * 20 + "\x1b[48;5;17m   \x1b[0m\x1b[48;5;18m   \x1b[0m",
}


def paint(verb: str, rest: str) -> None:
    """Prints what a line names."""
    match verb:
        case "colours" | "markup" | "far":
            say(PAINTED[verb])
        case "lines":
            for number in range(int(rest)):
                say(f"line {number}")
        case "size":
            say(f"{os.get_terminal_size().columns} columns")
        case "run":
            done = subprocess.run(rest.split(), capture_output=True, encoding="utf-8", check=False)
            say(f"status {done.returncode}: {done.stdout}{done.stderr}")
        case "flood":
            flood(int(rest))
            say("flood is over")
        case _:
            say(rest)


def say(text: str, end: str = "\n") -> None:
    """Prints a text at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def flood(megabytes: int) -> None:
    """Prints so many megabytes."""
    block = LINE * 500
    for _ in range(megabytes * 12_500 // 500):
        left = block
        while left:
            left = left[os.write(1, left) :]


def main() -> None:
    while True:
        say("> ", end="")
        line = sys.stdin.readline()
        if not line:
            return
        # A message of another agent or of a person has a header.
        verb, _, rest = line.rpartition("] ")[2].strip().partition(" ")
        paint(verb, rest)


if __name__ == "__main__":
    main()
