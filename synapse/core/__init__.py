"""Words and rules: pure, standard library only, no I/O."""
