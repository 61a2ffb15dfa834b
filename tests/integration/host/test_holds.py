"""Messages that wait longer than they should: a real host shows why in each view."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator
from typing import Any

import pytest

from tests.integration.chaos.house import LINE_RULES, House, RunningHost, open_house
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

RESTED = LINE_RULES.replace("quiet = 0.02", "quiet = 0.3").replace("settle = 0.03", "settle = 0.4")
"""With these rules a program counts as ready after a longer silence than its clock ever has."""


@pytest.fixture
def house() -> Generator[House]:
    with open_house() as opened:
        opened.environment["SYNAPSE_ATTENTION_AFTER"] = "0.5"
        yield opened
        opened.close()


def held(host: RunningHost) -> dict[str, Any]:
    return host.get("/status").body["held"] or {}


def wait_for_restlessness(host: RunningHost) -> None:
    def is_told() -> bool:
        now = held(host)
        return now.get("overdue") is True and now.get("reason") == "never_rests"

    until(is_told, "an overdue hold, because the program never rests", lambda: host.get("/status").body)


def test_a_program_that_never_rests_calls_a_person_until_it_does(house: House) -> None:
    house.add_profile("ticker", RESTED, "ticker")
    host = house.start("ticker", name="clock")
    task_id = host.accepted("hello")
    wait_for_restlessness(host)

    assert (held(host)["messages"], held(host)["task_id"]) == (1, task_id)
    listed, told = house.synapse("list"), house.synapse("status", "clock", "--explain").out
    assert "prints again and again" in listed.out
    assert "! clock holds 1 message: " in listed.err
    assert "  held     1 message for " in told
    assert "synapse attach clock" in told
    (item,) = house.synapse("approvals", "--json").json
    assert (item["kind"], item["task_id"], item["next"]) == ("held", task_id, "synapse attach clock")
    assert house.synapse("list", "--json").json[0]["held"]["reason"] == "never_rests"

    os.kill(host.entry.cli_pid, signal.SIGUSR1)
    host.finished(task_id)
    assert held(host) == {}
    assert house.synapse("approvals").err == "No agent waits for a person.\n"


def test_queued_messages_show_that_the_turn_before_them_never_ends(house: House) -> None:
    house.add_profile("ticker", RESTED, "ticker", "--calm")
    host = house.start("ticker", name="clock")
    until(lambda: host.get("/status").body["state"] == "ready", "the prompt")
    first = host.accepted("hello")
    host.wait_for(first, lambda task: "submitted" in json.dumps(task["metadata"]["receipts"]), "the turn to begin")
    os.kill(host.entry.cli_pid, signal.SIGUSR2)
    second = host.accepted("and again")
    wait_for_restlessness(host)

    os.kill(host.entry.cli_pid, signal.SIGUSR1)
    host.finished(first)
    host.finished(second)
    assert held(host) == {}
