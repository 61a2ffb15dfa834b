"""Turns the bytes of a terminal into "the agent has answered". Pure."""
