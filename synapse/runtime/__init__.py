"""Where things are built."""
