"""Circles of agents that wait for each other."""

from __future__ import annotations

from synapse.service.waits import cycle


def test_two_agents_that_would_wait_for_each_other_are_named() -> None:
    assert cycle([("claude", "codex")], ("codex", "claude")) == ("codex", "claude", "codex")


def test_a_longer_circle_is_found() -> None:
    waits = [("a", "b"), ("b", "c"), ("x", "y")]

    assert cycle(waits, ("c", "a")) == ("c", "a", "b", "c")


def test_an_agent_that_asks_itself_waits_for_itself() -> None:
    assert cycle([], ("a", "a")) == ("a", "a")


def test_a_chain_without_a_circle_is_fine() -> None:
    assert cycle([("a", "b"), ("b", "c")], ("c", "d")) == ()


def test_a_circle_elsewhere_does_not_concern_a_newcomer() -> None:
    assert cycle([("a", "b"), ("b", "a")], ("c", "a")) == ()
