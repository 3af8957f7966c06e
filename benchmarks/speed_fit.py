"""A whole private fit on Adult, against a non-private one of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from engine_speed import lbfgs
from speed_lines import Line, alternate, milliseconds
from threadpoolctl import threadpool_limits

import tables
from skdp.estimators import LogisticRegression


def one_hot(table: tables.Table) -> np.ndarray:
    """The dense array that the peer is given ready-made."""
    parts = []
    for name, column in table.schema.columns.items():
        cells = table.X[name]
        if hasattr(column, "levels"):
            parts.append(cells.to_numpy(object)[:, None] == np.array(column.levels))
        else:
            scaled = (cells.to_numpy(float) - column.low) / (column.high - column.low)
            parts.append(np.clip(scaled, 0.0, 1.0)[:, None])
    return np.hstack(parts, dtype=np.float64)


def ours(table: tables.Table, n_threads: int) -> LogisticRegression:
    """Fit as a user would, from the raw frame."""
    model = LogisticRegression(
        epsilon=1.0, delta=1e-6, schema=table.schema, n_threads=n_threads
    )
    return model.fit(table.X, table.y)


def lines(repeats: int) -> Iterator[Line]:
    """Reading, encoding, planning and fitting on our side; fitting alone on theirs."""
    table, _ = tables.split(tables.load("adult"))
    dense = one_hot(table)
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            private, peer = alternate(
                repeats,
                partial(ours, table, n_threads),
                partial(lbfgs, dense, table.y, 1000),
            )
        rows, width = dense.shape
        yield Line(
            what=f"whole fit on Adult ({rows:,} rows), {n_threads} thread(s), against "
            f"scikit-learn's `LogisticRegression` on the one-hot array of {width}",
            ours=milliseconds(private),
            theirs=milliseconds(peer),
            figure=private / peer,
            required=0.5,
            aim=0.2,
        )
