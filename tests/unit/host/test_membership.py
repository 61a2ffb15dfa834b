"""What a person says of an agent at its start: what is refused, and what lasts."""

from __future__ import annotations

import pytest

from synapse.cli.launch import add_membership_options, chosen_membership
from synapse.cli.parser import VerbParser
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidRequest
from synapse.host.membership import MAX_ROLE, Membership, membership_of, new_membership

WHOLE = Membership(
    role="-- plans,\n'quotes' and \"more\" --name x", team="shop", accepts=("lead", "person", "team", "key.ci")
)


def test_the_options_of_a_host_say_what_its_membership_is() -> None:
    parser = VerbParser("start", examples="")
    add_membership_options(parser)

    assert chosen_membership(parser.parse_args(WHOLE.options())) == WHOLE
    assert chosen_membership(parser.parse_args([])) == Membership()


def test_a_registry_entry_keeps_the_membership() -> None:
    entry = AgentEntry("synapse-codex-8120", "codex")
    WHOLE.write_to(entry)

    assert membership_of(entry) == WHOLE


@pytest.mark.parametrize("sender", ["a b", "", "unverified.lead", "key.", "@Lead"])
def test_a_sender_that_nobody_can_be_is_refused(sender: str) -> None:
    with pytest.raises(InvalidRequest, match="no sender"):
        new_membership("", "", [sender])


def test_an_agent_of_no_team_has_no_team_to_accept() -> None:
    with pytest.raises(InvalidRequest, match="of no team") as refused:
        new_membership("", "", ["person", "team"])

    assert "synapse up" in refused.value.hint
    assert new_membership("", "shop", ["team"]).accepts == ("team",)


def test_a_role_has_an_end() -> None:
    assert new_membership("x" * MAX_ROLE, "", []).role == "x" * MAX_ROLE
    with pytest.raises(InvalidRequest, match="8001 characters"):
        new_membership("x" * (MAX_ROLE + 1), "", [])
