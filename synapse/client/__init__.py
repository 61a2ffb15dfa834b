"""A blocking client for running hosts, for short-lived commands. Standard library only."""
