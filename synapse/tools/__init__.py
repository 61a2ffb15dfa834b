"""The command-line tools that the contract names."""
