"""Simulated fleets with crashes, loss, partitions and restored files keep the ten invariants; wrong ones do not.

`python -m tests.fleet.simulation --seeds 10000` runs more of them by hand.
"""

from __future__ import annotations

import os

import pytest

from tests.fleet.simulation.invariants import Broken
from tests.fleet.simulation.mutants import MUTANTS, mutated
from tests.fleet.simulation.world import World

SEEDS = int(os.environ.get("SYNAPSE_FLEET_SEEDS", "200"))
PARTS = 8
MOST_SEEDS = 300
"""Within so many seeds each mutant must fail."""


@pytest.mark.parametrize("part", range(PARTS))
def test_simulated_fleets_keep_the_invariants(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        try:
            World(seed).run()
        except Broken as broken:
            pytest.fail(f"seed {seed}: {broken}")


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_simulator_finds_each_mutant(name: str) -> None:
    with mutated(name):
        assert any(breaks(seed) for seed in range(MOST_SEEDS))


def breaks(seed: int) -> bool:
    try:
        World(seed).run()
    except Broken:
        return True
    return False
