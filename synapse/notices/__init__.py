"""Tells a person outside of the terminal that an agent needs them: desktop, webhook, ntfy."""
