"""Teams: agents that a file names, brought up, kept running and taken down together."""
