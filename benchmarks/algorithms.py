"""What the other algorithms reach: the tables of docs/evidence/algorithms.md.

``make bench NAME=algorithms`` prints their rows. With words after the name, it prints
only the rows whose label has one of them: ``make bench NAME="algorithms DP-CD bike"``.
All fits are on the 80/20 splits of ``benchmarks/tables.py``, under zero-out. "wide"
among the words adds the rows of the wide tables.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.problems import make_problem, rows_of
from experiments.systems import frank_wolfe, skgd_matrix
from skdp.engines.choice import choose_engine
from skdp.schema import Categorical, FloatArray, Numeric, Schema
from skdp.solvers import SOLVERS, Problem
from tables import Table, load, split

DELTA = 1e-6
#: What adds up the records: compiled, with one thread.
ENGINE: Any = choose_engine("compiled", 1)
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
#: Wide tables, at ε = 1 with three seeds: the default, and what was made for them. The
#: second radius of DP-Frank–Wolfe is the norm of the weights that our default aims for.
WIDE_TABLES = ("reuters", "made sparse")
WIDE: dict[str, Callable[..., FloatArray]] = {
    "default": skgd_matrix.fit,
    "DP-GCD": lambda problem, *, seed, **budget: (
        (
            SOLVERS["dp_gcd"].run(problem, engine=ENGINE, random_state=seed, **budget)
        ).weights
    ),
    "DP-Frank–Wolfe, radius 1 per column": frank_wolfe.fit,
    "DP-Frank–Wolfe, radius 10": partial(frank_wolfe.fit_in_ball, 10.0),
    "DP-Frank–Wolfe, radius 100": partial(frank_wolfe.fit_in_ball, 100.0),
}


def make_sparse() -> Table:
    """Make a table of the shape of w8a: 300 binary columns, few of them 1 in a row.

    Columns are 1 in a share of the rows that falls like a power, at most 23 in a row,
    12 on average. Thirty columns decide the class, which is 1 in about 3 % of the rows.
    """
    rng, n_rows, d = np.random.default_rng(0), 49_749, 300
    chance = 1.0 / (np.arange(d) + 3.0) ** 0.9
    X = rng.random((n_rows, d)) < np.minimum(chance * 12.0 / chance.sum(), 0.9)
    X &= np.cumsum(X, axis=1) <= 23
    weights = np.zeros(d)
    weights[rng.choice(100, 30, replace=False)] = rng.normal(0.3, 1.5, 30)
    margins = X @ weights
    shift = np.quantile(margins, 0.97)
    chance = 1.0 / (1.0 + np.exp(1.0 - 2.0 * (margins - shift)))
    y = (rng.random(n_rows) < chance).astype(int)
    columns = {f"x{j}": Numeric(0, 1) for j in range(d)}
    schema = Schema(columns, target=Categorical([0, 1]), row_norm=np.sqrt(24))
    return Table(X.astype(float), y, schema)


def measure_wide() -> None:
    """Print the rows of the wide tables."""
    for name in WIDE_TABLES:
        table = load(name) if name == "reuters" else make_sparse()
        train, test = (make_problem(part) for part in split(table))
        constant = np.mean([np.mean(c.target) for c in train.records.chunks])
        start = np.zeros_like(train.start)
        start[-1] = np.log(constant / (1.0 - constant))
        print(f"| {name} | a constant | | {score(start, test):.4f} | | | |")
        for label, fit in WIDE.items():
            begun, scores = time.process_time(), []
            for seed in range(3):
                given = {"epsilon": 1.0, "delta": DELTA, "seed": seed}
                scores.append(score(fit(train, **given), test))
            error = np.std(scores, ddof=1) / np.sqrt(len(scores))
            seconds = time.process_time() - begun
            shown = f"{np.mean(scores):.4f} ± {error:.4f}"
            print(f"| {name} | {label} | 1 | {shown} | | | ({seconds:.0f} s)")
            sys.stdout.flush()


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
            engine=ENGINE,
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
    if "wide" in words or not words:
        measure_wide()


if __name__ == "__main__":
    main(sys.argv[1:])
