"""What benchmarks/forecasts.py found: constants, a page and a figure.

docs/evidence/utility/forecasts.md is made from forecasts.csv beside it. It judges each
table by constants that the other tables give, so its ranges are true forecasts.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import skdp
from skdp.descent.forecast import SAMPLING, SLACK, ForecastConstants, linearise_cost
from skdp.schema import Categorical, Numeric, Schema, Vector

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "evidence" / "utility"
DELTA = 1e-6
#: Share of the outcomes that is left out at each end of a range. It is less than 10 %,
#: because new tables hold surprises, and nearly 0 for counts, which have few and very
#: different tables.
TAIL, TAILS = 0.08, {"poisson": 0.01}
#: Losses of a model; those of one entry share constants.
LOSSES = {
    "logistic": ("logistic", "softmax"),
    "linear": ("squared", "huber"),
    "svc": ("hinge",),
    "poisson": ("poisson",),
}
#: A model that shares another's constants: scores and formulas are the same.
LIKE = {"huber": "linear"}
SCORES = {
    "logistic": "log-loss",
    "linear": "R²",
    "svc": "hinge loss",
    "poisson": "D² (deviance explained)",
}
#: The constant model, and what caps may hide, if not the mean and rare classes.
CONSTANT = {"logistic": "the base rate", "svc": "the larger class"}
CLIPPED = {"linear": "Extreme values", "poisson": "Large counts"}
#: What the page shows. The file has the rest.
SHOWN_RELATION = "add-remove"
FIELDS = [
    *("table", "model", "shape", "classes", "n_rows", "neighbours", "epsilon"),
    *("floor", "no_privacy", "costs"),
]
Row = dict[str, Any]


def shape(schema: Schema) -> str:
    """Return what a forecast needs to know of a schema.

    "5n 8 3" has 5 numbers and columns of 8 and 3 categories; "9v" is a vector of 9, and
    "norm=2" bounds the norm of a row.
    """
    columns = list(schema.columns.values())
    numbers = sum(isinstance(column, Numeric) for column in columns)
    words = [f"{numbers}n"] if numbers else []
    words += [str(len(c.levels)) for c in columns if isinstance(c, Categorical)]
    words += [f"{len(c.names)}v" for c in columns if isinstance(c, Vector)]
    words += [f"norm={schema.row_norm:.6g}"] if schema.row_norm else []
    return " ".join(words)


@cache
def schema_of(shape: str, classes: int) -> Schema:
    """Return a schema of that shape, for as many classes, 0 for a number."""
    columns: dict[str, Any] = {}
    norm = None
    for place, word in enumerate(shape.split()):
        if word.startswith("norm="):
            norm = float(word.removeprefix("norm="))
        elif word.endswith("n"):
            columns |= {f"n{i}": Numeric(0, 1) for i in range(int(word[:-1]))}
        elif word.endswith("v"):
            columns["v"] = Vector([f"v{i}" for i in range(int(word[:-1]))])
        else:
            columns[f"c{place}"] = Categorical(list(range(int(word))))
    target: Any = Categorical(list(range(classes))) if classes else Numeric(0, 1)
    return Schema(columns, target=target, row_norm=norm)


def classes(schema: Schema) -> int:
    """Return the number of classes of a schema's target, 0 for a number."""
    target = schema.target_column
    return len(target.levels) if isinstance(target, Categorical) else 0


def write(rows: list[dict[str, Any]]) -> None:
    """Write all outcomes."""
    with (OUT / "forecasts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            texts = {name: f"{row[name]:.4g}" for name in ("floor", "no_privacy")}
            texts["costs"] = " ".join(f"{cost:.3g}" for cost in row["costs"])
            writer.writerow(row | texts)


def read() -> list[dict[str, Any]]:
    """Read all outcomes."""
    with (OUT / "forecasts.csv").open() as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row["costs"] = [float(cost) for cost in row["costs"].split()]
        for name in ("epsilon", "floor", "no_privacy"):
            row[name] = float(row[name])
        for name in ("n_rows", "classes"):
            row[name] = int(row[name])
    return rows


def like(row: Row) -> str:
    """Return the model whose constants a row is judged by."""
    model: str = row["model"]
    return LIKE.get(model, model)


def facts_of(row: Row) -> tuple[float, float]:
    """Return the linearised cost of a row's plan, and its coefficients per row."""
    names = ("shape", "classes", "model", "n_rows", "epsilon", "neighbours")
    return _planned(*(row[name] for name in names))


@cache
def _planned(
    shape: str, classes: int, model: str, n_rows: int, epsilon: float, neighbours: str
) -> tuple[float, float]:
    schema = schema_of(shape, classes)
    plan = skdp.plan(schema, n_rows, epsilon, DELTA, model, neighbours=neighbours)
    size = plan.layout.n_features * plan.loss.n_outputs / n_rows
    return linearise_cost(plan), size


@dataclass(frozen=True)
class Cells:
    """Outcomes of a model as arrays: one entry per cell, and their lists of costs."""

    tables: list[str]
    linearised: Any
    size: Any
    costs: list[list[float]]

    @staticmethod
    def of(rows: Iterable[Row]) -> Cells:
        """Plan each row again."""
        kept = list(rows)
        plans = [facts_of(row) for row in kept]
        cost, size = np.array(plans).T
        tables = [row["table"] for row in kept]
        return Cells(tables, cost, size, [row["costs"] for row in kept])


def calibrate(rows: list[Row]) -> tuple[float, float, float, float]:
    """Return factor, power, below and above: every table counts the same.

    The typical cost is a line through the logarithms of mean costs; the ends leave out
    a tail of the single fits each, after `SLACK` of the sampling error.
    """
    cells = Cells.of(rows)
    often = {table: cells.tables.count(table) for table in cells.tables}
    weight = np.array([1.0 / often[table] for table in cells.tables])
    mean = np.array([np.mean(costs) for costs in cells.costs])
    slack = SLACK * SAMPLING * cells.size
    # Values that sampling error hides or turns negative have no useful logarithm.
    seen = mean > 0.3 * slack
    root = np.sqrt(weight[seen])
    line = np.stack([np.ones(seen.sum()), np.log(cells.linearised[seen])], axis=1)
    fitted = np.linalg.lstsq(
        line * root[:, None], np.log(mean[seen]) * root, rcond=None
    )[0]
    factor, power = math.exp(fitted[0]), float(fitted[1])
    typical = factor * cells.linearised**power
    low, high, each = [], [], []
    for costs, t, s, w in zip(cells.costs, typical, slack, weight, strict=True):
        low += [(cost + s) / t for cost in costs]
        high += [(cost - s) / t for cost in costs]
        each += [w / len(costs)] * len(costs)
    tail = TAILS.get(like(rows[0]), TAIL)
    below = max(0.0, _quantile(low, each, tail))
    return factor, power, below, _quantile(high, each, 1.0 - tail)


def _quantile(values: list[float], weights: list[float], share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(np.array(weights)[order]) / np.sum(weights)
    return float(np.array(values)[order][np.searchsorted(reached, share)])


def derive_constants(
    rows: list[Row], without: str | None = None
) -> dict[str, ForecastConstants]:
    """Constants by model, from all tables but one; a wide table is only judged."""
    found = {}
    for model in LOSSES:
        mine = [row for row in rows if like(row) == model and "v" not in row["shape"]]
        others = [row for row in mine if row["table"] != without]
        if not others:
            continue
        factor, power, below, above = calibrate(others)
        gains = {row["table"]: row["no_privacy"] - row["floor"] for row in others}
        found[model] = ForecastConstants(
            score=SCORES[model],
            constant=CONSTANT.get(model, "the mean"),
            clipped=CLIPPED.get(model, "Rare classes"),
            factor=factor,
            power=power,
            below=below,
            above=above,
            gain=float(np.median(list(gains.values()))),
            n_tables=len(gains),
        )
    return found


def inside(row: Row, known: ForecastConstants) -> tuple[bool, list[bool]]:
    """Whether the mean cost of a cell is in its range, and each single cost."""
    low, _, high = known.range(*facts_of(row))
    least = low if low > 0 else -math.inf  # "at most" is right if privacy helps
    single = [least <= cost <= high for cost in row["costs"]]
    return least <= float(np.mean(row["costs"])) <= high, single


def left_out(rows: list[Row]) -> dict[tuple[str, str], tuple[list[bool], list[bool]]]:
    """By model and table: whether means, and single costs, were in the range.

    The constants are those of all other tables.
    """
    found: dict[tuple[str, str], tuple[list[bool], list[bool]]] = {}
    for table in sorted({row["table"] for row in rows}):
        known = derive_constants(rows, without=table)
        for row in rows:
            if row["table"] == table:
                mean, single = inside(row, known[like(row)])
                means, singles = found.setdefault((row["model"], table), ([], []))
                means.append(mean)
                singles += single
    return found


def share(flags: list[bool]) -> str:
    """Write a share as a percentage."""
    return f"{np.mean(flags):.0%}".replace("%", " %")


def page(rows: list[Row]) -> str:
    """The tables in Markdown."""
    found = left_out(rows)
    n_tables = len({row["table"] for row in rows})
    means = [flag for flags, _ in found.values() for flag in flags]
    singles = [flag for _, flags in found.values() for flag in flags]
    lines = [
        "# Forecasts against outcomes",
        "",
        "`skdp plan` gives a range for the expected cost of privacy. Here "
        f"{n_tables} tables, cut to several numbers of rows, were fitted "
        f"{len(singles):,} times, at six budgets and under all neighbour relations. A "
        "cost is the score of a fit without privacy on the same rows, less the score "
        "of the private fit, on rows that neither saw. Each table was left out when "
        "the constants for its ranges were derived.",
        "",
        f"The cost lies in the range for **{share(singles)}** of the single fits, and "
        f"for {share(means)} of the means over the fits of a cell. “At most” counts as "
        "right where privacy cost nothing. Plans that fit only a constant make no "
        "forecast and are not counted.",
        "",
        "![Outcomes over forecasts](forecasts.svg)",
        "",
        "Written by `make bench NAME=forecasts` from [forecasts.csv](forecasts.csv), "
        "which has every fit. The constants are in `skdp.descent.forecast`.",
        "",
        "## How often the range holds on a table that was left out",
        "",
        "| model | table | coefficients | single fits | means | fits |",
        "|---|---|---|---|---|---|",
    ]
    for (model, table), (mean, single) in sorted(found.items()):
        own = next(r for r in rows if (r["model"], r["table"]) == (model, table))
        d = schema_of(own["shape"], own["classes"]).layout().n_features
        cells = [model, table, str(d), share(single), share(mean), str(len(single))]
        lines.append(f"| {' | '.join(cells)} |")
    for model in LOSSES:
        mine = [both for (m, _), both in found.items() if LIKE.get(m, m) == model]
        mean = [flag for flags, _ in mine for flag in flags]
        single = [flag for _, flags in mine for flag in flags]
        cells = [f"**{model}**", f"all {len(mine)}", "", share(single), share(mean)]
        lines.append(f"| {' | '.join(cells)} | {len(single)} |")
    lines += ["", f"## Every table and ε, {SHOWN_RELATION}", ""]
    lines += [
        "The range, and the mean cost in brackets; **bold** where it is outside. “–”: "
        "only a constant is fitted, or ε was not measured.",
        "",
    ]
    for model in sorted({row["model"] for row in rows}):
        lines += _outcomes([row for row in rows if row["model"] == model], rows)
    return "\n".join(lines).rstrip() + "\n"


def _outcomes(mine: list[Row], rows: list[Row]) -> list[str]:
    """One table in Markdown: a line for each table and number of rows."""
    model, group = mine[0]["model"], like(mine[0])
    mine = [row for row in mine if row["neighbours"] == SHOWN_RELATION]
    budgets = sorted({row["epsilon"] for row in mine})
    heads = " | ".join(f"ε = {epsilon:g}" for epsilon in budgets)
    lines = [f"### {model}: {SCORES[group]}", "", f"| table | rows | {heads} |"]
    lines.append("|---" * (len(budgets) + 2) + "|")
    for table, n_rows in sorted({(row["table"], row["n_rows"]) for row in mine}):
        known = derive_constants(rows, without=table)[group]
        cells = dict.fromkeys(budgets, "–")
        for row in mine:
            if (row["table"], row["n_rows"]) == (table, n_rows):
                ends = known.range(*facts_of(row))
                low = f"{ends[0]:.1g} to " if ends[0] > 0 else "≤ "
                text = f"{low}{ends[2]:.1g} ({np.mean(row['costs']):.1g})"
                held = inside(row, known)[0]
                cells[row["epsilon"]] = text if held else f"**{text}**"
        lines.append(f"| {table} | {n_rows:,} | {' | '.join(cells.values())} |")
    return [*lines, ""]


def plot(rows: list[Row]) -> None:
    """Draw one panel per model: mean costs over the typical one that is forecast."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "skdp"
    from matplotlib import pyplot as plt

    known = derive_constants(rows)
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), constrained_layout=True)
    for axis, model in zip(axes, LOSSES, strict=True):
        mine = [row for row in rows if like(row) == model]
        for place, table in enumerate(sorted({row["table"] for row in mine})):
            own = [row for row in mine if row["table"] == table]
            typical = [known[model].range(*facts_of(row))[1] for row in own]
            costs = [max(float(np.mean(row["costs"])), 1e-6) for row in own]
            axis.plot(typical, costs, ".", ms=2.5, color=f"C{place % 10}")
        ends = np.array([1e-5, 1.0])
        axis.plot(ends, ends, color="0.3", lw=1)
        low, high = known[model].below, known[model].above
        axis.fill_between(ends, low * ends, high * ends, color="0.9")
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=(1e-6, 2.0))
        axis.set(title=f"{model}: {SCORES[model]}", xlabel="typical cost, forecast")
    axes[0].set_ylabel("mean cost, measured")
    figure.savefig(OUT / "forecasts.svg", metadata={"Date": None})


def constants(rows: list[Row]) -> str:
    """The constants that `skdp.descent.forecast` should contain."""
    lines = []
    for model, known in derive_constants(rows).items():
        numbers = ("factor", "power", "below", "above", "gain")
        texts = [f"{name}={getattr(known, name):.2g}" for name in numbers]
        lines.append(f"{model}: {', '.join(texts)}, n_tables={known.n_tables}")
    return "\n".join(lines)
