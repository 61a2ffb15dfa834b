"""Does Synapse still understand this CLI? The real program is run against a scripted model, and both are compared."""
