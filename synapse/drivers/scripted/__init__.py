"""Runs an agent whose behaviour is a TOML file: for tests, demos and conformance."""
