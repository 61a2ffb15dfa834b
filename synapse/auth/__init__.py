"""Who may call, and what each caller may do."""
