"""A line that was typed but never entered, and that the screen lost: it is not submitted together with the next one."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest

from tests.integration.chaos.house import LINE_RULES, PAGE_RULES, RunningHost, nonces, open_house, status_of, steps_of
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

# Long enough between the text and Enter for the program to print something in between.
UNHURRIED = LINE_RULES.replace("echo = 0.5", "echo = 2.5\nenter = 2.0")


def hidden_lines(hosts: Sequence[RunningHost]) -> list[str]:
    """Have each program print a notice between the text and Enter, so that the text stands in no prompt any more.

    Only once the host has seen the text in the prompt: of a text that it never saw there it does not know that it is
    hidden, and presses Enter.
    """
    task_ids = [host.accepted("hello <<000000000001>>") for host in hosts]

    def in_doubt(host: RunningHost, task_id: str) -> bool:
        task = host.task(task_id)
        assert status_of(task) != "completed", "the notice came too late"
        if why := task["metadata"].get("attention"):
            assert why == "the text was in the prompt and is no longer there"
            return True
        if host.get("/status").body.get("gate") == "there is text in the prompt":
            os.kill(host.entry.cli_pid, signal.SIGALRM)
        return False

    def all_in_doubt() -> bool:
        # Every one is asked each time, so that every one gets its notices.
        return sum(in_doubt(host, task_id) for host, task_id in zip(hosts, task_ids, strict=True)) == len(hosts)

    until(all_in_doubt, "the texts to be lost")
    return task_ids


def test_a_line_that_the_screen_lost_is_dropped_before_the_next_is_typed() -> None:
    received = {"retry": [["1"], ["2"]], "fail": [["2"]]}
    with open_house() as house:
        for verdict in received:
            house.add_profile(verdict, UNHURRIED, "line_recorder")
        # Both at once: it is their waiting that takes the time.
        hosts = [house.start(verdict, name=verdict) for verdict in received]
        following: list[str] = []
        for verdict, host, task_id in zip(received, hosts, hidden_lines(hosts), strict=True):
            assert house.synapse("resolve", task_id[:8], f"--{verdict}").code == 0
            following.append(host.accepted("and then <<000000000002>>"))

        for verdict, host, task_id in zip(received, hosts, following, strict=True):
            assert status_of(host.finished(task_id)) == "completed"
            got = [[nonce[-1] for nonce in nonces(one.text)] for one in house.received(verdict)]
            assert got == received[verdict], verdict


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

        assert house.synapse("resolve", task_id[:8], "--retry").code == 0

        until(lambda: len(house.received("page")) == 3, "the text once more")
        first, cleared, again = house.received("page")
        assert (first.kind, cleared.kind, cleared.data, again.kind) == ("paste", "key", b"\x15", "paste")
        assert nonces(again.text) == ["000000000001"]
        assert steps_of(host.task(task_id)) == ["queued", "typed", "queued", "typed"]


# One line of a text of several goes with each press of both keys.
LINE_BY_LINE = 'clear_keys = ["ctrl-u", "backspace"]\n' + PAGE_RULES


@pytest.mark.parametrize("verdict", ["cancel", "fail", "retry"])
def test_a_text_that_enter_did_not_submit_is_taken_out_when_it_is_given_up(verdict: str) -> None:
    with open_house() as house:
        house.add_profile("page", LINE_BY_LINE, "page_recorder", "--breaks", "1")
        host = house.start("page", name="page")
        first = host.accepted("hello\n\nthere <<000000000001>>")
        host.wait_for(first, lambda task: bool(task["metadata"].get("attention")), "the doubt")

        words = ("cancel", first[:8]) if verdict == "cancel" else ("resolve", first[:8], f"--{verdict}")
        assert house.synapse(*words).code == 0
        second = host.accepted("and then <<000000000002>>")

        assert status_of(host.finished(second)) == "completed"
        submitted = [nonces(one.text) for one in house.received("page") if one.kind == "submit"]
        again = [["000000000001"]] if verdict == "retry" else []
        assert submitted == [*again, ["000000000002"]]
