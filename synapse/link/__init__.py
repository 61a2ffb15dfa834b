"""The link: one process per user and machine that connects this machine's agents with those of the fleet."""
