"""Where tasks and their events are kept."""
