"""What every test process needs."""

from __future__ import annotations

import signal

# A shell without job control lets what it runs in the background ignore Ctrl-C; so would every program that a test
# starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
