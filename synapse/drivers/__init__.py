"""What runs an agent."""
