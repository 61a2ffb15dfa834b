"""The `synapse` command: a module for each verb, or family of verbs."""
