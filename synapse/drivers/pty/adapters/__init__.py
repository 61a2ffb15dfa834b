"""What each CLI needs so that it reports its own state, without changing the person's configuration."""
