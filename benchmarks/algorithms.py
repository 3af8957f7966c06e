"""What the other algorithms reach: the tables of docs/evidence/algorithms.md.

``make bench NAME=algorithms`` prints their rows. With words after the name, it prints
only the rows whose label has one of them: ``make bench NAME="algorithms DP-CD bike"``.
All fits are on the 80/20 splits of ``benchmarks/tables.py``, under zero-out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.problems import make_problem, rows_of
from skdp.engines.choice import choose_engine
from skdp.schema import FloatArray
from skdp.solvers import SOLVERS, Problem
from tables import load, split

DELTA = 1e-6
PRINTED = {"calibration": "paper"}
ANALYSED = {"form": "analysed"}
#: Algorithms with many steps, at ε = 1 on adult, with three seeds.
MANY_STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "DP-SGD, as practised": ("dp_sgd", {}),
    "DP-SGD, as analysed, tight": ("dp_sgd", ANALYSED),
    "DP-SGD, as analysed, printed": ("dp_sgd", ANALYSED | PRINTED),
    "DP-SVRG, tight": ("dp_svrg", {}),
    "DP-SVRG, printed (c = 16)": ("dp_svrg", PRINTED),
    "DP-CD, private M": ("dp_cd", {}),
    "DP-CD, private M, printed": ("dp_cd", PRINTED),
    "DP-CD, public M": ("dp_cd", {"smoothness": "public"}),
}
EPSILONS = (0.1, 1.0, 8.0)
EXPONENTIAL = {"selection": "exponential"}
CLOSED: dict[str, tuple[str, dict[str, Any]]] = {
    "output perturbation": ("output_perturbation", {}),
    "objective perturbation": ("objective_perturbation", {}),
    "objective perturbation, printed": ("objective_perturbation", PRINTED),
}
GREEDY: dict[str, tuple[str, dict[str, Any]]] = {
    "DP-GCD": ("dp_gcd", {}),
    "DP-GCD, exponential": ("dp_gcd", EXPONENTIAL),
    "DP-GCD, printed": ("dp_gcd", EXPONENTIAL | PRINTED),
}
LINEAR: dict[str, tuple[str, dict[str, Any]]] = {
    "AdaSSP": ("adassp", {}),
    "AdaSSP, printed": ("adassp", PRINTED),
    "objective perturbation": ("objective_perturbation", {}),
}
#: Algorithms by table, at every ε, with so many seeds.
CELLS: dict[str, tuple[dict[str, tuple[str, dict[str, Any]]], int]] = {
    "adult": (CLOSED | GREEDY, 5),
    "bank": (CLOSED, 5),
    "electricity": (CLOSED, 5),
    "a9a": (CLOSED, 5),
    "reuters": (GREEDY, 3),
    "california": (LINEAR, 5),
    "bike": (LINEAR, 5),
    "wine": (LINEAR, 5),
}


def score(weights: FloatArray, test: Problem) -> float:
    """Return the test log-loss, or R² if the target is a number."""
    target = np.concatenate([chunk.target for chunk in test.records.chunks])
    loss = test.loss.value(rows_of(test) @ weights, target)
    if test.loss.n_classes:
        return float(loss.mean())
    scaled = 2.0 * target / 2.0**14 - 1.0
    return float(1.0 - 2.0 * loss.mean() / np.var(scaled))


def measure(
    problems: tuple[Problem, Problem], solver: str, options: Any, epsilon: float, n: int
) -> str:
    """Fit with n seeds. Return the mean score, its error, the cost and the steps."""
    train, test = problems
    fits = [
        SOLVERS[solver].run(
            train,
            epsilon=epsilon,
            delta=DELTA,
            random_state=seed,
            engine=choose_engine("compiled", 1),
            **options,
        )
        for seed in range(n)
    ]
    scores = [score(fit.weights, test) for fit in fits]
    spent = fits[0].record.spent_epsilon
    error = np.std(scores, ddof=1) / np.sqrt(n)
    return f"{np.mean(scores):.4f} ± {error:.4f} | {spent:.3g} | {fits[0].n_steps:,}"


def main(words: list[str]) -> None:
    """Print the rows that were asked for."""
    jobs = [("adult", *row, 1.0, 3) for row in MANY_STEPS.items()]
    for table, (rows, n) in CELLS.items():
        jobs += [(table, *row, e, n) for row in rows.items() for e in EPSILONS]
    print("| table | algorithm | ε | score | ε that it costs | steps |", flush=True)
    for table, label, (solver, options), epsilon, n in jobs:
        if words and not any(word in f"{table} {label}" for word in words):
            continue
        problems = tuple(make_problem(part) for part in split(load(table)))
        start = time.process_time()
        found = measure(problems, solver, options, epsilon, n)
        seconds = time.process_time() - start
        print(f"| {table} | {label} | {epsilon:g} | {found} | ({seconds:.0f} s)")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
