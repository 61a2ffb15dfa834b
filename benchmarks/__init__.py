"""How fast Synapse is, each figure beside its limit or a peer of the same run. `scripts/bench` runs them all."""
