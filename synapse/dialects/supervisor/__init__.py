"""The supervisor contract: many agents behind one address."""
