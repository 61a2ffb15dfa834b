"""Outbound connections: other agents, webhooks, and the hosts of this machine."""
