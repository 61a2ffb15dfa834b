"""The overview of all agents in a terminal: `synapse top`."""
