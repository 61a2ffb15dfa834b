"""How each world says it: pure, and strangers to each other."""
