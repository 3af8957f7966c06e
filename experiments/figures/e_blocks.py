"""How many blocks, and which: the table's columns against random blocks of their sizes.

With b blocks of whole columns, b at most their number G, the public smoothness is
β G/b and a record's gradient on a block has norm √(G/b): R0 Σ is the same for all b.
More blocks than columns, or blocks that cut columns, pay for it.
"""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.drawing import line, panels, style
from experiments.folders import modules
from experiments.problems import Objective, make_problem, objective_of
from experiments.statistics import (
    Interval,
    Rows,
    column,
    grouped,
    mean_interval,
    ratio_interval,
    slope_interval,
)
from skdp.descent import smoothness
from skdp.descent.bounds import Budget, Prior
from skdp.descent.geometry import Diagonal
from skdp.descent.plan import Plan, run
from skdp.descent.rule import choose_rate
from skdp.descent.samplings import Blocks, Full
from skdp.engines.choice import choose_engine
from skdp.schema import Categorical, IntArray, Layout, Schema
from tables import Table

TITLE = "How many blocks, and which"
DELTA = 1e-6
SEEDS = range(10)
EPSILONS = (0.1, 0.5)
MADE_ROWS, MADE_COLUMNS, MADE_LEVELS = 20_000, 10, 10
#: Numbers of blocks tried of each table: from one to the number of coordinates.
COUNTS = {
    "adult": (1, 2, 4, 13, 26, 92),
    "made up": (1, 2, 4, 11, 25, 101),
}
KINDS = ("columns", "random")


def cells() -> list[dict[str, Any]]:
    return [
        {"table": t, "kind": kind, "b": b, "epsilon": epsilon, "seed": seed}
        for seed in SEEDS
        for t, counts in COUNTS.items()
        for epsilon in EPSILONS
        for kind in KINDS
        for b in (counts if kind == "columns" else counts[1:-1])
    ]


@cache
def objective(table: str) -> Objective:
    if table in modules("data"):
        return objective_of(table)
    return Objective(make_problem(made_up()))


def made_up() -> Table:
    """Draw categorical columns that all matter, and classes of a known model."""
    rng = np.random.default_rng(0)
    shape = (MADE_ROWS, MADE_COLUMNS)
    codes = rng.integers(MADE_LEVELS, size=shape)
    effects = rng.normal(0.0, 1.0, size=(MADE_COLUMNS, MADE_LEVELS))
    margin = effects[np.arange(MADE_COLUMNS), codes].sum(axis=1)
    y = (rng.random(MADE_ROWS) < 1.0 / (1.0 + np.exp(-margin))).astype(int)
    names = [f"x{j}" for j in range(MADE_COLUMNS)]
    levels = Categorical(list(range(MADE_LEVELS)))
    schema = Schema(dict.fromkeys(names, levels), target=Categorical([0, 1]))
    return Table(pd.DataFrame(codes, columns=names), y, schema)


def partition(layout: Layout, b: int) -> list[IntArray]:
    """Make b blocks that keep to columns: several whole ones, or pieces of one."""
    columns = list(layout.blocks)
    if b <= len(columns):
        groups = np.array_split(np.arange(len(columns)), b)
        return [np.concatenate([columns[c] for c in group]) for group in groups]
    while len(columns) < b:
        widest = max(range(len(columns)), key=lambda c: len(columns[c]))
        columns[widest : widest + 1] = np.array_split(columns[widest], 2)
    return columns


def shuffled(blocks: list[IntArray], rng: np.random.Generator) -> list[IntArray]:
    """Blocks of the same sizes with coordinates at random."""
    order = rng.permutation(sum(len(block) for block in blocks))
    edges = np.cumsum([len(block) for block in blocks])[:-1]
    return [np.sort(block) for block in np.split(order, edges)]


def measure(cell: dict[str, Any]) -> Rows:
    goal = objective(cell["table"])
    problem, layout = goal.problem, goal.problem.layout
    blocks = partition(layout, cell["b"])
    if cell["kind"] == "random":
        blocks = shuffled(blocks, np.random.default_rng([cell["seed"], cell["b"]]))
    whole = len(blocks) == 1
    sampling = Full(layout.n_features) if whole else Blocks.uniform(blocks)
    M = smoothness.from_bounds(sampling, layout.blocks, problem.loss.curvature)
    budget = Budget(
        n_rows=problem.n_rows,
        epsilon=cell["epsilon"],
        delta=DELTA,
        neighbours=problem.neighbours,
    )
    planned = choose_rate(sampling, M, layout, problem.loss, Prior(), budget)
    truth = Prior(
        displacement=tuple(goal.minimiser[:, 0]), excess=goal.excess(problem.start)
    )
    facts = sampling, M, layout, problem.loss, truth, budget
    known = choose_rate(*facts, n_steps=planned.n_steps)
    fit = run(
        Plan(
            layout=layout,
            loss=problem.loss,
            n_rows=problem.n_rows,
            epsilon=cell["epsilon"],
            delta=DELTA,
            sampling=sampling,
            geometry=Diagonal(smoothness=M, elliptical=True),
            n_steps=planned.n_steps,
            penalty=problem.penalty,
            neighbours=problem.neighbours,
            rate=planned,
        ),
        problem.records,
        engine=choose_engine("auto", 1),
        random_state=cell["seed"],
    )
    touched = [len(set(layout.group_of[block].tolist())) for block in blocks]
    n_columns = len(layout.groups)
    return [
        {
            "excess": goal.excess(fit.weights),
            "n_steps": planned.n_steps,
            "passes": planned.n_steps * float(np.mean(touched)) / n_columns,
            "touched": float(np.mean(touched)),
            "planned": planned.bound,
            "bound": known.bound,
            "n_columns": n_columns,
            "start": goal.excess(problem.start),
        }
    ]


def draw(rows: Rows) -> Figure:
    tables = list(dict.fromkeys(column(rows, "table")))
    budgets = sorted(set(column(rows, "epsilon")))
    figure, axes = panels(len(tables), len(budgets), sharex="row")
    for (table, epsilon), some in grouped(rows, "table", "epsilon").items():
        panel = axes[tables.index(table), budgets.index(epsilon)]
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_title(f"{table}, ε = {epsilon:g}")
        panel.set_ylabel("excess risk")
        panel.set_xlabel("number of blocks b")
        for kind, look in zip(KINDS, (style(0), style(1)), strict=True):
            by_count = sorted(with_ends(some, kind).items())
            x = [b for b, _ in by_count]
            y = [mean_interval(column(each, "excess")) for _, each in by_count]
            line(panel, x, y, label=f"{kind}, measured", marker="o", **look)
            bound = [float(np.mean(column(each, "bound"))) for _, each in by_count]
            dotted = look | {"linestyle": ":", "linewidth": 1.4}
            panel.plot(x, bound, label=f"{kind}, bound at the true w*", **dotted)
        panel.axvline(some[0]["n_columns"], color="#888888", linewidth=0.8)
        panel.axhline(some[0]["start"], color="#888888", linewidth=0.8, linestyle="--")
        ticks = sorted(set(column(some, "b")))
        panel.set_xticks(ticks, [str(b) for b in ticks])
        panel.xaxis.minorticks_off()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles += axes[0, 0].get_lines()[-2:]
    labels += ["b = number of columns", "excess of the start"]
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def with_ends(rows: Rows, kind: str) -> dict[int, Rows]:
    """Rows of a kind by b; one block, and blocks of one, are alike for both kinds."""
    own = [row for row in rows if row["kind"] == kind]
    found = {b: some for (b,), some in grouped(own, "b").items()}
    for (b,), some in grouped(rows, "b").items():
        found.setdefault(b, some)
    return found


def at(rows: Rows, kind: str, b: int) -> Rows:
    """Rows of one line's point, by seed."""
    return sorted(with_ends(rows, kind)[b], key=lambda row: row["seed"])


def compared(ones: Rows, others: Rows) -> Interval:
    """Ratio of excesses, paired by seed."""
    first, second = ({r["seed"]: r["excess"] for r in some} for some in (ones, others))
    seeds = sorted(set(first) & set(second))
    return ratio_interval([first[s] for s in seeds], [second[s] for s in seeds])


def text(rows: Rows) -> str:
    cases = grouped(rows, "table", "epsilon")
    parts = [
        f"""
Uniform sampling of b blocks, b from 1 (full gradients) to d (single coordinates), with
the smoothness of public bounds and the K* of the bound that applies: Theorem A of
[the theory](../../guide/theory.md) for b = 1, Theorem B for more blocks, for weights of
norm 1 per column. *Columns* are whole columns put together (b below their number),
columns (b equal to it) or pieces of columns; *random* blocks have the same sizes, and
coordinates drawn anew with each of {len(set(column(rows, "seed")))} seeds. Noise is
elliptical: it is isotropic on a column, and smaller on wide columns of a block that has
several. The made up table has {MADE_COLUMNS} columns of {MADE_LEVELS} categories and
{MADE_ROWS:,} rows. The bound drawn is that at the same K for the true w*, which only an
experiment knows (without the light ridge). A pass reads as many columns as the table
has.
{against_bounds(rows)}
"""
    ]
    for (table, epsilon), some in cases.items():
        parts.append(f"**{table}, ε = {epsilon:g}.** {findings(some)}")
    largest = max(column(rows, "epsilon"), default=0.0)
    for (table, epsilon), some in cases.items():
        if epsilon == largest:
            parts.append(f"{table}, ε = {epsilon:g}:\n\n{numbers(some)}")
    return "\n\n".join(parts)


def against_bounds(rows: Rows) -> str:
    """Count the points whose mean is above a bound."""
    points = grouped(rows, "table", "epsilon", "kind", "b").values()

    def above(key: str) -> int:
        return sum(
            float(np.mean(column(p, "excess"))) > float(np.mean(column(p, key)))
            for p in points
        )

    shares = [
        float(np.mean(column(p, "excess")) / np.mean(column(p, "bound")))
        for p in points
    ]
    return (
        f"Of {len(shares)} measured means {above('bound')} are above it; they are "
        f"{min(shares):.2f} to {max(shares):.2f} of it. {above('planned')} are above "
        "the bound that the run was planned by, which takes the norms of w* for 1."
    )


def findings(rows: Rows) -> str:
    """Say what one table shows at one ε."""
    counts = sorted(with_ends(rows, "columns"))
    means = {b: np.mean(column(at(rows, "columns", b), "excess")) for b in counts}
    best = min(means, key=lambda b: means[b])
    n_columns = rows[0]["n_columns"]
    sentences = [f"The least mean excess, {means[best]:.3g}, is at b = {best}."]
    if n_columns not in means:
        return sentences[0]
    ours, full = (at(rows, "columns", b) for b in (n_columns, counts[0]))
    visits = [float(np.mean(column(each, "passes"))) for each in (ours, full)]
    sentences.append(
        f"One block per column (b = {n_columns}) has {compared(ours, full)} times the "
        f"excess of full gradients for {visits[0]:,.0f} passes over the table instead "
        f"of {visits[1]:,.0f}."
    )
    other = at(rows, "random", n_columns)
    bounds = [float(np.mean(column(each, "bound"))) for each in (other, ours)]
    sentences.append(
        f"Random blocks of the same sizes have {compared(other, ours)} times the "
        f"excess of columns; the ratio of the bounds is {bounds[0] / bounds[1]:.2f}."
    )
    fine = [r for b in counts if b >= n_columns for r in at(rows, "columns", b)]
    slopes = [slope_interval(column(fine, "b"), column(fine, k)) for k in KEYS]
    sentences.append(
        f"From there to b = {counts[-1]} the excess grows as b to the power "
        f"{slopes[0]}, its bound as b to the power {slopes[1].mean:.2f}."
    )
    return " ".join(sentences)


#: What is measured and what is predicted.
KEYS = ("excess", "bound")


def numbers(rows: Rows) -> str:
    """Write the table of one panel."""
    lines = [
        "| b | K*, columns | passes | excess, columns | excess, random "
        "| random / columns | ratio of bounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for b in sorted(with_ends(rows, "columns")):
        ours, random = (at(rows, kind, b) for kind in KINDS)
        steps, passes = ours[0]["n_steps"], ours[0]["passes"]
        excess = mean_interval(column(ours, "excess"))
        entries = [b, steps, f"{passes:.0f}", excess, "the same", "", ""]
        if ours != random:
            bounds = [np.mean(column(each, "bound")) for each in (random, ours)]
            entries[4:] = [
                mean_interval(column(random, "excess")),
                compared(random, ours),
                f"{bounds[0] / bounds[1]:.2f}",
            ]
        lines.append("| " + " | ".join(map(str, entries)) + " |")
    return "\n".join(lines)


def learnt(rows: Rows) -> list[str]:
    """Describe what columns as blocks cost and save."""
    excess, passes, random = [], [], []
    for some in grouped(rows, "table", "epsilon").values():
        n_columns, counts = some[0]["n_columns"], sorted(with_ends(some, "columns"))
        if n_columns not in counts:
            continue
        ours, full = (at(some, "columns", b) for b in (n_columns, counts[0]))
        excess.append(compared(ours, full).mean)
        passes.append(full[0]["passes"] / ours[0]["passes"])
        random.append(compared(at(some, "random", n_columns), ours).mean)
    if not excess:
        return []
    return [
        f"one block per column has {min(excess):.2f} to {max(excess):.2f} times the "
        f"excess of full gradients for {min(passes):.0f} to {max(passes):.0f} times "
        f"fewer passes; random blocks of the same sizes have {min(random):.2f} to "
        f"{max(random):.2f} times the excess of columns."
    ]


def losses(rows: Rows) -> list[str]:
    """Where columns as blocks have more excess than full gradients or random blocks."""
    points = []
    for (table, epsilon), some in grouped(rows, "table", "epsilon").items():
        n_columns, counts = some[0]["n_columns"], sorted(with_ends(some, "columns"))
        if n_columns not in counts:
            continue
        ours = at(some, "columns", n_columns)
        rivals = {
            "full gradients (more passes)": at(some, "columns", counts[0]),
            "random blocks of the same sizes": at(some, "random", n_columns),
        }
        for rival, other in rivals.items():
            ratio = compared(ours, other)
            if ratio.low > 1:
                points.append(
                    f"{table}, ε = {epsilon:g}: one block per column has {ratio} times "
                    f"the excess of {rival}."
                )
    return points
