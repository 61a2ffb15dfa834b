"""Nothing is typed into a dialog, at any priority; what waits for it comes through when a person has answered."""

from __future__ import annotations

import os
import select
import signal

import pytest

from tests.integration.chaos.house import LINE_RULES, PAGE_RULES, RunningHost, nonces, open_house, status_of
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

PROGRAMS = {"line_recorder": LINE_RULES, "page_recorder": PAGE_RULES}
A_WHILE = 1.0
"""Seconds in which a message would have been typed many times over."""


def state_of(host: RunningHost) -> str:
    return str(host.get("/status").body["state"])


def taken(host: RunningHost) -> list[str]:
    whole = [one for one in host.house.received(host.profile) if one.kind in ("line", "submit")]
    return [nonce[-1] for one in whole for nonce in nonces(one.text)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_messages_of_every_priority_wait_for_a_dialog_to_be_answered(program: str) -> None:
    with open_house() as house:
        house.add_profile("asking", PROGRAMS[program], program)
        host = house.start("asking", name="asking")
        host.finished(host.accepted("first <<000000000000>>"))
        os.kill(host.entry.cli_pid, signal.SIGUSR1)
        until(lambda: state_of(host) == "waiting", "the dialog to be seen")
        tasks = [host.accepted(f"<<00000000000{priority}>>", priority=priority) for priority in (1, 2, 3, 4, 5)]
        select.select((), (), (), A_WHILE)

        assert taken(host) == ["0"]
        assert not [one for one in house.received("asking") if one.kind == "dialog"]
        explained = house.synapse("status", "asking", "--explain").out
        assert "gate     closed: a dialog is open: permission" in explained
        assert "asking asks a person: a dialog is open: permission" in house.synapse("list").err

        os.kill(host.entry.cli_pid, signal.SIGUSR2)
        for task in tasks:
            assert status_of(host.finished(task)) == "completed"
        assert taken(host) == ["0", "5", "4", "3", "2", "1"]
        assert not [one for one in house.received("asking") if one.kind == "dialog"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_queued_before_the_start_waits_for_the_question_of_trust(program: str) -> None:
    with open_house() as house:
        house.add_profile("asking", PROGRAMS[program], program, "--trust")
        left = house.synapse("send", "tina", "<<000000000001>>", "--queue")
        assert left.code == 0, left.err
        host = house.start("asking", name="tina")

        until(lambda: taken(host) == ["1"], "the message to come through")
        assert not [one for one in house.received("asking") if one.kind == "dialog"]
