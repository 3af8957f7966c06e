"""Independent twins: Algorithm 1 in moments, and Table 1 from the paper's formulas.

Nothing here calls the code that it checks. Sets and their probabilities are written out
by hand, and the cost of privacy comes from the normal distribution alone.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import skdp
from experiments.theory.table1 import ProblemConstants, compute_table1
from skdp.descent import samplings
from skdp.descent.bounds import Budget, Prior

# ---- Algorithm 1 on a quadratic: exact moments of (θ - w*, sum of the iterates)

D, N_STEPS, N_RESTARTS = 4, 6, 2
BLOCKS = [[0, 2], [1], [3]]
M = np.array([2.0, 5.0, 3.0, 4.0])
CHANCES = np.array([0.2, 0.5, 0.7, 0.4])


def list_independent():
    """Return the sets of independent coordinates, given that there is one."""
    sets, law = [], []
    for coins in itertools.product((0, 1), repeat=D):
        if any(coins):
            sets.append([j for j in range(D) if coins[j]])
            law.append(np.prod(np.where(coins, CHANCES, 1 - CHANCES)))
    return sets, np.array(law) / sum(law)


def list_prior():
    """Return q_B ∝ √(Σ_{j∈B} M_j) δ_B, half of it uniform, with δ_B = 1, 2, 3."""
    root = np.sqrt([M[0] + M[2], M[1], M[3]]) * [1, 2, 3]
    return BLOCKS, 0.5 * root / root.sum() + 0.5 / 3


PAIRS = [list(pair) for pair in itertools.combinations(range(D), 2)]
SINGLES = [[j] for j in range(D)]
#: The sampling of the program, and its sets and probabilities by hand.
LAWS = {
    "full": (lambda: samplings.Full(D), ([[0, 1, 2, 3]], [1.0])),
    "coordinates": (
        lambda: samplings.SingleCoordinate.uniform(D),
        (SINGLES, np.full(D, 0.25)),
    ),
    "coordinates, importance": (
        lambda: samplings.SingleCoordinate.importance(M),
        (SINGLES, M / 14),
    ),
    "blocks": (lambda: samplings.Blocks.uniform(BLOCKS), (BLOCKS, np.full(3, 1 / 3))),
    "blocks, importance": (
        lambda: samplings.Blocks.importance(BLOCKS, M),
        (BLOCKS, np.array([3, 5, 4]) / 12),
    ),
    "blocks, prior": (
        lambda: samplings.Blocks(BLOCKS, list_prior()[1]),
        list_prior(),
    ),
    "nice": (lambda: samplings.Nice(D, 2), (PAIRS, np.full(6, 1 / 6))),
    "independent": (lambda: samplings.Independent(CHANCES), list_independent()),
    "shuffled": (lambda: samplings.ShuffledBlocks(BLOCKS), (BLOCKS, None)),
}
ROOT = np.array([[1.0, 0.2, 0.0, 0.1], [0.0, 1.2, 0.3, 0.0], [0.4, 0.0, 1.1, 0.2]])
HESSIAN = ROOT.T @ ROOT + 0.05 * np.eye(D)
BEST = np.array([0.25, -0.15, 0.1, 0.2])


def noise_of(at):
    """σ_S, another one for each size and place."""
    return math.sqrt(len(at)) + 0.2 * min(at)


def find_moments(sets, law, louder=1.0):
    """Return E[(w - w*)(w - w*)ᵀ], from the moments of (θ - w*, Σ iterates - K w*).

    Also return the step sizes. The variance of the noise is multiplied by `louder`.
    """
    p = np.full(D, 1 / 3)
    if law is not None:
        p = sum(q * np.isin(np.arange(D), at) for at, q in zip(sets, law, strict=True))
    gamma = p / M  # so that a step is 1/M_j, whatever p_j

    def step(moment, at):
        inside = np.isin(np.arange(D), at) * gamma / p
        move = np.eye(D) - inside[:, None] * HESSIAN
        both = np.block([[move, np.zeros((D, D))], [move, np.eye(D)]])
        push = louder * np.diag((inside * noise_of(at)) ** 2)
        return both @ moment @ both.T + np.block([[push, push], [push, push]])

    start = np.outer(BEST, BEST)
    for _ in range(N_RESTARTS):
        zero = np.zeros((D, D))
        moment = np.block([[start, zero], [zero, zero]])
        if law is None:  # two shuffled cycles of three blocks
            for _ in range(N_STEPS // 3):
                ends = []
                for order in itertools.permutations(sets):
                    end = moment
                    for at in order:
                        end = step(end, at)
                    ends.append(end)
                moment = np.mean(ends, axis=0)
        else:
            for _ in range(N_STEPS):
                moment = sum(
                    q * step(moment, at) for at, q in zip(sets, law, strict=True)
                )
        start = moment[D:, D:] / N_STEPS**2
    return start, gamma


@pytest.mark.parametrize("name", LAWS)
def test_the_program_has_the_moments_of_a_twin(name):
    """E f(w) - f* of runs of `descend`, within four standard errors of the twin's."""
    make, by_hand = LAWS[name]
    exact, gamma = find_moments(*by_hand)
    law, n_runs = make(), 250
    excess = []
    for seed in range(n_runs):
        w, privacy = skdp.descend(
            lambda w: HESSIAN @ (w - BEST),
            law,
            step_sizes=gamma,
            n_steps=N_STEPS,
            n_restarts=N_RESTARTS,
            noise=lambda at: noise_of(at.tolist()),
            lipschitz=1.0,
            n_rows=1000,
            random_state=seed,
        )
        excess.append(0.5 * (w - BEST) @ HESSIAN @ (w - BEST))
    error = np.std(excess) / math.sqrt(n_runs)

    def miss(moments):
        return (np.mean(excess) - 0.5 * float(np.sum(HESSIAN * moments))) / error

    assert abs(miss(exact)) < 4
    assert miss(find_moments(*by_hand, louder=0.5)[0]) > 4  # it would be seen
    assert miss(find_moments(*by_hand, louder=2.0)[0]) < -4
    smallest = min(noise_of(at) for at in by_hand[0])
    most = N_STEPS * N_RESTARTS * (2 / 1000 / smallest) ** 2  # replace-one, by hand
    if law.support is not None:
        assert privacy.spent == pytest.approx(most, rel=1e-6)


# ---- Table 1, convex and strongly convex, from the text of the paper


def solve_mu(epsilon, delta):
    """μ of δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2), by bisection."""

    def miss(mu):
        first = norm.cdf(-epsilon / mu + mu / 2)
        return first - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - delta

    return brentq(miss, 1e-3, 20, xtol=1e-14)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
def test_table_1_is_what_the_paper_says_with_its_errata(seed, neighbours):
    rng = np.random.default_rng(seed)
    d, blocks = 6, [[0, 4], [1, 2, 5], [3]]
    m, single = np.exp(rng.normal(size=(2, d)))
    block, (whole,) = np.exp(rng.normal(size=3)), np.exp(rng.normal(size=1))
    q, p = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(d))
    away, excess = rng.normal(size=d), 1.7
    modulus, scaled = 0.3 * m.min(), 0.2
    n, epsilon, delta = 10**5, 0.7, 1e-6
    found = compute_table1(
        ProblemConstants(
            smoothness=m,
            blocks=blocks,
            block_lipschitz=block,
            coordinate_lipschitz=single,
            lipschitz=whole,
            block_probabilities=q,
            coordinate_probabilities=p,
            strong_convexity=modulus,
            scaled_strong_convexity=scaled,
        ),
        Prior(displacement=tuple(away), excess=excess),
        Budget(n_rows=n, epsilon=epsilon, delta=delta, neighbours=neighbours),
    )
    of = np.array([0, 1, 1, 2, 0, 1])  # the block of each coordinate
    tops = sum(m[b].max() for b in blocks)
    by_block, by_single = sum(block[of] ** 2 / m), sum(single**2 / m)
    r_m, r_i = m @ away**2, away @ away
    cells = [  # Σ², R², max M_i/p_i over μ, whether ‖L‖ is printed for ‖L‖²
        (by_block, sum(m / q[of] * away**2), max(m / q[of]) / modulus, False),
        (by_block, 3 * r_m, 3 * m.max() / modulus, False),
        (by_block, tops * r_i, tops / modulus, True),
        (by_single, sum(m / p * away**2), max(m / p) / modulus, False),
        (by_single, d * r_m, d * m.max() / modulus, False),
        (by_single, m.sum() * r_i, m.sum() / modulus, False),
        (by_single, d * r_m, d / scaled, False),
        (whole**2 * sum(1 / m), r_m, m.max() / modulus, False),
        (whole**2 * d / m.max(), m.max() * r_i, m.max() / modulus, False),
    ]
    nu = (2 if neighbours == "replace-one" else 1) / (n * solve_mu(epsilon, delta))
    unit = math.sqrt(math.log(1 / delta)) / (n * epsilon)
    for row, (sigma, distance, condition, missing) in zip(found, cells, strict=True):
        size = math.sqrt(sigma * distance)

        def convex(k, sigma=sigma, distance=distance):
            return distance / (2 * k) + nu**2 * sigma * k / 2

        best = max(1, round(math.sqrt(distance / sigma) / nu))
        least = min(convex(k) for k in range(max(1, best - 2), best + 3))
        assert row.convex.bound == pytest.approx(least, rel=1e-12), row.name
        assert row.convex_printed.bound == pytest.approx(13 * size * unit, rel=1e-12)
        kappa = 1 + condition
        k = math.ceil(2 * kappa)
        noise = 2 * k * nu**2 * sigma
        t = max(1, math.ceil(math.log2(excess / noise)))
        strong = excess / 2**t + t * noise
        assert row.strongly_convex.bound == pytest.approx(strong, rel=1e-12)
        shown = math.sqrt(sigma) if missing else sigma
        level = 24 * kappa * shown * unit**2
        printed = level * (1 + math.log2(excess / level))
        assert row.strongly_convex_printed.bound == pytest.approx(printed, rel=1e-12)
