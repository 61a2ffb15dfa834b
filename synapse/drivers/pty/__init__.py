"""A CLI on a pseudo-terminal: started, watched, typed into."""
