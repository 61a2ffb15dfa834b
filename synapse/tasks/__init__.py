"""The tasks of one agent: accepted, queued, run, recorded and replied to. Async, with no I/O of its own."""
