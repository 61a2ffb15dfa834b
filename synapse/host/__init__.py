"""The process that runs one agent."""
