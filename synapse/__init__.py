"""Synapse: agents that live in terminals, and speak A2A with each other."""

__version__ = "0.1.0"
