"""The dialect of the supervisor contract: many agents behind one address, A2A in its own words."""
