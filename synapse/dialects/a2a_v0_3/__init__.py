"""A2A 0.3: JSON-RPC in the words of its schema, REST in those of its protobuf."""
