"""The short form of a chaos run over three machines (`scripts/chaos --fleet` is the long one)."""

from __future__ import annotations

import os
import random

import pytest

from tests.fleet.chaos.campaign import ACCIDENTS, open_campaign

pytestmark = pytest.mark.integration

MESSAGES = 300


@pytest.mark.timeout(420)
def test_whatever_is_killed_or_cut_off_nothing_is_lost_twice_or_told_wrong() -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    with open_campaign(seed, MESSAGES, every=3.0) as campaign:
        verdict = campaign.run()

    assert verdict.complaints == [], f"CHAOS_SEED={seed}\n{campaign.report(verdict)}"
    assert verdict.accepted + campaign.unsent > MESSAGES * 0.95
    assert verdict.received > MESSAGES / 2
    assert set(campaign.accidents) >= set(ACCIDENTS)
