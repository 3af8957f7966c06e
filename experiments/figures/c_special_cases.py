"""The √d cases of the paper's section 4.3, and their opposites, against d.

The cases are those of `experiments/theory_table.py`, with M_max/M_min = 8d: the paper's
"≫" has to hold against the sum of d coordinates for its √d to be seen.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import COLOURS, line, panels
from experiments.quadratics import mean_with_start, simulate
from experiments.statistics import (
    Interval,
    Rows,
    column,
    geometric_interval,
    grouped,
    mean_interval,
    slope_interval,
)
from experiments.theory_table import (
    DELTA,
    EPSILON,
    Array,
    budget_for,
    cases,
    rate_of,
    slow_hessian,
)

TITLE = "The special samplings: where they win by √d and where they lose"
SEEDS = range(10)
N_RUNS = 300
DIMENSIONS = (8, 16, 32, 64, 128)
#: M_max/M_min over d.
SPREAD = 8.0
#: Names of the cases in `theory_table.cases`, the paper's first, then its opposite.
PAIRS = {
    "importance / DP-CD": ("steep coordinate far", "δ_j ~ 1/√M_j"),
    "full / gradient descent": ("flat coordinate far", "steep coordinate far"),
    "blocks / gradient descent": ("flat coordinate far", "steep coordinate far"),
}
#: Functions that the two methods are compared on.
FUNCTIONS = {
    "own": "each on its own hardest f",
    "flat": "f hardest for the worse bound",
    "sharp": "f = ½‖w − w*‖²_M",
}


def cells() -> list[dict[str, Any]]:
    return [
        {"pair": pair, "case": case, "d": d, "seed": seed}
        for pair, both in PAIRS.items()
        for case in both
        for d in DIMENSIONS
        for seed in SEEDS
    ]


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [cell for cell in cells if cell["seed"] == 0 and cell["d"] <= 16]


def measure(cell: dict[str, Any]) -> list[dict[str, Any]]:
    d, name = cell["d"], f"{cell['pair']}: {cell['case']}"
    (case,) = (each for each in cases(d, SPREAD * d) if each.name == name)
    budget = budget_for(case)
    pair = (case.method, case.baseline)
    rates = [rate_of(each, case, budget) for each in pair]
    sharp = case.method.smoothness
    own = [slow_hessian(m, r.n_steps, sharp) for m, r in zip(pair, rates, strict=True)]
    worse = int(rates[1].bound > rates[0].bound)
    functions = {"own": own, "flat": [own[worse]] * 2, "sharp": [sharp] * 2}
    rng = np.random.default_rng([cell["seed"], d])

    def excess(which: int, hessian: Array) -> float:
        runs = simulate(
            pair[which],
            hessian,
            case.displacement,
            rates[which].n_steps,
            noise_scale=budget.noise_scale,
            averages=[mean_with_start],
            rng=rng,
            n_runs=N_RUNS,
        )
        return float(runs.mean())

    row: dict[str, Any] = {
        "n": budget.n_rows,
        "steps": rates[0].n_steps,
        "baseline_steps": rates[1].n_steps,
        "bound": rates[0].bound,
        "baseline_bound": rates[1].bound,
    }
    for kind, hessians in functions.items():
        row[kind], row[f"baseline_{kind}"] = (excess(i, hessians[i]) for i in (0, 1))
    return [row]


def speed_up(row: dict[str, Any], kind: str) -> float:
    """Baseline's excess (or bound) over the method's."""
    return float(row[f"baseline_{kind}"] / row[kind])


def slopes(rows: Rows, kind: str) -> Interval:
    """Slope in d of the speed-up's logarithm, over the seeds' own slopes."""
    return mean_interval(
        slope_interval(column(own, "d"), [speed_up(row, kind) for row in own]).mean
        for own in grouped(rows, "seed").values()
    )


def draw(rows: Rows) -> Figure:
    figure, axes = panels(2, len(PAIRS))
    looks = {"bound": "ratio of the bounds"} | FUNCTIONS
    for (pair, case), group in grouped(rows, "pair", "case").items():
        at = (PAIRS[pair].index(case), list(PAIRS).index(pair))
        place = axes[at]
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.axhline(1.0, color="#999999", linewidth=0.8)
        by_d = grouped(sorted(group, key=lambda row: row["d"]), "d")
        x = [d for (d,) in by_d]
        for index, (kind, label) in enumerate(looks.items()):
            intervals = [
                geometric_interval(speed_up(row, kind) for row in each)
                for each in by_d.values()
            ]
            look = (
                {"color": "black", "linestyle": "--"}
                if kind == "bound"
                else {"color": COLOURS[index - 1], "marker": "o^s"[index - 1]}
            )
            line(place, x, intervals, label=label, **look)
        place.set_xticks(x, [str(d) for d in x])
        name = "paper's case" if at[0] == 0 else "opposite"
        place.set_title(f"{pair}\n{name}: {case}", fontsize=9)
        place.set_xlabel("d")
    for first in axes[:, 0]:
        first.set_ylabel("speed-up over the baseline")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4
    )
    return figure


def ordered(rows: Rows) -> list[tuple[str, str, dict[tuple[Any, ...], Rows]]]:
    """Pair, case and rows by d of each case, the paper's before their opposites."""
    found = grouped(sorted(rows, key=lambda row: row["d"]), "pair", "case")
    return [
        (pair, PAIRS[pair][which], grouped(found[pair, PAIRS[pair][which]], "d"))
        for which in (0, 1)
        for pair in PAIRS
    ]


def slope_table(rows: Rows) -> str:
    """Slopes of every case, and the speed-ups on the quadratic of M."""
    lines = [
        "| method / baseline: case | bounds: slope | each on its own hardest f "
        "| on the f hardest for the worse bound | on f = ½‖w − w*‖²_M "
        "| speed-up there, least and largest d |",
        "|---" * 6 + "|",
    ]
    for pair, case, by_d in ordered(rows):
        group = [row for each in by_d.values() for row in each]
        both = [by_d[min(by_d)], by_d[max(by_d)]]
        ends = [geometric_interval(speed_up(r, "sharp") for r in end) for end in both]
        measured = " | ".join(plus_minus(slopes(group, kind)) for kind in FUNCTIONS)
        lines.append(
            f"| {pair}: {case} | {slopes(group, 'bound').mean:+.2f} | {measured} "
            f"| {ends[0]}; {ends[1]} |"
        )
    return "\n".join(lines)


def largest_share(rows: Rows) -> float:
    """Most of measured mean over bound, of both methods in all cases."""
    return max(
        float(np.mean(column(each, side + kind))) / each[0][side + "bound"]
        for _, _, by_d in ordered(rows)
        for each in by_d.values()
        for kind in FUNCTIONS
        for side in ("", "baseline_")
    )


def at_largest(rows: Rows, which: int) -> str:
    """Speed-ups at the largest d, each method on its own hardest f."""
    said = []
    for pair, case, by_d in ordered(rows):
        if PAIRS[pair].index(case) == which:
            end = by_d[max(by_d)]
            ratio = geometric_interval(speed_up(row, "own") for row in end)
            verb = "wins" if ratio.low > 1 else "loses" if ratio.high < 1 else "ties"
            said.append(
                f"{pair} {verb}, {ratio} (bounds: {speed_up(end[0], 'bound'):.3g})"
            )
    return "; ".join(said)


def reversed_on_sharp(rows: Rows) -> str:
    """Where the quadratic of M turns the order of the bounds round."""
    found = []
    for pair, case, by_d in ordered(rows):
        for (d,), each in by_d.items():
            ratio = geometric_interval(speed_up(row, "sharp") for row in each)
            better = speed_up(each[0], "bound") > 1
            if (ratio.high < 1) if better else (ratio.low > 1):
                found.append(f"{pair}, {case}, d = {d}: {ratio}")
    if not found:
        return "On f = ½‖w − w*‖²_M the order is that of the bounds everywhere."
    return (
        "On f = ½‖w − w*‖²_M, which one visit solves but for the noise, the order is "
        f"that of the bounds but in {len(found)} places, where it is turned round: "
        + "; ".join(found)
        + ". A longer run averages more noise away, and there is no bias to pay for it."
    )


def text(rows: Rows) -> str:
    steps = max(max(row["steps"], row["baseline_steps"]) for row in rows)
    seeds = len({row["seed"] for row in rows})
    dimensions = sorted({row["d"] for row in rows})
    groups = grouped(rows, "pair", "case").values()
    gap = max(
        abs(slopes(each, "own").mean - slopes(each, "bound").mean) for each in groups
    )
    why = (
        " (no f is harder than h = M, so coordinates that are hardly visited, or whose "
        "M is far below gradient descent's M_max, are easier than the bound says)"
        if gap > 0.05
        else ""
    )
    return f"""The paper's section 4.3 says when its samplings beat DP-CD and DP-SGD by
√d. The latter is run as full-batch gradient descent with steps 1/M_max, whose bound is
that of the paper's row: no records are drawn. Erratum 10 of [the
paper](../../guide/errata.md) says that the opposite exists, and figure J has the
strongly convex twin. We run both for d from {dimensions[0]} to {dimensions[-1]},
M_max/M_min = {SPREAD:g}d, ε =
{EPSILON:g}, δ = {DELTA:g}, replace-one neighbours, each method with its own best K* (at
most {steps} steps), {N_RUNS} runs for each of {seeds} seeds, in the simulation of
section B. A speed-up is the baseline's excess over the method's; slopes are those of
its logarithm in that of d (√d is +0.50), ± half their 95 % interval over seeds.

{slope_table(rows)}

If each method is given the function that is hardest for it, the measured slopes are
those of the bounds, to {gap:.2f} at most{why}. At d = {dimensions[-1]}, in the paper's
cases: {at_largest(rows, 0)}. In the opposite cases: {at_largest(rows, 1)}. On one
common function, the one that is hardest for the worse method, slopes may be up to twice
the bounds': it is not hardest for the better one, whose noise and bias are then both
smaller. {reversed_on_sharp(rows)}

No measured mean is above {largest_share(rows):.2f} of its bound."""


def plus_minus(slope: Interval) -> str:
    return f"{slope.mean:+.2f} ± {(slope.high - slope.low) / 2:.2f}"


def learnt(rows: Rows) -> list[str]:
    """That √d is there in the paper's cases, and turned round in others."""
    gains: list[list[float]] = [[], []]
    last = max(row["d"] for row in rows)
    for pair, case, by_d in ordered(rows):
        end = by_d[max(by_d)]
        ratio = geometric_interval(speed_up(row, "own") for row in end)
        gains[PAIRS[pair].index(case)].append(ratio.mean)
    shown = [f"{min(each):.2g} to {max(each):.2g}" for each in gains]
    return [
        f"the √d speed-ups are there in the paper's cases ({shown[0]} times at d = "
        f"{last}), and turned round in their opposites ({shown[1]} times), each method "
        "on its own hardest function."
    ]


def losses(rows: Rows) -> list[str]:
    found = []
    for (pair, case), group in grouped(rows, "pair", "case").items():
        last = max(row["d"] for row in group)
        end = [row for row in group if row["d"] == last]
        ratio = geometric_interval(1 / speed_up(row, "own") for row in end)
        if ratio.low > 1:
            method, baseline = pair.split(" / ")
            found.append(
                f"{baseline} has {ratio} times less excess than {method} sampling at "
                f"d = {last} in the case “{case}”, each on its own hardest function."
            )
    return found
