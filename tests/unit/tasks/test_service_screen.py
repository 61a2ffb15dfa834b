"""Who may read what an agent's terminal shows."""

from __future__ import annotations

import pytest

from synapse.core.caller import Caller
from synapse.core.errors import Forbidden, UnsupportedOperation
from synapse.core.overview import Run, StyledScreen
from synapse.core.requests import GetScreen
from tests.fakes.harness import ME, AgentHarness
from tests.fakes.questions import ITSELF, LEFT_BEHIND, OTHER_AGENT, OVER_TCP, PERSON, WITHOUT_TERMINAL

SCREEN = StyledScreen(
    version="1.7", columns=80, rows=1, cursor=None, alternate=False, title="", lines=((Run("password: 1234"),),)
)


async def read(lines: int, known: str) -> StyledScreen | None:
    assert lines == 5
    return None if known == SCREEN.version else SCREEN


def harness_with_terminal() -> AgentHarness:
    return AgentHarness(me=ME, read_screen=read)


# A gateway in the background has no terminal, and shows the screens to those who may attach.
@pytest.mark.parametrize("caller", [PERSON, WITHOUT_TERMINAL, ITSELF])
async def test_the_user_and_the_agent_itself_read_it(caller: Caller) -> None:
    service = harness_with_terminal().service

    assert await service.handle(GetScreen(lines=5), caller) == SCREEN
    assert await service.handle(GetScreen(lines=5, known="1.7"), caller) is None


# Over the port nobody knows whose process calls, so any agent could.
@pytest.mark.parametrize("caller", [OTHER_AGENT, LEFT_BEHIND, OVER_TCP])
async def test_no_other_agent_reads_it(caller: Caller) -> None:
    with pytest.raises(Forbidden, match="only a person, or the agent itself"):
        await harness_with_terminal().service.handle(GetScreen(lines=5), caller)


async def test_an_agent_without_a_terminal_says_so() -> None:
    with pytest.raises(UnsupportedOperation, match="no terminal"):
        await AgentHarness().service.handle(GetScreen(), PERSON)
