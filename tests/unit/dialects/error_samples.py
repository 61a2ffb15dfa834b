"""One error of every class of the core, made as the product makes it, for tests that walk them through a codec."""

from __future__ import annotations

from typing import Final

from synapse.core import errors
from synapse.core.errors import SynapseError
from tests.unit.dialects.all_errors import ALL_ERRORS

_OWN_CONSTRUCTOR: Final = (
    errors.BodyTooLarge(1024),
    errors.MethodNotAllowed("PUT", "/tasks", ["GET", "POST"]),
    errors.PriorityOutOfRange(9),
    errors.AmbiguousTarget("codex", ["synapse-codex-8120", "synapse-codex-8121"]),
    errors.AmbiguousTask("54", ["54241e7e", "54aa01c2"]),
    errors.TaskNotFound("54241e7e"),
    errors.AgentNotFound("cloude"),
    errors.ExternalAgentNotFound("ada"),
    errors.WaitCycle(("claude", "codex", "claude")),
    errors.FeedLagged(7),
    errors.MachineAway("box2", "2026-11-16T10:00:00Z"),
    errors.AgentNotResponding("synapse-codex-8120", 8120, "codex"),
    errors.ConnectionForbidden("synapse-codex-8120", "it may not open connections"),
    errors.OutcomeUnknown("synapse-codex-8120", 8120, "codex", "m-1"),
    errors.CredentialsRefused("this needs credentials", challenge='Bearer realm="synapse"', hint="show a key"),
    errors.RateLimited("too many requests", seconds=2.5),
    errors.TooManyStreams(8),
    errors.KeyNotFound("ci"),
    errors.NoAgentThere("no agent was found at https://example.com", hint="look at the address"),
    errors.PushConfigNotFound("54241e7e", "c-1"),
    errors.InvalidChoice("'z' is not offered", ["y", "n"]),
    errors.InvalidField("message.parts", "is missing", hint="send one part at least"),
    errors.VersionNotSupported("0.9", ["1.0", "0.3"]),
    errors.ExtensionRequired(["urn:b", "urn:a"]),
)
_MADE: Final[dict[type[SynapseError], SynapseError]] = {type(error): error for error in _OWN_CONSTRUCTOR}

SAMPLES: Final = [_MADE.get(kind) or kind("what was wrong: ünïcode", hint="what to do") for kind in ALL_ERRORS]
"""One of each class."""
BARE: Final = [kind() for kind in ALL_ERRORS if kind not in _MADE]
"""One of each class that can say by itself what it is, and has a hint only if its class has one."""
