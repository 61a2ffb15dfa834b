"""Never reads, in raw mode: whatever is typed fills the terminal's buffer and stays there."""

import signal
import sys
import tty

tty.setraw(0)
sys.stdout.write("> ")
sys.stdout.flush()
signal.pause()
