"""skdp.discover: make a schema from facts that are released with noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from skdp.estimators.opening import (
    NOTHING_FOUND,
    PrivacyRequest,
    check_name,
    reserve_budget,
    type_labels,
)
from skdp.estimators.progress import show_work
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema
from skdp.schema.validation import list_values

#: Share of δ that is spent on categories. The rest is for Gaussian noise.
LEVELS_SHARE = 0.5
#: A placeholder for a categorical column in which no category was found.
EMPTY = Categorical([NOTHING_FOUND])
#: A range that does not contain 0 is extended to 0 if the size of its nearer end is at
#: most this share of the size of the other end.
NEAR_ZERO = 0.25
#: First digits of readable numbers.
DIGITS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """A schema that was found privately.

    Attributes
    ----------
    schema : Schema
        The schema, which may be edited, printed and saved.
    privacy_ : PrivacyRecord
        The budget that was spent.
    left_out : tuple of str
        Categorical columns in which noise hid every category. These columns are not in
        the schema.
    """

    schema: Schema
    privacy_: PrivacyRecord
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [str(self.schema)]
        if self.left_out:
            lines.append(
                f"Left out, because no category was found: {', '.join(self.left_out)}."
            )
        return "\n".join([*lines, str(self.privacy_)])


def discover(
    table: Any,
    *,
    epsilon: float,
    delta: float | None = None,
    target: str | None = None,
    categorical: Sequence[str] = (),
    unit: Any = None,
    neighbours: str = "add-remove",
    ledger: Any = None,
    engine: str = "auto",
    random_state: int | None = None,
    verbose: int = 0,
) -> Discovery:
    """Find the ranges and categories of a table's columns within a privacy budget.

    Parameters
    ----------
    table : table or path
        A table whose columns have names, as for ``fit``. CSV files are accepted.
    epsilon, delta : float
        The budget. δ has the same default as in estimators.
    target : str, optional
        The column to predict, which becomes the target of the schema.
    categorical : sequence of str
        Numeric columns whose numbers are categories. This list must be public. Include
        the target if it is numeric and a classifier will predict it.
    unit : column, str or list of str, optional
        The ids of persons, as for ``fit``. Privacy then protects persons, and the
        schema names the unit. Columns of ids are left out.
    neighbours : {"add-remove", "zero-out", "replace-one"}
        As for estimators.
    ledger : Ledger or absolute path, optional
        The ledger of the table. It is charged before a record is read.
    engine : str
        As for estimators. With "dask", the workers of a cluster read files.
    random_state : int, optional
        A seed, for tests. A seeded discovery claims no privacy.
    verbose : int
        Whether to show progress on standard error, or in a notebook.

    Returns
    -------
    Discovery
        The schema and the privacy record.

    Notes
    -----
    Ranges come from a noisy histogram of magnitudes. They are rounded outwards to
    readable numbers, and a range that ends near 0 is extended to 0. Categories are
    found if enough rows have them. A categorical column is left out if none of its
    categories are found. Public knowledge is better than noisy facts. If you
    have any, edit the schema before you pass it to ``fit``.

    **Guarantee.** For all tables that are neighbours, the schema is post-processing of
    releases charged to ``privacy_``, which is (epsilon, delta)-private.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> ages = np.random.default_rng(0).uniform(18, 80, 10_000)
    >>> found = skdp.discover({"age": ages}, epsilon=0.5, random_state=0)
    >>> print(found.schema)
    column  kind     values
    -------------------------
    age     numeric  0 to 100
    """
    asked = PrivacyRequest(
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        ledger=ledger,
        random_state=random_state,
    )
    opened, _ = asked.open(
        table,
        None,
        None,
        unit,
        schema=None,
        categorical=list_values(categorical, "categorical"),
        engine=engine,
        n_threads=None,
    )
    if target is not None:
        check_name(target, [*opened.columns])
    opened.check_once(counts=neighbours != "add-remove")
    rows = asked.count_public(opened, verbose)
    share = LEVELS_SHARE if opened.infers_levels else 0.0
    record = asked.open_record(rows, opened.unit_name, opened.assumptions, share)
    noise = Randomness(random_state)
    query = "discovery of a schema"
    with (
        reserve_budget(record, asked.ledger, query=query, described=opened),
        show_work("discovering", verbose),
    ):
        found = opened.infer_schema(record, 1.0, noise, LEVELS_SHARE).columns
    kept = {name: _make_readable(column) for name, column in found.items()}
    own: Any = None if target is None else (target, kept.pop(target))
    if own is not None and isinstance(own[1], Categorical):
        own = target, type_labels(own[1])
    empty = tuple(name for name, column in kept.items() if column == EMPTY)
    kept = {name: column for name, column in kept.items() if name not in empty}
    made = Schema(kept, target=own, unit=opened.unit)
    return Discovery(schema=made, privacy_=record, left_out=empty)


def _make_readable(column: Any) -> Any:
    """Return a column whose range is rounded outwards to readable numbers."""
    if not isinstance(column, Numeric):
        return column
    # Adding 0 turns -0 into 0.
    low, high = round_down(column.low) + 0.0, 0.0 - round_down(-column.high)
    if 0 < low <= NEAR_ZERO * high:
        low = 0.0
    elif 0 > high >= NEAR_ZERO * low:
        high = 0.0
    return replace(column, low=low, high=high)


def round_down(value: float) -> float:
    """Return the largest readable number that is at most `value`.

    Readable numbers are 0 and numbers with few digits, such as 150 or -0.25.
    """
    if value == 0 or not math.isfinite(value):
        return value
    power = 10.0 ** math.floor(math.log10(abs(value)))
    steps = [digit * power for digit in DIGITS]
    if value > 0:
        found = max((step for step in steps if step <= value), default=value)
    else:
        found = -min((step for step in steps if step >= -value), default=-value)
    return float(f"{found:.3g}")
