"""A CLI that goes on with its conversation is not told its instructions again; one that begins anew is."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from synapse.calibration.sandbox import AGENT
from synapse.core.json_text import object_in, objects_in
from tests.real_clis.benches import Bench, bench_for, eventually

SYSTEM = "synapse-system"


def instructed(bench: Bench) -> int:
    """How often the agent was given its instructions, whether they were typed or came with its tools."""
    tasks = objects_in(bench.workbench.ask("/tasks"), "tasks")
    told = [task for task in tasks if object_in(object_in(task, "metadata"), "sender").get("sender_id") == SYSTEM]
    assert all(task["status"] in ("completed", "submitted", "working") for task in told)
    return sum(task["status"] == "completed" for task in told)


def kill(bench: Bench) -> None:
    entry = bench.workbench.entry()
    assert entry is not None
    os.kill(entry.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(os.getpgid(entry.cli_pid), signal.SIGKILL)
    eventually(lambda: not bench.workbench.processes())


def answers(bench: Bench, text: str) -> bool:
    return bench.synapse("send", AGENT, text, "--response").code == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("profile", ["claude", "codex", "copilot"])
def test_instructions_are_told_once_to_a_conversation(profile: str) -> None:
    with bench_for(profile, os.environ, {}) as bench:
        args = bench.workbench.recipe.args
        assert bench.synapse("start", profile, "--name", AGENT, "--", *args).code == 0
        eventually(lambda: instructed(bench) == 1)
        assert answers(bench, "calibrate:remember:1 please")

        kill(bench)
        assert bench.synapse("restart", AGENT).code == 0
        assert answers(bench, "calibrate:after:2 please")
        resumed, told = bench.synapse("status", AGENT).output, instructed(bench)
        assert bench.synapse("restart", AGENT, "--fresh").code == 0
        assert answers(bench, "calibrate:after:3 please")

        assert "talk     goes on with its last one" in resumed
        assert told == 1
        assert instructed(bench) == 2
        assert "talk" not in bench.synapse("status", AGENT).output
