"""How each CLI is made to tell what it does, for one launch, without touching the person's own configuration."""
