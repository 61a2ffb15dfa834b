"""An agent whose behaviour is a file: for tests, demos and conformance."""
