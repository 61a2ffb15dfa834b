"""Values, rules and ports. Pure: standard library only, no I/O."""
