"""Decides from the bytes of a terminal what its program does, and when it has answered. Pure."""
