"""Engines add up records; every engine returns the same integers."""
