"""The host's own API on its Unix socket: what A2A does not cover."""
