"""Wire formats. Pure, and independent of each other."""
