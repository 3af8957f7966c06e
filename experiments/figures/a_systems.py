"""Excess risk of all systems, against passes over the data and against ε."""

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import label_ends, line, panels, style
from experiments.folders import modules
from experiments.problems import objective_of, problem_of
from experiments.statistics import (
    Rows,
    column,
    grouped,
    mean_interval,
    ratio_interval,
)
from skdp.schema import Categorical, FloatArray

TITLE = "All systems, on real tables"
DELTA = 1e-6
SEEDS = range(10)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)
#: Paths are kept for this budget, at steps that grow by this factor.
PATH_EPSILON, GROWTH = 1.0, 1.5
OURS = "skgd_matrix"


def cells() -> list[dict[str, Any]]:
    """Every system on every table: a system may name fewer tables and budgets."""
    return [
        {"table": table, "system": name, "epsilon": epsilon, "seed": seed}
        for table in modules("data")
        for name, system in modules("systems").items()
        if table in getattr(system, "TABLES", modules("data"))
        for epsilon in getattr(system, "EPSILONS", EPSILONS)
        for seed in SEEDS
    ]


def quick(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every system and every table once, on the made-up table and ours where possible."""

    def order(cell: dict[str, Any]) -> Any:
        return cell["seed"], cell["table"] != "hospital", cell["system"] != OURS

    seen: set[str] = set()
    kept = []
    for cell in sorted(cells, key=order):
        names = {cell["table"], cell["system"]}
        if not names <= seen:
            kept.append(cell | {"epsilon": EPSILONS[0]})
            seen |= names
    return kept


class Recorder:
    """A callback that keeps what was reached, and when, at steps 1, 2, 3, 5, 8, …"""

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
    if problem.loss.name not in system.LOSSES:
        return []
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


def draw(rows: Rows) -> Figure:
    figure, axes = panels(1, 1)
    return figure


def text(rows: Rows) -> str:
    return ""
