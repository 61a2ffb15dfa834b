"""A line that was typed but never entered, and that the screen lost: it is not submitted together with the next one."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.chaos.house import (
    LINE_RULES,
    PAGE_RULES,
    RunningHost,
    nonces,
    open_house,
    status_of,
    steps_of,
    until,
)

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


# A dialog comes between the text and Enter, and is not waited for. Enter itself would come when the test is over.
INTERRUPTED = PAGE_RULES.replace("echo = 0.5", "echo = 60.0\nenter = 60.0\ndialog = 0.1")


def test_a_text_that_stands_in_the_prompt_is_taken_out_before_it_is_typed_again() -> None:
    with open_house() as house:
        house.add_profile("page", INTERRUPTED, "page_recorder")
        host = house.start("page", name="page")
        task_id = host.accepted("hello <<000000000001>>")
        until(lambda: bool(house.received("page")), "the text")
        os.kill(host.entry.cli_pid, signal.SIGUSR1)
        host.wait_for(task_id, lambda task: bool(task["metadata"].get("attention")), "the doubt")
        os.kill(host.entry.cli_pid, signal.SIGUSR2)
        until(lambda: host.get("/status").body.get("gate") == "there is text in the prompt", "the text in the prompt")

        assert house.synapse("resolve", task_id[:8], "--retry").returncode == 0

        until(lambda: len(house.received("page")) == 3, "the text once more")
        first, cleared, again = house.received("page")
        assert (first.kind, cleared.kind, cleared.data, again.kind) == ("paste", "key", b"\x15", "paste")
        assert nonces(again.text) == ["000000000001"]
        assert steps_of(host.task(task_id)) == ["queued", "typed", "queued", "typed"]
