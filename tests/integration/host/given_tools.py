"""Runs `synapse …` in this process, whose launches give every CLI the MCP server, whatever its profile is.

    python given_tools.py ARGUMENTS

With SYNAPSE_TEST_PASSES_INSTRUCTIONS the CLI passes the server's instructions on. SYNAPSE_TEST_HOLD_SECONDS is how long
the first message is held: by default longer than a test takes, so that none depends on the speed of the machine.
"""

from __future__ import annotations

import os
from typing import Any

from synapse.cli.main import run_process
from synapse.core.types import Clock
from synapse.host import pty
from synapse.host.tools import AgentTools


def given(clock: Clock, **more: Any) -> AgentTools:
    more["is_given"] = True
    more["hold_seconds"] = float(os.environ.get("SYNAPSE_TEST_HOLD_SECONDS", "600"))
    more["passes_instructions"] = bool(os.environ.get("SYNAPSE_TEST_PASSES_INSTRUCTIONS"))
    return AgentTools(clock, **more)


# By its name: the module uses the class, and does not offer it.
setattr(pty, AgentTools.__name__, given)
if __name__ == "__main__":
    run_process()
