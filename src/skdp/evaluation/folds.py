"""Divide a table so that a row's part does not depend on other rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from skdp.privacy.randomness import Randomness
from skdp.schema import IntArray, check


class RandomFolds:
    """Folds for cross-validation that draw each row's fold independently.

    This is a scikit-learn splitter, for ``cv=``. scikit-learn's own folds depend on
    other rows: ``KFold`` divides by position, so removing a row moves later rows into
    other folds, and ``StratifiedKFold`` reads all labels.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2. They have about equal numbers of rows.
    random_state : int, optional
        For tests. A seed makes folds a function of positions, as in ``KFold``, so they
        are not private under add-remove.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours, under every relation, and for
    every family of mechanisms of which the j-th reads fold j alone, is μ-GDP and may
    use the releases of the others: all of them together are μ-GDP. A mechanism that
    reads several folds is covered as usual, by adding up the budgets of all mechanisms
    that may read a row.

    *Proof.* Let table T' be T with one row added. The folds of the rows of T have the
    same law in both tables, because draws are independent of the records and of their
    number. Fix these folds and that of the added row. Then one fold differs by one row
    and the others are equal. The mechanism of that fold is μ-GDP, and the others have
    the same law in both tables, given the earlier releases (parallel composition).
    Consider a test of T against T' that even knows the folds f and has false alarm rate
    α_f. It misses with probability at least G_μ(α_f) given f, and on average over f
    at least G_μ(mean of α_f), because G_μ is convex. A row that is replaced or left out
    keeps its fold, so the same holds. ∎

    The number of rows of a fold is as private as the number of rows of the table.

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
        """Draw folds, and yield the positions outside and inside each.

        Parameters
        ----------
        X : table
            Its rows are counted.
        y, groups : ignored
            Part of scikit-learn's interface; groups must be None.
        """
        check(
            groups is None,
            "RandomFolds does not support groups, because it draws a fold for each row "
            "independently.",
        )
        if isinstance(X, dict):
            X = next(iter(X.values()))
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        words = Randomness(self.random_state).words(n_rows)
        fold = (words % np.uint64(self.n_splits)).astype(np.int64)
        for one in range(self.n_splits):
            yield np.flatnonzero(fold != one), np.flatnonzero(fold == one)


def take_rows(table: Any, at: IntArray) -> Any:
    """Return some rows of a table or of a column, or None if it is None."""
    if table is None:
        return table
    if isinstance(table, dict):
        return {name: take_rows(column, at) for name, column in table.items()}
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
        "A search divides the table by rows, so it must be in memory, got a "
        f"{type(table).__name__}. Read it into a frame first.",
    )
    return table[at.tolist()]


def take_weights(weights: Any, at: IntArray, n_rows: int) -> Any:
    """Return the weights of some rows, or the name of the column that holds them."""
    if isinstance(weights, str):
        return weights
    check(
        weights is None or len(weights) == n_rows,
        "sample_weight must have as many rows as the table.",
    )
    return take_rows(weights, at)
