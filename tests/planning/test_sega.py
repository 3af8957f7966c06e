"""DP-SEGA's theorem: its constants, its bound, and a short search to break it."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from skdp.descent.bounds import Budget, convex_tight
from skdp.descent.samplings import Blocks, Full
from skdp.descent.sega_bounds import (
    Sega,
    choose_metric,
    choose_sega_rate,
    find_constants,
    find_variances,
    least_metric,
    sega_bound,
)

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "sega.py"


@pytest.fixture(scope="module")
def search():
    """The program of the long search."""
    spec = importlib.util.spec_from_file_location("sega_search", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules["sega_search"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sega_search"]


def slack(p, alpha, decay, m, c):
    """The right side less the left of the inequality that defines m, as a matrix.

    The quadratic form is in (a, b), the errors of the gradient and of the memory.
    """
    r = (1 - p) / p
    left = np.array(
        [
            [r + c * p * alpha**2, -r + c * p * alpha * (1 - alpha)],
            [
                -r + c * p * alpha * (1 - alpha),
                r + c * (1 - p) + c * p * (1 - alpha) ** 2,
            ],
        ]
    )
    return np.diag([m * r, (1 - decay) * c]) - left


@pytest.mark.parametrize("alpha", [0.02, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.99])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.6, 0.95])
def test_constants_are_valid_and_the_least(alpha, p, part):
    decay = part * alpha * p
    m, c = (float(x[0]) for x in find_constants(np.array([p]), alpha, decay))
    size = max(abs(slack(p, alpha, decay, m, c)).max(), 1e-300)
    assert np.linalg.eigvalsh(slack(p, alpha, decay, m, c)).min() >= -1e-9 * size
    assert np.linalg.eigvalsh(slack(p, alpha, decay, 0.99 * m, c)).min() < 0
    for other in (0.8, 0.99, 1.01, 1.2):  # no other c has a smaller m
        assert (
            np.linalg.eigvalsh(slack(p, alpha, decay, 0.999 * m, other * c)).min() < 0
        )


def test_constants_of_convex_runs():
    p, alpha = np.array([0.1, 0.5, 1.0]), 0.4
    m, c = find_constants(p, alpha)
    assert m == pytest.approx(4 / 1.6**2)
    assert c == pytest.approx(2 * (1 - p) / (alpha * 1.6 * p**2))


def test_bound_by_hand():
    sega = Sega(
        probabilities=np.array([0.5]),
        smoothness=np.array([2.0]),
        metric=np.array([12.0]),
        damping=1.0,
    )
    assert least_metric(sega.smoothness, sega.probabilities, 1.0) == [10.0]
    start = sega.compute_start(np.array([3.0]), np.array([1.0]))
    assert start == pytest.approx(12 * 9 + 4 / 10)  # c = 2·½/¼
    noise = sega.compute_noise(np.array([0.5]))
    assert noise == pytest.approx(0.5 * (4 + 4) / 10)
    found = sega_bound(20, start=start, noise=noise)
    assert found == pytest.approx(start / 40 + noise / 2)


def test_strongly_convex_bounds_tend_to_the_convex_one():
    small = sega_bound(50, start=3.0, noise=0.1, decay=1e-9)
    assert small == pytest.approx(sega_bound(50, start=3.0, noise=0.1), rel=1e-6)
    shares = 0.9 ** -np.arange(1, 51.0)
    found = sega_bound(50, start=3.0, noise=0.1, decay=0.1)
    assert found == pytest.approx(3.0 / (2 * shares.sum()) + 0.05)
    assert sega_bound(10**7, start=3.0, noise=0.1, decay=0.1) == pytest.approx(0.05)


@pytest.mark.parametrize("damping", [0.1, 0.5, 1.0])
def test_the_price_of_any_penalty(damping):
    """√((2 + α)/(2 - α)) times Theorem A's bound, for many blocks."""
    d = 400
    law, M = Blocks.uniform([[j] for j in range(d)]), np.full(d, 2.0)
    budget = Budget(n_rows=10**6, epsilon=1.0, delta=1e-6)
    rate, alpha = choose_sega_rate(
        law,
        M,
        lambda at: 1.0,
        budget,
        distance=np.ones(d),
        gradient=np.zeros(d),
        damping=damping,
    )
    assert alpha == damping
    known = convex_tight(
        distance_squared=float((M * d).sum()),
        sigma_squared=d / 2.0,
        budget=budget,
    )
    price = math.sqrt((2 + damping) / (2 - damping))
    assert rate.bound / known.bound == pytest.approx(price, rel=0.02)


def test_steps_and_damping_minimise_the_bound():
    law, M = Blocks.uniform([[0, 1], [2]]), np.array([1.0, 2.0, 3.0])
    budget = Budget(n_rows=1000, epsilon=1.0, delta=1e-6)
    given = {"distance": np.ones(3), "gradient": np.full(3, 0.5)}

    def rate(damping=None):
        return choose_sega_rate(
            law, M, lambda at: len(at), budget, **given, damping=damping
        )

    best, alpha = rate()
    assert best.bound == pytest.approx(min(rate(k / 20)[0].bound for k in range(1, 21)))
    sega = Sega(
        probabilities=law.probabilities,
        smoothness=M,
        metric=choose_metric(M, law.probabilities, alpha),
        damping=alpha,
    )
    each = budget.noise_scale**2 * np.array([2.0, 2.0, 0.5])
    assert find_variances(law, lambda at: len(at)) == pytest.approx([2.0, 2.0, 0.5])
    start = sega.compute_start(given["distance"], given["gradient"])
    for factor in (0.5, 0.9, 1.0, 1.1, 2.0):
        k = round(factor * best.n_steps)
        noise = k * sega.compute_noise(each)
        found = sega_bound(k, start=start, noise=noise)
        assert found >= best.bound * (1 - 1e-12)
        assert factor != 1 or found == pytest.approx(best.bound)


def test_full_steps_have_room_for_noise():
    law, M = Full(3), np.array([1.0, 2.0, 3.0])
    assert choose_metric(M, law.probabilities, 0.5) == pytest.approx(2 * M)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"damping": 0.0}, "must be in"),
        ({"probabilities": np.array([0.0])}, "must be in"),
        ({"metric": np.array([9.0])}, "at least `least_metric`"),
        ({"probabilities": np.ones(1), "metric": np.array([2.0])}, "greater than"),
        ({"share": 1.0}, "share must be in"),
        ({"ridge": -1.0}, "must be at least 0"),
        ({"ridge": 2.0}, "The decay"),
    ],
)
def test_refusals(changes, said):
    given = {
        "probabilities": np.array([0.5]),
        "smoothness": np.array([2.0]),
        "metric": np.array([12.0]),
        "damping": 1.0,
    }
    with pytest.raises(ValueError, match=said):
        Sega(**given | changes)


def test_a_short_search_does_not_break_the_theorem(search, monkeypatch):
    """`make bench NAME=sega` searches longer. A false theorem is broken at once."""
    for name, few in (("CLIMBERS", 1), ("REPEATED", 3), ("CHANGES", 30)):
        monkeypatch.setattr(search, name, few)
    monkeypatch.setattr(search, "MANY_RUNS", 500)
    _, found = search.search(100, seed=1)
    assert all(one.ratio <= 1 + 4 * one.error for one in found)
    assert found[0].ratio > 0.6, "the search is too tame"
    monkeypatch.setattr(search, "CLIMBERS", 0)
    for broken, seed in (("memory", 3), ("metric", 4)):
        _, found = search.search(80, seed, broken)
        assert found[0].ratio > 1 + 4 * found[0].error, broken
