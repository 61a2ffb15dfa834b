"""Real CLIs of two vendors on two machines of a fleet: each machine has a home, a link and a model of its own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from synapse.calibration.model_server import Fact
from synapse.calibration.scripted_model import CallMcpTool, SayText
from synapse.calibration.trial import texts
from tests.real_clis.test_tools import ADA, BOB, EXACT, Row, World, finished, world_of
from tests.samples.ports import own_port

LAPTOP, BOX2 = "laptop", "box2"
THERE = f"{BOB}@{BOX2}"
ASK_THERE = {
    "ask-there": (
        CallMcpTool("send", {"to": THERE, "text": "calibrate:reply:2 please", "wait": "answer"}),
        SayText(("Bob has ", "answered.")),
    ),
}


@contextmanager
def two_machines() -> Generator[tuple[World, World]]:
    """Joins a machine with Claude Code, which runs the server, and one with Codex."""
    with world_of("claude", scenes=ASK_THERE) as laptop, world_of("codex") as box2:
        try:
            laptop.run("fleet", "create", "--name", LAPTOP, "--listen", f"127.0.0.1:{own_port()}")
            box2.run("fleet", "join", laptop.run("fleet", "invite", BOX2, "--json")["invitation"])
            yield laptop, box2
        finally:
            box2.sandbox.synapse("fleet", "stop")
            laptop.sandbox.synapse("fleet", "stop")


@pytest.mark.timeout(240)
def test_models_and_people_talk_with_a_cli_on_another_machine() -> None:
    with two_machines() as (laptop, box2):
        laptop.start(Row("claude"), ADA, "--no-instructions")
        box2.start(Row("codex"), BOB, "--no-instructions")

        end = finished(laptop, ADA, laptop.send(ADA, "ask-there"))
        asked = laptop.sandbox.synapse("send", THERE, "calibrate:reply:3 please", "--response", "--timeout", "50")

        assert texts(end) == ["Bob has answered."]
        result = laptop.model.ledger.last("ask-there:1", Fact.RESULT)
        assert result is not None
        assert EXACT in result.text
        assert (asked.code, asked.output) == (0, EXACT + "\n"), box2.told(BOB)
        assert box2.messages_to(BOB) == ["calibrate:reply:3 please", "calibrate:reply:2 please"]
