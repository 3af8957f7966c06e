"""descent."""
