"""The cost of reaching an excess, in passes over the data and in seconds."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import label_ends, panels
from experiments.figures.a_systems import OURS, PATH_EPSILON, label, look, order
from experiments.statistics import Rows, column, geometric_interval, grouped

TITLE = "What it costs to reach an excess"
BASED_ON = "a_systems"
#: Levels, as multiples of the least mean excess that any system ends with.
FACTORS = (1.2, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
TOLD = (2.0, 10.0, 50.0)


def derive(rows: Rows) -> Rows:
    """Medians over seeds of the first passes and seconds at which a level is reached.

    A seed that never reaches it counts as infinite; a median that is, is left out.
    """
    found: Rows = []
    rows = [row for row in rows if row["epsilon"] == PATH_EPSILON and "seed" in row]
    for (table,), group in grouped(rows, "table").items():
        systems = grouped(group, "system")
        best = min(
            float(np.mean([r["excess"] for r in part if r["kind"] == "end"]))
            for part in systems.values()
        )
        for (system,), part in systems.items():
            for factor in FACTORS:
                first = [
                    _first(run, factor * best) for run in grouped(part, "seed").values()
                ]
                reached = [each for each in first if each is not None]
                row = {"table": table, "system": system, "factor": factor}
                row |= {"excess": factor * best, "seeds": len(first)}
                row |= {"reached": len(reached)}
                for name in ("passes", "seconds"):
                    middle = _median(reached, len(first), name)
                    row |= {} if middle is None else {name: middle}
                found.append(row)
    return found


def _first(run: Rows, level: float) -> dict[str, Any] | None:
    """The first point of a run at a level or below."""
    below = [row for row in run if row["excess"] <= level]
    return min(below, key=lambda row: row["seconds"], default=None)


def _median(reached: Rows, n_seeds: int, name: str) -> float | None:
    """Median over all seeds, those that never reach it being infinite."""
    seen = [math.inf if row.get(name) is None else row[name] for row in reached]
    middle = float(np.median(seen + [math.inf] * (n_seeds - len(seen))))
    return middle if middle < math.inf else None


def draw(rows: Rows) -> Figure:
    """Draw a row of panels per table: passes and seconds over the level."""
    tables = grouped(rows, "table")
    figure, axes = panels(len(tables), 2, height=2.6)
    for pair, ((table,), group) in zip(axes, tables.items(), strict=True):
        for each, name in zip(pair, ("passes", "seconds"), strict=True):
            each.set_xscale("log")
            each.set_yscale("log")
            each.set_title(table)
            each.set_xlabel("excess, over the least that is reached")
            each.set_ylabel({"passes": "passes", "seconds": "CPU seconds"}[name])
            for system in order(group):
                seen = [r for r in group if r["system"] == system and name in r]
                seen.sort(key=lambda row: -row["factor"])  # names where lines end
                if seen:
                    factors = column(seen, "factor")
                    each.plot(factors, column(seen, name), marker="o", **look(system))
            each.set_xticks(FACTORS, [f"{factor:g}" for factor in FACTORS])
            each.minorticks_off()
            each.invert_xaxis()
        label_ends(pair[1])
    return figure


def text(rows: Rows) -> str:
    """Say what reaching a level costs, and who never does."""
    return "\n\n".join(
        [
            f"""From the paths of figure A (ε = {PATH_EPSILON:g}): the cost at which a
run first reached an excess, given as a multiple of the least mean excess that any
system ends with on that table. Numbers are medians over seeds; a seed that never gets
there counts as infinite. One cannot stop there in practice, because nobody sees the
excess. Seconds are CPU time of one thread, with planning and calibration, in seeded
runs on a shared machine, so compare ratios rather than seconds. Lines end at the last
level that a system reaches. A dash stands for a system without a path, or one that was
not run. The trials of the system that is tuned are not counted.""",
            *(_table(rows, factor) for factor in TOLD),
            _fastest(rows),
            _ratios(rows),
        ]
    )


def _table(rows: Rows, factor: float) -> str:
    """Passes and seconds of every system on every table, to one level."""
    rows = [row for row in rows if row["factor"] == factor]
    tables = list(dict.fromkeys(column(rows, "table")))
    lines = [
        f"| to {factor:g} × the least excess: passes, seconds | "
        + " | ".join(tables)
        + " |",
        "|---" * (len(tables) + 1) + "|",
    ]
    known = {(row["system"], row["table"]): row for row in rows}
    for system in order(rows):
        fields = [_cost(known.get((system, table))) for table in tables]
        lines.append(f"| {label(system)} | " + " | ".join(fields) + " |")
    return "\n".join(lines)


def _cost(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    if "seconds" not in row:
        return "never"
    passes = _short(row["passes"]) if "passes" in row else "–"
    return f"{passes}, {row['seconds']:.2g} s"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _rivals(rows: Rows, name: str) -> list[tuple[Any, ...]]:
    """(table, factor, label) where another system is the cheapest."""
    found = []
    for (table, factor), group in grouped(rows, "table", "factor").items():
        costs = {row["system"]: row[name] for row in group if name in row}
        least = min(costs, key=costs.__getitem__, default=OURS)
        if least != OURS:
            found.append((table, factor, label(least)))
    return found


def _fastest(rows: Rows) -> str:
    """In how many pairs of a table and a level ours is the cheapest."""
    pairs = len(grouped(rows, "table", "factor"))
    said = [
        f"in {name}, ours is the cheapest in {pairs - len(_rivals(rows, name))}"
        for name in ("passes", "seconds")
    ]
    return f"Of {pairs} pairs of a table and a level: {'; '.join(said)}."


def _ratios(rows: Rows) -> str:
    """The cost of other systems relative to ours, if both reach the excess."""
    known = {(row["table"], row["factor"], row["system"]): row for row in rows}
    pairs = grouped(rows, "table", "factor")
    lines = [
        "| where both get there, over ours: mean (least to most) | pairs | passes "
        "| seconds |",
        "|---|---|---|---|",
    ]
    for system in order(rows)[1:]:
        both = [
            (known[(*pair, OURS)], known[(*pair, system)])
            for pair in pairs
            if (*pair, system) in known
        ]
        both = [(ours, it) for ours, it in both if {"seconds"} <= set(ours) & set(it)]
        fields = [
            _spread([it[name] / ours[name] for ours, it in both if name in it])
            for name in ("passes", "seconds")
        ]
        tried = sum((*pair, system) in known for pair in pairs)
        lines.append(
            f"| {label(system)} | {len(both)} of {tried} | {fields[0]} | {fields[1]} |"
        )
    return "\n".join(lines)


def _spread(ratios: list[float]) -> str:
    """Geometric mean, least and most."""
    if not ratios:
        return "–"
    mean = geometric_interval(ratios).mean
    return f"{_short(mean)} ({_short(min(ratios))} to {_short(max(ratios))})"


def losses(rows: Rows) -> list[str]:
    """Who reaches levels for less than ours, and to which levels."""
    points = []
    pairs = len(grouped(rows, "table", "factor"))
    for name in ("passes", "seconds"):
        rivals = _rivals(rows, name)
        said = []
        for other, group in sorted(_by_system(rivals).items()):
            levels = sorted({each[1] for each in group})
            where = ", ".join(sorted({each[0] for each in group}))
            shown = " to ".join(f"{x:g}" for x in sorted({levels[0], levels[-1]}))
            said.append(f"{other} in {len(group)} ({shown} ×, on {where})")
        if said:
            points.append(
                f"In {name} another system is the cheapest in {len(rivals)} of {pairs} "
                f"pairs of a table and a level: {'; '.join(said)}."
            )
    return points


def _by_system(rivals: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for each in rivals:
        found.setdefault(each[2], []).append(each)
    return found
