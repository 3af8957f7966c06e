"""What it takes to protect persons and not rows: make bench NAME=persons.

Four measurements, of which ``--only`` chooses one. Each writes its table into
docs/evidence/persons.md when it is done.

- ``audit``: whole fits to tables that differ in one person with 1, 10 and 1,000 rows;
  the same with 20 % less noise, and without a unit.
- ``utility``: the same claim about persons by a unit, by group privacy and by keeping
  one row of each person, beside a fit that protects single rows only.
- ``coverage``: how often 95 % intervals hold the truth if the rows of a person are
  alike.
- ``speed``: counting the rows of a million persons in ten million rows.

    python benchmarks/persons.py [--only audit] [--scale 1]
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.metrics import log_loss, r2_score

import skdp
import tables
from skdp import audit, datasets
from skdp.estimators.standard_errors import StandardErrors, make_unit_matrices
from skdp.tables import readers
from skdp.tables.ids import Ids

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "audit"))
PAGE = ROOT / "docs" / "evidence" / "persons.md"
RELATIONS = ("add-remove", "zero-out", "replace-one")
EPSILONS, SEEDS = (0.3, 1.0, 3.0), 3
COVERAGE_FITS = 30
#: Fits of an audit. Tables under replace-one are not as far apart as is claimed, so
#: more fits are needed to find too little noise.
GAMES = {"add-remove": 1000, "zero-out": 1000, "replace-one": 3000}
Lines = Iterator[str]


def row(*cells: Any) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(map(str, cells)) + " |"


def audit_fits(scale: float) -> Lines:
    """Audits of whole fits: the claim, and what games prove, by rows of a person."""
    from bugs import noise_times

    columns = {
        "number": skdp.Numeric(0, 1),
        "kind": skdp.Categorical(["a", "b", "c"]),
    }
    rows = skdp.Schema(columns, target=skdp.Categorical([0, 1]))
    persons = replace(rows, unit="person")

    def play(schema: Any, neighbours: str, rows_each: int, games: int) -> audit.Audit:
        model = skdp.LogisticRegression(
            epsilon=8.0, schema=schema, neighbours=neighbours, n_steps=2
        )
        return audit.fit(
            model,
            rows_each=rows_each,
            group=2,
            n_trials=max(20, round(scale * games)),
            n_rows=200,
            twins=5,
        )

    yield row(
        "relation",
        "rows of the person",
        "claimed μ",
        "distance reached",
        "proved, with a unit",
        "proved, 20 % less noise",
        "proved, without a unit",
    )
    yield row(*["---"] * 7)
    for neighbours in RELATIONS:
        for rows_each in (1, 10, 1000):
            games = GAMES[neighbours]
            right = play(persons, neighbours, rows_each, games)
            with noise_times(0.8):
                wrong = play(persons, neighbours, rows_each, games)
            single = play(rows, neighbours, rows_each, 40)
            yield row(
                neighbours,
                f"{rows_each:,}",
                f"{right.mu:.2f}",
                f"{right.reached:.2f}",
                f"{right.mu_lower:.2f}, {verdict(right)}",
                f"{wrong.mu_lower:.2f}, {verdict(wrong)}",
                f"{single.mu_lower:.2f}, {verdict(single)}",
            )


def verdict(found: audit.Audit) -> str:
    """Say what an audit found about the claim."""
    return "holds" if found.passed else "**refuted**"


def load(name: str) -> tuple[pd.DataFrame, Any, skdp.Schema, np.ndarray]:
    """Columns, target, schema and whose row it is, of a table with repeated units."""
    if name == "hospital":
        data = datasets.make_hospital(40_000, patients=10_000, icc=0.2)
        frame = pd.DataFrame(data.columns)
        schema = replace(data.schema, unit=None, target=data.schema.target_column)
        return (
            frame[[*schema.inputs]],
            frame["readmitted"].to_numpy(),
            schema,
            (frame["patient_id"].to_numpy()),
        )
    table = tables.load(name)
    if name == "electricity":  # a day has 48 half hours
        keys = table.X["date"].to_numpy()
    else:  # blocks of the same place
        keys = (table.X["Latitude"] * 1e6 + table.X["Longitude"]).to_numpy()
    return table.X, table.y, table.schema, np.unique(keys, return_inverse=True)[1]


def score(model: Any, X: Any, y: Any, weight: Any) -> float:
    """Log-loss or R² in which every person counts once."""
    if hasattr(model, "predict_proba"):
        return float(log_loss(y, model.predict_proba(X), sample_weight=weight))
    return float(r2_score(y, model.predict(X), sample_weight=weight))


def fit_and_score(model: Any, test: Any, epsilon: float, part: Any, n: int) -> float:
    """Fit a model to X, y and ids, and score it."""
    model.set_params(epsilon=epsilon, n_rows=n)
    return score(model.fit(part[0], part[1], unit=part[2]), *test)


def utility(scale: float) -> Lines:
    """The score on held-out persons, by how persons are protected."""
    yield row(
        "table",
        "ε",
        "unit: all rows of a person as one",
        "group privacy: ε over the most rows",
        "one row of each person",
        "rows only: no claim about persons",
        "without noise",
    )
    yield row(*["---"] * 7)
    for name in ("hospital", "california", "electricity"):
        X, y, schema, ids = load(name)
        classes = isinstance(schema.target_column, skdp.Categorical)
        kind = skdp.LogisticRegression if classes else skdp.LinearRegression
        rng = np.random.default_rng(0)
        held = rng.random(ids.max() + 1) < 0.2
        fit, out = ~held[ids], held[ids]
        counts = np.bincount(ids)
        most, n = int(counts[~held].max()), int((~held).sum())
        about = f"{name}, {fit.sum():,} rows of {n:,}, at most {most}"
        own, first = ids[fit], np.unique(ids[fit], return_index=True)[1]
        given = X[fit], y[fit], own
        single = X[fit].iloc[first], y[fit][first], None
        rows = X[fit], y[fit], None
        test = X[out], y[out], 1.0 / counts[ids[out]]

        run = partial(fit_and_score, kind(schema=schema, delta=1e-6), test)
        exact = run(math.inf, given, n)
        for epsilon in EPSILONS:
            found: list[list[float]] = [[], [], [], []]
            for _ in range(max(1, round(scale * SEEDS))):
                found[0].append(run(epsilon, given, n))
                found[1].append(run(epsilon / most, rows, len(own)))
                found[2].append(run(epsilon, single, n))
                found[3].append(run(epsilon, rows, len(own)))
            cells = [f"{np.mean(one):.4f} ± {np.std(one):.4f}" for one in found]
            yield row(about, epsilon, *cells, f"{exact:.4f}")


def coverage(scale: float) -> Lines:
    """How many 95 % intervals of true coefficients hold them."""
    yield row(
        "ICC",
        "ε",
        "unit: all coefficients",
        "unit: age, the same in all rows",
        "rows only: all",
        "rows only: age",
        "width, unit over rows",
    )
    yield row(*["---"] * 7)
    for icc in (0.0, 0.2, 0.5):
        for epsilon in (1.0, 10.0):
            found: dict[str, list[Any]] = {"unit": [], "rows": []}
            for seed in range(max(2, round(scale * COVERAGE_FITS))):
                data = datasets.make_hospital(
                    20_000, seed, "cost", patients=4_000, icc=icc
                )
                columns, top = dict(data.columns), data.schema.target_column.high
                scaled = 2.0 * np.log1p(columns["cost"]) / math.log1p(top) - 1.0
                columns["cost"] = scaled  # where the model is true
                target = ("cost", skdp.Numeric(-1.0, 1.0))
                schema = replace(data.schema, target=target)
                for name, one in (
                    ("unit", schema),
                    ("rows", replace(schema, unit=None)),
                ):
                    model = skdp.LinearRegression(
                        epsilon=epsilon, delta=1e-6, schema=one
                    )
                    model.fit(columns)
                    known = model._standard_errors()
                    if isinstance(known, StandardErrors):
                        contrasts = make_unit_matrices(model)[1]
                        error = contrasts @ (model.weights_ - data.weights)[:, 0]
                        found[name].append([error, known.effects_std[:, 0]])
            held, width = {}, {}
            for name, fits in found.items():
                error, std = np.moveaxis(np.array(fits), 1, 0)
                held[name] = ~(np.abs(error) > 1.96 * std)
                width[name] = np.median(std[np.isfinite(std)])
            yield row(
                icc,
                epsilon,
                *(
                    f"{100 * part.mean():.0f} %"
                    for name in ("unit", "rows")
                    for part in (held[name], held[name][:, 0])
                ),
                f"{width['unit'] / width['rows']:.1f}",
            )


def speed(scale: float) -> Lines:
    """Processor seconds and memory to count rows, and to find the share of each."""
    n, persons = round(1e7 * scale), round(1e6 * scale)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, persons, n)
    texts = pa.array(ids).cast(pa.string())
    columns = {
        "integers, numpy": ids,
        "texts, Arrow": pa.compute.binary_join_element_wise("P", texts, ""),
    }
    yield row("ids", "count", "find shares", "memory of the counts")
    yield row(*["---"] * 4)
    for name, column in columns.items():
        source, where = readers.open_source({"id": column}), Ids.of("id")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.process_time()
        counts = where.count(source)
        counted = time.process_time()
        total = 0.0
        for part in where.read(source, 65_536):
            total += float((1.0 / counts.find_divisors(part)).sum())
        ended = time.process_time()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert round(total) == len(counts)
        yield row(
            f"{name}: {n:,} rows of {len(counts):,} persons",
            f"{counted - started:.1f} s",
            f"{ended - counted:.1f} s",
            f"{memory / 1024:.0f} MB",
        )


MEASURED: dict[str, Callable[[float], Lines]] = {
    "audit": audit_fits,
    "utility": utility,
    "coverage": coverage,
    "speed": speed,
}


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description="Persons, not rows.")
    parser.add_argument("--only", choices=MEASURED)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # small tables have doubtful schemas
    for name, measure in MEASURED.items():
        if given.only in (None, name):
            lines = []
            for line in measure(given.scale):
                print(line, flush=True)
                lines.append(line)
            start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
            page = PAGE.read_text("utf-8")
            before, after = page.split(start)[0], page.split(end)[1]
            text = "\n".join(lines)
            PAGE.write_text(f"{before}{start}\n{text}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    main()
