"""Push notifications: webhooks that are told about tasks."""
