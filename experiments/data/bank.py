"""Bank: a customer who takes a deposit."""

from tables import Table
from tables import load as read

NAME = "bank"


def load() -> Table:
    """Read all rows; raises FileNotFoundError where the file is absent."""
    return read("bank")
