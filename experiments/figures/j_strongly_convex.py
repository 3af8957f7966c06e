"""Strongly convex problems: the √d cases again, and Theorems D, E and F on tables.

The cases are those of figure C with two functions: ½μ‖w - w*‖², μ = M_min, and
½μ_M‖w - w*‖²_M. Each method runs the paper's restarts, with corrected K and T, and one
run with growing weights (Theorem C), whose modulus is that in the norm of M P⁻¹.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import COLOURS, line, panels
from experiments.paths import ENGINE
from experiments.problems import Objective, problem_of
from experiments.quadratics import simulate
from experiments.statistics import (
    Interval,
    Rows,
    column,
    geometric_interval,
    grouped,
    mean_interval,
    ratio_interval,
)
from experiments.theory.rates import strongly_convex_corrected, strongly_convex_weighted
from experiments.theory_table import Array, Case, Method, cases, facts
from skdp.descent.algorithm1 import growing, mean
from skdp.descent.bounds import Budget, Prior
from skdp.descent.plan import Plan, run
from skdp.descent.rule import (
    choose_matrix_rate,
    choose_rate,
    choose_strong_rate,
    preset,
)
from skdp.models.penalties import ElasticNet
from skdp.solvers import Problem

TITLE = "Strongly convex problems, and the theorems for blocks"
SEEDS = range(10)
EPSILON, DELTA = 1.0, 1e-6
N_RUNS, DIMENSIONS = 100, (8, 32)
#: M_max/M_min over d, as in figure C.
SPREAD = 8.0
#: The paper's cases of figure C.
CASES = (
    "importance / DP-CD: steep coordinate far",
    "full / gradient descent: flat coordinate far",
    "blocks / gradient descent: flat coordinate far",
)
#: Strongly convex functions, and μ_M of the second.
FUNCTIONS = {"I": "½μ‖w − w*‖²", "M": "½μ_M‖w − w*‖²_M"}
SCALED = 0.5
WAYS = {"restarts": "restarts (the paper)", "weighted": "growing weights (Theorem C)"}
#: Number of rows over that at which restarts would have no budget for a first halving.
MORE_ROWS = 30.0
TABLES, EPSILONS = ("hospital", "electricity"), (0.3, 1.0)
RIDGE, LASSO = 0.01, 0.002
#: Presets on tables, by the theorem that plans them, and the penalty of F.
PLANS = {
    "B": ("dp_skgd", ElasticNet(l2=RIDGE)),
    "D": ("dp_skgd", ElasticNet(l1=LASSO, l2=RIDGE)),
    "E": ("dp_skgd_strong", ElasticNet(l2=RIDGE)),
    "F": ("dp_skgd_matrix", ElasticNet(l2=RIDGE)),
}


def cells() -> list[dict[str, Any]]:
    special = [
        {"case": case, "f": f, "d": d, "seed": seed}
        for case in CASES
        for f in FUNCTIONS
        for d in DIMENSIONS
        for seed in SEEDS
    ]
    on_tables = [
        {"table": table, "theorem": theorem, "epsilon": epsilon, "seed": seed}
        for table in TABLES
        for theorem in PLANS
        for epsilon in EPSILONS
        for seed in SEEDS
    ]
    return special + on_tables


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    small = [c for c in cells if c["seed"] == 0 and c.get("d", 8) == 8]
    return [
        c
        for c in small
        if c.get("table", "hospital") == "hospital" and c.get("epsilon", 1.0) == 1.0
    ]


def measure(cell: dict[str, Any]) -> Rows:
    return [measure_case(cell) if "case" in cell else measure_table(cell)]


# ---- the special cases


def bends(case: Case, f: str) -> Array:
    """The second derivatives of f."""
    m = case.method.smoothness
    return np.full(len(m), m.min()) if f == "I" else SCALED * m


def excess_of(case: Case, f: str) -> float:
    """The excess of the start."""
    return 0.5 * float(bends(case, f) @ np.square(case.displacement))


def condition_of(method: Method, case: Case, f: str) -> float:
    """max_i(M_i/p_i)/μ, with the modulus in the Euclidean norm, as in Table 1."""
    ratio = method.smoothness / method.sampling.probabilities
    return float(ratio.max() / bends(case, f).min())


def rates_of(method: Method, case: Case, f: str, budget: Budget) -> dict[str, Any]:
    """The rates of both ways. Theorem C has its modulus in the norm M P⁻¹."""
    p = method.sampling.probabilities
    distance, sigma = facts(method, case.displacement)
    modulus = float((bends(case, f) * p / method.smoothness).min())
    return {
        "restarts": strongly_convex_corrected(
            condition=condition_of(method, case, f),
            sigma_squared=sigma,
            excess=excess_of(case, f),
            budget=budget,
        ),
        "weighted": strongly_convex_weighted(
            modulus=min(modulus, float(p.min()) / 4),
            probabilities=p,
            distance_squared=distance,
            sigma_squared=sigma,
            budget=budget,
        ),
    }


def budget_for(case: Case, f: str) -> Budget:
    """A budget at which both methods restart several times."""
    unit = Budget(n_rows=1, epsilon=EPSILON, delta=DELTA).noise_scale
    needed = []
    for method in (case.method, case.baseline):
        _, sigma = facts(method, case.displacement)
        level = 4.0 * (1.0 + condition_of(method, case, f)) * unit**2 * sigma
        needed.append(math.sqrt(level / excess_of(case, f)))
    n_rows = math.ceil(MORE_ROWS * max(needed))
    return Budget(n_rows=n_rows, epsilon=EPSILON, delta=DELTA)


def measure_case(cell: dict[str, Any]) -> dict[str, Any]:
    """Excess and bound of a method and its baseline, both ways."""
    d, f = cell["d"], cell["f"]
    (case,) = (each for each in cases(d, SPREAD * d) if each.name == cell["case"])
    budget = budget_for(case, f)
    rng = np.random.default_rng([cell["seed"], d])
    row: dict[str, Any] = {"n": budget.n_rows}
    for side, method in (("", case.method), ("baseline_", case.baseline)):
        for way, rate in rates_of(method, case, f, budget).items():
            runs = simulate(
                method,
                bends(case, f),
                case.displacement,
                rate.n_steps,
                n_restarts=rate.n_restarts,
                noise_scale=budget.noise_scale,
                averages=[growing(rate.decay) if rate.decay else mean],
                rng=rng,
                n_runs=N_RUNS,
            )
            row[f"{side}{way}"] = float(runs.mean())
            row[f"{side}{way}_bound"] = rate.bound
    return row


# ---- tables


class Composite(Objective):
    """f plus an elastic net on all coordinates, minimised by proximal steps."""

    def __init__(self, problem: Problem) -> None:
        net = problem.penalty
        assert isinstance(net, ElasticNet)
        smooth = ElasticNet(l2=net.l2)
        self._net = net
        super().__init__(_with_penalty(problem, smooth))
        if net.l1:
            self.minimiser = self._shrink()
            self.minimum = self.value(self.minimiser)

    def value(self, weights: Array) -> float:
        """F(w)."""
        extra = self._net.l1 * float(np.abs(weights).sum())
        return super().value(weights) + extra

    def _newton(self) -> Array:
        kept, self._net = self._net, ElasticNet(l2=self._net.l2)
        found = super()._newton()
        self._net = kept
        return found

    def _shrink(self) -> Array:
        """Accelerated proximal steps, restarted where they go uphill."""
        here = before = self.minimiser
        steep = float(np.linalg.eigvalsh(self.hessian(here))[-1])
        steep = max(4.0 * steep, 0.25 * len(self.problem.layout.groups))
        speed = 1.0
        for _ in range(20_000):
            faster = (1 + math.sqrt(1 + 4 * speed**2)) / 2
            ahead = here + (speed - 1) / faster * (here - before)
            moved = ahead - self.gradient(ahead) / steep
            kept = np.maximum(np.abs(moved) - self._net.l1 / steep, 0.0)
            there = np.copysign(kept, moved)
            uphill = float(((ahead - there) * (there - here)).sum()) > 0
            before, here, speed = here, there, 1.0 if uphill else faster
            if float(np.abs(here - before).max()) < 1e-12:
                break
        return here


def _with_penalty(problem: Problem, penalty: ElasticNet) -> Problem:
    return Problem(
        records=problem.records,
        loss=problem.loss,
        n_rows=problem.n_rows,
        penalty=penalty,
        neighbours=problem.neighbours,
    )


@cache
def objective(table: str, theorem: str) -> Composite:
    return Composite(_with_penalty(problem_of(table), PLANS[theorem][1]))


def plan_of(table: str, theorem: str, epsilon: float) -> Plan:
    problem = problem_of(table)
    name, penalty = PLANS[theorem]
    return preset(
        name,
        problem.layout,
        problem.loss,
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=DELTA,
        neighbours=problem.neighbours,
        penalty=penalty,
    )


@cache
def true_bound(table: str, theorem: str, epsilon: float) -> float:
    """The theorem's bound for the true w*, at the steps that were planned."""
    goal, plan = objective(table, theorem), plan_of(table, theorem, epsilon)
    problem, best = goal.problem, goal.minimiser[:, 0]
    budget = Budget(
        n_rows=problem.n_rows,
        epsilon=epsilon,
        delta=DELTA,
        neighbours=problem.neighbours,
    )
    excess = goal.excess(problem.start)
    if theorem == "F":
        # In the norm of the Gram matrix, which is not released here, plus the floor.
        gram = ENGINE(problem.records).gram().astype(np.float64)
        metric = gram / 2.0**28 / problem.n_rows
        metric += plan.geometry.floor * np.eye(len(metric))
        parts = [best[b] @ metric[np.ix_(b, b)] @ best[b] for b in plan.sampling.blocks]
        prior = Prior(block_norm=math.sqrt(float(np.mean(parts))), excess=excess)
        rate = choose_matrix_rate(
            plan.geometry, plan.sampling, problem.loss, prior, budget
        )
        # The pull to the start is part of what the theorem minimises.
        pull = plan.geometry.shrinkage * plan.geometry.radius
        return rate.take_steps(plan.n_steps).bound + float(
            pull / 2 * best @ metric @ best
        )
    prior = Prior(displacement=tuple(best), excess=excess)
    known = (plan.sampling, plan.geometry.smoothness, problem.layout, problem.loss)
    if theorem == "E":
        own = {"n_steps": plan.n_steps}
        return choose_strong_rate(*known, prior, budget, plan.penalty, **own).bound
    return (
        choose_rate(*known, prior, budget, plan.penalty).take_steps(plan.n_steps).bound
    )


def measure_table(cell: dict[str, Any]) -> dict[str, Any]:
    """Excess of F on a table, beside the bounds."""
    place = cell["table"], cell["theorem"], cell["epsilon"]
    goal, plan = objective(*place[:2]), plan_of(*place)
    assert plan.rate is not None
    options = {"engine": ENGINE, "random_state": cell["seed"]}
    weights = run(plan, goal.problem.records, **options).weights
    return {
        "steps": plan.n_steps,
        "excess": goal.excess(weights),
        "planned": plan.rate.bound,
        "bound": true_bound(*place),
        "start": goal.excess(goal.problem.start),
    }


# ---- figure and text


def split(rows: Rows) -> tuple[Rows, Rows]:
    """Rows of the cases, and rows of tables."""
    return [r for r in rows if "case" in r], [r for r in rows if "table" in r]


def speed_up(row: dict[str, Any], key: str) -> float:
    return float(row[f"baseline_{key}"] / row[key])


def draw(rows: Rows) -> Figure:
    special, on_tables = split(rows)
    tables = list(dict.fromkeys(column(on_tables, "table")))
    figure, axes = panels(2, 3)
    for place, case in zip(axes[0], CASES, strict=True):
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.axhline(1.0, color="#999999", linewidth=0.8)
        looks = [(f, way) for f in FUNCTIONS for way in WAYS]
        for index, (f, way) in enumerate(looks):
            own = [row for row in special if (row["case"], row["f"]) == (case, f)]
            by_d = grouped(sorted(own, key=lambda row: row["d"]), "d")
            x = [d for (d,) in by_d]
            look = {"color": COLOURS[index]}
            measured = [
                geometric_interval(speed_up(row, way) for row in each)
                for each in by_d.values()
            ]
            label = f"{FUNCTIONS[f]}, {WAYS[way]}"
            line(place, x, measured, marker="o", label=label, **look)
            bounds = [speed_up(each[0], f"{way}_bound") for each in by_d.values()]
            place.plot(x, bounds, linestyle="--", linewidth=0.9, **look)
        place.set_xticks(x, [str(d) for d in x])
        place.set_xlabel("d")
        place.set_title(case.replace(": ", "\n"), fontsize=9)
    axes[0, 0].set_ylabel("speed-up (dashed: bounds)")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=2, fontsize=7)
    for place, table in zip(axes[1], tables, strict=False):
        place.set_xscale("log")
        place.set_yscale("log")
        own = [row for row in on_tables if row["table"] == table]
        for index, theorem in enumerate(PLANS):
            group = [row for row in own if row["theorem"] == theorem]
            if not group:
                continue
            ends = grouped(sorted(group, key=lambda row: row["epsilon"]), "epsilon")
            x = [epsilon for (epsilon,) in ends]
            look = {"color": COLOURS[index]}
            means = [mean_interval(column(each, "excess")) for each in ends.values()]
            line(place, x, means, marker="o", label=f"Theorem {theorem}", **look)
            bounds = [each[0]["bound"] for each in ends.values()]
            place.plot(x, bounds, linestyle="--", linewidth=0.9, **look)
        place.set_title(f"{table}: excess (dashed: bound at w*)", fontsize=9)
        place.set_xlabel("ε")
        place.set_ylabel("excess of F")
    axes[1, 0].legend(fontsize=7)
    for place in axes[1, len(tables) :]:
        place.set_visible(False)
    return figure


def case_table(special: Rows) -> str:
    """Speed-ups by case, function and d."""
    lines = [
        "| method / baseline: case | f | d | Table 1's bounds | measured, restarts "
        "| Theorem C's bounds | measured, growing weights |",
        "|---" * 7 + "|",
    ]
    for (case, f, d), each in sorted(
        grouped(special, "case", "f", "d").items(), key=lambda kv: kv[0]
    ):
        shown = []
        for way in WAYS:
            shown.append(f"{speed_up(each[0], f'{way}_bound'):.3g}")
            shown.append(str(geometric_interval(speed_up(r, way) for r in each)))
        lines.append(f"| {case} | {FUNCTIONS[f]} | {d} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def gain(special: Rows) -> Interval:
    """Excess of growing weights over that of restarts, method and baseline."""
    ratios = [
        row[f"{side}weighted"] / row[f"{side}restarts"]
        for row in special
        for side in ("", "baseline_")
    ]
    return geometric_interval(ratios)


def table_table(on_tables: Rows) -> str:
    """Excess, bounds and their ratio on tables."""
    lines = [
        "| table | ε | theorem | steps | excess × 1000 | over the bound at w* "
        "| over the planned bound |",
        "|---" * 7 + "|",
    ]
    for (table, epsilon, theorem), each in sorted(
        grouped(on_tables, "table", "epsilon", "theorem").items()
    ):
        excess = column(each, "excess")
        share = float(np.mean(excess))
        lines.append(
            f"| {table} | {epsilon:g} | {theorem} | {each[0]['steps']:,} "
            f"| {mean_interval(1000 * np.array(excess))} "
            f"| {share / each[0]['bound']:.3f} | {share / each[0]['planned']:.3f} |"
        )
    return "\n".join(lines)


def exceeded(on_tables: Rows, key: str) -> tuple[int, int]:
    """Settings whose mean excess is above a bound, and all settings."""
    groups = grouped(on_tables, "table", "epsilon", "theorem").values()
    above = [float(np.mean(column(each, "excess"))) > each[0][key] for each in groups]
    return sum(above), len(above)


def compared(on_tables: Rows) -> dict[tuple[Any, ...], Interval]:
    """Excess by Theorem E over that by Theorem B, by table and ε."""
    found = {}
    for place, group in grouped(on_tables, "table", "epsilon").items():
        both = [
            [
                r["excess"]
                for r in sorted(group, key=lambda r: r["seed"])
                if r["theorem"] == theorem
            ]
            for theorem in "EB"
        ]
        if all(both):
            found[place] = ratio_interval(*both)
    return dict(sorted(found.items()))


def text(rows: Rows) -> str:
    special, on_tables = split(rows)
    seeds = len({row["seed"] for row in rows})
    above, total = exceeded(on_tables, "bound")
    planned, _ = exceeded(on_tables, "planned")
    ratios = "; ".join(
        f"{table}, ε = {epsilon:g}: {ratio}"
        for (table, epsilon), ratio in compared(on_tables).items()
    )
    return f"""**The √d cases.** Section 4.3.1 of the paper says that its argument for
√d carries over to strongly convex functions. By Table 1's own cells it does not: they
compare tr(M⁻¹)·M_max/μ with d/μ, and tr(M⁻¹)·M_max ≥ d always, so full sampling with
its own M never has the better bound (erratum 10 of [the
paper](../../guide/errata.md)). A bound with the modulus in the norm of M P⁻¹, as in
Theorem C, can see a difference, if f is strongly convex in the norm of M. Here are the
paper's cases of figure C with f = {FUNCTIONS["I"]}, μ = M_min, and with f =
{FUNCTIONS["M"]}, μ_M = {SCALED:g}; M_max/M_min = {SPREAD:g}d, ε = {EPSILON:g},
δ = {DELTA:g}, replace-one; {N_RUNS} runs for each of {seeds} seeds. A speed-up is the
baseline's excess over the method's.

{case_table(special)}

Growing weights have {gain(special)} times the excess of restarts.

**Theorems B, D, E and F on tables.** One column per step, zero-out, with a ridge of
{RIDGE:g} on all coordinates; for D also an ℓ₁ penalty of {LASSO:g}, and for F a
released Gram matrix (the pull to the start of its geometry is added to the bound). The
bound at w* is the theorem's for the true minimiser, which only an experiment knows; the
planned one takes every block of w* for a vector of norm 1. Of {total} settings the
mean excess is above the bound at w* in {above}, and above the planned one in {planned}.

{table_table(on_tables)}

Excess by Theorem E's average and steps over that by Theorem B's: {ratios}."""


def learnt(rows: Rows) -> list[str]:
    """Describe the strongly convex cases and the theorems for blocks."""
    special, on_tables = split(rows)
    points = []
    full = [r for r in special if (r["case"], r["f"]) == (CASES[1], "M")]
    if full:
        last = max(row["d"] for row in full)
        end = [row for row in full if row["d"] == last]
        ratio = geometric_interval(speed_up(row, "weighted") for row in end)
        dearer = 1 / speed_up(end[0], "restarts_bound")
        points.append(
            f"§4.3.1's strongly convex √d is not in Table 1: at d = {last} full "
            f"sampling's bound is {dearer:.3g} times gradient descent's in the paper's "
            "own case. In the norm of M (Theorem C) the ratio of the bounds is "
            f"{speed_up(end[0], 'weighted_bound'):.3g} in its favour, but the measured "
            f"speed-up is {ratio}."
        )
    if on_tables:
        above, total = exceeded(on_tables, "bound")
        groups = grouped(on_tables, "table", "epsilon", "theorem").values()
        shares = [
            float(np.mean(column(each, "excess"))) / each[0]["bound"] for each in groups
        ]
        points.append(
            f"Theorems B, D, E and F at the true w* are exceeded in {above} of {total} "
            f"settings on tables; the excess is {min(shares):.3f} to {max(shares):.3f} "
            "of them."
        )
    return points


def losses(rows: Rows) -> list[str]:
    special, on_tables = split(rows)
    found = []
    for (case, f, d), own in grouped(special, "case", "f", "d").items():
        ratio = geometric_interval(1 / speed_up(row, "restarts") for row in own)
        if ratio.low > 1 and d == max(row["d"] for row in special):
            found.append(
                f"{case}, d = {d}, f = {FUNCTIONS[f]}, by the paper's restarts: the "
                f"method has {ratio} times the excess of the baseline."
            )
    for (table, epsilon), ratio in compared(on_tables).items():
        if ratio.low > 1:
            found.append(
                f"{table}, ε = {epsilon:g}: Theorem E's run has {ratio} times the "
                "excess of Theorem B's."
            )
    return found
