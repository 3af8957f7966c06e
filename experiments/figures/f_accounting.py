"""Accounting, number of steps, averages and samplings, each by itself.

Two problems: quadratics of ten coordinates, M from M_min to 8 M_min, in simulation, and
the table of `experiments.made_table`, by the program.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.drawing import COLOURS, line, panels
from experiments.made_table import N_COLUMNS, N_ROWS, excesses, planned
from experiments.quadratics import Array, simulate
from experiments.statistics import (
    Interval,
    Rows,
    column,
    grouped,
    mean_interval,
    ratio_interval,
)
from experiments.theory_table import Method, slow_hessian
from skdp.descent.algorithm1 import AVERAGES, mean
from skdp.descent.bounds import (
    Budget,
    Rate,
    convex_tight,
    distance_squared,
    paper_noise_multiplier,
    sigma_squared,
)
from skdp.descent.plan import Plan
from skdp.descent.samplings import (
    Blocks,
    Full,
    Independent,
    Nice,
    Sampling,
    SingleCoordinate,
)
from skdp.privacy import accountant

TITLE = "Accounting, steps, averages and samplings"
SEEDS = range(10)
EPSILON, DELTA = 1.0, 1e-6
#: Coordinates of both problems, and rows of the quadratic.
D, N_QUADRATIC = N_COLUMNS + 1, 2**15
#: Runs of the simulation in a cell.
N_RUNS = 200
SMOOTHNESS: Array = 8.0 ** (np.arange(D) / (D - 1)) / 16
START: Array = np.full(D, 1 / 8)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
DELTAS = (1e-5, 1e-6, 1e-9)
PROGRAM_EPSILONS = (0.1, 0.3, 1.0, 3.0)
FACTORS = tuple(float(f) for f in np.round(10 ** np.linspace(-1, 1, 9), 4))
PAIRS = [[2 * i, 2 * i + 1] for i in range(D // 2)]
HALVES = [list(range(D // 2)), list(range(D // 2, D))]
#: Samplings by name.
SAMPLINGS: dict[str, Sampling] = {
    "coordinates": SingleCoordinate.uniform(D),
    "importance": SingleCoordinate.importance(SMOOTHNESS),
    "blocks of 2": Blocks.uniform(PAIRS),
    "nice, 2": Nice(D, 2),
    "independent, 0.2": Independent(np.full(D, 0.2)),
    "blocks of 5": Blocks.uniform(HALVES),
    "nice, 5": Nice(D, 5),
    "independent, 0.5": Independent(np.full(D, 0.5)),
    "full": Full(D),
}
#: Bounds on a record's gradient on S: rows of norm one, or columns.
LIPSCHITZ = {"rows": lambda size: 1.0, "columns": lambda size: float(np.sqrt(size))}
PROBLEMS = ("hardest", "sharp", "table, full", "table, coordinates")


def cells() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"kind": "noise", "epsilon": epsilon, "delta": delta}
        for delta in DELTAS
        for epsilon in EPSILONS
    ]
    for seed in SEEDS:
        made += [
            {"kind": "calibration", "epsilon": epsilon, "seed": seed}
            for epsilon in PROGRAM_EPSILONS
        ]
        made += [
            {"kind": "steps", "problem": problem, "factor": factor, "seed": seed}
            for problem in ("hardest", "hardest at each K", *PROBLEMS[2:])
            for factor in FACTORS
        ]
        made += [
            {"kind": "averages", "problem": problem, "seed": seed}
            for problem in PROBLEMS
        ]
        made += [
            {"kind": "samplings", "problem": problem, "sampling": name, "seed": seed}
            for problem in (*LIPSCHITZ, "table")
            for name in SAMPLINGS
            # M of the table is the same for all columns: importance is uniform there.
            if (problem, name) != ("table", "importance")
        ]
    return made


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        cell
        for cell in cells
        if cell.get("seed", 0) == 0
        and cell.get("factor", 1.0) in FACTORS[:5:4]
        and (cell["kind"] != "calibration" or cell["epsilon"] in PROGRAM_EPSILONS[:2])
        and (cell.get("problem") != "table" or cell["sampling"] == "full")
    ]


# ---- the quadratics


def quadratic(name: str, bound: str = "columns") -> tuple[Method, Rate, float]:
    """A sampling with the bounds of its sets, its rate, and ν."""
    sampling = SAMPLINGS[name]
    assert sampling.support is not None
    sizes = [len(each) for each in sampling.support]
    lipschitz = np.array([LIPSCHITZ[bound](size) for size in sizes])
    budget = Budget(
        n_rows=N_QUADRATIC, epsilon=EPSILON, delta=DELTA, neighbours="zero-out"
    )
    rate = convex_tight(
        distance_squared=distance_squared(SMOOTHNESS, sampling.probabilities, START),
        sigma_squared=sigma_squared(sampling, SMOOTHNESS, lipschitz),
        budget=budget,
    )
    return Method(sampling, SMOOTHNESS, lipschitz), rate, budget.noise_scale


def simulated(
    method: Method,
    hessian: Array,
    n_steps: int,
    noise_scale: float,
    averages: list[Any],
    seed: int,
) -> list[float]:
    """Mean excess of each average."""
    runs = simulate(
        method,
        hessian,
        START,
        n_steps,
        noise_scale=noise_scale,
        averages=averages,
        rng=np.random.default_rng([seed, n_steps]),
        n_runs=N_RUNS,
    )
    return [float(each) for each in runs.mean(axis=1)]


def on_table(name: str, factor: float = 1.0) -> Plan:
    """K = factor·K* steps of a sampling on the table."""
    return planned(SAMPLINGS[name], epsilon=EPSILON, delta=DELTA, factor=factor)


def measure(cell: dict[str, Any]) -> list[dict[str, Any]]:
    measures = {
        "noise": measure_noise,
        "calibration": measure_calibration,
        "steps": measure_steps,
        "averages": measure_averages,
        "samplings": measure_sampling,
    }
    return [measures[cell["kind"]](cell)]


def measure_noise(cell: dict[str, Any]) -> dict[str, Any]:
    """Theorem 4.1's noise over that of exact accounting."""
    epsilon, delta = cell["epsilon"], cell["delta"]
    exact = accountant.noise_multiplier(accountant.gdp_mu(epsilon, delta), 1)
    return {"ratio": paper_noise_multiplier(epsilon, delta, 1) / exact}


def measure_calibration(cell: dict[str, Any]) -> dict[str, Any]:
    """Excess of the program with both, each with its own K*."""
    found: dict[str, Any] = {}
    for name in ("exact", "paper"):
        plan = planned(
            SAMPLINGS["full"], epsilon=cell["epsilon"], delta=DELTA, calibration=name
        )
        assert plan.rate is not None
        found[f"{name}_steps"] = plan.n_steps
        found[f"{name}_bound"] = plan.rate.bound
        found[name] = excesses(plan, cell["seed"])["mean"]
    return found


def measure_steps(cell: dict[str, Any]) -> dict[str, Any]:
    """Excess of the plain average after `factor` times K* steps."""
    problem, factor = cell["problem"], cell["factor"]
    if problem.startswith("table"):
        plan = on_table(problem.removeprefix("table, "), factor)
        return {"steps": plan.n_steps, "excess": excesses(plan, cell["seed"])["mean"]}
    method, rate, scale = quadratic("coordinates")
    steps = max(1, round(factor * rate.n_steps))
    hard = steps if problem == "hardest at each K" else rate.n_steps
    hessian = slow_hessian(method, hard, SMOOTHNESS)
    (excess,) = simulated(method, hessian, steps, scale, [mean], cell["seed"])
    return {"steps": steps, "excess": excess}


def measure_averages(cell: dict[str, Any]) -> dict[str, Any]:
    """Excess of every average after K* steps."""
    problem = cell["problem"]
    if problem.startswith("table"):
        return excesses(on_table(problem.removeprefix("table, ")), cell["seed"])
    method, rate, scale = quadratic("coordinates")
    flat = slow_hessian(method, rate.n_steps, SMOOTHNESS)
    hessian = flat if problem == "hardest" else SMOOTHNESS
    rules = list(AVERAGES.values())
    found = simulated(method, hessian, rate.n_steps, scale, rules, cell["seed"])
    return dict(zip(AVERAGES, found, strict=True))


def measure_sampling(cell: dict[str, Any]) -> dict[str, Any]:
    """Bound and excess of a sampling after its own K* steps."""
    name, problem = cell["sampling"], cell["problem"]
    if problem == "table":
        plan = on_table(name)
        assert plan.rate is not None
        excess = excesses(plan, cell["seed"])["mean"]
        return {"steps": plan.n_steps, "bound": plan.rate.bound, "excess": excess}
    method, rate, scale = quadratic(name, problem)
    flat = slow_hessian(method, rate.n_steps, SMOOTHNESS)
    both = (
        simulated(method, hessian, rate.n_steps, scale, [mean], cell["seed"])[0]
        for hessian in (flat, SMOOTHNESS)
    )
    excess, sharp = both
    return {
        "steps": rate.n_steps,
        "bound": rate.bound,
        "excess": excess,
        "sharp": sharp,
    }


# ---- what is shown


def kind_of(rows: Rows, kind: str, **wanted: Any) -> Rows:
    """Rows of one kind of cell, with some values of their keys."""
    return [
        row
        for row in rows
        if row["kind"] == kind and all(row[key] == v for key, v in wanted.items())
    ]


STEP_LABELS = {
    "hardest": "hardest f at K*",
    "hardest at each K": "hardest f at each K",
    "table, full": "table, full",
    "table, coordinates": "table, coordinates",
}


def by_factor(rows: Rows, problem: str) -> dict[float, list[float]]:
    """Excess of each seed, in order, by K/K*."""
    group = sorted(kind_of(rows, "steps", problem=problem), key=lambda r: r["seed"])
    return {
        factor: column(each, "excess")
        for (factor,), each in grouped(group, "factor").items()
    }


def best_steps(rows: Rows, problem: str) -> tuple[float, Interval]:
    """The best K/K* that was tried, and the excess of K* over that of it."""
    seeds = by_factor(rows, problem)
    best = min(seeds, key=lambda factor: float(np.mean(seeds[factor])))
    return best, ratio_interval(seeds[1.0], seeds[best])


def draw_noise(axes: Any, rows: Rows) -> None:
    for index, delta in enumerate(DELTAS):
        group = kind_of(rows, "noise", delta=delta)
        group.sort(key=lambda row: row["epsilon"])
        x, y = column(group, "epsilon"), column(group, "ratio")
        axes.plot(x, y, marker="o", color=COLOURS[index], label=f"δ = {delta:g}")
    axes.set_xscale("log")
    axes.set_ylim(1.0, 2.0)
    axes.set_xlabel("ε")
    axes.set_ylabel("noise of Theorem 4.1 / exact")
    axes.set_title("noise")
    axes.legend(fontsize=7)


def draw_calibration(axes: Any, rows: Rows) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    groups = grouped(kind_of(rows, "calibration"), "epsilon")
    x = sorted(epsilon for (epsilon,) in groups)
    for index, name in enumerate(("exact", "paper")):
        intervals = [mean_interval(column(groups[e,], name)) for e in x]
        look = {"color": COLOURS[index], "marker": "o"}
        label = "exact" if name == "exact" else "Theorem 4.1"
        line(axes, x, intervals, label=label, **look)
        bounds = [groups[e,][0][f"{name}_bound"] for e in x]
        axes.plot(x, bounds, linestyle="--", linewidth=0.9, color=COLOURS[index])
    axes.set_xlabel("ε")
    axes.set_ylabel("excess (dashed: bound)")
    axes.set_title("what it costs: table, full")
    axes.legend(fontsize=7)


def draw_steps(axes: Any, rows: Rows) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for index, (problem, label) in enumerate(STEP_LABELS.items()):
        seeds = by_factor(rows, problem)
        x, unit = sorted(seeds), float(np.mean(seeds[1.0]))
        intervals = [mean_interval(np.array(seeds[f]) / unit) for f in x]
        line(axes, x, intervals, color=COLOURS[index], marker="o", label=label)
    fine = np.logspace(-1, 1, 50)
    axes.plot(fine, (fine + 1 / fine) / 2, color="black", linestyle="--", label="bound")
    ticks = (0.2, 0.5, 1, 2, 5, 10)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("K / K*")
    axes.set_ylabel("excess / excess at K*")
    axes.set_title("number of steps")
    axes.legend(fontsize=6.5)


def draw_averages(axes: Any, rows: Rows) -> None:
    axes.set_yscale("log")
    for index, problem in enumerate(PROBLEMS):
        group = kind_of(rows, "averages", problem=problem)
        ratios = [
            ratio_interval(column(group, name), column(group, "mean"))
            for name in AVERAGES
        ]
        x = np.arange(len(AVERAGES)) + 0.12 * (index - 1.5)
        middle = [r.mean for r in ratios]
        error = [[r.mean - r.low for r in ratios], [r.high - r.mean for r in ratios]]
        axes.errorbar(
            x,
            middle,
            yerr=error,
            fmt="os^D"[index],
            color=COLOURS[index],
            label=problem,
        )
    axes.axhline(1.0, color="#999999", linewidth=0.8)
    axes.set_xticks(range(len(AVERAGES)), AVERAGES)
    axes.set_ylabel("excess / that of the mean")
    axes.set_title("averages, at K*")
    axes.legend(fontsize=6.5)


def draw_samplings(axes: Any, rows: Rows, problems: dict[str, str]) -> None:
    axes.set_xscale("log")
    names = [
        n
        for n in SAMPLINGS
        if kind_of(rows, "samplings", sampling=n, problem=next(iter(problems)))
    ]
    for index, (problem, label) in enumerate(problems.items()):
        for place, name in enumerate(reversed(names)):
            group = kind_of(rows, "samplings", problem=problem, sampling=name)
            if not group:
                continue
            y = place + 0.22 * (index - (len(problems) - 1) / 2)
            found = mean_interval(column(group, "excess"))
            first = place == 0
            look = {"color": COLOURS[index], "markersize": 4}
            axes.errorbar(
                [found.mean],
                [y],
                xerr=[[found.mean - found.low], [found.high - found.mean]],
                fmt="o",
                label=f"{label}measured" if first else None,
                **look,
            )
            axes.plot(
                [group[0]["bound"]],
                [y],
                "|",
                label=f"{label}bound" if first else None,
                **(look | {"markersize": 8}),
            )
    axes.set_yticks(range(len(names)), list(reversed(names)), fontsize=7.5)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("excess")
    beside = {"loc": "upper center", "bbox_to_anchor": (0.4, -0.17), "ncols": 2}
    axes.legend(fontsize=6.5, **beside)


def draw(rows: Rows) -> Figure:
    figure, axes = panels(2, 3, height=3.1)
    draw_noise(axes[0, 0], rows)
    draw_calibration(axes[0, 1], rows)
    draw_steps(axes[0, 2], rows)
    draw_averages(axes[1, 0], rows)
    draw_samplings(axes[1, 1], rows, {"rows": "L_S = 1: ", "columns": "L_S = √|S|: "})
    axes[1, 1].set_title("samplings: hardest f")
    draw_samplings(axes[1, 2], rows, {"table": ""})
    axes[1, 2].set_title("samplings: table")
    return figure


def text(rows: Rows) -> str:
    return "\n\n".join(
        section(rows)
        for section in (
            text_setting,
            text_accounting,
            text_steps,
            text_averages,
            text_samplings,
        )
    )


def text_setting(rows: Rows) -> str:
    seeds = len({row["seed"] for row in rows if "seed" in row})
    return f"""Two problems: separable quadratics of {D} coordinates (simulated as in
section B, {N_RUNS} runs per seed), and a made-up table of {N_ROWS:,} rows, {D - 1}
correlated numbers and an intercept, two classes, run by the program (one run per
seed), M from public bounds. ε = {EPSILON:g} unless it varies, δ = {DELTA:g} unless it
varies, zero-out, {seeds} seeds. K* is that of the bound for the true w*, which nobody
has in practice."""


def text_accounting(rows: Rows) -> str:
    noise = sorted(kind_of(rows, "noise"), key=lambda row: row["ratio"])
    low, high = (
        f"{row['ratio']:.2f} (ε = {row['epsilon']:g}, δ = {row['delta']:g})"
        for row in (noise[0], noise[-1])
    )
    lines = [
        "| ε | bounds, Theorem 4.1 / exact | measured, Theorem 4.1 / exact | exact "
        "| Theorem 4.1 |",
        "|---" * 5 + "|",
    ]
    ratios = {}
    groups = grouped(kind_of(rows, "calibration"), "epsilon")
    for (epsilon,), group in sorted(groups.items()):
        ratio = ratio_interval(column(group, "paper"), column(group, "exact"))
        ratios[epsilon] = ratio
        bounds = group[0]["paper_bound"] / group[0]["exact_bound"]
        means = [mean_interval(column(group, name)) for name in ("exact", "paper")]
        numbers = f"{bounds:.2f} | {ratio} | {means[0]} | {means[1]}"
        lines.append(f"| {epsilon:g} | {numbers} |")
    dearer = [f"{epsilon:g}" for epsilon, ratio in ratios.items() if ratio.low > 1]
    return f"""**Accounting.** At equal (ε, δ) Theorem 4.1 asks for {low} to {high}
times the noise that exact accounting asks for, and its bound is as many times larger.
The program on the table, full gradients, each with its own K*, excess:

{chr(10).join(lines)}

The interval of the measured ratio is above 1 at ε = {", ".join(dearer) or "none"}."""


def text_steps(rows: Rows) -> str:
    lines = [
        "| problem | best K/K* | excess at K* / at the best | at K*/10 / at K* "
        "| at 10 K* / at K* |",
        "|---" * 5 + "|",
    ]
    best_factors, few, many = [], [], []
    for problem, label in STEP_LABELS.items():
        seeds = by_factor(rows, problem)
        best, loss = best_steps(rows, problem)
        best_factors.append(best)
        few.append(ratio_interval(seeds[min(seeds)], seeds[1.0]))
        many.append(ratio_interval(seeds[max(seeds)], seeds[1.0]))
        lines.append(f"| {label} | {best:.2g} | {loss} | {few[-1]} | {many[-1]} |")
    cheaper = sum(m.mean < f.mean for f, m in zip(few, many, strict=True))
    return f"""**Number of steps.** The bound is least at K = K* and grows as (b +
1/b)/2 at K = bK*, to 5.05 times as much at both ends. Measured, over two decades of K:

{chr(10).join(lines)}

The best of the K tried is {min(best_factors):.2g} to {max(best_factors):.2g} times K*,
and ten times too many steps cost less than ten times too few in {cheaper} of
{len(many)} problems: the bound counts each step's noise in full, but averaging removes
part of it."""


def text_averages(rows: Rows) -> str:
    lines = [
        "| problem | " + " | ".join(AVERAGES) + " |",
        "|---" * (1 + len(AVERAGES)) + "|",
    ]
    best: dict[str, str] = {}
    for problem in PROBLEMS:
        group = kind_of(rows, "averages", problem=problem)
        ratios = {
            name: ratio_interval(column(group, name), column(group, "mean"))
            for name in AVERAGES
        }
        best[problem] = min(ratios, key=lambda name: ratios[name].mean)
        shown = ["1" if n == "mean" else str(ratios[n]) for n in AVERAGES]
        lines.append(f"| {problem} | " + " | ".join(shown) + " |")
    named = "; ".join(f"{problem}: {name}" for problem, name in best.items())
    return f"""**Averages.** Excess after K* steps over that of the paper's plain mean
(`skdp.descent.algorithm1`; hardest and sharp are quadratics, the latter ½‖w − w*‖²_M):

{chr(10).join(lines)}

The least: {named}."""


def text_samplings(rows: Rows) -> str:
    lines = [
        "| sampling | L_S = 1: bound | measured | share | L_S = √\\|S\\|: bound "
        "| measured | share | table: bound | measured | share |",
        "|---" * 10 + "|",
    ]
    shares: dict[str, list[float]] = {}
    bounds: dict[tuple[str, str], float] = {}
    for name in SAMPLINGS:
        shown = [name]
        for problem in (*LIPSCHITZ, "table"):
            group = kind_of(rows, "samplings", problem=problem, sampling=name)
            if not group:
                shown += ["–"] * 3
                continue
            bound, found = group[0]["bound"], mean_interval(column(group, "excess"))
            bounds[problem, name] = bound
            shares.setdefault(problem, []).append(found.mean / bound)
            shown += [f"{bound:.3g}", str(found), f"{found.mean / bound:.2f}"]
        lines.append("| " + " | ".join(shown) + " |")
    on_quadratics = [share for problem in LIPSCHITZ for share in shares[problem]]
    pairs = {"nice, 2": "independent, 0.2", "nice, 5": "independent, 0.5"}
    coins = [
        f"{bounds[problem, by_coins] / bounds[problem, nice]:.2f}"
        for problem in LIPSCHITZ
        for nice, by_coins in pairs.items()
    ]
    return f"""**Samplings.** Sets of τ coordinates at random (nice) and coordinates
that enter by coins (independent) beside single coordinates, blocks and the full set,
each with its own K* and at the same budget:

{chr(10).join(lines)}

On its own hardest quadratic every sampling has {min(on_quadratics):.2f} to
{max(on_quadratics):.2f} of its bound: the bound predicts all of them, overlapping sets
included. Independent sets, whose sizes vary, have {coins[0]} and {coins[1]} times the
bound of nice sets of 2 and 5 if L_S = 1, and {coins[2]} and {coins[3]} times if L_S
grows with S. On the table, where all bounds but that of the full set are those of
expected separable overapproximation, shares are {min(shares["table"]):.2f} to
{max(shares["table"]):.2f}."""


def learnt(rows: Rows) -> list[str]:
    """How much noise the paper's accounting adds."""
    noise = sorted(row["ratio"] for row in kind_of(rows, "noise"))
    if not noise:
        return []
    return [
        f"Theorem 4.1 asks for {noise[0]:.2f} to {noise[-1]:.2f} times the noise of "
        "exact accounting."
    ]


def losses(rows: Rows) -> list[str]:
    found = []
    for problem in STEP_LABELS:
        best_factor, loss = best_steps(rows, problem)
        if loss.low > 1.2:
            found.append(
                f"K* of the bound has {loss} times the excess of {best_factor:.2g} K* "
                f"({problem})."
            )
    for problem in PROBLEMS:
        group = kind_of(rows, "averages", problem=problem)
        ratios = {
            name: ratio_interval(column(group, "mean"), column(group, name))
            for name in AVERAGES
        }
        best = max(ratios, key=lambda name: ratios[name].mean)
        if ratios[best].low > 1:
            found.append(
                f"the paper's plain mean has {ratios[best]} times the excess of the "
                f"average “{best}” after K* steps ({problem})."
            )
    return found
