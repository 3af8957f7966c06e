"""What a fit in the diagonal geometry tells about its columns: NAME=coverage-diagonal.

A standard error needs the curvature h of the loss along a coefficient. The default
geometry releases a Gram matrix, from which h follows. The diagonal geometry releases
gradients only. They tell something about h too: near the optimum, the gradient of a
coefficient is linear in the weights, and h is a slope of this regression. Its standard
error is s √((WᵀW)⁻¹)_jj, with s the noise of a gradient and W the centred weights
of all steps on coefficient j. This program compares it with the true h, and does the
same for the default geometry. Hospital tables are drawn from a model that is known.

    python benchmarks/interval_diagonal.py [--fits 5]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import intervals
import numpy as np

import skdp
from skdp import datasets
from skdp.descent.plan import run
from skdp.engines.compiled import CompiledEngine
from skdp.inference import covariances
from skdp.inference.variances import SURE
from skdp.privacy.encoding import encode

N_ROWS, EPSILONS = 20_000, (1.0, 4.0)
#: Settings of the plans that are compared.
PLANS: dict[str, dict[str, Any]] = {
    "default": {},
    "diagonal, shuffled blocks": {"geometry": "diagonal"},
    "diagonal, full steps": {"geometry": "diagonal", "sampling": "full"},
}
START, END = "<!-- diagonal -->", "<!-- /diagonal -->"


def measure(options: dict[str, Any], epsilon: float, seed: int) -> tuple[Any, Any, int]:
    """Return h's relative errors of numbers and of categories, and the steps."""
    data = datasets.make_hospital(N_ROWS, random_state=seed)
    records = encode([data.batch], data.schema)
    layout = records.layout
    plan = skdp.plan(data.schema, N_ROWS, epsilon, neighbours="zero-out", **options)
    path: list[Any] = [np.zeros(layout.n_features)]
    steps: dict[int, list[int]] = defaultdict(list)
    noise = np.zeros(layout.n_features)

    def watch(step: Any) -> None:
        std = np.broadcast_to(step.released.noise_std, step.released.values.shape)
        for place, j in enumerate(step.at.tolist()):
            steps[j].append(len(path) - 1)
            noise[j] = np.ravel(std)[place] / N_ROWS
        path.append(step.weights[:, 0].copy())

    X = datasets.compute_true_margins(records, np.eye(layout.n_features))
    chance = 1.0 / (1.0 + np.exp(-X @ np.array(list(data.truth.values()))))
    each = chance * (1.0 - chance)
    middle = each @ X / each.sum()
    if "geometry" in options:
        run(plan, records, engine=CompiledEngine, callback=watch)
        h = each @ (X - middle) ** 2 / N_ROWS
        relative = np.empty(len(h))
        for j, own in steps.items():
            W = np.array([path[t] for t in own])
            W -= W.mean(axis=0)
            relative[j] = noise[j] * np.sqrt(np.linalg.pinv(W.T @ W)[j, j]) / h[j]
    else:
        found = run(plan, records, engine=CompiledEngine)
        known = covariances.estimate(plan, found.record.transcript, found.weights)
        relative = known.gram.noise_std / np.maximum(X.var(axis=0), 1e-12)
    kinds = np.array([layout.groups[g].kind for g in layout.group_of])
    return relative[kinds == "dense"], relative[kinds == "code"], plan.n_steps


def pages(fits: int) -> Iterator[str]:
    """Yield the table in Markdown."""
    yield "| plan | ε | steps | numbers | categories | known well enough |"
    yield "|---|---|---|---|---|---|"
    for name, options in PLANS.items():
        for epsilon in EPSILONS:
            found = [measure(options, epsilon, seed) for seed in range(fits)]
            numbers = np.concatenate([one[0] for one in found])
            levels = np.concatenate([one[1] for one in found])
            both = np.concatenate([numbers, levels])
            line = (
                f"| {name} | {epsilon:g} | {found[0][2]:,} "
                f"| {np.median(numbers):.2f} | {np.median(levels):.2f} "
                f"| {100 * np.mean(both * SURE < 1):.0f} % |"
            )
            print(line, flush=True)
            yield line


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description="What diagonal steps tell.")
    parser.add_argument("--fits", type=int, default=5)
    given = parser.parse_args()
    intervals.replace_tables(list(pages(given.fits)), START, END)


if __name__ == "__main__":
    main()
