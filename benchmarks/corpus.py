"""Defaults on tables that chose no constant: a constant, lines, curves and pairs.

Every table of `corpus_tables.py` is divided into five folds, again and again. A seed is
one fold and the noise of the fits to the other four. What is measured on the fold is
log-loss for classes, R² for numbers and the share of the Poisson deviance that is
explained for counts. Fits have defaults, ranges as a person would write them and δ =
1e-6. Each fit is written down at once, and what was measured before is not repeated.

    make bench NAME=corpus                        # all tables, needs the extra `corpus`
    make bench NAME="corpus --export tables"      # write them for other machines
    python benchmarks/corpus.py --from tables --jobs 16 --output corpus.csv
    python benchmarks/corpus.py --half choose --limit 6 --seeds 2
    python benchmarks/corpus.py --check           # does every table load and fit?

The page is written beside the file of fits, docs/evidence/corpus.csv if no other is
named. Rules and constants may be chosen by ``--half choose`` alone.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from corpus_report import write_page
from corpus_tables import HALVES, Task, export, load, read_tasks
from threadpoolctl import threadpool_limits

from skdp.estimators import (
    AdditiveClassifier,
    AdditiveRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
)
from skdp.privacy.accountant import gdp_mu
from tables import ROOT, Table

EPSILONS = (0.3, 1.0, 3.0)
FOLDS = 5
DELTA = 1e-6
OUT = ROOT / "docs" / "evidence" / "corpus.csv"
LINES = {
    "class": LogisticRegression,
    "number": LinearRegression,
    "count": PoissonRegressor,
}
METHODS = ("line", "additive")
#: Without noise, with noise for the range of the rows, and for the range of the schema.
CONSTANTS = ("mean", "constant", "private constant")
FIELDS = ["table", "kind", "half", "rows", "columns", "epsilon", "seed"]
FIELDS += ["method", "score", "cpu"]
#: Predicted chances and rates are at least this.
LEAST = 1e-12


def divide(table: Table, seed: int) -> tuple[Table, Table]:
    """Return four folds to fit and one to predict."""
    order = np.random.RandomState(seed // FOLDS).permutation(len(table.y))
    held_out = np.zeros(len(table.y), dtype=bool)
    held_out[order[seed % FOLDS :: FOLDS]] = True
    train, test = (
        Table(table.X[at].reset_index(drop=True), table.y[at], table.schema)
        for at in (~held_out, held_out)
    )
    return train, test


def fit(method: str, kind: str, train: Table, epsilon: float, seed: int) -> Any:
    """Fit a default model."""
    given: dict[str, Any] = {"schema": train.schema, "delta": DELTA, "n_threads": 1}
    given |= {"epsilon": epsilon, "random_state": seed}
    if method == "line":
        model: Any = LINES[kind](**given)
    elif kind == "class":
        model = AdditiveClassifier(**given)
    else:
        loss = "poisson" if kind == "count" else "squared"
        model = AdditiveRegressor(loss=loss, **given)
    return model.fit(train.X, train.y)


def predict(model: Any, kind: str, X: Any) -> Any:
    """Return the chance of each class, or the mean."""
    return model.predict_proba(X) if kind == "class" else model.predict(X)


def find_constant(
    method: str, kind: str, train: Table, epsilon: float, seed: int
) -> Any:
    """Return shares of the classes, or a mean, as one of `CONSTANTS`.

    All of them know the number of rows. "constant" is stronger than a private one can
    be: it also knows the range of the training rows.
    """
    n, noise = len(train.y), np.random.default_rng([seed, 1])
    deviation = 0.0 if method == "mean" else 1.0 / gdp_mu(epsilon, DELTA)
    if kind == "class":
        levels = train.schema.target_column.levels
        counts = np.array([np.sum(train.y == level) for level in levels], dtype=float)
        counts += deviation * noise.standard_normal(len(counts))
        shares = np.maximum(counts, 0.5 if deviation else LEAST)
        return shares / shares.sum()
    low, high = train.y.min(), train.y.max()
    if method == "private constant":
        low, high = (
            getattr(train.schema.target_column, end) for end in ("low", "high")
        )
    mean = (
        np.clip(train.y, low, high).mean()
        + deviation * (high - low) / 2 / n * noise.standard_normal()
    )
    return float(np.clip(mean, max(low, 0.5 / n) if kind == "count" else low, high))


def score(kind: str, predicted: Any, test: Table) -> float:
    """Return log-loss, R² or the explained share of the deviance."""
    y = test.y
    if kind == "class":
        place = {level: i for i, level in enumerate(test.schema.target_column.levels)}
        at = np.array([place[level] for level in y])
        chance = np.broadcast_to(predicted, (len(y), len(place)))[np.arange(len(y)), at]
        return float(-np.mean(np.log(np.clip(chance, LEAST, 1.0))))
    predicted = np.broadcast_to(predicted, y.shape)
    if kind == "number":
        return float(1 - np.mean((predicted - y) ** 2) / np.var(y))
    return 1.0 - _deviance(y, predicted) / _deviance(y, np.mean(y))


def _deviance(y: Any, rate: Any) -> float:
    rate = np.maximum(rate, LEAST)
    logs = np.log(np.maximum(y, LEAST) / rate)
    return float(2.0 * np.mean(np.where(y > 0, y * logs, 0.0) - y + rate))


def measure(
    task: Task, folder: Path | None, jobs: list[tuple[float, int, str]]
) -> list[dict[str, Any]]:
    """Run jobs of one table, each an ε, a seed and a method. Return their rows."""
    table = load(task.name, folder)
    facts = {"table": task.name, "kind": task.kind, "half": task.half}
    facts |= {"rows": len(table.y), "columns": len(task.columns)}
    found = []
    for epsilon, seed, method in jobs:
        train, test = divide(table, seed)
        start = time.process_time()
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            if method in METHODS:
                model = fit(method, task.kind, train, epsilon, seed)
                spent = time.process_time() - start
                predicted = predict(model, task.kind, test.X)
            else:
                predicted = find_constant(method, task.kind, train, epsilon, seed)
                spent = 0.0
        row = {"epsilon": f"{epsilon:g}", "seed": seed, "method": method}
        value = score(task.kind, predicted, test)
        found.append(facts | row | {"score": f"{value:.5f}", "cpu": f"{spent:.3f}"})
    return found


def list_jobs(
    given: argparse.Namespace, known: set[tuple[str, ...]], name: str
) -> Iterator[list[tuple[float, int, str]]]:
    """Yield what is missing of a table, in parts of similar size."""
    for seed in range(given.seeds):
        part = [
            (epsilon, seed, method)
            for epsilon in given.epsilons
            for method in (*CONSTANTS, *METHODS)
            if (name, f"{epsilon:g}", str(seed), method) not in known
        ]
        if part:
            yield part


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the fits that a file has."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check(tasks: list[Task], folder: Path | None) -> None:
    """Load every table, fit it, and print what a user would be warned of."""
    for task in tasks:
        table = load(task.name, folder)
        with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
            warnings.simplefilter("always")
            fit("line", task.kind, table, 1.0, 0)
        shape = f"{len(table.y):,} rows, {len(task.columns)} columns"
        print(f"{task.name}: {task.kind}, {shape}, to {task.half}")
        for one in caught:
            print(f"  {one.category.__name__}: {one.message}")


def choose_tasks(given: argparse.Namespace) -> list[Task]:
    """Return the tables that are asked for."""
    tasks = read_tasks(given.folder)
    unknown = sorted(set(given.tables) - set(tasks))
    if unknown:
        raise SystemExit(f"There is no table {unknown[0]!r}.")
    chosen = [
        task
        for name, task in tasks.items()
        if given.half in (None, task.half)
        and (not given.tables or name in given.tables)
    ]
    return chosen[: given.limit]


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Defaults on tables not chosen on.")
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--limit", type=int, help="only the first tables")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--from", dest="folder", type=Path, help="exported tables")
    parser.add_argument("--export", type=Path, metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=OUT, help="file of fits")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Measure what is missing, and write the page."""
    given = read_options()
    tasks = choose_tasks(given)
    if given.export:
        for task in tasks:
            print(export(task.name, given.export), file=sys.stderr)
        return
    if given.check:
        check(tasks, given.folder)
        return
    rows = read_rows(given.output)
    keys = ("table", "epsilon", "seed", "method")
    known = {tuple(row[key] for key in keys) for row in rows}
    work = [
        (task, part) for task in tasks for part in list_jobs(given, known, task.name)
    ]
    sizes = {task.name: _size(task, given.folder) for task in tasks}
    work.sort(key=lambda one: -sizes[one[0].name])  # the longest first
    given.output.parent.mkdir(parents=True, exist_ok=True)
    start, failed = time.time(), 0
    with (
        given.output.open("a", newline="", encoding="utf-8") as file,
        ProcessPoolExecutor(given.jobs) as pool,
    ):
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        running = {
            pool.submit(measure, task, given.folder, part): (task.name, part[0][1])
            for task, part in work
        }
        for number, one in enumerate(as_completed(running), start=1):
            name, seed = running[one]
            spent = f"{time.time() - start:.0f} s"
            if one.exception() is None:
                writer.writerows(one.result())
                file.flush()
            else:  # the others go on, and another run repeats this one
                failed += 1
                spent += f" failed: {one.exception()!r}"
            print(
                f"{number}/{len(work)} {spent} {name} {seed}",
                file=sys.stderr,
                flush=True,
            )
    page = given.output.with_suffix(".md")
    write_page(read_rows(given.output), page)
    print(page)
    if failed:
        raise SystemExit(f"{failed} parts failed, and are missing from the page.")


def _size(task: Task, folder: Path | None) -> int:
    return len(load(task.name, folder).y) * len(task.columns)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
