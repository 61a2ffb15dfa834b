"""Agents elsewhere, run like any other: they are sent messages over A2A."""
