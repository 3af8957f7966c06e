"""A table in memory, divided so that a row's part depends on no other row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from skdp.privacy.randomness import Randomness
from skdp.schema import IntArray, check


class RandomFolds:
    """Folds for cross-validation: each row's fold is drawn for that row alone.

    A scikit-learn splitter, for ``cv=``. scikit-learn's own folds depend on other rows:
    ``KFold`` divides by position, so a row that is removed moves later rows into other
    folds; ``StratifiedKFold`` reads all labels.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2. They have about as many rows each.
    random_state : int, optional
        For tests. A seed makes folds a function of positions, as ``KFold`` does, and
        they are then not private under add-remove.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours, under every relation, and for
    every family of mechanisms of which the j-th reads fold j alone, is μ-GDP and may
    use what the others have released: all of them together are μ-GDP. What reads
    several folds is covered as usual, by adding up the budgets of all that may read a
    row.

    *Proof.* Let table T' be T with one row added. Folds of the rows of T have the same
    law in both tables, because draws are independent and look neither at records nor
    at their number. Fix these folds and that of the added row. Then one fold differs
    by one row and the others are equal: what reads that fold is μ-GDP, what reads
    another does the same in both tables, given what was released before (parallel
    composition). A test of T against T' that is even told the folds f, with false
    alarms α_f, misses at least G_μ(α_f) given f, and in the mean over f at least
    G_μ(mean of α_f), because G_μ is convex. A row that is replaced or left out keeps
    its fold, and the same holds. ∎

    The number of rows of a fold is as private as the number of rows.

    Examples
    --------
    >>> import skdp
    >>> folds = skdp.RandomFolds(3)
    >>> sum(len(test) for train, test in folds.split(range(100)))
    100
    """

    def __init__(self, n_splits: int = 5, *, random_state: int | None = None) -> None:
        check(
            isinstance(n_splits, (int, np.integer)) and n_splits >= 2,
            f"n_splits must be a whole number ≥ 2, got {n_splits!r}.",
        )
        self.n_splits = int(n_splits)
        self.random_state = random_state

    def __repr__(self) -> str:
        return f"RandomFolds(n_splits={self.n_splits})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Draw folds, and yield the positions outside and inside of each.

        Parameters
        ----------
        X : table
            Its rows are counted.
        y, groups : ignored
            For scikit-learn, whose splitters take them; groups must be None.
        """
        check(
            groups is None,
            "RandomFolds draws a fold for each row, so rows of one group may fall in "
            "different folds. Leave out groups.",
        )
        if isinstance(X, dict):
            X = next(iter(X.values()))
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        words = Randomness(self.random_state).words(n_rows)
        fold = (words % np.uint64(self.n_splits)).astype(np.int64)
        for one in range(self.n_splits):
            yield np.flatnonzero(fold != one), np.flatnonzero(fold == one)


def rows_at(table: Any, at: IntArray) -> Any:
    """Some rows of a table or of a column; None is returned as it is."""
    if table is None:
        return table
    if isinstance(table, dict):
        return {name: rows_at(column, at) for name, column in table.items()}
    if isinstance(table, np.ndarray):
        return table[at]
    if hasattr(table, "iloc"):
        return table.iloc[at]
    if hasattr(table, "tocsr"):
        return table.tocsr()[at]
    library = type(table).__module__.partition(".")[0]
    if library == "pyarrow":
        return table.take(at)
    check(
        library == "polars" and hasattr(table, "__getitem__"),
        "A search divides a table by its rows, so that it must be in memory: read it "
        f"into a frame first. Got a {type(table).__name__}.",
    )
    return table[at.tolist()]


def weights_at(weights: Any, at: IntArray, n_rows: int) -> Any:
    """Weights of some rows; the name of a column that holds them stays as it is."""
    if isinstance(weights, str):
        return weights
    check(
        weights is None or len(weights) == n_rows,
        "sample_weight must have as many rows as the table.",
    )
    return rows_at(weights, at)
