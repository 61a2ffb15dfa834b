"""A2A 1.0, as JSON-RPC and as REST."""
