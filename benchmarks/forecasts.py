"""What plans forecast, beside what fits cost: make bench NAME=forecasts.

An outcome is what privacy cost a fit on rows that it did not see: the score of the fit
without privacy of the same rows, less the score of the private one. Tables are those of
`tables.py`, the hospital tables at many sizes, and R's tables where `r_tables.py` finds
them, each cut to several numbers of rows. `utility.py` has measured whole tables: its
fits are taken as they are. All outcomes go to
docs/evidence/utility/forecasts.csv, with each table's shape, so forecasts can be made
again from that file alone.

``--measure`` fits all tables again (half an hour), or those whose names follow it;
without it the file is read. Both print what
`skdp.descent.forecast` should hold and write
docs/evidence/utility/forecasts.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import r_tables
import utility
from forecasts_report import (
    DELTA,
    OUT,
    classes,
    constants,
    page,
    plot,
    read,
    shape,
    write,
)

import skdp
import tables
from skdp.descent.matrix import InterceptOnly
from skdp.estimators.fit import ESTIMATORS
from skdp.schema import Numeric, Schema
from tables import Table

NEIGHBOURS = ("replace-one", "zero-out", "add-remove")
EPSILONS = (0.05, 0.1, 0.3, 1.0, 3.0, 8.0)
SIZES = (1000, 2000, 5000, 20_000)
#: Rows for a second model of a table.
SECOND_SIZES = (2000,)
#: Each repetition draws other rows and other noise, for one relation after the other.
REPETITIONS = range(3)
TEST_ROWS = 20_000
HOSPITAL = {"readmitted": "logistic", "cost": "linear", "visits": "poisson"}
HOSPITAL_ROWS = 100_000
#: Tables that are fitted by another model too.
SVC = ("adult", "bank", "electricity", "readmitted", "flchain", "HI", "Hdma")
HUBER = ("california", "bike", "wine", "cost", "diamonds", "Computers", "SLID")


def tasks() -> list[tuple[str, str]]:
    """Return all available tables, with the models that are fitted to them."""
    found = [one for one in _of_utility() if one[0] != utility.WIDE]
    found += HOSPITAL.items()
    found += [(name, r_tables.SOURCES[name].model) for name in r_tables.names()]
    known = dict(found)
    found += [(name, "svc") for name in SVC if name in known]
    found += [(name, "huber") for name in HUBER if name in known]
    return [*found, ("bike", "poisson")]


def load(name: str) -> Table:
    """Read a table by its name."""
    if name in r_tables.SOURCES:
        return r_tables.load(name)
    if name in HOSPITAL:
        data = skdp.make_hospital(HOSPITAL_ROWS + TEST_ROWS, target=name)
        frame = pd.DataFrame(data.columns)
        y = frame.pop(name).to_numpy()
        target = data.schema.target_column
        if name == "cost":  # a regressor's target is on a linear scale
            y, target = np.log1p(y), Numeric(0, math.log1p(200_000))
        return Table(frame, y, Schema(data.schema.columns, target=target))
    return tables.load(name)


def score(kind: str, model: Any, test: Table) -> float:
    """R², D² (the deviance explained), or minus the log-loss or hinge loss."""
    if kind in ("linear", "huber"):
        residual = np.mean((model.predict(test.X) - test.y) ** 2)
        return float(1 - residual / np.var(test.y))
    if kind == "poisson":
        rate, mean = np.maximum(model.predict(test.X), 1e-9), np.mean(test.y)
        return 1.0 - _deviance(test.y, rate) / _deviance(test.y, mean)
    place = {str(level): at for at, level in enumerate(model.classes_)}
    at = np.array([place[str(level)] for level in test.y])
    if kind == "svc":
        margin = (2.0 * at - 1.0) * model.decision_function(test.X)
        return -float(np.mean(np.maximum(0.0, 1.0 - margin)))
    chance = model.predict_proba(test.X)[np.arange(len(at)), at]
    return float(np.mean(np.log(np.clip(chance, 1e-15, 1.0))))


def _deviance(y: Any, rate: Any) -> float:
    logs = np.log(np.maximum(y, 1e-300) / rate)
    return float(2.0 * np.mean(np.where(y > 0, y * logs, 0.0) - y + rate))


def floor(kind: str, train: Table, test: Table) -> float:
    """Return the score of a constant: the base rate, the mean, or the larger class."""
    if kind in ("linear", "huber"):
        return float(1 - np.mean((train.y.mean() - test.y) ** 2) / np.var(test.y))
    if kind == "poisson":
        best = _deviance(test.y, test.y.mean())
        return 1.0 - _deviance(test.y, train.y.mean()) / best
    levels, counts = np.unique(np.asarray(train.y).astype(str), return_counts=True)
    shares = dict(zip(levels, counts / counts.sum(), strict=True))
    seen = np.array([shares.get(str(level), 1e-9) for level in test.y])
    if kind == "svc":
        return -2.0 * float(np.mean(seen < max(shares.values())))
    return float(np.mean(np.log(seen)))


def fit(kind: str, train: Table, epsilon: float, neighbours: str, seed: int) -> Any:
    """Fit the default model."""
    model = ESTIMATORS[kind](
        schema=train.schema,
        epsilon=epsilon,
        delta=DELTA,
        neighbours=neighbours,
        random_state=seed,
        n_threads=1,
    )
    return model.fit(train.X, train.y)


def budgets(kind: str, schema: Schema, n_rows: int, neighbours: str) -> Iterator[float]:
    """Budgets at which these rows support more than a constant."""
    for epsilon in EPSILONS:
        plan = skdp.plan(schema, n_rows, epsilon, DELTA, kind, neighbours=neighbours)
        if not isinstance(plan.geometry, InterceptOnly):
            yield epsilon


def measure(task: tuple[str, str]) -> list[dict[str, Any]]:
    """Fit one table at all sizes, budgets and relations."""
    name, kind = task
    table = load(name)
    whole = min(int(0.8 * len(table.y)), HOSPITAL_ROWS)
    smaller = SECOND_SIZES if kind in ("svc", "huber") else SIZES
    sizes = [size for size in smaller if size < whole]
    # utility.py has fitted these as a whole.
    if (name, kind) not in _of_utility():
        sizes.append(whole)
    facts = {"table": name, "model": kind, "shape": shape(table.schema)}
    facts |= {"classes": classes(table.schema)}
    found = []
    for size in sizes:
        costs: dict[tuple[str, float], list[float]] = {}
        bases, floors = [], []
        for repetition in REPETITIONS:
            neighbours = NEIGHBOURS[repetition % len(NEIGHBOURS)]
            order = np.random.RandomState(repetition).permutation(len(table.y))
            train, test = (
                Table(_rows(table.X, at), table.y[at], table.schema)
                for at in (order[:size], order[size:][:TEST_ROWS])
            )
            base = score(kind, fit(kind, train, math.inf, "replace-one", 0), test)
            bases.append(base)
            floors.append(floor(kind, train, test))
            for epsilon in budgets(kind, table.schema, size, neighbours):
                model = fit(kind, train, epsilon, neighbours, repetition)
                cost = base - score(kind, model, test)
                costs.setdefault((neighbours, epsilon), []).append(cost)
        for (neighbours, epsilon), values in costs.items():
            cell = {"n_rows": size, "neighbours": neighbours, "epsilon": epsilon}
            cell |= {"floor": np.mean(floors), "no_privacy": np.mean(bases)}
            found.append(facts | cell | {"costs": values})
        print(f"{name} {kind} {size}", file=sys.stderr, flush=True)
    return found


def _rows(X: Any, at: Any) -> Any:
    return X.iloc[at] if hasattr(X, "iloc") else X[at]


def _of_utility() -> list[tuple[str, str]]:
    names = [*tables.NAMES, utility.WIDE]
    return [(n, "linear" if n in utility.NUMBERS else "logistic") for n in names]


def whole_tables() -> list[dict[str, Any]]:
    """Return the outcomes that `utility.py` has measured."""
    rows = utility.known()
    plain = {(r["table"], r["method"]): r["value"] for r in rows if "seed" not in r}
    found = []
    for name, kind in _of_utility():
        schema = load(name).schema
        n_rows = len(tables.split(load(name))[0].y)
        sign = 1.0 if kind == "linear" else -1.0
        base = sign * plain[name, "no privacy"]
        costs: dict[tuple[str, float], list[float]] = {}
        for row in rows:
            if row["table"] == name and row["method"] == "skdp":
                key = row["neighbours"], row["epsilon"]
                costs.setdefault(key, []).append(base - sign * row["value"])
        for (neighbours, epsilon), values in costs.items():
            plan = skdp.plan(
                schema, n_rows, epsilon, DELTA, kind, neighbours=neighbours
            )
            if isinstance(plan.geometry, InterceptOnly):
                continue
            facts = {"table": name, "model": kind, "shape": shape(schema)}
            facts |= {"classes": classes(schema), "n_rows": n_rows}
            facts |= {"neighbours": neighbours, "epsilon": epsilon, "no_privacy": base}
            facts |= {"floor": sign * plain[name, "floor"]}
            found.append(facts | {"costs": values})
    return found


def main() -> None:
    """Measure if asked to, and write it down."""
    if "--measure" in sys.argv:
        names = sys.argv[sys.argv.index("--measure") + 1 :]
        chosen = [task for task in tasks() if not names or task[0] in names]
        rows = whole_tables()
        taken = {(row["table"], row["model"], row["n_rows"]) for row in rows}
        for row in read() if (OUT / "forecasts.csv").exists() else []:
            key = row["table"], row["model"], row["n_rows"]
            if key[:2] not in chosen and key not in taken:  # of tables not at hand too
                rows.append(row)
        with ProcessPoolExecutor(2) as pool:
            for part in pool.map(measure, chosen):
                rows += part
                write(rows)
    rows = read()
    print(constants(rows))
    text = page(rows)
    (OUT / "forecasts.md").write_text(text, encoding="utf-8")
    plot(rows)


if __name__ == "__main__":
    main()
