"""Excess risk of all systems, against passes over the data and against ε."""

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import label_ends, line, panels, style
from experiments.folders import modules
from experiments.problems import objective_of, problem_of
from experiments.statistics import (
    Interval,
    Rows,
    column,
    grouped,
    mean_interval,
    ratio_interval,
)
from skdp.descent.bounds import Budget, Prior
from skdp.descent.rule import choose_rate
from skdp.schema import FloatArray

TITLE = "All systems, on real tables"
DELTA = 1e-6
SEEDS = range(10)
EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0)
#: Paths are kept for this budget, at steps that grow by this factor.
PATH_EPSILON, GROWTH = 1.0, 1.5
OURS = "skgd_matrix"
#: The system whose settings are chosen on the excess itself.
TUNED = "dp_sgd_tuned"
#: Whom the paper compares its samplings with, in its own geometry.
RIVALS = (
    ("skgd_full", "dp_sgd"),
    ("skgd_columns", "dp_cd"),
    ("skgd_columns", "dp_cd_unclipped"),
    ("skgd_importance", "dp_cd"),
    ("skgd_importance", "dp_cd_unclipped"),
)
#: The pair of which only the sampling differs: the same M, and no clip in either.
SAME = ("skgd_importance", "dp_cd_unclipped")
#: Final excess over seeds by (table, ε), then by system.
Ends = dict[tuple[Any, ...], dict[str, list[float]]]


def cells() -> list[dict[str, Any]]:
    """Every system on every table: a system may name fewer tables and budgets.

    A cell without a seed computes the bound of a system that plans by one.
    """
    where = [
        {"table": table, "system": name, "epsilon": epsilon}
        for table in modules("data")
        for name, system in modules("systems").items()
        if table in getattr(system, "TABLES", modules("data"))
        for epsilon in getattr(system, "EPSILONS", EPSILONS)
    ]
    plans = {name for name, system in modules("systems").items() if planned(system)}
    bounds = [cell | {"kind": "bound"} for cell in where if cell["system"] in plans]
    return [cell | {"seed": seed} for cell in where for seed in SEEDS] + bounds


def planned(system: Any) -> bool:
    """Whether a system's number of steps comes from a bound."""
    return hasattr(system, "plan")


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every system on the made-up table, and ours on every table."""

    def order(cell: dict[str, Any]) -> Any:
        return cell["seed"], cell["table"] != "hospital", cell["system"] != OURS

    seen: set[str] = set()
    kept = []
    for cell in sorted((c for c in cells if "seed" in c), key=order):
        names = {cell["table"], cell["system"]}
        if not names <= seen:
            fast = cell["system"] == OURS
            kept.append(cell | {"epsilon": PATH_EPSILON if fast else EPSILONS[0]})
            seen |= names
    return kept


class Recorder:
    """A callback that keeps what was reached, and when, at steps 1, 2, 3, 5, 8, 12."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float, float, FloatArray]] = []
        self.step, self.passes, self._next = 0, None, 1
        self._start = time.process_time()

    def __call__(self, passes: float, weights: FloatArray) -> None:
        """Keep a step if it is its turn."""
        self.step, self.passes = self.step + 1, passes
        if self.step >= self._next:
            self.points.append((self.step, passes, self.seconds, weights.copy()))
            self._next = int(np.ceil(self.step * GROWTH))

    @property
    def seconds(self) -> float:
        """CPU seconds since the start."""
        return time.process_time() - self._start


def measure(cell: dict[str, Any]) -> Rows:
    """One fit: what it returns, and at one budget what it had reached before."""
    system = modules("systems")[cell["system"]]
    problem, objective = problem_of(cell["table"]), objective_of(cell["table"])
    if problem.loss.kind not in system.LOSSES:
        return []
    if "seed" not in cell:
        return [measure_bound(system, cell)]
    budget = {"epsilon": cell["epsilon"], "delta": DELTA, "seed": cell["seed"]}
    recorder = Recorder()
    weights = system.fit(problem, callback=recorder, **budget)
    rows: Rows = [
        {
            "kind": "end",
            "step": recorder.step,
            "passes": recorder.passes,
            "seconds": recorder.seconds,
            "excess": objective.excess(weights),
        }
    ]
    if cell["epsilon"] == PATH_EPSILON:
        for step, passes, seconds, reached in recorder.points:
            where = {"kind": "path", "step": step, "passes": passes}
            excess = objective.excess(reached)
            rows.append(where | {"seconds": seconds, "excess": excess})
    return rows


def measure_bound(system: Any, cell: dict[str, Any]) -> dict[str, Any]:
    """The bound that a run was planned by, and the same for the true w*."""
    problem, objective = problem_of(cell["table"]), objective_of(cell["table"])
    plan = system.plan(problem, epsilon=cell["epsilon"], delta=DELTA)
    truth = Prior(
        displacement=tuple(objective.minimiser[:, 0]),
        excess=objective.excess(problem.start),
    )
    budget = Budget(
        n_rows=problem.n_rows,
        epsilon=cell["epsilon"],
        delta=DELTA,
        neighbours=problem.neighbours,
    )
    known = choose_rate(
        plan.sampling,
        plan.geometry.smoothness,
        problem.layout,
        problem.loss,
        truth,
        budget,
        problem.penalty,
        plan.n_steps,
    )
    return {"step": plan.n_steps, "excess": plan.rate.bound, "true": known.bound}


def order(rows: Rows) -> list[str]:
    """Systems that have rows: ours first, then by name."""
    found = {row["system"] for row in rows}
    return sorted(found, key=lambda name: (name != OURS, name))


def label(system: str) -> str:
    """How a system is called."""
    return str(modules("systems")[system].LABEL)


def look(system: str) -> dict[str, Any]:
    """Label and style of a system's line, the same in every panel and figure."""
    place = sorted(modules("systems"), key=lambda name: (name != OURS, name))
    return {"label": label(system), **style(place.index(system))}


def draw(rows: Rows) -> Figure:
    """Draw a row of panels per table: over passes at one budget, and over ε."""
    tables = grouped(rows, "table")
    figure, axes = panels(len(tables), 2, height=2.9, width_ratios=(1, 0.8))
    for (left, right), ((table,), group) in zip(axes, tables.items(), strict=True):
        for each in (left, right):
            each.set_xscale("log")
            each.set_yscale("log")
            each.set_title(table)
            each.set_ylabel("excess risk")
        for name in order(group):
            seen = [row for row in group if row["system"] == name]
            _draw_path(left, seen, look(name))
            ends = grouped([row for row in seen if row["kind"] == "end"], "epsilon")
            means = [mean_interval(column(part, "excess")) for part in ends.values()]
            line(right, [e for (e,) in ends], means, marker="o", **look(name))
        left.set_xlabel(f"passes over the data, ε = {PATH_EPSILON:g}")
        right.set_xlabel("ε")
        right.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        right.minorticks_off()
        left.set_ylim(right.get_ylim())
        label_ends(right)
    return figure


def _draw_path(axes: Any, rows: Rows, line_look: dict[str, Any]) -> None:
    """Mean excess over mean passes, step by step; a level where there are no passes."""
    ends = [
        row for row in rows if row["kind"] == "end" and row["epsilon"] == PATH_EPSILON
    ]
    if not ends:
        return
    final = mean_interval(column(ends, "excess"))
    if "passes" not in ends[0]:
        axes.axhline(final.mean, **line_look | {"linestyle": ":", "linewidth": 1.0})
        return
    steps = grouped([row for row in rows if row["kind"] == "path"], "step")
    whole = [part for part in steps.values() if len(part) == len(ends)]
    whole = [*sorted(whole, key=lambda part: part[0]["step"]), ends]
    places = [float(np.mean(column(part, "passes"))) for part in whole]
    means = [mean_interval(column(part, "excess")) for part in whole]
    line(axes, places, means, **line_look)
    axes.plot(places[-1:], [final.mean], "o", color=line_look["color"])


def ends_of(rows: Rows) -> Ends:
    """Final excess over seeds."""
    found: Ends = {}
    final = [row for row in rows if row["kind"] == "end"]
    for (table, epsilon, system), group in grouped(
        final, "table", "epsilon", "system"
    ).items():
        by_seed = sorted(group, key=lambda row: row["seed"])
        cell = found.setdefault((table, epsilon), {})
        cell[system] = column(by_seed, "excess")
    return found


def beaten(rows: Rows) -> list[tuple[Any, ...]]:
    """(table, ε, system, ratio) where our excess is larger, the interval above 1."""
    found = []
    for (table, epsilon), systems in sorted(ends_of(rows).items()):
        ours = systems.get(OURS, [])
        for name, excess in systems.items():
            if name == OURS or len(excess) != len(ours):
                continue
            ratio = ratio_interval(ours, excess)
            if ratio.low > 1:
                found.append((table, epsilon, name, ratio))
    return found


def losses(rows: Rows) -> list[str]:
    """Where another system's excess is smaller than ours, or than the paper's."""
    points = []
    for (table, epsilon), group in _by_cell(beaten(rows)).items():
        names = [
            f"{label(name)} (ours is {ratio} times its excess)"
            for _, _, name, ratio in sorted(group, key=lambda each: -each[3].mean)
        ]
        points.append(f"{table}, ε = {epsilon:g}: {'; '.join(names)}.")
    for (one, other), ratios in rivalries(ends_of(rows)).items():
        worse = [f"{table} {r}" for table, r in ratios.items() if r.low > 1]
        if worse:
            points.append(
                f"in the paper's diagonal geometry, {label(one)} has more excess than "
                f"{label(other)} at ε = {PATH_EPSILON:g} on {len(worse)} of "
                f"{len(ratios)} tables: {', '.join(worse)} times."
            )
    return points


def learnt(rows: Rows) -> list[str]:
    """Describe the effect of the samplings alone, and how often bounds failed."""
    points = []
    ratios = rivalries(ends_of(rows))
    if SAME in ratios:
        low = sum(each.high < 1 for each in ratios[SAME].values())
        high = sum(each.low > 1 for each in ratios[SAME].values())
        clips = [
            ratio_interval(systems["dp_cd"], systems[SAME[1]]).mean
            for (_, epsilon), systems in ends_of(rows).items()
            if epsilon == PATH_EPSILON and {"dp_cd", SAME[1]} <= set(systems)
        ]
        points.append(
            f"with the same M and no clips, importance sampling beats uniform "
            f"coordinates at ε = {PATH_EPSILON:g} on {low} of {len(ratios[SAME])} "
            f"tables and loses on {high}. DP-CD's clips alone change its excess by "
            f"factors from {min(clips):.2g} to {max(clips):.2g}."
        )
    planned_by, true = bound_ratios(rows), bound_ratios(rows, "true")
    if planned_by:
        above = sum(ratio > 1 for ratio in planned_by.values())
        held = sum(ratio > 1 for ratio in true.values())
        points.append(
            f"bounds that guess ‖w*‖ are exceeded in {above} of {len(planned_by)} "
            f"settings; with the true w*, in {held}."
        )
    return points


def _by_cell(found: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Any]]:
    cells: dict[tuple[Any, ...], list[Any]] = {}
    for each in found:
        cells.setdefault(each[:2], []).append(each)
    return cells


def text(rows: Rows) -> str:
    """Describe the runs, and compare the systems."""
    ends = ends_of(rows)
    first = sum(
        min(systems, key=lambda name: np.mean(systems[name])) == OURS
        for systems in ends.values()
    )
    lost = _by_cell(beaten(rows))
    seeds = min(len(runs) for systems in ends.values() for runs in systems.values())
    parts = [
        f"""Excess f(w) − f* at the same (ε, δ = {DELTA:g}, zero-out). Each system has
its public defaults, and only the one called tuned is tuned, on this very excess. Figure
K leaves out one part of ours at a time. Means over {seeds} seeds; bands and brackets
are 95 % intervals. A path shows what a run would have returned if it had stopped there,
with the noise of the whole run; the dot is what it did return. A pass reads every cell
once: a batch of rate q is q passes, a step on a column its share of the columns,
DP-SVRG's correction two gradients of a batch. Our two releases before the first step,
and those of M in DP-CD and importance sampling, are one pass each. Noise is isotropic
on every set, as in the paper, unless a system is called elliptical. Steps on single
coordinates pay for those that one row can take part in ([Theorem
V](../../guide/theory.md)), steps on columns and full steps for all. Output and
objective perturbation solve to machine precision and have no path, so a dotted level is
drawn. The table *hospital* is made up and small (10,000 rows); the others are real.""",
        f"""**Ours** (the matrix rule, which is the default of the estimators) has the
smallest mean excess in {first} of {len(ends)} pairs of a table and ε; in {len(lost)} of
them some other system's is smaller by more than the intervals leave open.
{_tuned(ends)}""",
        *(_table(ends, epsilon) for epsilon in (0.03, 0.1, 1.0)),
        _diagonal(ends),
        _samplings(ends),
        _bounds(rows),
        _left_out(rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _tuned(ends: Ends) -> str:
    """How far DP-SGD is from ours if it is tuned on what is measured."""
    both = [s for s in ends.values() if {TUNED, OURS} <= set(s)]
    ratios = [float(np.mean(each[TUNED]) / np.mean(each[OURS])) for each in both]
    if not ratios:
        return ""
    return (
        f"{label(TUNED)} has {min(ratios):.2g} to {max(ratios):.2g} times our mean "
        f"excess in {len(ratios)} pairs. Its settings are the best of a grid, in one "
        "trial each."
    )


def _table(ends: Ends, epsilon: float) -> str:
    """Excess of every system on every table at one budget, the least in bold."""
    tables = [table for table, e in ends if e == epsilon]
    if not tables:
        return ""
    names = order([{"system": n} for table in tables for n in ends[table, epsilon]])
    lines = [
        f"| excess × 1000, ε = {epsilon:g} | " + " | ".join(tables) + " |",
        "|---" * (len(tables) + 1) + "|",
    ]
    for name in names:
        fields = []
        for table in tables:
            systems = ends[table, epsilon]
            if name not in systems:
                fields.append("–")
                continue
            shown = str(mean_interval(1000 * np.array(systems[name])))
            best = min(systems, key=lambda each: np.mean(systems[each])) == name
            fields.append(f"**{shown}**" if best else shown)
        lines.append(f"| {label(name)} | " + " | ".join(fields) + " |")
    return "\n".join(lines)


def rivalries(ends: Ends) -> dict[tuple[str, str], dict[str, Interval]]:
    """Excess in the paper's geometry over that of a rival, by table, at one budget."""
    found: dict[tuple[str, str], dict[str, Interval]] = {}
    for (table, epsilon), systems in ends.items():
        for one, other in RIVALS if epsilon == PATH_EPSILON else ():
            if {one, other} <= set(systems):
                ratio = ratio_interval(systems[one], systems[other])
                found.setdefault((one, other), {})[table] = ratio
    return found


def _diagonal(ends: Ends) -> str:
    """How the paper's own geometry stands beside DP-SGD and DP-CD."""
    said = [
        f"- {label(one)} over {label(other)}: "
        + ", ".join(f"{table} {ratio}" for table, ratio in ratios.items())
        + "."
        for (one, other), ratios in rivalries(ends).items()
    ]
    head = (
        "The paper's diagonal geometry beside its rivals: its excess over theirs at "
        f"ε = {PATH_EPSILON:g}; below 1 it wins."
    )
    return "\n".join([head, "", *said]) if said else ""


def _samplings(ends: Ends) -> str:
    """Describe the effect of the sampling alone, with the same M and no clip."""
    one, other = SAME
    said, better, worse = [], 0, 0
    for (table, epsilon), systems in sorted(ends.items(), key=lambda kv: kv[0][::-1]):
        if not {one, other} <= set(systems):
            continue
        ratio = ratio_interval(systems[one], systems[other])
        better, worse = better + (ratio.high < 1), worse + (ratio.low > 1)
        said.append(f"{table}, ε = {epsilon:g}: {ratio}")
    if not said:
        return ""
    return (
        "DP-CD as published clips slopes to C√(M_j/ΣM), which importance sampling does "
        "not, so a comparison of the two measures the clips as well. **Only the "
        f"sampling differs** between {label(one)} and {label(other)}: the same "
        f"released M, no clip, each with its own K*. Of {len(said)} settings, "
        f"importance sampling is better in {better} and worse in {worse} (95 % "
        f"intervals). Its excess over that of uniform sampling: {'; '.join(said)}."
    )


def bound_ratios(rows: Rows, key: str = "excess") -> dict[tuple[Any, ...], float]:
    """Mean excess over the bound, by table, ε and system."""
    ends = ends_of(rows)
    return {
        (row["table"], row["epsilon"], row["system"]): float(
            np.mean(ends[row["table"], row["epsilon"]][row["system"]]) / row[key]
        )
        for row in rows
        if row["kind"] == "bound"
        and row["system"] in ends.get((row["table"], row["epsilon"]), {})
    }


def _bounds(rows: Rows) -> str:
    """How often the bound that a run was planned by was exceeded."""
    planned_by, true = bound_ratios(rows), bound_ratios(rows, "true")
    if not planned_by:
        return ""
    above = {key: ratio for key, ratio in planned_by.items() if ratio > 1}
    worst = max(planned_by, key=lambda key: planned_by[key])
    tables = ", ".join(sorted({key[0] for key in above}))
    where = f" (on {tables})" if above else ""
    held = sum(ratio > 1 for ratio in true.values())
    return (
        "**Bounds.** A plan's bound assumes that every column of w* has norm at most 1 "
        "and that the start's excess is at most log 2. It takes the ridge into "
        f"account. In {len(above)} of {len(planned_by)} settings{where} the mean "
        f"excess is above it, by up to {planned_by[worst]:.2g} times ({worst[0]}, ε = "
        f"{worst[1]:g}, {label(worst[2])}), because w* is longer there. For the true "
        "w* and the true excess of the start, the bound at the same K is exceeded in "
        f"{held} of {len(true)} settings; the mean excess is {min(true.values()):.3f} "
        f"to {max(true.values()):.3f} of it."
    )


def _left_out(rows: Rows) -> str:
    """Which runs are missing."""
    tables = {row["table"] for row in rows}
    said = []
    for name in order(rows):
        seen = [row for row in rows if row["system"] == name]
        budgets = sorted({row["epsilon"] for row in seen})
        if len(budgets) < len(EPSILONS):
            shown = ", ".join(f"{e:g}" for e in budgets)
            where = sorted({row["table"] for row in seen})
            few = "" if len(where) == len(tables) else f" on {', '.join(where)}"
            said.append(f"{label(name)} at ε = {shown}{few}")
    if not said:
        return ""
    head = "Not run everywhere, most to save time (the files of the systems say why)"
    return f"{head}: {'; '.join(said)}."
