"""Check the options of a fit that protects persons, each of whom may have many rows."""

from __future__ import annotations

from typing import Any

from skdp.estimators.other_solvers import OWN
from skdp.privacy.persons import RowCounts
from skdp.schema import check, name_record


def assume_given_count(n_rows: Any, neighbours: str, unit: Any) -> tuple[str, ...]:
    """Return the assumption that the given number of rows or persons is public.

    It is made only under add-remove, and only if `n_rows` is given.
    """
    given = neighbours == "add-remove" and n_rows is not None
    return (f"The number of {name_record(unit)}s given is public.",) if given else ()


def check_unit(
    unit: Any, *, solver: str = OWN, max_rows_per_unit: int = 1, neighbours: str
) -> None:
    """Refuse options under which a person could count as more than one record."""
    if unit is None and max_rows_per_unit == 1:
        return
    RowCounts(max_rows_per_unit)  # refuses what is not an integer
    check(
        max_rows_per_unit == 1 or unit is not None,
        "max_rows_per_unit requires a unit. Name it in the schema, or pass unit=.",
    )
    check(
        max_rows_per_unit == 1 or neighbours == "add-remove",
        f"max_rows_per_unit > 1 requires neighbours='add-remove', got {neighbours!r}. "
        "The other relations need a public number of records, but max_rows_per_unit "
        "makes it depend on the number of rows of each person.",
    )
    if unit is None or solver == OWN:
        return
    from skdp.solvers import SOLVERS

    known = [OWN, *(name for name, entry in SOLVERS.items() if entry.persons)]
    check(
        solver in known or solver not in SOLVERS,
        f"solver={solver!r} bounds the influence of one row, not of one person. With a "
        f"unit, use one of {known}.",
    )


def count_given(n_rows: int | None, unit: Any, max_rows_per_unit: int) -> int | None:
    """Return the number of records that the parameter `n_rows` stands for.

    Without a unit, each row is a record. With a unit, `n_rows` is the number of
    persons, and each person is a record. But if `max_rows_per_unit` is above 1,
    `n_rows` is the number of rows, and each row is 1/max_rows_per_unit of a record.
    """
    if n_rows is None or unit is None:
        return n_rows
    return max(1, round(n_rows / max_rows_per_unit))
