"""Runs the simulator: `python -m tests.fleet.simulation --seeds 10000 [--start S] [--mutant NAME]`."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter

from tests.fleet.simulation.invariants import Broken
from tests.fleet.simulation.mutants import MUTANTS, mutated
from tests.fleet.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="")
    parser.add_argument("--all", action="store_true", help="go on after a seed that fails")
    chosen = parser.parse_args()
    counts, bad = Counter[str](), list[int]()
    with mutated(chosen.mutant):
        for seed in range(chosen.start, chosen.start + chosen.seeds):
            world = World(seed)
            try:
                world.run()
            except Broken as error:
                bad.append(seed)
                sys.stdout.write(f"seed {seed}: {error}\n")
            except Exception:  # noqa: BLE001 - a seed is named whatever goes wrong in it
                bad.append(seed)
                sys.stdout.write(f"seed {seed}: {traceback.format_exc()}\n")
            counts.update(world.counts)
            if bad and not chosen.all:
                break
    said = ", ".join(f"{number} {name}" for name, number in counts.items())
    sys.stdout.write(f"{chosen.seeds} seeds from {chosen.start}: {said}\n")
    sys.stdout.write(f"{'BAD' if bad else 'good'}: {len(bad)} seeds broke an invariant\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
