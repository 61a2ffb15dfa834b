"""Parsers for what the CLIs report by hooks and in their transcripts. Pure."""
