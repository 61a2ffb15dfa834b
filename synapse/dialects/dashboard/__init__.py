"""The API of a person's page at a gateway: all agents as rows, what needs a person, and every task."""
