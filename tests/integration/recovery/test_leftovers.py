"""A line that was typed but never entered, and that the screen lost: it is not submitted together with the next one."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.chaos.house import LINE_RULES, RunningHost, nonces, open_house, status_of, steps_of, until

pytestmark = pytest.mark.integration

# Long enough between the text and Enter for the program to print something in between.
UNHURRIED = LINE_RULES.replace("echo = 0.5", "echo = 2.5\nenter = 2.0")


def hidden_line(host: RunningHost) -> str:
    """Have the program print a notice between the text and Enter, so that the text stands in no prompt any more."""
    task_id = host.accepted("hello <<000000000001>>")
    host.wait_for(task_id, lambda task: "typed" in steps_of(task), "the intent")
    told = {"attention": False}

    def in_doubt() -> bool:
        os.kill(host.entry.cli_pid, signal.SIGALRM)
        told["attention"] = bool(host.task(task_id)["metadata"].get("attention"))
        return told["attention"] or status_of(host.task(task_id)) == "completed"

    until(in_doubt, "the text to be lost")
    assert told["attention"], "the notice came too late"
    return task_id


@pytest.mark.parametrize(("verdict", "received"), [("retry", [["1"], ["2"]]), ("fail", [["2"]])])
def test_a_line_that_the_screen_lost_is_dropped_before_the_next_is_typed(
    verdict: str, received: list[list[str]]
) -> None:
    with open_house() as house:
        house.add_profile("noisy", UNHURRIED, "line_recorder")
        host = house.start("noisy", name="noisy")
        task_id = hidden_line(host)
        assert house.synapse("resolve", task_id[:8], f"--{verdict}").returncode == 0
        following = host.accepted("and then <<000000000002>>")

        assert status_of(host.finished(following)) == "completed"
        assert [[nonce[-1] for nonce in nonces(one.text)] for one in house.received("noisy")] == received
