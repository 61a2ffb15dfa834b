"""From bytes to "it has answered": sans-I/O."""
