"""`synapse send --queue`: a message for an agent that does not run waits, durably, until that agent starts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.chaos.house import LINE_RULES, House, RunningHost, nonces, open_house, status_of
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

NOT_FOUND, REFUSED = 3, 7


def leave(house: House, target: str, text: str, *options: str, folder: Path | None = None) -> str:
    """Leave a message and return its task's id."""
    done = subprocess.run(
        house.command("send", target, text, "--queue", "--json", *options),
        cwd=folder or house.folder,
        env=house.environment,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["task"]["id"])


def queue(house: House, *agent: str) -> list[dict[str, Any]]:
    return list(house.synapse("queue", *agent, "--json").json)


def received(house: House) -> list[str]:
    return [nonce for one in house.received("recorder") for nonce in nonces(one.text)]


def add_recorder(house: House) -> None:
    house.add_profile("recorder", LINE_RULES, "line_recorder")


def test_without_queue_it_is_an_error_that_nobody_is_there() -> None:
    with open_house() as house:
        add_recorder(house)

        assert house.synapse("send", "victor", "hello").code == NOT_FOUND
        assert house.synapse("queue", "victor").code == NOT_FOUND


def test_what_was_left_for_a_name_is_delivered_once_in_order_at_its_start() -> None:
    with open_house() as house:
        add_recorder(house)
        first = leave(house, "victor", "<<000000000001>>")
        urgent = leave(house, "victor", "<<000000000002>>", "--priority", "4")
        taken_back = leave(house, "victor", "<<000000000003>>")
        other = leave(house, "walter", "<<000000000005>>")
        assert house.synapse("cancel", taken_back[:8]).code == 0
        assert [item["task"]["id"] for item in queue(house, "victor")] == [urgent, first]
        late = leave(house, "victor", "<<000000000004>>", "--ttl", "0.1")

        host = house.start("recorder", name="victor")
        for task in (first, urgent):
            assert status_of(host.finished(task)) == "completed"
        assert status_of(host.finished(late)) == "failed"
        assert received(house) == ["000000000002", "000000000001"]
        assert [item["task"]["id"] for item in queue(house)] == [other]


def test_what_was_left_and_is_sent_again_with_its_message_id_is_typed_once() -> None:
    with open_house() as house:
        add_recorder(house)
        left = leave(house, "victor", "<<000000000001>>", "--message-id", "m-1")
        host = house.start("recorder", name="victor")
        assert status_of(host.finished(left)) == "completed"

        again = house.synapse("send", "victor", "<<000000000001>>", "--message-id", "m-1", "--json").json
        assert again["task"]["id"] == left
        assert received(house) == ["000000000001"]


def test_what_was_left_for_a_profile_is_for_the_one_in_this_folder() -> None:
    with open_house() as house:
        add_recorder(house)
        elsewhere = house.folder / "elsewhere"
        elsewhere.mkdir()
        here = leave(house, "recorder", "<<000000000001>>")
        there = leave(house, "recorder", "<<000000000002>>", folder=elsewhere)

        host = house.start("recorder")
        assert status_of(host.finished(here)) == "completed"
        assert [item["task"]["id"] for item in queue(house)] == [there]
        assert received(house) == ["000000000001"]


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_what_was_left_for_an_id_is_for_the_agent_that_had_it(ends: str) -> None:
    with open_house() as house:
        add_recorder(house)
        elsewhere = house.folder / "elsewhere"
        elsewhere.mkdir()
        host = house.start("recorder")
        host.finished(host.accepted("<<000000000001>>"))
        RunningHost.stop(host) if ends == "stop" else host.kill()
        left = leave(house, host.entry.agent_id, "<<000000000002>>", folder=elsewhere)
        short = leave(house, host.entry.agent_id.removeprefix("synapse-"), "<<000000000003>>", folder=elsewhere)

        again = house.start("recorder")
        for task in (left, short):
            assert status_of(again.finished(task)) == "completed"
        assert received(house) == ["000000000001", "000000000002", "000000000003"]


def test_an_agent_that_runs_gets_it_at_once() -> None:
    with open_house() as house:
        add_recorder(house)
        host = house.start("recorder", name="victor")

        assert status_of(host.finished(leave(house, "victor", "<<000000000001>>"))) == "completed"


def test_as_much_can_be_left_as_may_wait() -> None:
    with open_house() as house:
        add_recorder(house)
        house.environment["SYNAPSE_QUEUE_LIMIT"] = "2"
        for number in range(2):
            leave(house, "victor", f"<<00000000000{number}>>")
        refused = house.synapse("send", "victor", "one too many", "--queue", "--json")

        assert refused.code == REFUSED
        assert refused.json["error"]["code"] == "queue_full"


def test_messages_that_are_left_while_the_agent_starts_come_through() -> None:
    """Whoever leaves a message holds the inbox for a moment; the agent waits for that and does not take another."""
    with open_house() as house:
        add_recorder(house)
        leaving = [
            subprocess.Popen(
                house.command("send", "recorder", f"<<00000000000{number}>>", "--queue"),
                cwd=house.folder,
                env=house.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for number in range(6)
        ]
        host = house.start("recorder")
        told = [process.communicate(timeout=20)[1] for process in leaving]
        left = [number for number, process in enumerate(leaving) if process.returncode == 0]

        assert len(left) > 0, told
        assert host.entry.inbox == f"recorder@{house.folder}"
        until(lambda: len(received(house)) == len(left), "all that were left", lambda: (left, received(house)))
        assert sorted(received(house)) == [f"00000000000{number}" for number in left]
