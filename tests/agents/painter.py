"""A small full-screen program: its own line editor on the alternate screen, with bracketed paste.

It paints `% text` and shows what was submitted above it, and again when its window has changed. `quit` ends it, `die`
ends it without cleaning up. With the argument `plain` it stays on the ordinary screen.
"""

import os
import signal
import sys
import termios
import tty

PROMPT_ROW = 5
submitted: list[str] = []


def paint(text: str) -> None:
    rows = "".join(f"\x1b[{row};1H\x1b[K• {line}" for row, line in enumerate(submitted[-4:], start=1))
    os.write(1, f"{rows}\x1b[{PROMPT_ROW};1H\x1b[K% {text}".encode())


def take(text: str, data: bytes) -> str:
    for char in data.replace(b"\x1b[200~", b"").replace(b"\x1b[201~", b"").decode(errors="replace"):
        if char == "\r":
            submitted.append(text)
            text = ""
        elif char == "\x15":
            text = ""
        elif char == "\x7f":
            text = text[:-1]
        elif char >= " ":
            text += char
    return text


def main() -> None:
    settings = termios.tcgetattr(0)
    tty.setraw(0)
    os.write(1, b"\x1b[?2004h\x1b[2J" if "plain" in sys.argv else b"\x1b[?1049h\x1b[?2004h\x1b[2J")
    text = ""
    signal.signal(signal.SIGWINCH, lambda number, frame: paint(text))
    while "quit" not in submitted:
        paint(text)
        text = take(text, os.read(0, 4096))
        if "die" in submitted:
            os._exit(7)
    os.write(1, b"\x1b[?2004l\x1b[?1049l")
    termios.tcsetattr(0, termios.TCSANOW, settings)


main()
