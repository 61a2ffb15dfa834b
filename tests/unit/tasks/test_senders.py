"""Whose messages an agent accepts: the rule, over all kinds of callers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.caller import ANONYMOUS_SCOPE, APPROVE, LOCAL_SCOPE, SEND, SESSION_NAME, Caller
from synapse.core.errors import InvalidRequest, SenderNotAccepted
from synapse.core.message import Sender
from synapse.tasks.senders import SenderRule, check_accepts

ME = AgentEntry("synapse-codex-8120", "codex", name="db", port=8120, team="shop")
LEAD = AgentEntry("synapse-claude-8100", "claude", name="lead", port=8100, team="shop", inbox="lead")
OUTSIDER = AgentEntry("synapse-gemini-8110", "gemini", port=8110)
OF_OTHER_TEAM = AgentEntry("synapse-claude-8101", "claude", name="boss", port=8101, team="bank")
IMPOSTOR = AgentEntry(
    "synapse-claude-8100",
    "claude",
    name="lead",
    port=8100,
    team="shop",
    inbox="lead",
    launched_by="synapse-gemini-8110",
)

A_PERSON = Caller(via_socket=True)
OVER_TCP = Caller()
ORPHAN = Caller(via_socket=True, doubt="its environment is that of the agent lead", named_agent="lead")
OWNER_WITHOUT_AUTH = Caller(is_owner=True)
KEY_CI = Caller(scope="key:1", actions=frozenset({SEND}), name="ci", key_id="1")
ANONYMOUS = Caller(scope=ANONYMOUS_SCOPE, name="anonymous")
BROWSER = Caller(scope=LOCAL_SCOPE, sees_all=True, actions=frozenset({SEND, APPROVE}), name=SESSION_NAME)
KEY_NAMED_AS_A_BROWSER = Caller(scope="key:2", actions=frozenset({SEND}), name=SESSION_NAME)


def caller_of(entry: AgentEntry) -> Caller:
    return Caller(agent_id=entry.agent_id, via_socket=True)


def accepts(
    rule: str, caller: Caller, *, claimed: str = "", agents: tuple[AgentEntry, ...] = (), team: str = "shop"
) -> bool:
    me = AgentEntry(ME.agent_id, ME.agent_type, name=ME.name, port=ME.port, team=team, accepts=rule)
    try:
        SenderRule.of(me).check(Sender(sender_id=claimed) if claimed else None, caller, agents)
    except SenderNotAccepted:
        return False
    return True


EVERYBODY = [A_PERSON, OVER_TCP, ORPHAN, OWNER_WITHOUT_AUTH, KEY_CI, ANONYMOUS, BROWSER, caller_of(OUTSIDER)]


@pytest.mark.parametrize("rule", ["", "anyone", "lead anyone"])
@pytest.mark.parametrize("caller", EVERYBODY)
def test_without_a_rule_and_with_anyone_everybody_is_accepted(rule: str, caller: Caller) -> None:
    assert accepts(rule, caller)


@pytest.mark.parametrize("rule", ["lead", "claude-8100", "synapse-claude-8100", "team", "other lead"])
def test_an_agent_is_accepted_by_its_name_its_port_its_id_or_its_team(rule: str) -> None:
    assert accepts(rule, caller_of(LEAD), agents=(OUTSIDER, LEAD))


@pytest.mark.parametrize("rule", ["person", "claude", "leader", "key.lead", "LEAD"])
def test_no_other_word_accepts_an_agent(rule: str) -> None:
    assert not accepts(rule, caller_of(LEAD), agents=(LEAD,))


def test_a_team_is_not_another_one_and_no_team_is_none() -> None:
    assert not accepts("team", caller_of(OF_OTHER_TEAM), agents=(OF_OTHER_TEAM,))
    assert not accepts("team", caller_of(OUTSIDER), agents=(OUTSIDER,))
    assert not accepts("team", caller_of(OUTSIDER), agents=(OUTSIDER,), team="")


@pytest.mark.parametrize("rule", ["lead", "claude-8100", "synapse-claude-8100", "team"])
def test_an_agent_that_an_agent_started_in_the_name_of_a_member_has_no_rights_of_it(rule: str) -> None:
    assert not accepts(rule, caller_of(IMPOSTOR), agents=(IMPOSTOR,))


@pytest.mark.parametrize("word", ["person", "team"])
def test_an_agent_does_not_gain_by_a_name_that_is_a_word_of_the_rule(word: str) -> None:
    named = AgentEntry("synapse-gemini-8111", "gemini", name=word, port=8111)

    assert not accepts(word, caller_of(named), agents=(named,))
    assert accepts("gemini-8111", caller_of(named), agents=(named,))


def test_an_agent_that_is_not_registered_any_more_is_nobody() -> None:
    assert not accepts("lead team", caller_of(LEAD), agents=(OUTSIDER,))


@pytest.mark.parametrize("caller", [A_PERSON, BROWSER])
def test_a_person_is_accepted_in_a_shell_and_in_the_dashboard(caller: Caller) -> None:
    assert accepts("person", caller)
    assert not accepts("team lead key.dashboard", caller)


def test_a_person_counts_only_at_a_terminal_where_the_settings_demand_one() -> None:
    assert not accepts("person", Caller(via_socket=True, terminal_doubt="it has no terminal"))


def test_a_person_who_names_another_sender_is_nobody() -> None:
    assert accepts("person", A_PERSON, claimed="user")
    assert not accepts("person lead", A_PERSON, claimed="synapse-claude-8100", agents=(LEAD,))


@pytest.mark.parametrize("caller", [OVER_TCP, ORPHAN, OWNER_WITHOUT_AUTH, ANONYMOUS, KEY_NAMED_AS_A_BROWSER])
@pytest.mark.parametrize("claimed", ["", "user", "synapse-claude-8100", "lead"])
def test_what_nobody_proves_is_nobody(caller: Caller, claimed: str) -> None:
    assert not accepts("person team lead key.anonymous key.user", caller, claimed=claimed, agents=(LEAD,))


def test_a_key_of_the_gateway_is_accepted_by_its_name_whatever_its_message_claims() -> None:
    assert accepts("key.ci", KEY_CI, claimed="lead")
    assert not accepts("ci person key.cd", KEY_CI)


def test_a_refusal_says_who_was_refused_and_who_is_accepted() -> None:
    me = AgentEntry("synapse-codex-8120", "codex", name="db", port=8120, team="shop", accepts="lead person team")
    with pytest.raises(SenderNotAccepted) as refused:
        SenderRule.of(me).check(Sender(sender_id="synapse-gemini-8110"), caller_of(OUTSIDER), (OUTSIDER,))

    assert str(refused.value) == (
        "db accepts no messages from gemini-8110, only from lead, a person, agents of its team"
    )


def test_a_key_does_not_learn_the_names_of_other_agents() -> None:
    me = AgentEntry("synapse-codex-8120", "codex", name="db", port=8120, accepts="lead key.cd")
    with pytest.raises(SenderNotAccepted) as refused:
        SenderRule.of(me).check(None, KEY_CI, ())

    assert str(refused.value) == "db accepts no messages from key.ci"
    assert "lead" not in refused.value.hint


def test_the_impostor_is_told_why() -> None:
    me = AgentEntry("synapse-codex-8120", "codex", port=8120, accepts="lead")
    with pytest.raises(SenderNotAccepted) as refused:
        SenderRule.of(me).check(None, caller_of(IMPOSTOR), (IMPOSTOR,))

    assert refused.value.hint == "lead was started by synapse-gemini-8110; only agents that a person started count"


@pytest.mark.parametrize("value", ["lead", "person", "team", "anyone", "key.ci", "codex-8120", "synapse-codex-8120"])
def test_each_kind_of_sender_can_be_accepted(value: str) -> None:
    check_accepts([value], ["lead", "db"])


@pytest.mark.parametrize("value", ["", " ", "a b", "key.", "key.a b", "unverified.lead", "-x", "lead\n", "lé"])
def test_what_is_no_sender_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest):
        check_accepts([value])


def test_a_misspelt_member_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidRequest, match="no member of the team is called 'laed'") as refused:
        check_accepts(["person", "laed"], ["lead", "db"])

    assert refused.value.hint == "did you mean 'lead'?"


def test_without_a_team_any_name_may_be_accepted() -> None:
    check_accepts(["reviewer"])


LEAD_ON_LAPTOP = Caller(scope="machine:laptop", machine="laptop", remote_sender="synapse-claude-8100")
PERSON_ON_LAPTOP = Caller(scope="machine:laptop", machine="laptop", remote_sender="user")
CLAIM_ON_LAPTOP = Caller(scope="machine:laptop", machine="laptop", remote_sender="unverified.synapse-claude-8100")
BROWSER_ON_LAPTOP = replace(BROWSER, machine="laptop")
KEY_ON_LAPTOP = replace(KEY_CI, machine="laptop")
ON_LAPTOP = [LEAD_ON_LAPTOP, PERSON_ON_LAPTOP, CLAIM_ON_LAPTOP, BROWSER_ON_LAPTOP, KEY_ON_LAPTOP]
HERE = "person team lead claude-8100 synapse-claude-8100 key.ci key.dashboard"


def accepts_on_laptop(rule: str, caller: Caller, inbox: str = "lead") -> bool:
    me = AgentEntry(ME.agent_id, ME.agent_type, name=ME.name, port=ME.port, team="shop", accepts=rule)
    try:
        SenderRule.of(me).check(Sender(sender_id="any", inbox=inbox), caller, (LEAD,))
    except SenderNotAccepted:
        return False
    return True


@pytest.mark.parametrize("rule", ["lead@laptop", "claude-8100@laptop", "synapse-claude-8100@laptop", "x @laptop"])
def test_an_agent_on_another_machine_is_accepted_by_its_name_and_machine(rule: str) -> None:
    assert accepts_on_laptop(rule, LEAD_ON_LAPTOP)


@pytest.mark.parametrize(
    "rule", [HERE, "lead@box3 @box3", "claude@laptop", "person@laptop", "team@laptop", "boss@laptop"]
)
def test_no_other_word_accepts_an_agent_on_another_machine(rule: str) -> None:
    assert not accepts_on_laptop(rule, LEAD_ON_LAPTOP)


@pytest.mark.parametrize("word", ["person", "team"])
def test_an_agent_elsewhere_does_not_gain_by_a_name_that_is_a_word_of_the_rule(word: str) -> None:
    assert not accepts_on_laptop(f"{word}@laptop", LEAD_ON_LAPTOP, inbox=word)


def test_a_person_on_another_machine_is_accepted_as_that() -> None:
    assert accepts_on_laptop("person@laptop", PERSON_ON_LAPTOP)
    assert not accepts_on_laptop(f"{HERE} user@laptop person@box3", PERSON_ON_LAPTOP)


@pytest.mark.parametrize("caller", ON_LAPTOP)
def test_a_whole_machine_is_accepted_with_all_its_senders(caller: Caller) -> None:
    assert accepts_on_laptop("@laptop", caller)
    assert not accepts_on_laptop(f"{HERE} @box3", caller)


@pytest.mark.parametrize("caller", [CLAIM_ON_LAPTOP, BROWSER_ON_LAPTOP, KEY_ON_LAPTOP])
def test_what_another_machine_does_not_vouch_for_is_nobody(caller: Caller) -> None:
    assert not accepts_on_laptop("lead@laptop synapse-claude-8100@laptop person@laptop key.ci@laptop", caller)


@pytest.mark.parametrize("value", ["claude@laptop", "@laptop", "person@box-2", "codex-8120@b", f"a@{'m' * 32}"])
def test_senders_of_other_machines_can_be_named_in_a_rule(value: str) -> None:
    check_accepts([value], ("lead",))


@pytest.mark.parametrize("value", ["@", "a@", "a@B", "@-x", "@x-", "a@b@c", "unverified.a@b", f"@{'m' * 33}", "a@b.c"])
def test_what_names_no_machine_is_refused_in_a_rule(value: str) -> None:
    with pytest.raises(InvalidRequest, match="no sender"):
        check_accepts([value])


def test_a_rule_with_machines_is_said_in_words() -> None:
    rule = SenderRule("db", "", ("lead", "lead@laptop", "person@laptop", "@box2", "key.me@example.com"))

    expected = "lead, lead@laptop, a person on laptop, everybody on box2, key.me@example.com"
    assert rule.in_words() == expected
