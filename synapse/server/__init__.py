"""HTTP, WebSocket and gRPC servers."""
