"""The hub API: agents, messages and tasks, with server-sent events and a WebSocket."""
