"""The settings, paths and process-wide set-up of a Synapse process."""
