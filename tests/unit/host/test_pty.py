"""What the agent of a wrapped program accepts."""

from __future__ import annotations

from synapse.host.pty import acceptance_of
from synapse.terminal.profile import parse_profile


def test_a_program_that_can_read_takes_parts_of_every_type_and_a_calculator_takes_texts() -> None:
    assistant = parse_profile({"command": ["claude"]}, "claude")
    calculator = parse_profile({"command": ["bc"], "envelope": False}, "bc")

    assert acceptance_of(assistant).media_types == ()
    assert acceptance_of(calculator).media_types == ("text/plain",)
