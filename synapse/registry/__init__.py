"""The agents that run on this machine."""
