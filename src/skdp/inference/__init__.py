"""Compute standard errors and intervals from released values alone."""
