"""Reads lines without any echo and without a prompt, and says what it got."""

import sys
import termios

settings = termios.tcgetattr(0)
settings[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSANOW, settings)
for line in sys.stdin:
    sys.stdout.write(f"got: {line}")
    sys.stdout.flush()
