"""Bike: bicycles rented in an hour."""

from tables import Table
from tables import load as read

NAME = "bike"


def load() -> Table:
    """Read all rows; raises FileNotFoundError where the file is absent."""
    return read("bike")
