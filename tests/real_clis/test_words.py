"""What real CLIs say at their start, as an answer, and at their end, as a person finds it."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from synapse.calibration.sandbox import AGENT
from synapse.calibration.scripted_model import SayText
from tests.integration.attach.seat import Seat, seated
from tests.real_clis.benches import Bench, bench_for, eventually

INDENTED = ("    indented\n", "second line\n", "  tail  \n\n")
SCENES = {"indented": (SayText(INDENTED),)}


@contextmanager
def at_terminal(bench: Bench, *words: str) -> Generator[Seat]:
    """A person types a `synapse` command in the CLI's world."""
    env = [f"{name}={value}" for name, value in bench.workbench.env.items()]
    with seated("env", "-C", str(bench.workbench.project), *env, *bench.command, *words) as seat:
        yield seat


# Gemini trims its answers itself, before they are written anywhere.
@pytest.mark.timeout(120)
@pytest.mark.parametrize("profile", ["claude", "codex", "copilot", "opencode"])
def test_an_answer_keeps_the_blanks_around_it(profile: str) -> None:
    with bench_for(profile, os.environ, SCENES) as bench:
        bench.start()
        eventually(bench.is_ready)
        sent = bench.synapse("send", AGENT, "calibrate:indented:1 please", "--response", "--timeout", "50", "--json")

    assert sent.fields["reply"] == "".join(INDENTED)


@pytest.mark.timeout(120)
def test_claude_that_skips_permissions_is_let_start_from_elsewhere() -> None:
    with bench_for("claude", os.environ, {}) as bench:
        # To root it refuses this anywhere but in a container.
        recipe = bench.workbench.recipe
        bench.workbench.recipe = replace(recipe, env={**recipe.env, "IS_SANDBOX": "1"})
        bench.start("--dangerously-skip-permissions")
        eventually(bench.asks)

        (listed,) = json.loads(bench.synapse("approvals", "--json").output)
        approved = bench.synapse("approve", AGENT)
        eventually(bench.is_ready)

    assert (listed["kind"], approved.code) == ("startup", 0)
    assert "Bypass Permissions mode" in listed["title"]


@pytest.mark.timeout(180)
def test_after_new_in_opencode_a_message_is_in_the_conversation_on_the_screen() -> None:
    with bench_for("opencode", os.environ, {}) as bench:
        bench.start()
        eventually(bench.is_ready)
        bench.synapse("send", AGENT, "calibrate:one-line:1 before", "--response", "--timeout", "50")
        with at_terminal(bench, "attach", AGENT) as seat:
            seat.sees("one-line:1")
            seat.types("/new")
            seat.sees("New session")
            seat.types("\r")
            seat.sees("Ask anything")

        bench.synapse("send", AGENT, "calibrate:one-line:2 after", "--response", "--timeout", "50")

        with at_terminal(bench, "attach", AGENT) as seat:
            seat.sees("one-line:2")
            assert b"one-line:1" not in seat.seen


@pytest.mark.timeout(120)
def test_codex_that_names_a_server_is_corrected_at_its_end() -> None:
    with (
        bench_for("codex", os.environ, {}) as bench,
        at_terminal(bench, "codex", "--name", AGENT, "--no-instructions") as seat,
    ):
        seat.sees("Ask Codex to do anything")
        eventually(bench.is_ready)
        bench.synapse("send", AGENT, "calibrate:one-line:1 please")
        seat.sees("Worked for")
        seat.types(b"\x04")

        seat.sees("To reconnect, run:")
        seat.sees(f"To go on: synapse codex --name {AGENT} -- resume ")
