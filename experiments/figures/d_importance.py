"""Which probabilities? Uniform, by smoothness, by a prior, on columns in raw units.

A column with the public range [low, low + s] has smoothness M = β s² m in raw units,
where m, the mean of x² once x is scaled to [0, 1], is 1 if only the range is known.
Steps of 1/M and noise in proportion to s are the same steps in scaled units, so the
runs are made there: units change nothing but probabilities that are computed from M.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.drawing import line, panels, style
from experiments.folders import modules
from experiments.problems import Objective, make_problem, objective_of, problem_of
from experiments.samplings import Facts
from experiments.statistics import (
    Interval,
    Rows,
    column,
    grouped,
    mean_interval,
    ratio_interval,
)
from skdp.descent.geometry import Diagonal
from skdp.descent.plan import Plan, run
from skdp.engines.choice import choose_engine
from skdp.schema import Categorical, FloatArray, Numeric, Schema
from skdp.solvers.dp_cd import SMOOTHNESS_SHARE, choose_cd_steps, release_squares
from skdp.solvers.problem import Problem, Run, open_run
from tables import Table

TITLE = "Probabilities: importance, uniform or a prior"
DELTA = 1e-6
SEEDS = range(10)
REAL = ("bank", "california", "electricity")
EPSILONS = (0.03, 0.1, 0.3)
#: Made up: columns whose raw weights are equal, or whose effects are equal.
MADE = ("equal weights", "equal effects")
SPREADS = (1e2, 1e4, 1e6)
MADE_EPSILON, MADE_ROWS, MADE_COLUMNS = 1.0, 5_000, 15
SOURCES = ("public", "private", "exact")


def cells() -> list[dict[str, Any]]:
    return [
        {"table": table, "M": source, "sampling": sampling, "seed": seed} | where
        for seed in SEEDS
        for source in SOURCES
        for sampling in modules("samplings")
        for table, where in places()
    ]


def places() -> list[tuple[str, dict[str, float]]]:
    """Tables, each at several ε, or at several spreads of M."""
    real = [(table, {"epsilon": e}) for table in REAL for e in EPSILONS]
    fixed = {"epsilon": MADE_EPSILON}
    return real + [(table, fixed | {"spread": s}) for table in MADE for s in SPREADS]


@dataclass(frozen=True, eq=False)
class Raw:
    """A problem in scaled units, and the length of each coordinate's raw range."""

    problem: Problem
    objective: Objective
    ranges: FloatArray


@cache
def raw(table: str, spread: float | None = None) -> Raw:
    if table in REAL:
        schema = modules("data")[table].load().schema
        ranges = [
            [c.high - c.low] if isinstance(c, Numeric) else [1.0] * len(c.levels)
            for c in schema.columns.values()
        ]
        flat = np.array([*(length for each in ranges for length in each), 1.0])
        return Raw(problem_of(table), objective_of(table), flat)
    assert spread is not None
    made = make_problem(made_up(table, spread))
    return Raw(made, Objective(made), np.append(ladder(spread), 1.0))


def ladder(spread: float) -> FloatArray:
    """Ranges from 1 down, whose squares spread over so many orders of magnitude."""
    return np.geomspace(1.0, spread**-0.5, MADE_COLUMNS)


def made_up(kind: str, spread: float) -> Table:
    """Draw columns that are uniform on their ranges, and classes of a known model."""
    rng = np.random.default_rng(int(spread))
    ranges = ladder(spread)
    scaled = rng.random((MADE_ROWS, MADE_COLUMNS))
    sign = (-1.0) ** np.arange(MADE_COLUMNS)
    effect = sign * (ranges if kind == "equal weights" else 1.0)
    effect *= 6.0 / np.linalg.norm(effect)
    chance = 1.0 / (1.0 + np.exp(-(scaled - 0.5) @ effect))
    names = [f"x{j}" for j in range(MADE_COLUMNS)]
    columns = {n: Numeric(0.0, r) for n, r in zip(names, ranges.tolist(), strict=True)}
    y = (rng.random(MADE_ROWS) < chance).astype(int)
    schema = Schema(columns, target=Categorical([0, 1]))
    return Table(pd.DataFrame(scaled * ranges, columns=names), y, schema)


def mean_squares(problem: Problem, source: str, opening: Run) -> FloatArray:
    """m: 1, or its mean over records, released or (not private) exact."""
    d = problem.layout.n_features
    if source == "public":
        return np.ones(d)
    if source == "exact":
        gram = choose_engine("auto", 1)(problem.records).gram()
        found = np.diag(gram).astype(np.float64) / 2.0**28 / problem.n_rows
        return np.clip(found, 1e-6, 1.0)
    floor = min(1.0, math.sqrt(math.sqrt(d) / (problem.n_rows * opening.mu)))  # DP-CD
    return np.clip(
        release_squares(problem, opening.share(SMOOTHNESS_SHARE)), floor, 1.0
    )


def measure(cell: dict[str, Any]) -> Rows:
    """Algorithm 1 with the sampling and the smoothness of a cell."""
    case = raw(cell["table"], cell.get("spread"))
    problem, layout = case.problem, case.problem.layout
    opening = open_run(
        problem, epsilon=cell["epsilon"], delta=DELTA, random_state=cell["seed"]
    )
    m = mean_squares(problem, cell["M"], opening)
    for block in layout.blocks:
        m[block] = m[block].max()
    M = problem.curvature * m  # in scaled units, as all that follows but the sampling
    facts = Facts(
        blocks=layout.blocks,
        smoothness=M * case.ranges**2,
        ranges=case.ranges,
        distance=np.abs(case.objective.minimiser[:, 0]) / case.ranges,
    )
    sampling = modules("samplings")[cell["sampling"]].make(facts)
    plan = Plan(
        layout=layout,
        loss=problem.loss,
        n_rows=problem.n_rows,
        epsilon=cell["epsilon"],
        delta=DELTA,
        sampling=sampling,
        geometry=Diagonal(smoothness=M),
        n_steps=choose_cd_steps(problem, opening, sampling, M),
        penalty=problem.penalty,
        neighbours=problem.neighbours,
    )
    fit = run(
        plan,
        problem.records,
        engine=choose_engine("auto", 1),
        noise=opening.noise,
        record=opening.record,  # of which M may have had its share
    )
    return [
        {
            "excess": case.objective.excess(fit.weights),
            "n_steps": plan.n_steps,
            "p_min": float(sampling.probabilities.min()),
            "M_spread": float(facts.smoothness.max() / facts.smoothness.min()),
            "spent": 1.0 - fit.record.remaining / fit.record.budget,
        }
    ]


def order(rows: Rows) -> list[str]:
    """Samplings in the rows, the uniform one first."""
    return sorted(dict.fromkeys(column(rows, "sampling")), key=lambda s: s != "uniform")


def name(sampling: str) -> str:
    """How a sampling is called; by its file if that is gone."""
    return str(getattr(modules("samplings").get(sampling), "NAME", sampling))


def draw(rows: Rows) -> Figure:
    tables = list(dict.fromkeys(column(rows, "table")))
    sources = [source for source in SOURCES if source in column(rows, "M")]
    size = (len(sources), len(tables))
    figure, axes = panels(*size, height=2.1, sharex="col", sharey="col")
    looks = {sampling: style(i) for i, sampling in enumerate(order(rows))}
    for (table, source), some in grouped(rows, "table", "M").items():
        at = sources.index(source), tables.index(table)
        panel = axes[at]
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
        along = "spread" if "spread" in some[0] else "epsilon"
        for (sampling,), own in sorted(grouped(some, "sampling").items()):
            by_place = sorted(grouped(own, along).items())
            x = [place for (place,), _ in by_place]
            y = [mean_interval(column(each, "excess")) for _, each in by_place]
            line(panel, x, y, label=name(sampling), marker="o", **looks[sampling])
        if at[0] == 0:
            panel.set_title(titled(table).replace(", ", ",\n"))
        if along == "epsilon":
            panel.set_xticks(x, [f"{place:g}" for place in x])
            panel.xaxis.minorticks_off()
        if at[0] == len(sources) - 1:
            epsilon = f"spread of M, ε = {some[0]['epsilon']:g}"
            panel.set_xlabel("ε" if along == "epsilon" else epsilon)
        if at[1] == 0:
            note = {"exact": "M exact:\nNOT PRIVATE"}.get(source, f"M {source}")
            panel.set_ylabel(f"{note}\nexcess risk")
    lines = {ln.get_label(): ln for ax in axes.flat for ln in ax.get_lines()}
    names = [name(sampling) for sampling in looks]
    handles = [lines[each] for each in names]
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


def settings(rows: Rows) -> dict[tuple[Any, ...], dict[str, dict[int, float]]]:
    """Excess by table, M and place, then by sampling and seed."""
    found: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for row in rows:
        key = row["table"], row["M"], row["epsilon"], row.get("spread")
        found.setdefault(key, {}).setdefault(row["sampling"], {})[row["seed"]] = row[
            "excess"
        ]
    return found


def compared(ones: dict[int, float], others: dict[int, float]) -> Interval:
    """Ratio of the excesses of the seeds that both have."""
    seeds = sorted(set(ones) & set(others))
    return ratio_interval([ones[s] for s in seeds], [others[s] for s in seeds])


def hardest(rows: Rows) -> dict[tuple[str, str], dict[str, dict[int, float]]]:
    """The settings with the largest ε and spread, by table and M."""
    found = {}
    for key, excess in sorted(settings(rows).items(), key=lambda kv: str(kv[0][:2])):
        table, source, epsilon, spread = key
        place = (epsilon, spread or 0.0)
        best = found.get((table, source))
        if best is None or place > best[0]:
            found[table, source] = (place, excess)
    return {key: excess for key, (_, excess) in found.items()}


def tally(rows: Rows, sampling: str) -> tuple[int, int, int]:
    """In how many settings a sampling is better, worse and neither than uniform."""
    ratios = [
        compared(excess[sampling], excess["uniform"])
        for excess in settings(rows).values()
        if sampling in excess and "uniform" in excess
    ]
    better = sum(ratio.high < 1 for ratio in ratios)
    worse = sum(ratio.low > 1 for ratio in ratios)
    return better, worse, len(ratios) - better - worse


def short(ratio: Interval) -> str:
    return f"{ratio.mean:.2g} [{ratio.low:.2g}, {ratio.high:.2g}]"


def text(rows: Rows) -> str:
    real = [row for row in rows if "spread" not in row]
    made = [row for row in rows if "spread" in row]
    at_end = hardest(rows)
    tables = list(dict.fromkeys(table for table, _ in at_end))
    others = [sampling for sampling in order(rows) if sampling != "uniform"]
    lines = [
        "| sampling | M | " + " | ".join(map(titled, tables)) + " |",
        "|---" * (2 + len(tables)) + "|",
    ]
    for sampling in others:
        for source in SOURCES:
            ratios = []
            for table in tables:
                excess = at_end.get((table, source), {})
                both = sampling in excess and "uniform" in excess
                ratios.append(
                    short(compared(excess[sampling], excess["uniform"])) if both else ""
                )
            label = source + (" (not private)" if source == "exact" else "")
            lines.append(f"| {name(sampling)} | {label} | " + " | ".join(ratios) + " |")
    counts = [
        f"- {name(s)}: better in {b}, worse in {w}, neither in {n}."
        for s in others
        for b, w, n in [tally(rows, s)]
    ]
    ratio_table, tallies = "\n".join(lines), "\n".join(counts)
    return f"""
Columns are blocks, in the raw units of their public ranges s, so that M_j = β s_j² m_j
spreads over orders of magnitude: M_max/M_min is {column_range(real, "M_spread")} on the
real tables. The made up ones have {MADE_COLUMNS} columns and {MADE_ROWS:,} rows, and
weights that are equal in raw units, so that steep columns matter most, or effects that
are equal (weights ∝ 1/s). m_j, the mean square
of a scaled column, is 1 where M is *public*; it is released for {SMOOTHNESS_SHARE:.0%}
of the budget where M is *private*; and it is read from the records where M is *exact*,
**which is not private** and shows what privacy of M costs; nor is the law that knows
w*. Steps and noise do not depend on units; probabilities that are computed from M do.
By the bound q_j ∝ √M_j |w0 - w*|_j is best: q ∝ M only where |w0 - w*|_j ∝ √M_j.
Each run takes the K* of its own bound, {column_range(rows, "n_steps", ",.0f")} steps,
and spends at least {min(column(rows, "spent"), default=0):.4%} of its budget.

Excess risk as a multiple of that of uniform sampling with the same M, at the largest ε
(real tables, ε = {max(column(real, "epsilon"), default=0):g}) and the largest spread
(made up, {max(column(made, "spread"), default=0):.0e}); geometric mean over
{len(set(column(rows, "seed")))} seeds and 95 % interval, below 1 is better than
uniform:

{ratio_table}

Of {len(settings(rows))} settings (table, M, and ε or spread), by whether the 95 %
interval of that multiple is below 1, above 1, or holds it:

{tallies}

{about_smoothness(at_end)}

{about_cases(at_end)}
"""


def titled(table: str) -> str:
    return f"made up, {table}" if table in MADE else table


def column_range(rows: Rows, key: str, form: str = ".2g") -> str:
    values = column(rows, key) or [0]
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def about_smoothness(at_end: dict[tuple[str, str], dict[str, dict[int, float]]]) -> str:
    """Say what knowing M is worth, with uniform sampling."""
    parts = []
    for table in dict.fromkeys(table for table, _ in at_end):
        found = [at_end.get((table, s), {}).get("uniform") for s in SOURCES]
        if None in found:
            continue
        public, private, exact = found
        gain, price = compared(public, private), compared(private, exact)
        parts.append(f"{titled(table)} {short(gain)} and {short(price)}")
    return (
        "What M is worth to uniform sampling, in ratios of excess, public over private "
        f"M and private over exact M: {'; '.join(parts)}."
    )


def about_cases(at_end: dict[tuple[str, str], dict[str, dict[int, float]]]) -> str:
    """Say which law is best in each of the made up tables, M public."""
    sentences = []
    for table in MADE:
        excess = at_end.get((table, "public"), {})
        means = {s: float(np.mean(list(e.values()))) for s, e in excess.items()}
        if not means:
            continue
        best = min(means, key=lambda s: means[s])
        listed = ", ".join(f"{name(s)} {m:.3g}" for s, m in means.items())
        sentences.append(
            f"{titled(table).capitalize()}, M public: least mean excess with "
            f"{name(best)} ({listed})."
        )
    return " ".join(sentences)


def learnt(rows: Rows) -> list[str]:
    """Describe the effect of importance sampling on columns."""
    known = [s for s in ("importance", "oracle") if s in column(rows, "sampling")]
    counts = {s: tally(rows, s) for s in known}
    if len(counts) < 2:
        return []
    (better, worse, neither), best = counts["importance"], counts["oracle"]
    return [
        f"q ∝ M is worse than uniform in {worse} of {better + worse + neither} "
        f"settings and better in {better}: M says nothing about w*. Knowing w* would "
        f"help in {best[0]}."
    ]


def losses(rows: Rows) -> list[str]:
    """Where the paper's importance sampling loses to uniform."""
    points = []
    for sampling in order(rows):
        better, worse, neither = tally(rows, sampling)
        if sampling != "uniform" and worse > better:
            points.append(
                f"{name(sampling)} is worse than uniform in {worse} of "
                f"{better + worse + neither} settings, better in {better}."
            )
    return points
