"""Shows a long text on a terminal through the user's pager, as git does."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

from synapse.cli.output import print_result
from synapse.client.hosts import AGENT_VARIABLE

_DEFAULT = "less"
_VARIABLE = "PAGER"
# As git: end at once if the text fits the screen, show colours, and leave the text on the screen.
_LESS = {"LESS": "FRX"}


def print_paged(text: str) -> None:
    """Prints a result through `$PAGER` (`less`), or directly: in a pipe, in an agent, or without a pager.

    Nobody could close a pager that a model's command opened.
    """
    command = _pager()
    if not command:
        print_result(text)
        return
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env={**_LESS, **os.environ})  # noqa: S603 - as git, it runs what the user chose
    except OSError:
        print_result(text)  # no such program
        return
    # Ctrl-C is for the pager, which may stop a search by it and goes on.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # Ignores that the pager ended before it had read all.
        pager.communicate((text + "\n").encode("utf-8", "replace"))
    finally:
        signal.signal(signal.SIGINT, before)


def _pager() -> list[str]:
    """Returns the pager's command; empty if none is to be used."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb" or os.environ.get(AGENT_VARIABLE):
        return []
    try:
        command = shlex.split(os.environ.get(_VARIABLE, _DEFAULT))
    except ValueError:
        return []  # quotes that are not closed
    return [] if command == ["cat"] else command
