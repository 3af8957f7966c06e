"""How often 95 % intervals hold the truth, on fresh tables: make bench NAME=coverage.

Every table gets columns of pure noise that fill a part of their range, as
z = .3 + fill·(U - .3), one that is constant, and two that are missing throughout. Their
true coefficients are 0. Hospital tables are drawn from a model whose weights are known.
Rows of real tables are drawn with replacement; the truth is then what the same
estimator gives for the whole table without noise. An interval that is not given,
because the effect cannot be told, holds the truth, and is counted.

Results are written after each case to intervals.csv, one line per coefficient, and a
run goes on where the last one stopped. The tables in docs/evidence/intervals.md follow.

    python benchmarks/intervals.py [--scale 1] [--only hospital] [--output DIRECTORY]
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import skdp
import tables
from skdp import datasets
from skdp.engines.reference import ReferenceEngine
from skdp.estimators.opening import read_records
from skdp.estimators.standard_errors import StandardErrors, make_unit_matrices
from skdp.inference import covariances
from skdp.privacy import queries
from skdp.privacy.mechanism import Released

#: Columns of noise: the part of the range that they fill, None if they are missing.
FILLS: dict[str, float | None] = {
    "fill 1": 1.0,
    "fill .5": 0.5,
    "fill .2": 0.2,
    "fill .1": 0.1,
    "fill .05": 0.05,
    "fill .02": 0.02,
    "constant": 0.0,
    "missing": None,
    "indicator": None,
}
NOISE = {name: skdp.Numeric(0, 1, indicator=name == "indicator") for name in FILLS}
HOSPITAL = {"hospital": "readmitted", "hospital cost": "cost"}
REAL = ("adult", "bank", "electricity", "california")
ROWS, EPSILONS = (2_000, 5_000, 20_000, 200_000), (0.1, 1.0, 4.0)
#: Fits of each case, by rows: a long table takes longer. The page takes the three
#: relations of hospital together; tables with one relation are fitted twice as often.
FITS = {2_000: 60, 5_000: 60, 10_000: 60, 20_000: 150, 200_000: 100}
#: Where the width is compared with that from true moments, in every fifth fit.
COMPARED = (20_000, 1.0, "replace-one")
Case = tuple[str, int, float, str]
ROOT = Path(__file__).resolve().parents[1] / "docs" / "evidence"
PAGE, START, END = ROOT / "intervals.md", "<!-- coverage -->", "<!-- /coverage -->"
KEY = ("table", "rows", "epsilon", "neighbours")
HEAD = (*KEY, "coefficient", "fits", "told", "held", "std_over_exact")


def cases(only: str | None) -> list[Case]:
    """All cases: hospital tables on the whole grid, others on a part of it."""
    whole = [
        ("hospital", n_rows, epsilon, neighbours)
        for neighbours in queries.NEIGHBOURS[::-1]
        for n_rows, epsilon in itertools.product(ROWS, EPSILONS)
    ]
    others = ["hospital cost", *REAL]
    part = itertools.product(others, (20_000,), (1.0, 4.0), ["add-remove"])
    first = len(whole) // 3
    both = [*whole[:first], *part, *whole[first:]]
    return [case for case in both if only in (None, case[0])]


@cache
def population(name: str) -> tuple[Any, dict[str, float]]:
    """A real table, and the weights that the estimator gives it without noise."""
    table = tables.load(name)
    model = kind(name)(epsilon=math.inf, schema=table.schema, n_threads=1)
    model.fit(table.X, table.y)
    labels = table.schema.layout().labels
    return table, dict(zip(labels, model.weights_[:, 0], strict=True))


def kind(name: str) -> Any:
    """The estimator of a table."""
    numbers = ("hospital cost", "california")
    return skdp.LinearRegression if name in numbers else skdp.LogisticRegression


def drawn(name: str, n_rows: int, seed: int) -> tuple[Any, Any, Any, dict[str, float]]:
    """A fresh table with columns of noise: X, y, its schema and the true weights."""
    rng = np.random.default_rng([seed, 1])
    if name in HOSPITAL:
        data = datasets.make_hospital(n_rows, random_state=seed, target=HOSPITAL[name])
        columns, schema, y = dict(data.columns), data.schema, None
        truth = dict(data.truth)
        if name == "hospital cost":  # on its log scale, where the model is true
            top = schema.target_column.high
            columns["cost"] = 2.0 * np.log1p(columns["cost"]) / math.log1p(top) - 1.0
            schema = replace(schema, target=("cost", skdp.Numeric(-1.0, 1.0)))
        X = pd.DataFrame(columns)
    else:
        table, truth = population(name)
        at = rng.integers(0, len(table.y), n_rows)
        X, y, schema = (
            table.X.iloc[at].reset_index(drop=True),
            table.y[at],
            table.schema,
        )
    for column, fill in FILLS.items():
        part = np.nan if fill is None else fill * (rng.random(n_rows) - 0.3)
        X[column] = np.clip(0.3 + part, 0.0, 1.0)
    return X, y, replace(schema, columns={**schema.columns, **NOISE}), truth


def one(task: tuple[Case, int, bool]) -> Any:
    """Labels, errors, standard errors, and those from true moments, of summary()."""
    (name, n_rows, epsilon, neighbours), seed, compare = task
    X, y, schema, truth = drawn(name, n_rows, seed)
    model = kind(name)(
        epsilon=epsilon, schema=schema, neighbours=neighbours, n_threads=1
    )
    model.fit(X) if y is None else model.fit(X, y)
    found = model._standard_errors()
    if not isinstance(found, StandardErrors):
        return None
    labels = model.plan_.layout.labels
    plain, contrasts = make_unit_matrices(model)
    true = np.array([truth.get(label, 0.0) for label in labels])
    error = contrasts @ (model.weights_[:, 0] - true)
    exact = np.full(len(error), math.nan)
    if compare:
        gram = exact_gram(X, y, schema, neighbours)
        released = model.privacy_.transcript
        known = covariances.estimate(model.plan_, released, model.weights_, gram)
        exact = known.errors(plain, contrasts).contrasts_std[:, 0]
    return labels, np.array([error, found.effects_std[:, 0], exact])


def exact_gram(X: Any, y: Any, schema: Any, neighbours: Any) -> Released:
    """The Gram matrix without noise, as a release would hand it over."""
    records = read_records(
        X,
        schema,
        target=y,
        sample_weight=None,
        class_weight=None,
        intercept=True,
        max_weight=1.0,
        verbose=0,
    )
    pattern = queries.GramPattern.of(records.layout, neighbours, centred=True)
    total = queries.gram(ReferenceEngine(records), pattern)
    values = total.value.astype(np.float64) * total.unit
    return Released(values, np.zeros(values.shape), total.kind, total.query)


def measured(
    case: Case, fits: int, pool: Any, fit: Callable[[Any], Any] = one
) -> Iterator[list[Any]]:
    """Lines of a case, one per coefficient, or one without numbers."""
    # Seeds of tables that no other case has; the noise of a fit is never seeded.
    first = 1_000 * zlib.crc32(repr(case).encode())
    compared = case[1:] == COMPARED
    tasks = [(case, first + i, compared and i % 5 == 0) for i in range(fits)]
    found = [r for r in pool.map(fit, tasks, chunksize=5) if r is not None]
    if not found:
        yield [*case, "", fits, 0, 0, ""]
        return
    labels = found[0][0]
    numbers = np.array([errors for _, errors in found])
    for j, label in enumerate(labels):
        error, std, exact = numbers[:, :, j].T
        told = np.isfinite(std)
        held = told & (np.abs(error) <= 1.96 * std)
        ratios = (std / exact)[told & np.isfinite(exact)]
        ratio = f"{np.median(ratios):.3f}" if len(ratios) else ""
        yield [*case, label, fits, told.sum(), held.sum(), ratio]


def key(line: dict[str, str]) -> Case:
    """The case of a line of the file."""
    return line["table"], int(line["rows"]), float(line["epsilon"]), line["neighbours"]


def run(
    path: Path,
    scale: float,
    listed: list[Case],
    fit: Callable[[Any], Any] = one,
) -> None:
    """Measure the listed cases that the file has not."""
    done = {key(line) for line in read(path)} if path.exists() else set()
    if not done:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, "w", [HEAD])
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for case in listed:
            if case in done:
                continue
            started = time.perf_counter()
            times = scale if case[0] == "hospital" else 2.0 * scale
            fits = max(2, round(times * FITS[case[1]]))
            lines = list(measured(case, fits, pool, fit))
            write(path, "a", lines)
            known = [line for line in lines if line[4]]
            least = min((1 - (x[6] - x[7]) / x[5] for x in known), default=math.nan)
            took = time.perf_counter() - started
            print(*case, f"least {least:.2f}", f"{took:.0f} s", flush=True)


def read(path: Path) -> list[dict[str, str]]:
    """Lines of the file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, mode: str, lines: Iterable[Iterable[Any]]) -> None:
    """Write or append lines."""
    with path.open(mode, newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def share(lines: list[dict[str, str]]) -> str:
    """Coverage and how many were told, in percent, of lines taken together."""
    fits, told, held = (
        sum(int(line[k]) for line in lines) for k in ("fits", "told", "held")
    )
    if not fits:
        return ""
    return f"{100 * (1 - (told - held) / fits):.0f} ({100 * told / fits:.0f})"


def pages(lines: list[dict[str, str]]) -> Iterator[str]:
    """The tables of the page, in Markdown."""
    noise = list(FILLS)
    groups: dict[tuple[str, str, str, str], list[dict[str, str]]] = defaultdict(list)
    for line in lines:
        groups[line["table"], line["rows"], line["epsilon"], line["coefficient"]] += [
            line
        ]
    yield "| table | rows | ε | " + " | ".join(noise) + " | others | least of them |"
    yield "|---" * (len(noise) + 5) + "|"
    for at in dict.fromkeys(k[:3] for k in groups):
        own = {k[3]: v for k, v in groups.items() if k[:3] == at}
        start = f"| {at[0]} | {int(at[1]):,} | {at[2]} | "
        if set(own) == {""}:
            yield start + "| ".join(["constant model", *[""] * (len(noise) + 1)]) + "|"
            continue
        others = [v for k, v in own.items() if k not in (*noise, "indicator?", "")]
        known = [share(v) for v in others]
        least = min(known, key=lambda s: int(s.split()[0]))
        cells = [share(own[name]) for name in noise]
        yield (
            start
            + " | ".join([*cells, share(list(itertools.chain(*others))), least])
            + " |"
        )
    fits = [sum(int(x["fits"]) for x in v) for k, v in groups.items() if k[3]]
    yield ""
    yield (
        f"A cell stands for {min(fits)} to {max(fits)} fits. With so few, the worst of "
        "many coefficients is expected to be below 95 %."
    )
    widths = [
        float(line["std_over_exact"])
        for line in lines
        if line["std_over_exact"] and line["coefficient"] in ("fill 1", "fill .5")
    ]
    if widths:
        yield ""
        yield (
            "Columns that fill half of their range or more, 20,000 rows, ε = 1: "
            f"intervals are {np.median(widths):.2f} times as wide as from the true "
            f"moments (at most {max(widths):.2f})."
        )


def replace_tables(lines: Iterable[str], start: str, end: str) -> None:
    """Replace what the page has between two marks."""
    page, text = PAGE.read_text("utf-8"), "\n".join(lines)
    before, after = page.split(start)[0], page.split(end)[1]
    PAGE.write_text(f"{before}{start}\n{text}\n{end}{after}", "utf-8")


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description="Coverage of 95 % intervals.")
    parser.add_argument("--scale", type=float, default=1.0, help="of the fits")
    parser.add_argument("--only", choices=[*HOSPITAL, *REAL])
    parser.add_argument("--output", type=Path, default=ROOT)
    given = parser.parse_args()
    path = given.output / "intervals.csv"
    run(path, given.scale, cases(given.only))
    replace_tables(pages(read(path)), START, END)


if __name__ == "__main__":
    main()
