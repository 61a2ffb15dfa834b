"""The dialect on the Unix socket: what A2A has no words for."""
