"""Adult: income above 50,000 dollars."""

from tables import Table
from tables import load as read

NAME = "adult"


def load() -> Table:
    """Read all rows; raises FileNotFoundError where the file is absent."""
    return read("adult")
