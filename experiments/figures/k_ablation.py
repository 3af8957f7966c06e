"""What each part of our default is worth: the default with one part left out.

The fits are those of `LogisticRegression` and `LinearRegression` on the tables and with
the objective of figure A. All of the budget is spent in every variant: what a part
would have cost is left to the others. A look clips numbers, which changes the model
that is fitted. So the other parts are left out of fits without a look, and the effect
of the look is a difference in the loss of each model's own predictions.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import COLOURS, panels
from experiments.folders import modules
from experiments.problems import objective_of, problem_of
from experiments.statistics import (
    Interval,
    Rows,
    column,
    geometric_interval,
    grouped,
    mean_interval,
    ratio_interval,
)
from skdp import LinearRegression, LogisticRegression, Numeric
from skdp.descent import rule
from skdp.descent.matrix import Matrix
from skdp.schema import Layout
from skdp.solvers import Problem

TITLE = "Our default with one part left out"
DELTA = 1e-6
SEEDS = range(10)
EPSILONS = (0.03, 0.1, 1.0)
WHOLE = "default"
#: How many times as wide ranges are that no one took care of.
WIDER = 10.0


def cells() -> list[dict[str, Any]]:
    return [
        {"table": table, "variant": variant, "epsilon": epsilon, "seed": seed}
        for seed in SEEDS
        for table in modules("data")
        for variant in VARIANTS
        for epsilon in EPSILONS
    ]


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        cell
        for cell in cells
        if (cell["table"], cell["seed"], cell["epsilon"]) == ("hospital", 0, 1.0)
    ]


@contextmanager
def changed(change: Callable[[Matrix, Layout, Any], Matrix]) -> Iterator[None]:
    """Change the geometry that the rule chooses, given the layout and the loss."""
    real = rule.choose_geometry

    def choose(layout: Layout, loss: Any, *given: Any) -> Any:
        found = real(layout, loss, *given)
        return change(found, layout, loss) if isinstance(found, Matrix) else found

    with patch.object(rule, "choose_geometry", choose):
        yield


@contextmanager
def without_metric() -> Iterator[None]:
    """Take the rule for tables that are too wide for a Gram matrix."""
    with patch.object(rule, "MATRIX_LIMIT", 0):
        yield


@contextmanager
def without_start() -> Iterator[None]:
    """Start at zero. The spread of a numeric target is still released, for the caps."""
    real = Matrix.make_space

    def from_zero(self: Matrix, *given: Any) -> Any:
        space = real(self, *given)
        return replace(space, start=np.zeros_like(space.start))

    def free(geometry: Matrix, layout: Layout, loss: Any) -> Matrix:
        return geometry if geometry.scaled else replace(geometry, target_share=0.0)

    with changed(free), patch.object(Matrix, "make_space", from_zero):
        yield


def without_level(geometry: Matrix, layout: Layout, loss: Any) -> Matrix:
    """Do not correct the intercept."""
    return replace(geometry, level_share=0.0)


def without_caps(geometry: Matrix, layout: Layout, loss: Any) -> Matrix:
    """Bound gradients by what any row may have: its slope, its length and the floor."""
    longest = math.sqrt(layout.squared_norm(np.arange(layout.n_features)))
    return replace(
        geometry,
        radius=loss.slope_bound * longest / math.sqrt(geometry.floor),
        scaled=False,
        level_cap=math.inf,
    )


@contextmanager
def unchanged() -> Iterator[None]:
    """Change nothing."""
    yield


#: What is left out -> what changes, and what it means.
PARTS: dict[str, tuple[Callable[[], Any], str]] = {
    "metric": (
        without_metric,
        "no Gram matrix: the rule for tables with more than 1,000 coefficients, in the "
        "norm of public bounds, which has no caps and no level either",
    ),
    "start": (without_start, "the run starts at zero, not at the constant model"),
    "level": (
        lambda: changed(without_level),
        "the intercept is not corrected at the end",
    ),
    "caps": (
        lambda: changed(without_caps),
        "gradients are bounded by public facts, not by caps",
    ),
}
#: Variants -> whether there is a look, and how many times as wide ranges are.
LOOKS = {
    WHOLE: (False, 1.0),
    "look": (True, 1.0),
    "wide": (False, WIDER),
    "wide, look": (True, WIDER),
}
VARIANTS = (*LOOKS, *PARTS)


@cache
def table_of(name: str, wider: float = 1.0) -> Any:
    """Read a table, with numbers whose ranges are so many times as wide."""
    table = modules("data")[name].load()

    def widen(column: Any) -> Any:
        if not isinstance(column, Numeric) or column.scale != "linear":
            return column
        return replace(column, high=column.low + wider * (column.high - column.low))

    columns = {key: widen(column) for key, column in table.schema.columns.items()}
    return replace(table, schema=replace(table.schema, columns=columns))


def fit(table: Any, variant: str, epsilon: float, seed: int) -> Any:
    """Fit a variant."""
    change = PARTS[variant][0] if variant in PARTS else unchanged
    kind = LogisticRegression if table.classification else LinearRegression
    model = kind(
        schema=table.schema,
        epsilon=epsilon,
        delta=DELTA,
        neighbours="zero-out",
        look=LOOKS.get(variant, (False, 1.0))[0],
        n_threads=1,
        random_state=seed,
    )
    with change():
        return model.fit(table.X, table.y)


def own_loss(model: Any, table: Any, problem: Problem) -> float:
    """Mean loss of a model's own predictions, in the units of the objective."""
    target = np.concatenate([chunk.target for chunk in problem.records.chunks])
    if table.classification:
        margins = model.decision_function(table.X)
    else:
        column = table.schema.target_column
        length = column.high - column.low
        margins = 2.0 * (model.predict(table.X) - column.low) / length - 1.0
    return float(problem.loss.value(np.reshape(margins, (-1, 1)), target).mean())


def measure(cell: dict[str, Any]) -> Rows:
    name, variant = cell["table"], cell["variant"]
    table = table_of(name, LOOKS.get(variant, (False, 1.0))[1])
    model = fit(table, variant, cell["epsilon"], cell["seed"])
    row = {"loss": own_loss(model, table, problem_of(name))}
    if variant not in LOOKS or variant == WHOLE:
        row["excess"] = objective_of(name).excess(model.weights_)
    return [row]


Key = tuple[str, float, str]


def ratios(rows: Rows) -> dict[Key, Interval]:
    """Excess over that of the default, by table, ε and what is left out."""
    return compared(rows, "excess", PARTS, WHOLE, ratio_interval)


def differences(rows: Rows, look: str, none: str) -> dict[Key, Interval]:
    """Loss with a look less that without it, by table, ε and variant."""

    def subtract(ones: list[float], others: list[float]) -> Interval:
        return mean_interval(np.subtract(ones, others))

    return compared(rows, "loss", (look,), none, subtract)


def compared(
    rows: Rows, key: str, variants: Iterable[str], other: str, compare: Any
) -> dict[Key, Interval]:
    """Compare variants with another one, seed by seed."""
    found = {}
    for (table, epsilon), some in grouped(rows, "table", "epsilon").items():
        by = {
            variant: column(sorted(own, key=lambda row: row["seed"]), key)
            for (variant,), own in grouped(some, "variant").items()
            if all(key in row for row in own)
        }
        for variant in variants:
            if {variant, other} <= set(by):
                found[table, epsilon, variant] = compare(by[variant], by[other])
    return found


def over_all(rows: Rows, variant: str) -> Interval:
    """Geometric mean of a variant's ratios, its interval over tables and budgets."""
    return geometric_interval(
        ratio.mean for key, ratio in ratios(rows).items() if key[2] == variant
    )


def draw(rows: Rows) -> Figure:
    figure, axes = panels(1, len(EPSILONS), height=3.0, sharey=True)
    found = ratios(rows)
    tables = list(dict.fromkeys(table for table, _, _ in found))
    parts = list(PARTS)
    for panel, epsilon in zip(axes[0], EPSILONS, strict=True):
        panel.set_yscale("log")
        panel.axhline(1.0, color="#999999", linewidth=0.8)
        panel.set_title(f"ε = {epsilon:g}")
        for index, table in enumerate(tables):
            seen = [found.get((table, epsilon, part)) for part in parts]
            points = [(k, ratio) for k, ratio in enumerate(seen) if ratio is not None]
            panel.errorbar(
                [k + 0.12 * (index - (len(tables) - 1) / 2) for k, _ in points],
                [ratio.mean for _, ratio in points],
                yerr=np.array(
                    [(r.mean - r.low, r.high - r.mean) for _, r in points]
                ).T.reshape(2, -1),
                fmt="os^Dvp"[index % 6],
                markersize=4,
                color=COLOURS[index % len(COLOURS)],
                label=table,
            )
        panel.set_xticks(range(len(parts)), parts)
        panel.set_xlabel("left out")
    axes[0, 0].set_ylabel("excess / that of the default")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=6)
    return figure


def text(rows: Rows) -> str:
    n_seeds = len(set(column(rows, "seed")))
    meanings = "\n".join(f"- *{part}*: {said}." for part, (_, said) in PARTS.items())
    tables = "\n\n".join(_table(rows, epsilon) for epsilon in EPSILONS)
    return f"""
The excess of figure A, of fits by the estimators with one part of their default left
out at a time. The budget of that part is left to the others. {n_seeds} seeds, the same
for all variants; δ = {DELTA:g}, zero-out. Numbers are excess over that of the whole
default, which is the system *ours* of figure A: above 1, the part pays.

{meanings}

{tables}

{_verdicts(rows)}

**The look** narrows ranges and clips numbers to them, so it changes which model is
fitted, and figure A leaves it out, because the ranges of its schemas fit the tables.
The table has the mean loss of the model's own predictions on the rows that were fitted,
with a look less without one, times 1000: below 0, the look pays. *Wide* ranges are
{WIDER:g} times as wide as those of figure A. [Scores on other
rows](../ranges.md) were measured, too.

{_looks(rows)}"""


def _table(rows: Rows, epsilon: float) -> str:
    found = ratios(rows)
    tables = list(dict.fromkeys(table for table, e, _ in found if e == epsilon))
    lines = [
        f"| left out, ε = {epsilon:g} | " + " | ".join(tables) + " |",
        "|---" * (len(tables) + 1) + "|",
    ]
    for part in PARTS:
        shown = [str(found.get((t, epsilon, part), "–")) for t in tables]
        lines.append(f"| {part} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _verdicts(rows: Rows) -> str:
    found, said = ratios(rows), []
    for part in PARTS:
        own = [ratio for key, ratio in found.items() if key[2] == part]
        if own:
            pays = sum(ratio.low > 1 for ratio in own)
            costs = sum(ratio.high < 1 for ratio in own)
            said.append(
                f"*{part}* pays in {pays} and costs in {costs} of {len(own)} "
                f"settings, {over_all(rows, part)} over all"
            )
    return f"By 95 % intervals, {'; '.join(said)}."


def _looks(rows: Rows) -> str:
    """Say what the look changes, with ranges that fit and with wide ones."""
    tables = list(dict.fromkeys(column(rows, "table")))
    lines = [
        "| ranges | ε | " + " | ".join(tables) + " |",
        "|---" * (len(tables) + 2) + "|",
    ]
    for name, look, none in (
        ("fitting", "look", WHOLE),
        ("wide", "wide, look", "wide"),
    ):
        found = differences(rows, look, none)
        for epsilon in EPSILONS:
            shown = []
            for table in tables:
                change = found.get((table, epsilon, look))
                thousand = change and Interval(*(1000 * each for each in change))
                shown.append(str(thousand or "–"))
            lines.append(f"| {name} | {epsilon:g} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def losses(rows: Rows) -> list[str]:
    """Where the default has more excess than without one of its parts."""
    points = []
    for part in PARTS:
        worse = [
            f"{table} at ε = {epsilon:g} ({ratio})"
            for (table, epsilon, left_out), ratio in ratios(rows).items()
            if left_out == part and ratio.high < 1
        ]
        if worse:
            points.append(
                f"without its {part}, our default has less excess on "
                f"{', '.join(worse)}; the ratio is in brackets."
            )
    worse = [
        f"{table} at ε = {epsilon:g}"
        for (table, epsilon, _), change in differences(rows, "look", WHOLE).items()
        if change.low > 0
    ]
    if worse:
        points.append(
            f"where ranges fit, a look raises the loss on {', '.join(worse)}."
        )
    return points
