"""The dialect of the hub contract: agents, messages and tasks, with server-sent events and a WebSocket."""
