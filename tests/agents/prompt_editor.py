"""A program that edits its own line at the cursor, in raw mode, and prints what it is given.

    prompt_editor.py [--deaf-after KEYS]

Up recalls the last line (nothing before there is one), Tab completes to `completed`, Ctrl-Y yanks `yanked`, Ctrl-L
paints anew. It takes every other key without a word: no bell, no output. With `--deaf-after` it stops reading after so
many reads, as a program does that hangs.
"""

import os
import re
import sys
import time
import tty

KEY = re.compile(rb"\x1b\[[0-9;<?]*[A-Za-z~]|\x1bO.|\x1b.|[\xc0-\xff][\x80-\xbf]+|.", re.DOTALL)
PROMPT = b"> "


def main() -> None:
    reads_left = int(sys.argv[2]) if sys.argv[1:2] == ["--deaf-after"] else -1
    tty.setraw(0)
    os.write(1, b"\x1b[?1000h\x1b[?1004h" + PROMPT)
    line, last = b"", b""
    while reads_left:
        reads_left -= 1
        for key in KEY.findall(os.read(0, 65536)):
            before = line
            if key == b"\r":
                os.write(1, b"\r\n" + (b"got: " + line + b"\r\n" if line else b"") + PROMPT)
                line, last = b"", line or last
                continue
            line = edited(line, key, last)
            if line != before or key == b"\x0c":
                os.write(1, b"\r\x1b[K" + PROMPT + line)
    time.sleep(3600)


def edited(line: bytes, key: bytes, last: bytes) -> bytes:
    if key == b"\x7f":
        return line[:-1]
    if key in (b"\x03", b"\x15"):
        return b""
    recalled = {b"\x1b[A": last, b"\t": b"completed", b"\x19": b"yanked"}.get(key, b"")
    return recalled or (line + key if key[:1] >= b" " else line)


main()
