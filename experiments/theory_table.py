"""Print where the paper's samplings win and lose: bounds against noisy runs.

Section 4.3 of the paper says when its methods beat DP-CD and DP-SGD. The latter is run
as full-batch gradient descent with steps 1/M_max, which has its row. Here each of its
constructed cases, and its opposite (erratum 10 in docs/guide/errata.md), is a quadratic
f(w) = ½ Σ_j h_j (w_j - w*_j)² with smoothness M, h ≤ M. Both methods of a case spend
the same (ε, δ), each runs for its own best number of steps K*, and the excess of the
average of θ_0, …, θ_{K-1} is measured over independent runs, twice: for h = M, which a
visit solves but for the noise, and for an h so flat that the method with the larger
bound is as slow as it can be on a quadratic.

Command: ``make bench NAME=theory``, or ``python experiments/theory_table.py``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdp.descent.bounds import (
    Budget,
    Rate,
    convex_tight,
    distance_squared,
    sigma_squared,
)
from skdp.descent.samplings import Blocks, Full, Sampling, SingleCoordinate

N_RUNS = 400
MOST_STEPS = 2000  # of the slower method; fixes the number of rows
SPREAD = 100.0  # M_max / M_min
EPSILON, DELTA = 1.0, 1e-6

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """A sampling with its smoothness and one Lipschitz bound per set."""

    sampling: Sampling
    smoothness: Array
    lipschitz: Array


@dataclass(frozen=True)
class Case:
    """Two methods on one quadratic."""

    name: str
    method: Method
    baseline: Method
    displacement: Array


def spike(d: int, value: float, rest: float = 1.0) -> Array:
    return np.append(value, np.full(d - 1, rest))


def importance(name: str, smoothness: Array, displacement: Array) -> Case:
    """Single coordinates by importance against DP-CD's uniform ones."""
    ones = np.ones(smoothness.size)
    return Case(
        name,
        Method(SingleCoordinate.importance(smoothness), smoothness, ones),
        Method(SingleCoordinate.uniform(smoothness.size), smoothness, ones),
        displacement,
    )


def full(name: str, smoothness: Array, displacement: Array) -> Case:
    """All coordinates with their own M_j against gradient descent with M_max."""
    d, one = smoothness.size, np.ones(1)
    isotropic = np.full(d, smoothness.max())
    return Case(
        name,
        Method(Full(d), smoothness, one),
        Method(Full(d), isotropic, one),
        displacement,
    )


def blocks(name: str, d: int, spread: float, displacement: Array) -> Case:
    """Blocks of four, the first steep and sensitive, against gradient descent."""
    parts = [np.arange(4) + start for start in range(0, d, 4)]
    smoothness = np.where(np.arange(d) < 4, spread, 1.0)
    lipschitz = spike(len(parts), 1.0, 1.0 / spread)
    norm = np.array([np.linalg.norm(lipschitz)])
    return Case(
        name,
        Method(Blocks.uniform(parts), smoothness, lipschitz),
        Method(Full(d), np.full(d, spread), norm),
        displacement,
    )


def cases(d: int, spread: float = SPREAD) -> list[Case]:
    first, last = spike(d, 1.0, 0.0), spike(d, 1.0, 0.0)[::-1]
    steep, flat = spike(d, spread), spike(d, 1.0, spread)
    return [
        importance("importance / DP-CD: steep coordinate far", steep, first),
        importance("importance / DP-CD: δ_j ~ 1/√M_j", steep, steep**-0.5),
        full("full / gradient descent: flat coordinate far", flat, first),
        full("full / gradient descent: steep coordinate far", steep, first),
        blocks("blocks / gradient descent: flat coordinate far", d, spread, last),
        blocks("blocks / gradient descent: steep coordinate far", d, spread, first),
    ]


def facts(method: Method, displacement: Array) -> tuple[float, float]:
    """D0 and Σ²."""
    m, p = method.smoothness, method.sampling.probabilities
    distance = distance_squared(m, p, displacement)
    return distance, sigma_squared(method.sampling, m, method.lipschitz)


def budget_for(case: Case) -> Budget:
    """The budget at whose number of rows the slower method takes MOST_STEPS steps."""
    unit = Budget(n_rows=1, epsilon=EPSILON, delta=DELTA).noise_scale
    pairs = [facts(each, case.displacement) for each in (case.method, case.baseline)]
    most = max(np.sqrt(distance / sigma) / unit for distance, sigma in pairs)
    return Budget(n_rows=round(MOST_STEPS / most), epsilon=EPSILON, delta=DELTA)


def rate_of(method: Method, case: Case, budget: Budget) -> Rate:
    distance, sigma = facts(method, case.displacement)
    return convex_tight(distance_squared=distance, sigma_squared=sigma, budget=budget)


def slow_hessian(method: Method, n_steps: int, largest: Array) -> Array:
    """The h ≤ M that maximises (1 - exp(-x))²/x, x = K p h/M: the error left in f."""
    visits = n_steps * method.sampling.probabilities
    return np.minimum(largest, 1.2564 * method.smoothness / visits)


def simulate(
    method: Method,
    case: Case,
    hessian: Array,
    n_steps: int,
    budget: Budget,
    rng: np.random.Generator,
) -> Array:
    """Algorithm 1 (T = 1): excess of the average in each of N_RUNS runs."""
    stds = budget.noise_scale * method.lipschitz * np.sqrt(n_steps)
    sets, law = method.sampling.support, method.sampling.set_probabilities
    assert sets is not None
    assert law is not None
    table = np.stack(sets)  # all sets have one size here
    error = np.tile(case.displacement, (N_RUNS, 1))
    total = np.zeros_like(error)
    runs = np.arange(N_RUNS)[:, None]
    for _ in range(n_steps):
        total += error
        drawn = rng.choice(len(sets), size=N_RUNS, p=law)
        chosen = table[drawn]
        noise = stds[drawn][:, None] * rng.standard_normal(chosen.shape)
        gradient = hessian[chosen] * error[runs, chosen] + noise
        error[runs, chosen] -= gradient / method.smoothness[chosen]
    return 0.5 * np.square(total / n_steps) @ hessian


def line(case: Case, d: int, rng: np.random.Generator) -> str:
    budget = budget_for(case)
    pair = (case.method, case.baseline)
    rates = [rate_of(each, case, budget) for each in pair]
    slower = int(rates[1].bound > rates[0].bound)
    sharp = case.method.smoothness
    flat = slow_hessian(pair[slower], rates[slower].n_steps, sharp)
    measured = []
    for hessian in (sharp, flat):
        runs = [
            simulate(each, case, hessian, rate.n_steps, budget, rng)
            for each, rate in zip(pair, rates, strict=True)
        ]
        speed_up = runs[1].mean() / runs[0].mean()
        relative = [np.std(e) / np.mean(e) / np.sqrt(N_RUNS) for e in runs]
        shares = [e.mean() / rate.bound for e, rate in zip(runs, rates, strict=True)]
        measured.append(
            f"{speed_up:.2f} ± {speed_up * np.hypot(*relative):.2f} "
            f"({shares[0]:.3f}, {shares[1]:.3f})"
        )
    return (
        f"| {case.name} | {d} | {budget.n_rows:,} "
        f"| {rates[0].n_steps}, {rates[1].n_steps} "
        f"| {rates[1].bound / rates[0].bound:.2f} | {measured[0]} | {measured[1]} |"
    )


def main() -> None:
    rng = np.random.default_rng(20250101)
    print(
        f"ε = {EPSILON}, δ = {DELTA}, replace-one, exact accounting, {N_RUNS} runs. "
        "Speed-up: baseline's excess over the method's; in brackets each one's "
        "measured excess as a share of its bound.\n\n"
        "| case (method / baseline) | d | n | K* of each | speed-up of the bounds "
        "| measured, h = M | measured, flat h |\n|---|---|---|---|---|---|---|"
    )
    for d in (16, 64):
        for case in cases(d):
            print(line(case, d, rng), flush=True)


if __name__ == "__main__":
    main()
