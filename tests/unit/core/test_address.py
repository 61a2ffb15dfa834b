"""Names of agents on other machines."""

from __future__ import annotations

import pytest

from synapse.core.address import is_remote, remote_inbox, split_inbox
from synapse.core.agent import AgentEntry


@pytest.mark.parametrize("inbox", ["codex", "codex@/proj", "codex@/proj/a!b", "/proj/a!b", "!codex"])
def test_an_inbox_is_found_again_in_the_name_that_other_machines_give_it(inbox: str) -> None:
    assert split_inbox(inbox) == (inbox, "")
    assert split_inbox(remote_inbox(inbox, "box2")) == (inbox, "box2")


@pytest.mark.parametrize("inbox", ["claude", "claude@/srv/wow!/proj", "claude@/box2!x"])
def test_an_agent_is_remote_by_the_machine_of_its_inbox_whatever_its_folder(inbox: str) -> None:
    assert not is_remote(AgentEntry("synapse-claude-8100", "claude", inbox=inbox))
    assert is_remote(AgentEntry("synapse-claude-8100", "claude", inbox=remote_inbox(inbox, "box2")))
