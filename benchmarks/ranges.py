"""Generous ranges: the same fits with every range 1 to 100 times as wide.

`python benchmarks/ranges.py` fits lines and additive models to six tables, with a look
at the ranges (the default) and without, and writes docs/evidence/ranges.csv.
`python benchmarks/ranges.py --doubts` counts how often a range that misses the rows is
found, and how often a right one is doubted, and times the look. It writes
docs/evidence/ranges_doubts.csv. `python benchmarks/ranges.py --page` writes
docs/evidence/ranges.md from both files.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

# Each fit has one core. Threads of the linear algebra would fight over the others.
for name in ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import skdp  # noqa: E402
import skdp.estimators.fit_warnings  # noqa: E402
import tables  # noqa: E402
from skdp.schema import Numeric, Schema  # noqa: E402

OUT = Path(__file__).resolve().parent.parent / "docs" / "evidence"
FACTORS, EPSILONS = (1, 3, 10, 30, 100), (0.3, 1.0, 3.0)
DELTA = 1e-6
#: How many rows a table has that is fitted to count doubts.
DOUBT_ROWS = 2000
DOUBT = skdp.estimators.fit_warnings.DoubtfulSchemaWarning
KINDS = ("line", "additive")


def widen(schema: Schema, factor: float, target: float = 1) -> Schema:
    """Return the schema with each range `factor` times as wide, from its low end."""
    columns = {
        name: Numeric(c.low, c.low + factor * (c.high - c.low))
        if isinstance(c, Numeric)
        else c
        for name, c in schema.columns.items()
    }
    y: Any = schema.target_column
    if isinstance(y, Numeric):
        y = Numeric(y.low, y.low + target * (y.high - y.low))
    return Schema(columns, target=y)


def make_model(table: tables.Table, kind: str, **options: Any) -> Any:
    """Return an estimator of a kind for a table."""
    names = {
        ("line", True): skdp.LogisticRegression,
        ("line", False): skdp.LinearRegression,
        ("additive", True): skdp.AdditiveClassifier,
        ("additive", False): skdp.AdditiveRegressor,
    }
    return names[kind, table.classification](delta=DELTA, **options)


def score(model: Any, test: tables.Table) -> float:
    """Return the log-loss of classes, or R² of numbers."""
    if test.classification:
        shares = model.predict_proba(test.X)[:, 1]
        shares = np.clip(shares, 1e-15, 1 - 1e-15)
        hit = test.y == model.classes_[1]
        return float(-np.log(np.where(hit, shares, 1 - shares)).mean())
    return float(1 - np.mean((model.predict(test.X) - test.y) ** 2) / np.var(test.y))


_KNOWN: dict[str, Any] = {}


def fit_one(job: tuple[Any, ...]) -> dict[str, Any]:
    """Fit one model and return its line of the results."""
    name, kind, look, factor, target, epsilon, seed = job
    if name not in _KNOWN:
        _KNOWN[name] = tables.split(tables.load(name))
    train, test = _KNOWN[name]
    schema = widen(train.schema, factor, target)
    options = {"schema": schema, "epsilon": epsilon, "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_model(train, kind, look=look, n_threads=1, **options)
        model.fit(train.X, train.y)
    return {
        "table": name,
        "kind": kind,
        "look": look,
        "factor": factor,
        "target": target,
        "epsilon": epsilon,
        "seed": seed,
        "score": score(model, test),
    }


def sample(name: str, seed: int) -> tables.Table:
    """Return rows of a table for `DOUBT_ROWS` rows, drawn anew for each seed."""
    table = tables.load(name)
    kept = np.random.default_rng([seed, 7]).permutation(len(table.y))[:DOUBT_ROWS]
    X = table.X.iloc[kept].reset_index(drop=True)
    return tables.Table(X, table.y[kept], table.schema)


def count_doubts(names: list[str]) -> pd.DataFrame:
    """Fit tables with right ranges, and with one that misses (nearly) all rows."""
    lines = []
    for name, seed in itertools.product(names, range(25)):
        rows = sample(name, seed)
        numbers = [n for n, c in rows.schema.columns.items() if isinstance(c, Numeric)]
        wrong = numbers[seed % len(numbers)]
        c = rows.schema.columns[wrong]
        beyond = float(rows.X[wrong].max()) + (c.high - c.low) / 100
        missed = Numeric(beyond, beyond + c.high - c.low)
        cases = {
            "right": rows.schema,
            "ten times as wide": widen(rows.schema, 10),
            "misses": replace(
                rows.schema, columns={**rows.schema.columns, wrong: missed}
            ),
        }
        for case, schema in cases.items():
            model = make_model(rows, "line", schema=schema, epsilon=1.0, n_threads=1)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(rows.X, rows.y)
            said = [str(w.message) for w in caught if w.category is DOUBT]
            named = any(f"{wrong!r}: (nearly) all values" in text for text in said)
            lines.append(
                {
                    "table": name,
                    "case": case,
                    "seed": seed,
                    "column": wrong if case == "misses" else "",
                    "warned": named if case == "misses" else bool(said),
                }
            )
    return pd.DataFrame(lines)


def time_look(n_rows: int) -> tuple[float, float]:
    """Return the CPU seconds of a fit with and without a look, in turn."""
    data = skdp.make_hospital(n_rows, random_state=0)
    spent: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(14):
        look = turn % 2 == 0
        model = skdp.LogisticRegression(
            schema=data.schema, look=look, engine="compiled", n_threads=1
        )
        start = time.process_time()
        model.fit(data.columns)
        if turn > 1:  # the first fits load what later ones use
            spent[look].append(time.process_time() - start)
    return float(np.median(spent[True])), float(np.median(spent[False]))


def describe_doubts(frame: pd.DataFrame, times: pd.DataFrame) -> list[str]:
    """Return the lines of the page on doubts and on time."""
    lines = [
        "",
        "## Ranges that miss the rows",
        "",
        f"Fits of {DOUBT_ROWS:,} rows of each table at ε = 1. One number has a range",
        "above all its values. It counts as found if a warning names it. A right range",
        "is doubted if any warning is given.",
        "",
        "| table | missing range found | doubted, right ranges | doubted, ten times as "
        "wide |",
        "|---|---|---|---|",
    ]
    for name, own in [*frame.groupby("table"), ("all", frame)]:
        shares = [
            f"{int(w.sum())} of {len(w)}"
            for w in (
                own.warned[own.case == case]
                for case in ("misses", "right", "ten times as wide")
            )
        ]
        lines.append(f"| {name} | " + " | ".join(shares) + " |")
    lines += ["", "## Time", "", "CPU time of a fit of hospital rows on one thread, in"]
    lines += ["turns. A look is a second pass over the table.", ""]
    lines += ["| rows | with a look | without | ratio |", "|---|---|---|---|"]
    for row in times.itertuples():
        ratio = f"{row.look / row.plain:.2f}"
        lines.append(
            f"| {row.rows:,} | {row.look:.3f} s | {row.plain:.3f} s | {ratio} |"
        )
    return lines


def list_jobs(arguments: argparse.Namespace) -> list[tuple[Any, ...]]:
    """List the fits to make."""
    seeds = range(arguments.seeds)
    jobs: list[tuple[Any, ...]] = []
    grid = (arguments.tables, arguments.kinds)
    for name, kind in itertools.product(*grid):
        for epsilon, seed in itertools.product(arguments.epsilons, seeds):
            jobs += [
                (name, kind, True, factor, 1, epsilon, seed)
                for factor in arguments.factors
            ]
            if not arguments.no_base:
                jobs.append((name, kind, False, 1, 1, epsilon, seed))
            if name not in tables.CLASSES and not arguments.no_target:
                jobs.append((name, kind, True, 1, 100, epsilon, seed))
    return jobs


def main() -> None:
    """Run the fits and write or show the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=[*tables.FILES])
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--factors", nargs="*", type=int, default=FACTORS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--no-base", action="store_true", help="skip fits without look")
    parser.add_argument("--no-target", action="store_true", help="skip wide targets")
    parser.add_argument("--out", type=Path, default=OUT / "ranges.csv")
    parser.add_argument("--doubts", action="store_true", help="count doubts, and time")
    parser.add_argument("--page", action="store_true", help="write the page")
    arguments = parser.parse_args()
    if arguments.page:
        (OUT / "ranges.md").write_text(write_page(pd.read_csv(arguments.out)))
        return
    if arguments.doubts:
        count_doubts(arguments.tables).to_csv(OUT / "ranges_doubts.csv", index=False)
        times = [(n, *time_look(n)) for n in (5_000, 50_000, 1_000_000)]
        columns = ["rows", "look", "plain"]
        frame = pd.DataFrame(times, columns=columns).round(4)
        frame.to_csv(OUT / "ranges_times.csv", index=False)
        return
    jobs = list_jobs(arguments)
    lines = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for done, line in enumerate(pool.map(fit_one, jobs), 1):
            lines.append(line)
            if done % 50 == 0 or done == len(jobs):
                print(f"{done} of {len(jobs)} fits", file=sys.stderr)
    frame = pd.DataFrame(lines)
    frame.round(6).to_csv(arguments.out, index=False)
    print(summarise(frame).to_string())


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean scores: a line per table, model and ε, a column per range."""
    title = [
        f"×{factor}" if target == 1 else f"target ×{target}"
        for factor, target in zip(frame.factor, frame.target, strict=True)
    ]
    frame = frame.assign(column=title)
    frame.loc[~frame.look, "column"] = "no look ×1"
    order = ["no look ×1", *(f"×{f}" for f in FACTORS), "target ×100"]
    wide = frame.pivot_table(
        index=["table", "kind", "epsilon"], columns="column", values="score"
    )
    return wide[[c for c in order if c in wide]].round(4)


def write_page(frame: pd.DataFrame) -> str:
    """Return the page of results."""
    wide, counts = summarise(frame).reset_index(), frame.groupby("kind").seed.nunique()
    lines = [
        "# Generous ranges",
        "",
        "The same fits with every numeric range 1 to 100 times as wide, from its low",
        "end, and with the target's range 100 times as wide. A look at the table finds",
        'what the rows fill. The column "no look ×1" is a fit with tight ranges and',
        "`look=False`. Log-loss for classes (lower is better), R² for numbers (higher",
        f"is better); means over {counts['line']} seeds for lines and "
        f"{counts['additive']} for additive models, on rows that",
        "were not fitted; add-remove, δ = 1e-6.",
        "",
        "Written by `make bench NAME=ranges` (`benchmarks/ranges.py`, then `--page`).",
        "",
        "| " + " | ".join(map(str, wide.columns)) + " |",
        "|" + "---|" * len(wide.columns),
    ]
    for row in wide.itertuples(index=False):
        cells = [
            f"{v:.4f}" if isinstance(v, float) and k > 2 else str(v)
            for k, v in enumerate(row)
        ]
        lines.append("| " + " | ".join(c.replace("nan", "") for c in cells) + " |")
    doubts = OUT / "ranges_doubts.csv"
    if doubts.exists():
        times = pd.read_csv(OUT / "ranges_times.csv")
        lines += describe_doubts(pd.read_csv(doubts), times)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
