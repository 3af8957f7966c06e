"""Write the page of `corpus.py` from its fits."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from corpus_tables import HALVES, KINDS

#: Differences that count as a tie, in log-loss, and in R² or the share of deviance.
TIES = {"class": 0.003, "number": 0.01, "count": 0.01}
#: What is compared: a method, what it should not be worse than, and words for the page.
COMPARED = [
    ("additive", "line", "additive worse than the line"),
    ("line", "private constant", "line worse than a private constant"),
    ("additive", "private constant", "additive worse than a private constant"),
    ("line", "constant", "line worse than a constant that knows the range"),
    ("line", "mean", "line worse than a constant without privacy"),
]
SCORES = {"class": "log-loss", "number": "R²", "count": "share of the deviance"}
HEAD = """# Tables that chose nothing

Written by `make bench NAME=corpus` (`benchmarks/corpus.py`); [corpus.csv](corpus.csv)
has every fit. {tables} public tables of R's packages, {shape}, were fitted with
defaults, add-remove neighbours and δ = 1e-6, {seeds} per cell. A seed is one of five
folds, which is predicted, and the noise of a fit to the other four. Ranges are what a
person would write who knows what a column means and not what it holds: ages 0 to 120,
incomes 0 to a million (`benchmarks/corpus.toml`). No constant of the rules was chosen
on the half "judge". A hash of its name decides to which half a table belongs.

Scores are log-loss for classes (lower is better), R² for numbers and the explained
share of the Poisson deviance for counts. A cell is a table at one ε. A method is worse
(or better) in a cell if its mean differs by more than {class_tie} in log-loss or {tie}
in R² or the share of deviance, and by more than two standard errors of the paired
difference over the seeds. A private constant is the mean, or the shares of classes,
with all of the budget's noise for the range that the schema states. A constant that
knows the range has noise for the range of the training rows, which is not public.
"""


class Cell(NamedTuple):
    """How two methods differ in a table at one ε: below 0 is worse."""

    table: str
    kind: str
    half: str
    epsilon: float
    gap: float
    error: float

    @property
    def verdict(self) -> int:
        """Return -1 if the first method is worse, 1 if it is better, or 0."""
        # Without a second seed there is no standard error, and no verdict.
        certain = abs(self.gap) > max(TIES[self.kind], 2 * self.error)
        return int(np.sign(self.gap)) if certain else 0


def compare(rows: list[dict[str, str]], method: str, other: str) -> list[Cell]:
    """Compare two methods on the same folds, in every cell."""
    scores: dict[tuple[str, ...], dict[str, dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        key = tuple(row[one] for one in ("table", "kind", "half", "epsilon"))
        scores[key][row["method"]][row["seed"]] = float(row["score"])
    found = []
    for (table, kind, half, epsilon), by in scores.items():
        seeds = sorted(by[method].keys() & by[other].keys())
        if not seeds:
            continue
        sign = -1.0 if kind == "class" else 1.0
        gaps = sign * np.array([by[method][s] - by[other][s] for s in seeds])
        error = math.inf
        if len(seeds) > 1:
            error = float(np.std(gaps, ddof=1)) / math.sqrt(len(seeds))
        cell = Cell(table, kind, half, float(epsilon), float(gaps.mean()), error)
        found.append(cell)
    return sorted(found)


def write_page(rows: list[dict[str, str]], path: Path) -> None:
    """Write the page."""
    tables = {row["table"]: row for row in rows}
    counts = [int(row["rows"]) for row in tables.values()]
    columns = [int(row["columns"]) for row in tables.values()]
    head = HEAD.format(
        tables=len(tables),
        shape=f"{min(counts):,} to {max(counts):,} rows and {min(columns)} to "
        f"{max(columns)} columns",
        seeds=_count_seeds(rows),
        class_tie=TIES["class"],
        tie=TIES["number"],
    )
    lines = [head, *_summarise(rows), *_list_worse(rows), *_list_means(rows, tables)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _count_seeds(rows: list[dict[str, str]]) -> str:
    cells: dict[Any, int] = defaultdict(int)
    for row in rows:
        cells[row["table"], row["epsilon"], row["method"]] += 1
    few, many = min(cells.values()), max(cells.values())
    return f"{few} seeds" if few == many else f"{few} to {many} seeds"


def _summarise(rows: list[dict[str, str]]) -> list[str]:
    lines = ["## How often a default is worse", ""]
    lines += ["| | " + " | ".join(f'half "{half}"' for half in HALVES) + " |"]
    lines += ["|---|" + "---|" * len(HALVES)]
    bad: dict[str, set[tuple[str, float]]] = {half: set() for half in HALVES}
    for method, other, words in COMPARED:
        cells = compare(rows, method, other)
        shown = [_count(cells, half, -1) for half in HALVES]
        lines.append(f"| {words} | {' | '.join(shown)} |")
        if (method, other) in (("additive", "line"), ("line", "private constant")):
            for one in cells:
                if one.verdict < 0:
                    bad[one.half].add((one.table, one.epsilon))
    total = compare(rows, "additive", "line")
    either = [
        _share(len(bad[half]), sum(one.half == half for one in total))
        for half in HALVES
    ]
    lines.append(f"| **either of the first two** | {' | '.join(either)} |")
    shown = [_count(total, half, 1) for half in HALVES]
    lines.append(f"| additive better than the line | {' | '.join(shown)} |")
    for method, other, words in COMPARED[:2]:
        cells = [one._replace(error=0.0) for one in compare(rows, method, other)]
        shown = [_count(cells, half, -1) for half in HALVES]
        lines.append(f"| {words}, certain or not | {' | '.join(shown)} |")
    lines += ["", "The same by kind and ε, both halves:", ""]
    epsilons = sorted({one.epsilon for one in total})
    lines.append("| | ε | additive worse | better | mean gain | line worse |")
    lines.append("|---|---|---|---|---|---|")
    constants = compare(rows, "line", "private constant")
    for kind in KINDS:
        for epsilon in epsilons:
            ours = [c for c in total if c.kind == kind and c.epsilon == epsilon]
            if not ours:
                continue
            worse = sum(one.verdict < 0 for one in ours)
            better = sum(one.verdict > 0 for one in ours)
            below = sum(
                one.verdict < 0
                for one in constants
                if one.kind == kind and one.epsilon == epsilon
            )
            gain = np.mean([one.gap for one in ours])
            lines.append(
                f"| {kind}: {SCORES[kind]} | {epsilon:g} | {worse} of {len(ours)} | "
                f"{better} | {gain:+.4f} | {below} |"
            )
    return [*lines, ""]


def _count(cells: list[Cell], half: str, verdict: int) -> str:
    own = [one for one in cells if one.half == half]
    return _share(sum(one.verdict == verdict for one in own), len(own))


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "–"


def _list_worse(rows: list[dict[str, str]]) -> list[str]:
    lines = ["## Where", "", "Differences with their standard errors, the worst first."]
    lines += ["", "| | table | half | ε | difference |", "|---|---|---|---|---|"]
    for method, other, words in COMPARED[:2]:
        cells = [one for one in compare(rows, method, other) if one.verdict < 0]
        cells.sort(key=lambda one: one.gap / TIES[one.kind])
        lines += [
            f"| {words} | {one.table} ({one.kind}) | {one.half} | {one.epsilon:g} | "
            f"{one.gap:+.4f} ± {one.error:.4f} |"
            for one in cells
        ]
    return [*lines, ""]


def _list_means(rows: list[dict[str, str]], tables: dict[str, Any]) -> list[str]:
    means: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        key = row["table"], row["epsilon"], row["method"]
        means[key].append(float(row["score"]))
    epsilons = sorted({row["epsilon"] for row in rows}, key=float)
    title = " | ".join(f"ε = {one}" for one in epsilons)
    lines = ["## Every table", ""]
    lines += [
        "Mean scores: constant without privacy, and line / additive at each ε.",
        "",
    ]
    lines += [f"| table | kind | half | rows | columns | constant | {title} |"]
    lines += ["|---|---|---|---|---|---|" + "---|" * len(epsilons)]
    for name, row in sorted(tables.items(), key=lambda one: one[0].lower()):
        constant = np.mean([v for e in epsilons for v in means[name, e, "mean"]])
        shown = [
            " / ".join(
                f"{np.mean(means[name, epsilon, method]):.3f}"
                if means[name, epsilon, method]
                else "–"
                for method in ("line", "additive")
            )
            for epsilon in epsilons
        ]
        lines.append(
            f"| {name} | {row['kind']} | {row['half']} | {int(row['rows']):,} | "
            f"{row['columns']} | {constant:.3f} | {' | '.join(shown)} |"
        )
    return lines
