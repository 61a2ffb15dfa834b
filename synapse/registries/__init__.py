"""Where agents find each other."""
