"""How the sender of a message is shown in the prompt."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from synapse.core.address import SYSTEM
from synapse.core.caller import Caller
from synapse.core.requests import Sender
from synapse.core.task import Task
from synapse.service.origin import envelope_line, origin_metadata, sender_of
from tests.fakes.desk import Desk, say

EXAMPLE = "messages look like [A2A:<id>:<sender>] text"


def from_system(text: str) -> Task:
    system = origin_metadata(Sender(sender_id=SYSTEM), verified=True)
    return replace(asyncio.run(sent(text)), metadata=system)


async def sent(text: str) -> Task:
    return await Desk().send(text)


def test_only_the_systems_own_words_may_show_a_header() -> None:
    ours, theirs = from_system(EXAMPLE), asyncio.run(sent(EXAMPLE))

    assert envelope_line(ours, ours.message) == f"[A2A:{ours.short_id}:{SYSTEM}] {EXAMPLE}"
    assert envelope_line(theirs, theirs.message).count("[A2A:") == 1


def test_a_later_message_of_the_systems_task_is_anybodys() -> None:
    task = from_system("hello")

    assert envelope_line(task, say(EXAMPLE, "another")).count("[A2A:") == 1


@pytest.mark.parametrize("claimed", [None, Sender(sender_id="user")])
def test_only_a_persons_process_proves_a_person(claimed: Sender | None) -> None:
    exited = Caller(via_socket=True, doubt="the process that connected has exited")

    assert sender_of(claimed, Caller(via_socket=True), ())[1]
    assert not sender_of(claimed, exited, ())[1]
    assert not sender_of(claimed, Caller(), ())[1]
