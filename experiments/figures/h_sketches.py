"""Sketches that are not columns, and sets that follow released gradients.

Each step of every system moves one of G sets of directions, G being the number of
columns: the columns themselves, blocks of a random rotation, or of the eigenvectors of
the released Gram matrix. All are `skdp.descent.sketches.Sketched` geometries that
differ in what is listed in `SYSTEMS` alone.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.drawing import label_ends, line, panels, style
from experiments.folders import modules
from experiments.paths import ENGINE
from experiments.problems import Objective, objective_of
from experiments.statistics import (
    Rows,
    column,
    geometric_interval,
    grouped,
    mean_interval,
)
from experiments.theory import sketch_bounds
from skdp.descent import algorithm1
from skdp.descent.plan import Plan, run
from skdp.descent.samplings import Blocks, Full
from skdp.descent.sketches import Sketched, bound_image, randomised_hadamard
from skdp.privacy import accountant
from skdp.schema import FloatArray, count_in_words

TITLE = "Sketches: rotations, eigenvectors, and sets that follow the gradient"
DELTA = 1e-6
SEEDS = range(10)
#: ε -> how often each set is visited, on average: a smaller budget carries fewer steps.
SWEEPS = {0.1: (1, 4, 16), 1.0: (4, 16, 64)}
GRAM_SHARE = 0.15
#: System -> directions, whether the Gram matrix is released, law of the sets, weighted.
SYSTEMS: dict[str, tuple[str, bool, str, bool]] = {
    "columns": ("columns", False, "fixed", False),
    "columns, norms": ("columns", False, "norms", False),
    "columns, norms, weighted": ("columns", False, "norms", True),
    "columns, largest": ("columns", False, "largest", False),
    "rotation": ("rotation", False, "fixed", False),
    "columns, Gram": ("columns", True, "fixed", False),
    "rotation, Gram": ("rotation", True, "fixed", False),
    "eigenvectors": ("eigenvectors", True, "fixed", False),
    "eigenvectors, norms": ("eigenvectors", True, "norms", False),
    "eigenvectors, largest": ("eigenvectors", True, "largest", False),
    "all eigenvectors": ("eigenvectors", True, "fixed", False),
}
#: Comparisons that the text makes: a system, what it is compared with, and what for.
PAIRS = (
    ("rotation", "columns", "a random rotation instead of columns, public bounds"),
    ("columns, Gram", "columns", "step sizes from the released Gram matrix"),
    ("rotation, Gram", "columns, Gram", "a rotation instead of columns, both with it"),
    ("eigenvectors", "columns, Gram", "eigenvectors instead of columns, both with it"),
    ("eigenvectors", "rotation, Gram", "eigenvectors instead of a random rotation"),
    ("eigenvectors", "all eigenvectors", "one block of eigenvectors instead of all"),
    ("columns, norms", "columns", "sets that follow the norms"),
    ("columns, norms, weighted", "columns", "the same with unbiased (weighted) steps"),
    ("columns, largest", "columns", "the set with the largest known gradient"),
    ("eigenvectors, norms", "eigenvectors", "eigenvectors that follow the norms"),
    ("eigenvectors, largest", "eigenvectors", "the largest block of eigenvectors"),
)


def cells() -> list[dict[str, Any]]:
    return [
        {"table": t, "system": s, "epsilon": e, "sweeps": k, "seed": seed}
        for seed in SEEDS
        for t in modules("data")
        for s in SYSTEMS
        for e, visits in SWEEPS.items()
        for k in visits
    ]


def make_plan(goal: Objective, cell: dict[str, Any]) -> Plan:
    """Return the plan of a cell. It reads nothing but public facts."""
    problem, layout = goal.problem, goal.problem.layout
    d, n_sets = layout.n_features, len(layout.groups)
    kind, gram, law, weighted = SYSTEMS[cell["system"]]
    options: dict[str, Any] = {"law": law, "weighted": weighted}
    if gram:
        mu = accountant.gdp_mu(cell["epsilon"], DELTA)
        floor = max(1e-4, 1.5 * math.sqrt(d) / (problem.n_rows * mu))
        options |= {"gram_share": GRAM_SHARE, "floor": floor, "cap": 1.0}
    matrices: dict[str, Callable[[], FloatArray | None]] = {
        "columns": lambda: np.eye(d),
        "rotation": lambda: randomised_hadamard(d),
        "eigenvectors": lambda: None,
    }
    directions = matrices[kind]()
    n_directions = d if directions is None else len(directions)
    blocks = np.array_split(np.arange(n_directions), n_sets)
    sampling = Blocks.uniform(layout.blocks if kind == "columns" else blocks)
    whole = cell["system"] == "all eigenvectors"
    return Plan(
        layout=layout,
        loss=problem.loss,
        n_rows=problem.n_rows,
        epsilon=cell["epsilon"],
        delta=DELTA,
        sampling=Full(d) if whole else sampling,
        geometry=Sketched(directions=directions, **options),
        n_steps=cell["sweeps"] * (1 if whole else n_sets),
        penalty=problem.penalty,
        neighbours=problem.neighbours,
        average=algorithm1.most,
    )


def measure(cell: dict[str, Any]) -> Rows:
    goal = objective_of(cell["table"])
    problem, plan = goal.problem, make_plan(goal, cell)
    touched: list[int] = []

    def count(step: Any) -> None:
        matrix = plan.geometry.directions
        moved = slice(None) if matrix is None else matrix[step.at].any(axis=0)
        touched.append(len(np.unique(problem.layout.group_of[moved])))

    fit = run(
        plan,
        problem.records,
        engine=ENGINE,
        random_state=cell["seed"],
        callback=count,
    )
    row = {
        "excess": goal.excess(fit.weights),
        "n_steps": plan.n_steps,
        "passes": sum(touched) / len(problem.layout.groups),
        "start": goal.excess(problem.start),
    }
    if not plan.geometry.share and cell["system"] in ("columns", "rotation"):
        row["bound"] = find_bound(goal, plan)
    return [row]


def find_bound(goal: Objective, plan: Plan) -> float:
    """Theorem S2 at the true w*, without the light ridge."""
    problem, layout = goal.problem, goal.problem.layout
    loss, Q = problem.loss, plan.geometry.directions
    X = goal._X
    hessian = loss.curvature * (X.T @ X).toarray() / problem.n_rows
    chosen = [Q[at] for at in plan.sampling.support]
    roots = [rows / bound_image(layout, rows) for rows in chosen]
    law = sketch_bounds.SketchLaw(
        roots=roots,
        probabilities=plan.sampling.set_probabilities,
        curvature=loss.curvature,
    )
    mu = accountant.gdp_mu(plan.epsilon, plan.delta)
    z = plan.noise_multiplier(mu**2)
    stds = [z * loss.slope_bound * bound_image(layout, r) / plan.n_rows for r in roots]
    return sketch_bounds.convex_bound(
        law,
        plan.n_steps,
        displacement=goal.minimiser[:, 0],
        excess=goal.excess(problem.start),
        stds=stds,
        hessian=hessian,
    )


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        cell
        for cell in cells
        if (cell["table"], cell["seed"], cell["sweeps"]) == ("hospital", 0, 4)
    ]


# ---- the page

SHOWN = (
    "eigenvectors",
    "all eigenvectors",
    "rotation, Gram",
    "columns, Gram",
    "columns",
    "columns, norms",
    "rotation",
)


def draw(rows: Rows) -> Figure:
    tables = list(dict.fromkeys(column(rows, "table")))
    budgets = sorted(set(column(rows, "epsilon")))
    figure, axes = panels(len(tables), len(budgets), sharex="col", height=2.4)
    for (table, epsilon), some in grouped(rows, "table", "epsilon").items():
        panel = axes[tables.index(table), budgets.index(epsilon)]
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_title(f"{table}, ε = {epsilon:g}")
        panel.set_ylabel("excess risk")
        if table == tables[-1]:
            panel.set_xlabel("visits to each set")
        for number, system in enumerate(SHOWN):
            own = [row for row in some if row["system"] == system]
            by = sorted(grouped(own, "sweeps").items())
            if by:
                y = [mean_interval(column(each, "excess")) for _, each in by]
                look = style(number) | {"marker": "o", "label": system}
                line(panel, [k for (k,), _ in by], y, **look)
        ticks = sorted(set(column(some, "sweeps")))
        panel.set_xticks(ticks, [str(k) for k in ticks])
        panel.xaxis.minorticks_off()
        label_ends(panel)
    return figure


def best(rows: Rows, table: str, epsilon: float, system: str) -> float:
    """Mean excess over the seeds, at the number of visits for which it is least."""
    own = [
        row
        for row in rows
        if (row["table"], row["epsilon"], row["system"]) == (table, epsilon, system)
    ]
    by = grouped(own, "sweeps").values()
    return min(
        (float(np.mean(column(some, "excess"))) for some in by), default=math.nan
    )


def compared(rows: Rows, one: str, other: str) -> dict[tuple[str, float], float]:
    """Ratio of excess in each setting, each system at its own best number of visits."""
    found = {
        (table, epsilon): best(rows, table, epsilon, one)
        / best(rows, table, epsilon, other)
        for table, epsilon in grouped(rows, "table", "epsilon")
    }
    return {where: ratio for where, ratio in found.items() if ratio > 0}


def text(rows: Rows) -> str:
    return f"""
Every step moves one of as many sets as the table has columns, and every system is
[Algorithm 1 with a sketch](../../guide/sketches.md). The directions are the columns,
the rows of a randomised Hadamard matrix in blocks of equal size, or the eigenvectors of
the released Gram matrix in blocks from the largest to the smallest. *Gram* and the
eigenvectors spend {GRAM_SHARE:.0%} of the budget on that matrix, take steps in its
metric and cap a record's gradient on a set of m directions at √m. The others use public
bounds, and no cap of theirs is ever reached. *Norms* and *largest* draw sets by the
gradients released so far, mixed half and half with uniform draws. Each system visits
each set 1, 4 or 16 times on average at ε = 0.1, and 4, 16 or 64 times at ε = 1.
Comparisons take the best of these for both sides, which a real fit could not. The
average leaves out the first fifth of the iterates. Means are over {seeds(rows)}. The
intervals below are over settings (a table and an ε), for geometric means of ratios.
Below 1 is better.

{ratio_table(rows)}

{about_bounds(rows)}

{about_passes(rows)}
"""


def seeds(rows: Rows) -> str:
    """Say how many seeds were run."""
    return count_in_words(len(set(column(rows, "seed"))), "seed")


def ratio_table(rows: Rows) -> str:
    """Write how often each change helps, and by how much."""
    lines = [
        "| what | instead of | ratio of excess, all settings | range | smaller in | "
        "so it |",
        "|---|---|---|---|---|---|",
    ]
    for one, other, what in PAIRS:
        ratios = list(compared(rows, one, other).values())
        if ratios:
            better, found = sum(r < 1 for r in ratios), geometric_interval(ratios)
            verdict = (
                "pays" if found.high < 1 else "costs" if found.low > 1 else "is open"
            )
            lines.append(
                f"| {one}: {what} | {other} | {found} | {min(ratios):.2f} to "
                f"{max(ratios):.2f} | {better} of {len(ratios)} | {verdict} |"
            )
    return "\n".join(lines)


def about_bounds(rows: Rows) -> str:
    """Say whether Theorem S2's bound held, and how loose it is."""
    bounded = [row for row in rows if "bound" in row]
    points = grouped(bounded, "table", "epsilon", "system", "sweeps").values()
    shares = [
        float(np.mean(column(some, "excess"))) / some[0]["bound"] for some in points
    ]
    if not shares:
        return ""
    above = sum(share > 1 for share in shares)
    return (
        "Theorem S2's bound, for the true w*, without the light ridge and for the mean "
        f"of all iterates, for *columns* and *rotation*: {above} of {len(shares)} "
        "means are above it; they are "
        f"{min(shares):.2g} to {max(shares):.2g} of it."
    )


def about_passes(rows: Rows) -> str:
    """Say what the systems cost in passes over the table."""
    top = max(column(rows, "sweeps"))
    parts = []
    for (system,), some in grouped(rows, "system").items():
        passes = [row["passes"] for row in some if row["sweeps"] == top]
        if passes:
            parts.append(f"{system} {min(passes):.0f} to {max(passes):.0f}")
    return (
        f"Passes over the table at {top} visits, by which directions that touch all "
        f"columns are dearer: {'; '.join(parts)}."
    )


def losses(rows: Rows) -> list[str]:
    """Which sketches are worse than what they replace in half of the settings."""
    points = []
    for one, other, what in PAIRS:
        ratios = list(compared(rows, one, other).values())
        worse = sum(ratio > 1 for ratio in ratios)
        if 2 * worse >= max(len(ratios), 1):
            points.append(
                f"{one} ({what}) has more excess than {other} in {worse} of "
                f"{len(ratios)} settings, up to {max(ratios):.2f} times as much."
            )
    return points
