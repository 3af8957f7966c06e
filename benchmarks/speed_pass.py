"""One pass over a large table of numbers, and what a second thread gives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from engine_speed import lbfgs, numbers, stepper
from speed_lines import Line, alternate, load, milliseconds
from threadpoolctl import threadpool_limits

#: Iterations of two fits of the peer: their difference holds no set-up.
FEW, MORE = 2, 7


def lines(
    repeats: int, n_rows: int = 1_000_000, n_columns: int = 100
) -> Iterator[Line]:
    """A full gradient, all weights having moved, against an iteration of lbfgs."""
    dense, records = numbers(n_rows, n_columns)
    target = records.chunks[0].target
    at = np.arange(records.layout.n_features)
    size = f"{n_rows:,} × {n_columns} numbers"
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            ours, few, more = alternate(
                repeats,
                stepper(records, at, n_threads),
                partial(lbfgs, dense, target, FEW),
                partial(lbfgs, dense, target, MORE),
            )
        peer = (more - few) / (MORE - FEW)
        yield Line(
            what=f"a full pass over {size}, {n_threads} thread(s), against an "
            "iteration of scikit-learn's lbfgs",
            ours=milliseconds(ours),
            theirs=milliseconds(peer),
            figure=ours / peer,
            required=0.5,
            aim=0.2,
        )
    del dense
    one, two = alternate(3 * repeats, stepper(records, at, 1), stepper(records, at, 2))
    yield Line(
        what=f"a full pass over {size}, 2 threads against 1 ({load()})",
        ours=milliseconds(two),
        theirs=milliseconds(one),
        figure=one / two,
        required=1.6,
        more=True,
    )
