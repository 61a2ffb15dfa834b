"""Asks its terminal what it is and where the cursor stands, and prints the answers."""

import os
import sys
import termios
import tty

settings = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"\x1b[c\x1b[6n")
answer = b""
while not answer.endswith(b"R"):
    answer += os.read(0, 100)
termios.tcsetattr(0, termios.TCSANOW, settings)
sys.stdout.write(f"answers: {answer!r}\n")
