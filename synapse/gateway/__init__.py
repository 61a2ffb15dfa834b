"""One address for all agents."""
