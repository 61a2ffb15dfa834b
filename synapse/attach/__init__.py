"""People at an agent's terminal."""
