"""Every error class of the core, for tests that walk them through a dialect."""

from __future__ import annotations

from typing import Final

from synapse.core.errors import BY_CODE, SynapseError

ALL_ERRORS: Final = sorted(BY_CODE.values(), key=lambda kind: kind.__name__)


def blank(kind: type[SynapseError]) -> SynapseError:
    """Returns an error of this class, made without its constructor."""
    error = kind.__new__(kind)
    Exception.__init__(error, "what happened")
    error.__dict__.update(allowed=["GET"], field="f", why="w", challenge="Bearer", retry_after=3)
    return error
