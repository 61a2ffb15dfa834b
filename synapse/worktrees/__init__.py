"""Git worktrees for agents: makes one per agent, says what is in each, and removes only what nobody can lose."""
