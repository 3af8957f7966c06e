"""Penalties that couple coordinates: DP-SEGA against full steps and plain sketches.

F = f + ψ with ψ a total variation, a group lasso or a simplex. All systems spend the
same budget, start at zero and take their number of steps from their own bound, for
weights of norm 1 in each column.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.drawing import line, panels, style
from experiments.folders import modules
from experiments.paths import ENGINE
from experiments.problems import Objective, make_problem
from experiments.statistics import (
    Interval,
    Rows,
    column,
    grouped,
    mean_interval,
    ratio_interval,
)
from skdp.descent import algorithm1, bounds, samplings
from skdp.descent.algorithm1 import draw_course, run_steps
from skdp.descent.geometry import make_diagonal_update
from skdp.descent.rule import preset
from skdp.descent.sega_bounds import Sega, choose_metric, find_variances, sega_bound
from skdp.models.penalties import (
    GroupLasso,
    Penalty,
    Simplex,
    TotalVariation,
)
from skdp.privacy import accountant, queries
from skdp.privacy.visits import visit_gradients
from skdp.schema import Categorical, FloatArray, IntArray, Layout, Numeric, Schema
from skdp.solvers import Problem, dp_sega
from skdp.solvers.problem import open_run
from tables import Table

TITLE = "Penalties that couple coordinates, and DP-SEGA"
DELTA = 1e-6
SEEDS = range(10)
MADE_ROWS = 2000
METHODS = {
    "full": "full steps",
    "columns": "DP-SkGD, columns",
    "sega": "DP-SEGA",
    "published": "DP-SEGA, α = 1",
    "sketch": "sketch without memory",
}


#: What is run without noise too, on which table, and for how many steps.
BARE = "made up levels, total variation"
SKETCHES, NOISELESS_STEPS = ("sega", "published", "sketch"), 6000


def total_variation(layout: Layout) -> Penalty:
    return TotalVariation(0.002, layout.list_columns(ordered=True))


def group_lasso(layout: Layout) -> Penalty:
    return GroupLasso(0.002, layout.list_columns())


def simplex(layout: Layout) -> Penalty:
    return Simplex([np.concatenate(layout.list_columns()).tolist()], total=2.0)


def make_levels() -> Table:
    """Draw ordered levels whose effects are few steps, and classes of that model."""
    rng = np.random.default_rng(0)
    codes = rng.integers(8, size=(MADE_ROWS, 8))
    effects = np.cumsum(
        rng.normal(size=(8, 8)) * (rng.random((8, 8)) < 0.25) * 1.5, axis=1
    )
    margin = (effects - effects.mean(axis=1, keepdims=True))[np.arange(8), codes].sum(1)
    y = (rng.random(MADE_ROWS) < 1 / (1 + np.exp(-margin))).astype(int)
    names = [f"x{j}" for j in range(8)]
    levels = Categorical(list(range(8)))
    schema = Schema(dict.fromkeys(names, levels), target=Categorical([0, 1]))
    return Table(pd.DataFrame(codes, columns=names), y, schema)


def make_mixture() -> Table:
    """Draw numbers, and a mixture of four of twelve columns with noise."""
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(MADE_ROWS, 12))
    share = np.array([0.4, 0.3, 0.2, 0.1] + [0.0] * 8)
    y = x @ share + 0.1 * rng.normal(size=MADE_ROWS)
    names = [f"x{j}" for j in range(12)]
    schema = Schema(dict.fromkeys(names, Numeric(0, 1)), target=Numeric(0.0, 1.0))
    return Table(pd.DataFrame(x, columns=names), y, schema)


def read_adult() -> Table:
    return modules("data")["adult"].load()


def read_curves() -> Table:
    """California's numbers, each a curve with six knots."""
    table = modules("data")["california"].load()
    curves = {
        name: replace(kind, knots=6) if isinstance(kind, Numeric) else kind
        for name, kind in table.schema.columns.items()
    }
    return replace(table, schema=replace(table.schema, columns=curves))


#: Table, penalty and the budgets that are tried.
CASES: dict[str, tuple[Callable[[], Table], Callable[[Layout], Penalty], Any]] = {
    BARE: (make_levels, total_variation, (0.3, 1)),
    "made up mixture, simplex": (make_mixture, simplex, (0.1, 0.3)),
    "adult, group lasso": (read_adult, group_lasso, (0.03,)),
    "california curves, total variation": (read_curves, total_variation, (0.03,)),
}


def cells() -> list[dict[str, Any]]:
    return [
        {"table": case, "epsilon": epsilon, "method": method, "seed": seed}
        for seed in SEEDS
        for case, (_, penalty, epsilons) in CASES.items()
        for epsilon in (*map(float, epsilons), math.inf)
        for method in (METHODS if epsilon < math.inf else SKETCHES)
        # The simplex couples all columns.
        if (method != "columns" or penalty is not simplex)
        and (epsilon < math.inf or (case == BARE and seed == 0))
    ]


def quick(every: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep one seed of tables that are made up, with the least budget."""
    return [
        cell
        for cell in every
        if cell["table"].startswith("made up")
        and cell["epsilon"] == 0.3
        and cell["seed"] == 0
    ]


class Composite(Objective):
    """F = f + ψ with any penalty; its minimum by accelerated proximal steps."""

    def slope(self, weights: FloatArray) -> FloatArray:
        """∇f, without the penalty."""
        slope = self.problem.loss.slope(self._X @ weights, self._target)
        return np.asarray(self._X.T @ slope / len(self._target))

    def _newton(self) -> FloatArray:
        problem, n = self.problem, len(self._target)
        gram = (self._X.T @ self._X).toarray() / n
        largest = float(np.linalg.eigvalsh(gram)[-1])
        self.top = top = problem.curvature * largest * (1 + 1e-9)
        metric = np.full(len(gram), top)
        found = ahead = problem.start
        speed = 1.0
        for _ in range(20_000):
            moved = ahead - self.slope(ahead) / top
            reached = problem.penalty.prox(moved, metric, problem.all)
            if float(((ahead - reached) * (reached - found)).sum()) > 0:
                speed = 1.0
            following = (1 + math.sqrt(1 + 4 * speed**2)) / 2
            residual = float(np.abs(reached - ahead).max())
            ahead = reached + (speed - 1) / following * (reached - found)
            found, speed = reached, following
            if residual < 1e-8:
                break
        return found


@cache
def objective(case: str) -> Composite:
    read, penalty, _ = CASES[case]
    problem = make_problem(read())
    return Composite(replace(problem, penalty=penalty(problem.layout)))


def budget_of(problem: Problem, epsilon: float) -> bounds.Budget:
    return bounds.Budget(
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=DELTA,
        neighbours=problem.neighbours,
    )


def fit_usual(problem: Problem, name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Algorithm 1 with the preset's sets, smoothness and number of steps."""
    plan: Any = preset(
        name,
        problem.layout,
        problem.loss,
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=DELTA,
        neighbours=problem.neighbours,
    )
    run = open_run(problem, epsilon=epsilon, delta=DELTA, random_state=seed)
    table, M = ENGINE(problem.records), plan.geometry.smoothness

    def query(at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        shape = np.ones(len(at))
        return queries.gradient(
            table, problem.slopes(), weights, at, problem.neighbours, shape
        )

    course = draw_course(
        plan.sampling.sets,
        partial(visit_gradients, problem.layout),
        n_steps=plan.n_steps,
        n_restarts=1,
        randomness=run.noise,
    )
    weights = run_steps(
        query=query,
        update=make_diagonal_update(1.0 / M, problem.penalty, problem.n_rows),
        course=course,
        average=algorithm1.mean,
        start=problem.start,
        noise_multiplier=accountant.noise_multiplier(run.mu, course.most),
        randomness=run.noise,
        record=run.record,
    )
    share = float(plan.sampling.probabilities.min())
    return {"weights": weights, "n_steps": plan.n_steps, "passes": share * plan.n_steps}


def fit_sega(goal: Composite, method: str, epsilon: float, seed: int) -> dict[str, Any]:
    """DP-SEGA, and its bound at the true solution, which only an experiment knows."""
    problem = goal.problem
    damping = {"sega": None, "published": 1.0, "sketch": 0.0}[method]
    law = samplings.Blocks.uniform(problem.layout.blocks)
    bare = {}
    if epsilon == math.inf:  # nothing is private, so the table's own smoothness will do
        M, p = np.full(len(goal.minimiser), goal.top), law.probabilities
        metric = choose_metric(M, p, 0.5 if damping is None else damping or 0.5)
        bare = {"metric": metric, "n_steps": NOISELESS_STEPS}
    solved = dp_sega(
        problem,
        epsilon=epsilon,
        delta=DELTA,
        random_state=seed,
        engine=ENGINE,
        damping=damping,
        **bare,
    )
    share, used = float(law.probabilities.min()), solved.settings
    found = {
        "weights": solved.weights,
        "n_steps": solved.n_steps,
        "damping": used["damping"],
        # Every step moves the margins of all columns, and reads one for its gradient.
        "passes": solved.n_steps * (1 + share) / 2,
    }
    if damping == 0 or epsilon == math.inf:
        return found

    def lipschitz(at: IntArray) -> float:
        norm = math.sqrt(problem.layout.squared_norm(at))
        return problem.slope_bound * norm

    M = np.full(problem.layout.n_features, problem.curvature * problem.row_norm**2)
    sega = Sega(
        probabilities=law.probabilities,
        smoothness=M,
        metric=used["metric"],
        damping=used["damping"],
    )
    scale = budget_of(problem, epsilon).noise_scale
    noise = sega.compute_noise(scale**2 * find_variances(law, lipschitz))
    start = sega.compute_start(goal.minimiser, goal.slope(goal.minimiser))
    bound = sega_bound(solved.n_steps, start=start, noise=solved.n_steps * noise)
    return found | {"bound": bound}


def measure(cell: dict[str, Any]) -> Rows:
    goal = objective(cell["table"])
    method, epsilon, seed = cell["method"], cell["epsilon"], cell["seed"]
    if method in ("full", "columns"):
        name = "dp_gd" if method == "full" else "dp_skgd"
        found = fit_usual(goal.problem, name, epsilon, seed)
    else:
        found = fit_sega(goal, method, epsilon, seed)
    weights = found.pop("weights")
    return [
        {
            "excess": goal.excess(weights),
            "start": goal.excess(
                goal.problem.penalty.prox(
                    goal.problem.start,
                    np.ones(len(weights)),
                    goal.problem.all,
                )
            ),
            **found,
        }
    ]


def draw(rows: Rows) -> Figure:
    tables = grouped(private(rows), "table")
    figure, axes = panels(-(-len(tables) // 2), 2)
    for panel, ((table,), some) in zip(axes.ravel(), tables.items(), strict=False):
        panel.set(xscale="log", yscale="log", title=table)
        panel.set(xlabel="ε", ylabel="excess of F")
        for index, (method, label) in enumerate(METHODS.items()):
            own = grouped([r for r in some if r["method"] == method], "epsilon")
            if own:
                x = sorted(epsilon for (epsilon,) in own)
                y = [mean_interval(column(own[(e,)], "excess")) for e in x]
                look = style((index + 3) % 5 if index < 2 else index - 2)
                line(panel, x, y, label=label, marker="o", **look)
        ticks = sorted(set(column(some, "epsilon")))
        panel.set_xticks(ticks, [f"{e:g}" for e in ticks])
        panel.xaxis.minorticks_off()
        panel.axhline(some[0]["start"], color="#888888", linewidth=0.8, linestyle="--")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles.append(axes[0, 0].get_lines()[-1])
    labels.append("excess of the start")
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def private(rows: Rows) -> Rows:
    """Rows of runs with noise, in the order of the cases."""
    order = list(CASES)
    kept = [row for row in rows if row["epsilon"] < math.inf]
    return sorted(kept, key=lambda row: (order.index(row["table"]), row["epsilon"]))


def without_noise(rows: Rows) -> str:
    """Say what the sketches reach without noise."""
    found = []
    bare = [row for row in rows if row["epsilon"] == math.inf]
    for (case,), some in grouped(bare, "table").items():
        means = [
            f"{METHODS[method]} {np.mean(column(own, 'excess')):.2g}"
            for method, own in by_method(some).items()
        ]
        found.append(f"{case}: " + ", ".join(means))
    return "; ".join(found) + "."


def by_method(rows: Rows) -> dict[str, Rows]:
    """Rows of each method, by seed."""
    return {
        method: sorted(some, key=lambda row: row["seed"])
        for (method,), some in grouped(rows, "method").items()
    }


def compared(ones: Rows, others: Rows) -> Interval:
    """Ratio of excesses, paired by seed."""
    return ratio_interval(column(ones, "excess"), column(others, "excess"))


def text(every: Rows) -> str:
    rows = private(every)
    bounded = [row for row in rows if "bound" in row]
    shares = [row["excess"] / row["bound"] for row in bounded]
    seeds = len(set(column(rows, "seed")))
    dampings = sorted({r["damping"] for r in rows if r["method"] == "sega"})
    return f"""
F is f plus a penalty that couples coordinates, and the excess is F(w) − F*, with F* by
accelerated proximal steps without noise. The penalties: total variation along the
levels or knots of each column, a group lasso by column, and the simplex over all
columns. [DP-SEGA](../../guide/sega.md) releases the gradient of one column per step and
moves all coordinates; its damping, from its bound, is α = {dampings[0]:g} to
{dampings[-1]:g}. *Sketch without memory* is the same with α = 0. *Full steps* and
*DP-SkGD, columns* are Algorithm 1; the latter needs a penalty that is a sum over
columns, so the simplex has none. Noise is isotropic. Means are over {seeds} seeds.

{table(rows)}

**Against full steps.** {against(rows, "full")} Its theorem predicts a loss: at the same
budget its bound is √((2 + α)/(2 − α)) times that of full steps, and more where the
gradient at the solution is not zero.

**Against DP-SkGD by columns.** {against(rows, "columns")} Where a penalty is a sum over
columns, block steps are right, and their smoothness is that of one column.

**What the memory buys.** {against(rows, "sketch", "a sketch without memory")} The
memory removes what the sketch itself adds, and that is little beside the noise of
privacy. Without noise, and with the table's own smoothness, the excess after
{NOISELESS_STEPS:,} steps is, on {without_noise(every)}

**Against its own bound.** Of {len(shares)} runs with a bound at the true solution,
{sum(share > 1 for share in shares)} exceed it; they are at {min(shares):.3f} to
{max(shares):.3f} of it.
"""


def against(rows: Rows, rival: str, name: str = "") -> str:
    """Say how DP-SEGA compares with another method in each panel."""
    found = []
    for (case, epsilon), some in grouped(rows, "table", "epsilon").items():
        methods = by_method(some)
        if {"sega", rival} <= set(methods):
            ratio = compared(methods["sega"], methods[rival])
            found.append(f"{case}, ε = {epsilon:g}: {ratio}")
    label = name or METHODS[rival]
    return f"DP-SEGA's excess over that of {label}: " + "; ".join(found) + "."


def table(rows: Rows) -> str:
    lines = [
        "| table, penalty | ε | " + " | ".join(METHODS.values()) + " |",
        "|---|---|" + "---|" * len(METHODS),
    ]
    for (case, epsilon), some in grouped(rows, "table", "epsilon").items():
        methods = by_method(some)
        entries = []
        for method in METHODS:
            own = methods.get(method)
            if own is None:
                entries.append("not right")
                continue
            mean = mean_interval(column(own, "excess"))
            passes = float(np.mean(column(own, "passes")))
            entries.append(f"{mean}; {passes:,.0f} passes")
        lines.append(f"| {case} | {epsilon:g} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def losses(rows: Rows) -> list[str]:
    """Where DP-SEGA has more excess than Algorithm 1."""
    points = []
    for (case, epsilon), some in grouped(private(rows), "table", "epsilon").items():
        methods = by_method(some)
        for rival in ("full", "columns"):
            if {"sega", rival} <= set(methods):
                ratio = compared(methods["sega"], methods[rival])
                if ratio.low > 1:
                    points.append(
                        f"{case}, ε = {epsilon:g}: DP-SEGA has {ratio} times the "
                        f"excess of {METHODS[rival]}."
                    )
    return points
