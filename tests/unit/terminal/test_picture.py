"""A picture is judged without the emulator that took it."""

from __future__ import annotations

import subprocess
import sys


def test_what_judges_a_picture_does_not_load_the_emulator() -> None:
    """A driver starts its program before it pays for the emulator's import, about a fifth of a second."""
    code = "import sys, synapse.drivers.pty.driver; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=20, check=True)

    loaded = done.stdout.split()
    assert "synapse.terminal.delivery" in loaded
    assert "pyghostty" not in loaded
