"""The low-level command line of the contract."""
