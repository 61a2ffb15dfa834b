"""One adapter for each CLI: switches on its own signals without changing the person's configuration."""
