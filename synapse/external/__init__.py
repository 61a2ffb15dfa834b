"""Agents on other machines, reached over A2A."""
