"""Divide a table into folds, drawing a fold for each row or person independently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from skdp.estimators.opening import OpenedTable
from skdp.privacy.persons import SomePersons, find_buckets
from skdp.privacy.randomness import Randomness
from skdp.schema import IntArray, check, check_integer
from skdp.tables import arrays, readers
from skdp.tables.ids import Ids, find_ids
from skdp.tables.placed import PlacedColumn, PlacedTable


class RandomFolds:
    """A cross-validation splitter that draws each row's fold independently.

    Pass it to scikit-learn as ``cv=``. In scikit-learn's own splitters the fold of a
    row depends on other rows. ``KFold`` divides by position, so removing a row moves
    later rows into other folds. ``StratifiedKFold`` reads the labels of all rows.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2. All folds have about the same number of rows.
    random_state : int, optional
        A seed, for tests. With a seed, the fold of a row depends on its position, as in
        ``KFold``, so the folds are not private under add-remove.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours, under every relation, and for
    every family of μ-GDP mechanisms in which the j-th mechanism reads only fold j, all
    mechanisms of the family together are μ-GDP. A mechanism may use the releases of the
    others. If a mechanism reads several folds, the usual rule applies: add up the
    budgets of all mechanisms that may read a row.

    *Proof.* Let table T' be T with one row added. The folds of the rows of T have the
    same law in both tables, because draws are independent of the records and of their
    number. Fix these folds and the fold of the added row. Then this last fold differs
    by one row, and all other folds are equal. The mechanism that reads the fold that
    differs is μ-GDP. All other mechanisms have the same law in both tables, given the
    earlier releases (parallel composition). Consider a test of T against T' that even
    knows the folds f and has false alarm rate α_f. Given f, the test misses with
    probability at least G_μ(α_f), where G_μ is the trade-off function of μ-GDP. On
    average over f, it misses with probability at least G_μ(mean of α_f), because G_μ is
    convex. A row that is replaced or left out keeps its fold, so the same argument
    holds. ∎

    The number of rows in a fold needs the same protection as the number of rows in the
    table.

    If rows belong to persons, pass their ids as ``groups``. The fold of a person is a
    keyed hash (BLAKE2b) of the person's id, with a key that is drawn for each split.
    The guarantee then holds with persons in place of rows. For a person who is added,
    removed or left out, the proof holds for every key, because the folds of all others
    are the same in both tables. For a person who is replaced by another, the new id
    must have the same chances as the old one, given the folds of all others. This
    holds if the hash is a pseudorandom function of the id, as it is designed to be.

    Examples
    --------
    >>> import skdp
    >>> folds = skdp.RandomFolds(3)
    >>> sum(len(test) for train, test in folds.split(range(100)))
    100
    """

    def __init__(self, n_splits: int = 5, *, random_state: int | None = None) -> None:
        self.n_splits = check_integer(n_splits, "n_splits", low=2)
        self.random_state = random_state

    def __repr__(self) -> str:
        return f"RandomFolds(n_splits={self.n_splits})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Draw folds, and yield the positions of rows outside and inside each fold.

        Parameters
        ----------
        X : table
            The table to divide. Only its number of rows is used.
        y : ignored
            It is part of scikit-learn's interface.
        groups : column, optional
            The ids of persons. All rows of a person are in one fold. The fold of a row
            without an id is drawn separately.
        """
        if isinstance(X, dict):
            X = next(iter(X.values()))
        check(
            readers.is_in_memory(X),
            "Folds are positions of rows, so the table must be in memory, got "
            f"{type(X).__module__.partition('.')[0]}.{type(X).__name__}. Read it into "
            "a frame first.",
        )
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        noise = Randomness(self.random_state)
        key = b"" if groups is None else _draw_key(noise)
        fold = self._draw(noise, n_rows)
        if groups is not None:
            cells = readers.read_column(groups, "groups")
            check(
                arrays.kind_of(cells) != "float",
                "groups must not be floating-point numbers, because different ids may "
                "have become one number. Pass the ids as text or integers.",
            )
            ids = find_ids([cells])
            check(len(ids.codes) == n_rows, "groups must have as many rows as X.")
            known = ids.codes >= 0
            own = find_buckets(ids.values, self.n_splits, key)
            fold[known] = own[ids.codes[known]]
        for one in range(self.n_splits):
            yield np.flatnonzero(fold != one), np.flatnonzero(fold == one)

    def _draw(self, noise: Randomness, size: int) -> IntArray:
        """Draw `size` folds independently of one another."""
        words = noise.words(size) % np.uint64(self.n_splits)
        return np.asarray(words.astype(np.int64))


def _draw_key(noise: Randomness) -> bytes:
    return noise.words(4).tobytes()


def split_persons(ids: Ids, folds: RandomFolds) -> tuple[Ids, Ids]:
    """Draw folds of persons, and return the ids outside and inside the first fold.

    No id is read here. Each process that holds rows finds out for itself which rows
    belong to these persons, so the rows may be in any process.
    """
    key = _draw_key(Randomness(folds.random_state))
    parts = [SomePersons(key, folds.n_splits, 0, inside) for inside in (False, True)]
    return ids.choose(parts[0]), ids.choose(parts[1])


def divide_table(
    opened: OpenedTable, folds: RandomFolds
) -> tuple[tuple[Any, Any, Any, Ids | None], tuple[Any, Any, Ids | None], int | None]:
    """Divide a table into a part that fits models and a part that scores them.

    Return the table, target, weights and ids of the first part, the table, target and
    ids of the second part, and the number of rows in the second part.

    If rows belong to persons, both parts are the whole table, and their ids say which
    persons to use. Then the number of rows is None.
    """
    table, y, weights = opened.table, opened.y, opened.weights
    if y is None and opened.schema is not None:
        y = opened.schema.target_name  # it may have been passed as y
    if opened.ids is not None:
        others, held_out = split_persons(opened.ids, folds)
        return (table, y, weights, others), (table, y, held_out), None
    check(
        opened.source.ordered,
        "A search without a unit divides the table by the positions of its rows, but "
        "the rows of a query or of a Dask data frame have no fixed order. Name a unit, "
        "or write the table to a file and pass its path.",
    )
    n_rows = opened.count_records()  # only decides how many folds are drawn
    kept, out = next(folds.split(range(n_rows)))
    own = take_weights(weights, kept, n_rows)
    targets = [y if isinstance(y, str) else take_rows(y, at) for at in (kept, out)]
    fit_part = take_rows(table, kept), targets[0], own, None
    return fit_part, (take_rows(table, out), targets[1], None), len(out)


def take_rows(table: Any, at: IntArray) -> Any:
    """Return the rows at the positions `at`, or None if `table` is None.

    `table` may also be a single column.
    """
    if table is None or isinstance(table, PlacedColumn):  # its table divides it
        return table
    if isinstance(table, PlacedTable):
        return table.take(at)
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
        "A search divides the table by rows, so the table must be in memory, got a "
        f"{type(table).__name__}. Read the table into a frame first.",
    )
    return table[at.tolist()]


def take_weights(weights: Any, at: IntArray, n_rows: int) -> Any:
    """Return the weights of the rows at the positions `at`.

    If `weights` is the name of the column that holds the weights, return the name.
    """
    if isinstance(weights, (str, PlacedColumn)):
        return weights
    check(
        weights is None or len(weights) == n_rows,
        "sample_weight must have as many rows as the table.",
    )
    return take_rows(weights, at)
