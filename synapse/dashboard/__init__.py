"""Static files of the dashboard."""
