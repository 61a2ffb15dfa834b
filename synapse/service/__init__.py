"""What can be asked: async, but owns no wire, socket or disk."""
