"""Losses and penalties."""
