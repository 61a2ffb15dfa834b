"""How a host without a terminal is started: its command line, and its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

LAUNCHED_BY: Final = "SYNAPSE_LAUNCHED_BY"
"""Says in a host's environment which agent started it: the host outlives the command, and so loses its ancestors."""
_OF_ANOTHER_AGENT: Final = ("SYNAPSE_AGENT_ID", "SYNAPSE_SOCKET")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What `synapse PROFILE …` is to be started with; `verb` is the profile, or `scripted` and its file."""

    verb: Sequence[str]
    name: str = ""
    port: int | None = None
    instructions: bool = True
    arguments: Sequence[str] = ()
    folder: str | None = None

    def command(self) -> list[str]:
        """The command line of the host."""
        options = [
            *(["--name", self.name] if self.name else []),
            *(["--port", str(self.port)] if self.port else []),
            *([] if self.instructions else ["--no-instructions"]),
        ]
        rest = ["--", *self.arguments] if self.arguments else []
        # -P: a folder named `synapse` where the agent works must not be taken for this package.
        return [sys.executable, "-P", "-m", "synapse.cli.main", *self.verb, "--headless", "--json", *options, *rest]


def host_environment() -> dict[str, str]:
    """Ours, without what names the agent that we may run in: the new one is another."""
    return {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_AGENT}


def begin_again(port: int) -> NoReturn:
    """Become a new host that is started as this one was: same program, options and environment, and the same port.

    Raises OSError.
    """
    words = sys.orig_argv[1:]
    end = words.index("--") if "--" in words else len(words)
    wished = [] if "--port" in words[:end] else ["--port", str(port)]
    os.execv(sys.executable, [sys.executable, *words[:end], *wished, *words[end:]])  # noqa: S606 - our own command line
