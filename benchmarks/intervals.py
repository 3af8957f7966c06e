"""How often 95 % intervals hold the true weights (make bench NAME=coverage).

Each fit draws a new hospital table, whose true weights are known, and fits it by the
defaults under replace-one neighbours. For every coefficient it is counted how often
``coef_ ± 1.96 coef_std_`` holds the truth, and how often the intervals of `summary()`
do, where categories are relative to the mean of their column. Shares are printed as the
mean over coefficients, and as the least and the largest of them. 500 fits know a share
of .95 to ±.01 each.

    python benchmarks/intervals.py [--fits 500] [--only readmitted] [--output DIRECTORY]
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import skdp
from skdp import datasets
from skdp.estimators.standard_errors import maps

#: Target, rows and ε of each line.
CASES = (
    ("readmitted", 20_000, 1.0),
    ("readmitted", 50_000, 1.0),
    ("readmitted", 100_000, 3.0),
    ("cost", 20_000, 1.0),
    ("cost", 50_000, 3.0),
)
MODELS: dict[str, Any] = {
    "readmitted": skdp.LogisticRegression,
    "cost": skdp.LinearRegression,
}
OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "uncertainty"
HEAD = (
    *("target", "rows", "epsilon", "fits", "kind", "coefficients", "coverage"),
    *("least", "least_of", "largest", "mean_std_over_rmse", "share_of_noise"),
)


def table(target: str, n_rows: int, seed: int) -> tuple[Any, Any]:
    """Return a table and its description; a cost is given on its log scale."""
    data = datasets.make_hospital(n_rows, seed=seed, target=target)
    columns, schema = dict(data.columns), data.schema
    if target == "cost":
        top = data.schema.target_column.high
        columns[target] = 2.0 * np.log1p(columns[target]) / math.log1p(top) - 1.0
        schema = replace(schema, target=(target, skdp.Numeric(-1.0, 1.0)))
    return replace(data, columns=columns, schema=schema), data.weights


def one(case: tuple[str, int, float, int]) -> Any:
    """Errors, privacy's standard errors and all of them, for coef_ and summary()."""
    target, n_rows, epsilon, seed = case
    data, truth = table(target, n_rows, seed)
    model = MODELS[target](epsilon=epsilon, schema=data.schema, n_threads=1)
    model.fit(data.columns)
    found = model._standard_errors()
    shift = getattr(model, "_target_units", lambda: (0.0, 1.0))()[0]
    plain, centred = maps(model)
    coef = np.append(np.ravel(model.coef_), model.intercept_)
    true, contrasts = (m @ truth[:, 0] for m in (plain, centred))
    true[-1] += shift
    contrasts[-1] += shift
    return np.array(
        [
            [coef - true, found.noise_std, found.std],
            [found.effects - contrasts, found.effects_noise_std, found.effects_std],
        ]
    )


def lines(case: tuple[str, int, float], fits: int, pool: Any) -> Iterator[list[Any]]:
    """Results of a case: one line for coef_, one for summary()."""
    # Seeds of tables no other case has; the noise of a fit is never seeded.
    first = 1_000_000 * (1 + CASES.index(case) if case in CASES else 99)
    results = np.array(
        list(pool.map(one, [(*case, first + i) for i in range(fits)], chunksize=5))
    )
    labels = datasets.make_hospital(1, target=case[0]).schema.layout().labels
    for kind, errors in zip(
        ("coef_", "summary()"), results.swapaxes(0, 1), strict=True
    ):
        error, noise, std = errors.swapaxes(0, 1)
        share = (np.abs(error) <= 1.96 * std).mean(axis=0)
        rmse = np.sqrt((error**2).mean(axis=0))
        yield [
            *case[:2],
            f"{case[2]:g}",
            fits,
            kind,
            len(share),
            f"{share.mean():.4f}",
            f"{share.min():.3f}",
            labels[int(share.argmin())],
            f"{share.max():.3f}",
            f"{(std.mean(axis=0) / rmse).mean():.3f}",
            f"{((noise / std) ** 2).mean():.3f}",
        ]


def main() -> None:
    """Run all cases, print a table and write it."""
    parser = argparse.ArgumentParser(description="Coverage of 95 % intervals.")
    parser.add_argument("--fits", type=int, default=500)
    parser.add_argument("--only", choices=sorted(MODELS))
    parser.add_argument("--rows", type=int, help="with --only: one case")
    parser.add_argument("--epsilon", type=float, default=1.0, help="with --rows")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    cases = [c for c in CASES if given.only in (None, c[0])]
    if given.rows:
        cases = [(given.only or "readmitted", given.rows, given.epsilon)]
    print("  ".join(HEAD))
    written = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for case in cases:
            started = time.perf_counter()
            for line in lines(case, given.fits, pool):
                written.append(line)
                print("  ".join(str(cell) for cell in line), flush=True)
            print(f"# {time.perf_counter() - started:.0f} s", flush=True)
    given.output.mkdir(parents=True, exist_ok=True)
    with (given.output / "coverage.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *written])


if __name__ == "__main__":
    main()
