"""Every row of the paper's Table 1: its bound, corrected, against measured excess.

All runs are on separable quadratics, records of norm one (L_S = 1 for every S), M from
M_min to M_max in equal ratios. Convex: the f of smoothness M on which the row's method
is slowest at its K*, and f = ½‖w - w*‖²_M. Strongly convex: f = ½μ‖w - w*‖², μ = M_min,
the same for all rows. Its modulus in the norm of M, which DP-CD's row has, is μ/M_max,
so that row is the one of uniform coordinates.

The paper's last row, for DP-SGD and DP-SVRG, is run as full-batch gradient descent with
steps 1/M_max, because no row of the table draws records. DP-SVRG itself is run on the
same records, by our solver.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import COLOURS, line, panels
from experiments.quadratics import Array, Program, simulate
from experiments.statistics import (
    Interval,
    Rows,
    column,
    grouped,
    mean_interval,
    slope_interval,
)
from experiments.theory.lower_bounds import (
    convex_lower,
    spread_lipschitz,
    strongly_convex_lower,
)
from experiments.theory.rates import strongly_convex_weighted
from experiments.theory.table1 import ProblemConstants, Row, compute_table1
from experiments.theory_table import Method, slow_hessian
from skdp.descent.algorithm1 import growing, mean
from skdp.descent.bounds import Budget, Prior, Rate
from skdp.descent.samplings import Blocks, Full, SingleCoordinate

TITLE = "Table 1: bounds against measured excess"
DELTA = 1e-6
SEEDS = range(10)
#: Runs of the simulation and of the program in a cell.
N_RUNS, N_PROGRAM_RUNS = 200, 4
#: The paper's row of DP-SGD and DP-SVRG: full batches, isotropic steps.
GD = "gradient descent"
#: Run on the program's records only, beside gradient descent.
SVRG = "DP-SVRG"
#: Names of the rows, in the order of `table1`.
ROWS = (
    "blocks, q ∝ √Mδ",
    "blocks, uniform",
    "blocks, importance",
    "coordinates, p ∝ √Mδ",
    "coordinates, uniform",
    "coordinates, importance",
    "DP-CD",
    "full, own M",
    GD,
)
BASE = {"n": 2**15, "epsilon": 1.0, "d": 16, "b": 4, "spread": 8.0}
VARY = {
    "n": (2**13, 2**14, 2**15, 2**16, 2**17),
    "epsilon": (0.25, 0.5, 1.0, 2.0, 4.0),
    "d": (8, 16, 32, 64),
    "b": (2, 4, 8, 16),
    "spread": (2.0, 4.0, 8.0, 16.0, 32.0),
}
SYMBOLS = {"n": "n", "epsilon": "ε", "d": "d", "b": "b", "spread": "M_max/M_min"}
#: Rows of the program: as many as the simulation's least but one.
PROGRAM_ROWS = 2**14
#: M_min, the same in all problems, and μ.
LEAST = 1 / 16
#: w⁰ - w* in each coordinate: far enough within the slopes' bound of one.
CONVEX_START, STRONG_START = 1 / 8, 1 / 2


@dataclass(frozen=True)
class Setting:
    """One row's method, its problems and its bounds."""

    method: Method
    true_smoothness: Array
    row: Row
    strong_hessian: Array
    weighted: Rate
    noise_scale: float

    @property
    def hardest(self) -> Array:
        """The h ≤ M on which the method is slowest after its K* steps."""
        return slow_hessian(self.method, self.row.convex.n_steps, self.true_smoothness)


def methods(smoothness: Array, blocks: list[Any]) -> list[Method]:
    d, ones = len(smoothness), np.ones(len(smoothness))
    root = np.sqrt(smoothness)
    samplings = [
        Blocks.prior(blocks, smoothness, ones, floor=0.0),
        Blocks.uniform(blocks),
        Blocks.importance(blocks, smoothness),
        SingleCoordinate(root / root.sum()),
        SingleCoordinate.uniform(d),
        SingleCoordinate.importance(smoothness),
        SingleCoordinate.uniform(d),
        Full(d),
        Full(d),
    ]
    used = [smoothness] * 8 + [np.full(d, smoothness.max())]
    return [
        Method(s, m, np.ones(len(s.support or ())))
        for s, m in zip(samplings, used, strict=True)
    ]


def setting(
    name: str, n: int, epsilon: float, d: int, b: int, spread: float
) -> Setting:
    """A row of the table at one place."""
    index = ROWS.index(name)
    smoothness = LEAST * spread ** (np.arange(d) / (d - 1))
    blocks = np.array_split(np.arange(d), b)
    given = methods(smoothness, blocks)
    method = given[index]
    budget = Budget(n_rows=n, epsilon=epsilon, delta=DELTA, neighbours="zero-out")
    problem = ProblemConstants(
        smoothness=smoothness,
        blocks=blocks,
        block_lipschitz=np.ones(b),
        coordinate_lipschitz=np.ones(d),
        lipschitz=1.0,
        block_probabilities=given[0].sampling.set_probabilities,
        coordinate_probabilities=given[3].sampling.probabilities,
        strong_convexity=LEAST,
        scaled_strong_convexity=LEAST / float(smoothness.max()),
    )
    strong = np.full(d, LEAST)
    start = np.full(d, CONVEX_START)
    excess = 0.5 * STRONG_START**2 * float(strong.sum())
    prior = Prior(displacement=tuple(start), excess=excess)
    row = compute_table1(problem, prior, budget)[index]
    p = method.sampling.probabilities
    # A smaller modulus than f has is valid, and better where f has nearly the largest.
    modulus = min(float((strong * p / method.smoothness).min()), float(p.min()) / 4)
    ratio = STRONG_START / CONVEX_START
    weighted = strongly_convex_weighted(
        modulus=modulus,
        probabilities=p,
        distance_squared=ratio**2 * float(method.smoothness / p @ start**2),
        sigma_squared=row.sigma_squared,
        budget=budget,
    )
    return Setting(method, smoothness, row, strong, weighted, budget.noise_scale)


def cells() -> list[dict[str, Any]]:
    sweeps = [
        {"row": row, "vary": name, "value": value, "seed": seed}
        for row in ROWS
        for name, values in VARY.items()
        if name != "b" or row.startswith("blocks")  # the others have no b
        for value in values
        for seed in SEEDS
    ]
    program = [
        {"row": row, "vary": "program", "value": 0, "seed": seed}
        for row in (*ROWS, SVRG)
        for seed in SEEDS
    ]
    return sweeps + program


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    few = ("blocks, importance", "DP-CD", GD)
    return [
        cell
        for cell in cells
        if cell["seed"] == 0
        and cell["row"] in few
        and cell["vary"] != "program"
        and cell["value"] in VARY[cell["vary"]][1:3]  # the base is one of them
    ]


def measure(cell: dict[str, Any]) -> list[dict[str, Any]]:
    if cell["vary"] == "program":
        return [measure_program(cell)]
    given = setting(cell["row"], **(BASE | {cell["vary"]: cell["value"]}))
    rng = np.random.default_rng([cell["seed"], ROWS.index(cell["row"])])
    flat, sharp = given.hardest, given.true_smoothness
    return [
        {
            "steps": given.row.convex.n_steps,
            "bound": given.row.convex.bound,
            "printed": given.row.convex_printed.bound,
            "hardest": convex(given, flat, rng),
            "sharp": convex(given, sharp, rng),
            "strong_bound": given.row.strongly_convex.bound,
            "strong": restarted(given, rng),
            "weighted_bound": given.weighted.bound,
            "weighted": once(given, rng),
        }
    ]


def convex(given: Setting, hessian: Array, rng: np.random.Generator) -> float:
    """Mean excess of the plain average after K* steps."""
    runs = simulate(
        given.method,
        hessian,
        np.full(len(hessian), CONVEX_START),
        given.row.convex.n_steps,
        noise_scale=given.noise_scale,
        averages=[mean],
        rng=rng,
        n_runs=N_RUNS,
    )
    return float(runs.mean())


def restarted(given: Setting, rng: np.random.Generator) -> float:
    """Mean excess after T restarts of K steps."""
    rate = given.row.strongly_convex
    runs = simulate(
        given.method,
        given.strong_hessian,
        np.full(len(given.strong_hessian), STRONG_START),
        rate.n_steps,
        n_restarts=rate.n_restarts,
        noise_scale=given.noise_scale,
        averages=[mean],
        rng=rng,
        n_runs=N_RUNS,
    )
    return float(runs.mean())


def once(given: Setting, rng: np.random.Generator) -> float:
    """Mean excess of one run with growing weights (Theorem C)."""
    runs = simulate(
        given.method,
        given.strong_hessian,
        np.full(len(given.strong_hessian), STRONG_START),
        given.weighted.n_steps,
        noise_scale=given.noise_scale,
        averages=[growing(given.weighted.decay)],
        rng=rng,
        n_runs=N_RUNS,
    )
    return float(runs.mean())


def measure_program(cell: dict[str, Any]) -> dict[str, Any]:
    """Both problems by `skdp.run` on records, and the simulation of the same.

    The program pays for the steps that a record takes part in, so its noise is smaller
    than that of the bounds. It is simulated with both.
    """
    svrg = cell["row"] == SVRG
    given = setting(GD if svrg else cell["row"], **(BASE | {"n": PROGRAM_ROWS}))
    d = len(given.true_smoothness)
    found: dict[str, Any] = {}
    for name, hessian, start, rate in (
        ("hardest", given.hardest, CONVEX_START, given.row.convex),
        ("strong", given.strong_hessian, STRONG_START, given.row.strongly_convex),
    ):
        program = Program.of(hessian, np.full(d, start), PROGRAM_ROWS)
        if svrg:
            budget = {"epsilon": BASE["epsilon"], "delta": DELTA}
            found[f"{name}_program"] = program.svrg_excess(seed=cell["seed"], **budget)
            continue
        ran = [
            program.measure(
                given.method,
                rate.n_steps,
                n_restarts=rate.n_restarts,
                epsilon=BASE["epsilon"],
                delta=DELTA,
                average=mean,
                seed=cell["seed"] * N_PROGRAM_RUNS + again,
            )
            for again in range(N_PROGRAM_RUNS)
        ]
        excess, presence = np.mean(ran, axis=0).tolist()
        found[f"{name}_program"], found[f"{name}_presence"] = excess, presence
        for key, share in ((name, 1.0), (f"{name}_same", presence)):
            runs = simulate(
                given.method,
                program.hessian,
                program.displacement,
                rate.n_steps,
                n_restarts=rate.n_restarts,
                noise_scale=given.noise_scale * share**0.5,
                averages=[mean],
                rng=np.random.default_rng([cell["seed"], 1]),
                n_runs=N_RUNS,
            )
            found[key] = float(runs.mean())
        found["bound" if name == "hardest" else "strong_bound"] = rate.bound
    return found


#: Measured quantity -> its bound.
BOUNDS = {
    "hardest": "bound",
    "sharp": "bound",
    "strong": "strong_bound",
    "weighted": "weighted_bound",
}
#: A slope agrees if its interval, this much wider on both sides, holds the theory's.
TOLERANCE = 0.05


def swept(rows: Rows) -> Rows:
    """Rows of the simulation, in the order of the table."""
    kept = [row for row in rows if row["vary"] != "program"]
    return sorted(kept, key=lambda row: ROWS.index(row["row"]))


def slopes(rows: Rows, quantity: str) -> dict[tuple[str, str], tuple[float, Interval]]:
    """Slope of the bound and of what was measured, by row and what varies.

    The interval is over the seeds' own slopes.
    """
    found = {}
    for (name, vary), group in grouped(swept(rows), "row", "vary").items():
        seeds = list(grouped(group, "seed").values())
        places = column(seeds[0], "value")
        theory = slope_interval(places, column(seeds[0], BOUNDS[quantity])).mean
        measured = mean_interval(
            slope_interval(column(own, "value"), column(own, quantity)).mean
            for own in seeds
        )
        found[name, vary] = (theory, measured)
    return found


def agrees(theory: float, measured: Interval) -> bool:
    return measured.low - TOLERANCE <= theory <= measured.high + TOLERANCE


LINES = {
    "blocks, importance": 0,
    "DP-CD": 1,
    "full, own M": 2,
    GD: 3,
    "blocks, uniform": 4,
    "blocks, q ∝ √Mδ": 5,
}


def draw_lines(axes: Any, rows: Rows, vary: str, quantity: str) -> None:
    """Measured excess with its interval, solid, and its bound, dashed."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    blocks = vary == "b"
    for name, index in LINES.items():
        group = [row for row in rows if row["row"] == name and row["vary"] == vary]
        shown = blocks == name.startswith("blocks") or name == "blocks, importance"
        if not (group and shown):
            continue
        places = grouped(sorted(group, key=lambda row: row["value"]), "value")
        x = [value for (value,) in places]
        look = {"color": COLOURS[index], "label": name}
        intervals = [mean_interval(column(g, quantity)) for g in places.values()]
        line(axes, x, intervals, marker="o", **look)
        bounds = [g[0][BOUNDS[quantity]] for g in places.values()]
        axes.plot(x, bounds, linestyle="--", linewidth=0.9, color=COLOURS[index])
    axes.set_xlabel(SYMBOLS[vary])


def draw_slopes(axes: Any, rows: Rows, quantity: str) -> None:
    """Measured slopes against the bound's: on the diagonal the theory is right."""
    found = slopes(rows, quantity)
    for index, vary in enumerate(VARY):
        points = [pair for (_, name), pair in found.items() if name == vary]
        if not points:
            continue
        x = [theory for theory, _ in points]
        y = [measured.mean for _, measured in points]
        error = np.array([(m.mean - m.low, m.high - m.mean) for _, m in points]).T
        axes.errorbar(
            x,
            y,
            yerr=error,
            fmt="os^Dv"[index],
            markersize=4.5,
            color=COLOURS[index],
            linewidth=1,
            alpha=0.85,
            label=SYMBOLS[vary],
        )
    axes.axline((0, 0), slope=1, color="#999999", linewidth=0.8, zorder=0)
    axes.set_xlabel("slope of the bound")


def draw(rows: Rows) -> Figure:
    figure, axes = panels(3, 3)
    for place, vary in zip(axes[0], ("n", "d", "spread"), strict=True):
        draw_lines(place, rows, vary, "hardest")
        place.set_title(f"convex, hardest f: {SYMBOLS[vary]}")
    for place, vary in zip(axes[1], ("n", "d", "b"), strict=True):
        draw_lines(place, rows, vary, "strong")
        place.set_title(f"strongly convex: {SYMBOLS[vary]}")
    titles = {
        "hardest": "slopes: convex, hardest f",
        "sharp": "slopes: convex, f = ½‖w − w*‖²_M",
        "strong": "slopes: strongly convex",
    }
    for place, (quantity, title) in zip(axes[2], titles.items(), strict=True):
        draw_slopes(place, rows, quantity)
        place.set_title(title)
    for first in axes[:2, 0]:
        first.set_ylabel("excess (dashed: bound)")
    axes[2, 0].set_ylabel("measured slope")
    axes[2, 0].legend(fontsize=7, title="slope in", title_fontsize=7)
    labels: dict[str, Any] = {}
    for place in axes[:2].flat:
        handles, names = place.get_legend_handles_labels()
        labels |= dict(zip(names, handles, strict=True))
    figure.legend(
        labels.values(), labels.keys(), loc="outside upper center", ncols=6, fontsize=8
    )
    return figure


def slope_table(rows: Rows, quantity: str) -> str:
    """Theory's slope and the measured one of each row, in each thing that varies."""
    found = slopes(rows, quantity)
    known = [vary for vary in VARY if any(name == vary for _, name in found)]
    lines = [
        "| row | " + " | ".join(SYMBOLS[vary] for vary in known) + " |",
        "|---" * (1 + len(known)) + "|",
    ]
    for name in dict.fromkeys(row for row, _ in found):
        shown = []
        for vary in known:
            if (name, vary) not in found:
                shown.append("–")
                continue
            theory, measured = found[name, vary]
            half = (measured.high - measured.low) / 2
            mark = "" if agrees(theory, measured) else " **≠**"
            shown.append(f"{theory:+.2f}: {measured.mean:+.2f} ± {half:.2f}{mark}")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def shares(rows: Rows, quantity: str) -> tuple[float, float]:
    """Least and most of measured mean over bound, over all places."""
    ratios = [
        float(np.mean(column(group, quantity))) / group[0][BOUNDS[quantity]]
        for group in grouped(swept(rows), "row", "vary", "value").values()
    ]
    return min(ratios), max(ratios)


def program_table(rows: Rows) -> str:
    """The program's mean excess over the simulation's, and what Theorem V saves."""
    ratios, gains = program_ratios(rows), program_gains(rows)
    lines = [
        "| row | convex, hardest f | part of the steps | gain | strongly convex | part "
        "of the steps | gain |",
        "|---" * 7 + "|",
    ]
    for name in dict.fromkeys(name for name, _ in ratios):
        shown = [
            f"{ratios[name, key]} | {presence:.2g} | {gain:.3g}"
            for key in ("hardest", "strong")
            for presence, gain in [gains[name, key]]
        ]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


FEW_RESTARTS = (
    "where nε is least the bound allows few restarts only, and bias is a large part of "
    "what is measured; elsewhere it is noise"
)
#: Why a slope differs, by what was measured and what varies.
REASONS = {
    ("hardest", "b"): "the importance row of blocks bounds R_{MP⁻¹} by R_I √Σ max M, "
    "too much where M varies within a block, and more so with fewer blocks",
    ("hardest", "spread"): "the same row is the looser, the more M varies in a block",
    ("strong", "n"): FEW_RESTARTS,
    ("strong", "epsilon"): FEW_RESTARTS,
    ("strong", "spread"): "the bound has max_i M_i/p_i for all coordinates, but only "
    "one is that slow: on f = ½μ‖w − w*‖² the others average more of their noise, and "
    "the wider M, the fewer are slow",
    ("strong", "b"): "few blocks are visited at more regular times: the mean square of "
    "the time between visits, in which a noisy coordinate stays as it is, is "
    "(2 − p)/p², not 2/p²; and M varies within a block",
}


def text(rows: Rows) -> str:
    seeds = len({row["seed"] for row in rows})
    base = ", ".join(f"{SYMBOLS[key]} = {value:g}" for key, value in BASE.items())
    return f"""Table 1 of the paper has nine rows; `experiments.theory.table1` has their
corrected bounds. The last one, which the paper gives for DP-SGD and DP-SVRG, is run as
full-batch gradient descent with steps 1/M_max: no row of the table draws records. Each
row's method runs on separable quadratics, on which all assumptions hold, with records
of norm one (L_S = 1), zero-out neighbours and δ =
{DELTA:g}. One thing varies at a time, the others stay at {base}; {seeds} seeds of
{N_RUNS} runs each. In the tables a cell is the slope of the bound's logarithm (n, ε, d,
b or M_max/M_min on a logarithmic scale, too), a colon, and the slope measured ± half
its 95 % interval over seeds; **≠** marks those that differ by more than that and
{TOLERANCE:g}.

**Convex, hardest f.** A bound is for all functions of a class, so its slope should be
seen on the worst of them, which is another one for each n: the flat quadratic on which
the method, after its K* steps, is slowest.

{slope_table(rows, "hardest")}

{verdict(rows, "hardest")} The printed bound, with Theorem 4.1's noise and replace-one
neighbours, is {printed(rows)} times the corrected one.

**Convex, one fixed f.** On f = ½‖w − w*‖²_M, with the same steps, noise and bound:

{slope_table(rows, "sharp")}

{verdict(rows, "sharp")} This f is strongly convex, of which a convex bound knows
nothing. One visit removes a coordinate's bias; what is left is noise, whose variance
falls as 1/(nμ)² and grows as Σ_j 1/(M_j p_j), with no distance in it. So the measured
slopes in n are {slopes_in_n(rows)} and the bound's are −1, and those in d, b and M
differ, too.

**Strongly convex.** f = ½μ‖w − w*‖² with μ = M_min, by the paper's restarts with
corrected K and T. All rows solve the same f. Its modulus in the norm of M is μ/M_max,
so DP-CD's row is the same as that of uniform coordinates. The bound's slope in n is not
−2 because of its logarithm.

{slope_table(rows, "strong")}

{verdict(rows, "strong")} One run with growing weights (Theorem C of [the
theory](../../guide/theory.md)) in place of restarts has {weighted_gain(rows)} of their
excess.

{above_lower(rows)}

**The program.** The above is a simulation in floating point, with the noise of the
bounds, which charge every step to every record. The same problems as tables of
{PROGRAM_ROWS:,} records, run by `skdp.run` with its exact sums and releases
({N_PROGRAM_RUNS} runs per seed): mean excess of the program over that of the simulation
with the same noise. A record of these tables has one coordinate, so it takes part in
few of the steps on blocks and coordinates and pays for those alone ([Theorem
V](../../guide/theory.md)): *part of the steps* is the largest of any record, and the
noise is its root times the noise of the bounds. *Gain* is the simulated excess with the
noise of the bounds over the one with the noise of the program.

{program_table(rows)}

{program_verdict(rows)}

{svrg_verdict(rows)}"""


def above_lower(rows: Rows) -> str:
    """Each row's bounds over what no private method can beat (Theorem G)."""
    base = [row for row in swept(rows) if row["vary"] == "n"]
    base = [row for row in base if row["value"] == BASE["n"]]
    if not base:
        return ""
    d, n_rows = int(BASE["d"]), int(BASE["n"])
    budget = Budget(
        n_rows=n_rows, epsilon=BASE["epsilon"], delta=DELTA, neighbours="zero-out"
    )
    smoothness = LEAST * BASE["spread"] ** (np.arange(d) / (d - 1))
    least = convex_lower(
        coordinate_lipschitz=spread_lipschitz(smoothness, 1.0),
        smoothness=smoothness,
        distance=CONVEX_START * float(np.sqrt(smoothness.sum())),
        budget=budget,
    )
    strong = strongly_convex_lower(
        coordinate_lipschitz=np.full(d, d**-0.5), modulus=LEAST, budget=budget
    )
    lines = ["| row | convex | strongly convex | one run (C) |", "|---" * 4 + "|"]
    for (name,), group in grouped(base, "row").items():
        shown = (
            group[0]["bound"] / least,
            group[0]["strong_bound"] / strong,
            group[0]["weighted_bound"] / strong,
        )
        lines.append(f"| {name} | {' | '.join(f'{each:,.0f}' for each in shown)} |")
    return f"""**How far from the best possible.** Theorem G bounds the excess of
every private method from below, on the hardest f with this M, ‖w⁰ − w*‖_M and L. Each
row's corrected bound at the base, over that: {least:.3g} (convex) and {strong:.3g}
(strongly convex).

{chr(10).join(lines)}

A factor of 42 is in Theorem G's constants, if M is the same in all coordinates. Blocks
and coordinates pay √b and √d on top, because L_S = 1 for small sets, too. The strongly
convex factors have the logarithm of the bounds and the constants of the restarts in
them, neither of which the lower bound has."""


def verdict(rows: Rows, quantity: str) -> str:
    """How many slopes agree, why others do not, and how far below the bound it is."""
    found = slopes(rows, quantity)
    wrong = [vary for (_, vary), pair in found.items() if not agrees(*pair)]
    low, high = shares(rows, quantity)
    said = f"{len(found) - len(wrong)} of {len(found)} slopes agree."
    reasons: dict[str, list[str]] = {}
    for vary in VARY:
        if vary in wrong and quantity != "sharp":
            reason = REASONS.get((quantity, vary), "we know of no reason")
            reasons.setdefault(reason, []).append(SYMBOLS[vary])
    for reason, names in reasons.items():
        said += f" In {' and '.join(names)} not all do: {reason}."
    return f"{said} Measured means are {low:.3f} to {high:.3f} of the bound."


def slopes_in_n(rows: Rows) -> str:
    """Range of the measured slopes in n on the quadratic of M."""
    found = slopes(rows, "sharp").items()
    measured = [pair[1].mean for (_, vary), pair in found if vary == "n"]
    return f"{min(measured):.2f} to {max(measured):.2f}"


def best_row(rows: Rows, quantity: str) -> tuple[str, float]:
    """The row with the least excess at the base, and the share of DP-SkGD's best."""
    base = [row for row in swept(rows) if row["vary"] == "n"]
    base = [row for row in base if row["value"] == BASE["n"]]
    means = {
        name: float(np.mean(column(group, quantity)))
        for (name,), group in grouped(base, "row").items()
    }
    best = min(means, key=lambda name: means[name])
    others = [mean for name, mean in means.items() if name not in ("DP-CD", GD)]
    return best, min(others) / means[best]


def printed(rows: Rows) -> str:
    ratios = [row["printed"] / row["bound"] for row in rows if "printed" in row]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def weighted_gain(rows: Rows) -> str:
    ratios = [
        float(np.mean(column(group, "weighted")) / np.mean(column(group, "strong")))
        for group in grouped(swept(rows), "row", "vary", "value").values()
    ]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def program_ratios(rows: Rows) -> dict[tuple[str, str], Interval]:
    """The program's excess over the simulation's with the same noise."""
    ran = sorted(
        (row for row in rows if row["vary"] == "program" and row["row"] != SVRG),
        key=lambda row: ROWS.index(row["row"]),
    )
    return {
        (name, key): mean_interval(
            np.array(column(group, f"{key}_program"))
            / np.mean(column(group, f"{key}_same"))
        )
        for (name,), group in grouped(ran, "row").items()
        for key in ("hardest", "strong")
    }


def program_gains(rows: Rows) -> dict[tuple[str, str], tuple[float, float]]:
    """The part of the steps that a record takes part in, and what that saves."""
    ran = [row for row in rows if row["vary"] == "program" and row["row"] != SVRG]
    return {
        (name, key): (
            float(np.mean(column(group, f"{key}_presence"))),
            float(np.mean(column(group, key)) / np.mean(column(group, f"{key}_same"))),
        )
        for (name,), group in grouped(ran, "row").items()
        for key in ("hardest", "strong")
    }


def program_verdict(rows: Rows) -> str:
    ratios = program_ratios(rows).values()
    inside = sum(ratio.low <= 1 <= ratio.high for ratio in ratios)
    return (
        f"{inside} of {len(ratios)} intervals hold 1 (of {len(ratios)} true 95 % "
        f"intervals {0.95 * len(ratios):.0f} are to be expected)."
    )


def svrg_verdict(rows: Rows) -> str:
    """How DP-SVRG stands beside the gradient descent that has the same row."""
    ran = [row for row in rows if row["vary"] == "program"]
    said = []
    for key, kind in (("hardest", "convex"), ("strong", "strongly convex")):
        both = [
            [row[f"{key}_program"] for row in ran if row["row"] == name]
            for name in (SVRG, GD)
        ]
        if all(both):
            ratio = mean_interval(np.array(both[0]) / np.mean(both[1]))
            said.append(f"{ratio} ({kind})")
    if not said:
        return ""
    return (
        "DP-SVRG, which shares the paper's last row with gradient descent, has on the "
        f"same records {' and '.join(said)} times its excess, with the defaults of "
        "`skdp.solvers.dp_svrg` (one run per seed)."
    )


def learnt(rows: Rows) -> list[str]:
    """Whether Table 1's corrected bounds predict what is measured."""
    found = slopes(rows, "hardest")
    right = sum(agrees(*pair) for pair in found.values())
    low, high = shares(rows, "hardest")
    strong = shares(rows, "strong")
    return [
        f"corrected, Table 1's convex bounds predict {right} of {len(found)} slopes on "
        f"their hardest functions, where the excess is {low:.2f} to {high:.2f} of "
        f"them; as printed they are {printed(rows)} times as large.",
        f"its strongly convex bounds are loose ({strong[0]:.3f} to {strong[1]:.3f} is "
        f"reached): one run of Theorem C has {weighted_gain(rows)} of the excess of "
        "the paper's restarts.",
    ]


def losses(rows: Rows) -> list[str]:
    low, high = shares(rows, "strong")
    found = []
    for quantity, kind in (("hardest", "convex"), ("strong", "strongly convex")):
        best, ratio = best_row(rows, quantity)
        if best in ("DP-CD", GD):
            found.append(
                f"with w⁰ − w* equal in all coordinates {best} has the least excess of "
                f"all rows of Table 1 ({kind}); the paper's best row has {ratio:.2f} "
                "times as much."
            )
    return [
        *found,
        "the strongly convex bounds of Table 1 are far from tight: measured excess is "
        f"{low:.3f} to {high:.3f} of them, and Theorem C's single run has "
        f"{weighted_gain(rows)} of the excess of the paper's restarts.",
    ]
