"""Readers of what the CLIs report by hooks, transcripts and servers. Pure."""
