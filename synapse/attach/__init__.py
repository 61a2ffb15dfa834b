"""A person's terminal on an agent."""
