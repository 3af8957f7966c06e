"""How fast the compiled engine adds up, against scikit-learn in the same process.

    python benchmarks/engine_speed.py [--rows 1000000] [--columns 100] [--repeats 7]

The two sides take turns and medians are compared, so that a busy machine slows both.
Everything is synthetic; no number here depends on a private table.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from speed_lines import alternate
from threadpoolctl import threadpool_limits

from skdp.descent.matrix import Matrix
from skdp.descent.plan import Plan, run
from skdp.descent.samplings import Full
from skdp.engines.compiled import CompiledEngine
from skdp.models import losses
from skdp.privacy.encoding import Batch, Chunk, Coded, Records, encode
from skdp.privacy.grid import FEATURE_ONE, WeightGrid
from skdp.privacy.queries import Slopes
from skdp.schema import Categorical, Numeric, Schema

#: Levels of the categories of a census table, beside five numbers: d = 109.
LEVELS = (9, 16, 7, 15, 6, 2, 48)
CENSUS_ROWS = 39_073


def numbers(n_rows: int, n_columns: int) -> tuple[np.ndarray, Records]:
    """A table of numbers: dense float64 for the peer, int16 columns for us."""
    rng = np.random.default_rng(0)
    columns = {f"x{j}": Numeric(0.0, 1.0) for j in range(n_columns)}
    layout = Schema(columns, target=Categorical([0, 1])).layout()
    stored = rng.integers(0, FEATURE_ONE + 1, (n_columns, n_rows), dtype=np.int16)
    dense = np.ascontiguousarray(stored.T / FEATURE_ONE)
    margin = (dense - 0.5) @ rng.normal(size=n_columns)
    target = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-margin))).astype(np.uint8)
    parts = (*(column[:, None] for column in stored), np.empty((n_rows, 0), np.int16))
    chunk = Chunk(parts=parts, target=target, weight=np.ones(n_rows, np.float32))
    return dense, Records(layout=layout, chunks=(chunk,))


def census() -> tuple[np.ndarray, Records]:
    """Five numbers and seven categories: one-hot for the peer, codes for us."""
    rng, n = np.random.default_rng(1), CENSUS_ROWS
    numeric = rng.random((n, 5)) ** 2
    codes = [rng.integers(0, k, n) for k in LEVELS]
    one_hot = [np.eye(k)[c] for k, c in zip(LEVELS, codes, strict=True)]
    dense = np.hstack([numeric, *one_hot])
    margin = dense @ rng.normal(size=dense.shape[1])
    target = rng.random(n) < 1.0 / (1.0 + np.exp(-margin))
    columns = {
        **{f"x{j}": Numeric(0.0, 1.0) for j in range(5)},
        **{f"c{j}": Categorical(range(k)) for j, k in enumerate(LEVELS)},
    }
    cells = {
        **{f"x{j}": numeric[:, j] for j in range(5)},
        **{
            f"c{j}": Coded(c, range(k))
            for j, (k, c) in enumerate(zip(LEVELS, codes, strict=True))
        },
    }
    batch = Batch(columns=cells, target=Coded(target.astype(np.intp), [0, 1]))
    schema = Schema(columns, target=Categorical([0, 1]))
    return dense, encode([batch], schema)


def stepper(records: Records, at: np.ndarray, n_threads: int) -> Callable[[], object]:
    """Steps on the coordinates `at`, which all moved since the last one."""
    engine, slopes = CompiledEngine(records, n_threads), Slopes(loss=losses.Logistic())
    rng, grid = np.random.default_rng(2), WeightGrid.of(records.layout)
    weights = np.zeros((records.layout.n_features, 1))

    def step() -> object:
        weights[at] = rng.normal(0.0, 0.1, (len(at), 1))
        return engine.gradient(grid.units(weights), at, slopes)

    return step


def lbfgs(dense: np.ndarray, target: np.ndarray, max_iter: int) -> LogisticRegression:
    """Fit the peer, whether or not it converges."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(max_iter=max_iter).fit(dense, target)


def full_passes(n_rows: int, n_columns: int, repeats: int) -> None:
    """One pass over all rows and columns, against one iteration of lbfgs."""
    dense, records = numbers(n_rows, n_columns)
    target, iterations = records.chunks[0].target, 5
    at = np.arange(records.layout.n_features)
    ours: dict[int, float] = {}
    print(f"Full logistic pass, {n_rows:,} x {n_columns} numbers")
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            ours[n_threads], peer = alternate(
                repeats,
                stepper(records, at, n_threads),
                partial(lbfgs, dense, target, iterations),
            )
        ratio = ours[n_threads] * iterations / peer
        print(
            f"  {n_threads} thread(s): {1e3 * ours[n_threads]:.1f} ms, lbfgs iteration "
            f"{1e3 * peer / iterations:.1f} ms: ratio {ratio:.3f}"
        )
    one, two = alternate(repeats, stepper(records, at, 1), stepper(records, at, 2))
    print(f"  2 threads against 1, in turn: {one / two:.2f} times as fast")
    (column,) = alternate(repeats, stepper(records, at[:1], 1))
    print(f"  step on one column: {1e9 * column / n_rows:.2f} ns a row, 1 thread")


def census_fits(repeats: int) -> None:
    """Forty steps in the matrix geometry, against a converged lbfgs."""
    dense, records = census()
    layout, n_rows = records.layout, CENSUS_ROWS
    plan = Plan(
        layout=layout,
        loss=losses.Logistic(),
        n_rows=n_rows,
        epsilon=1.0,
        delta=1e-6,
        sampling=Full(layout.n_features),
        geometry=Matrix(radius=4.0, floor=0.01),
        n_steps=40,
    )
    print(f"Census-like table, {n_rows:,} rows, d = {layout.n_features}")
    target = records.chunks[0].target
    for n_threads in (1, 2):

        def engine(records: Records, n: int = n_threads) -> CompiledEngine:
            return CompiledEngine(records, n)

        with threadpool_limits(n_threads):
            ours, peer = alternate(
                repeats,
                partial(run, plan, records, engine=engine, random_state=3),
                partial(lbfgs, dense, target, 1000),
            )
        print(
            f"  {n_threads} thread(s): {1e3 * ours:.0f} ms for 40 private steps, "
            f"lbfgs fit {1e3 * peer:.0f} ms: ratio {ours / peer:.3f}"
        )
    engine_ = CompiledEngine(records, 1)
    at = np.arange(layout.n_features)
    block = layout.groups[6].coordinates
    gram, full, code = alternate(
        repeats, engine_.gram, stepper(records, at, 1), stepper(records, block, 1)
    )
    print(
        f"  Gram matrix {1e3 * gram:.1f} ms; full step {1e3 * full:.2f} ms; "
        f"step on a category {1e9 * code / n_rows:.2f} ns a row (1 thread)"
    )


def main() -> None:
    """Print all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    census_fits(options.repeats)
    full_passes(options.rows, options.columns, options.repeats)


if __name__ == "__main__":
    main()
