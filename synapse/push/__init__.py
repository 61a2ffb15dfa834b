"""Push notifications: delivers the events of tasks to webhooks."""
