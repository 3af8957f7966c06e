"""Electricity: whether its price goes up."""

from tables import Table
from tables import load as read

NAME = "electricity"


def load() -> Table:
    """Read all rows; raises FileNotFoundError where the file is absent."""
    return read("electricity")
