"""Checks of a privacy record by computations that share no code with its makers."""
