"""Add up records. Every engine returns the same integers."""
