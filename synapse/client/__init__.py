"""How a short-lived command asks a running host. Standard library only."""
