"""What real CLIs tell of their turns is counted once: also by a host that goes on with the conversation."""

from __future__ import annotations

import os
from typing import Any

import pytest

from synapse.calibration.sandbox import AGENT, recipe_names
from synapse.core.usage import TokenCounts
from tests.real_clis.benches import Bench, bench_for, eventually


def total_of(bench: Bench, *words: str) -> dict[str, Any]:
    total: dict[str, Any] = bench.synapse("usage", "--json", *words).fields["total"]
    return total


def counts_of(bench: Bench, *words: str) -> TokenCounts:
    tokens: dict[str, int] = total_of(bench, *words)["tokens"]
    tokens.pop("total")
    return TokenCounts(**tokens)


def ask(bench: Bench, turn: str) -> None:
    asked = bench.synapse("send", AGENT, f"calibrate:{turn} please", "--response")
    assert asked.code == 0, asked


@pytest.mark.parametrize("profile", recipe_names())
def test_a_conversation_that_goes_on_after_a_restart_is_counted_once(profile: str) -> None:
    with bench_for(profile, os.environ, {}) as bench:
        bench.start()
        eventually(bench.is_ready)
        ask(bench, "one-line:1")
        eventually(lambda: counts_of(bench) == bench.model.usage_of("one-line:1"))
        restarted = bench.synapse("restart", AGENT)
        assert restarted.code == 0, restarted.notices
        eventually(bench.is_ready)
        ask(bench, "one-line:2")

        expected = bench.model.usage_of("one-line:1") + bench.model.usage_of("one-line:2")
        eventually(lambda: counts_of(bench).total >= expected.total)
        bench.synapse("stop", AGENT)
        assert counts_of(bench) == expected
        assert total_of(bench)["requests"] == 2
        # Claude tells money when its session ends, OpenCode at once, the others never.
        assert (total_of(bench)["cost_usd"] is not None) == (profile in ("claude", "opencode"))
