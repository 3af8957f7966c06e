"""Compute sums over encoded records. All engines return the same integers."""
