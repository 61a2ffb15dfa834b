"""Which adapter listens to which CLI; a profile names it in `[signals]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from synapse.core.errors import InvalidProfile
from synapse.drivers.pty.signals.adapter import Adapter, Surroundings
from synapse.drivers.pty.signals.claude import ClaudeSignals
from synapse.drivers.pty.signals.codex import CodexSignals
from synapse.drivers.pty.signals.codex_app_server import CodexAppServerSignals
from synapse.drivers.pty.signals.copilot import CopilotSignals
from synapse.drivers.pty.signals.gemini import GeminiSignals
from synapse.drivers.pty.signals.opencode import OpenCodeSignals
from synapse.terminal.profile import Profile

_ADAPTERS: Final[dict[str, Callable[[Surroundings], Adapter]]] = {
    "claude": ClaudeSignals,
    "codex": CodexSignals,
    "codex_app_server": CodexAppServerSignals,
    "copilot": CopilotSignals,
    "gemini": GeminiSignals,
    "opencode": OpenCodeSignals,
}


def adapter_for(profile: Profile, around: Surroundings) -> Adapter | None:
    """Return what listens to the profile's CLI; None when it is known by its screen alone.

    Raises:
        InvalidProfile: it names an adapter that there is not.
    """
    if not profile.signals.adapter:
        return None
    make = _ADAPTERS.get(profile.signals.adapter)
    if make is None:
        raise InvalidProfile(
            f"profile '{profile.name}': signals.adapter must be one of {', '.join(sorted(_ADAPTERS))}",
            hint="leave the table [signals] out for a CLI that is known by its screen alone",
        )
    return make(around)
