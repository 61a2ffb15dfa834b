"""Runs a CLI on a pseudo-terminal."""
