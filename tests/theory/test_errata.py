"""Errata of the paper that no other test checks; `docs/guide/errata.md` lists all."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from experiments.theory.rates import convex_printed
from skdp.descent.bounds import Budget, paper_noise_multiplier
from skdp.privacy import accountant

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guide/errata.md").read_text(encoding="utf-8")


def test_every_erratum_names_a_test_that_exists():
    entries = re.split(r"^\d+\. ", PAGE, flags=re.MULTILINE)[1:]
    assert len(entries) == 16
    untested = [e for e in entries if not re.search(r"Tests?: `tests/", e)]
    assert len(untested) == 2  # a remark about names, and that there are no experiments
    for place in re.findall(r"`(tests/[^`]+)`", PAGE):
        path, _, function = place.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {function}(" in source if function else source, place


def test_1_the_printed_mechanism_shows_what_it_should_not():
    rng, inside = np.random.default_rng(0), np.array([1.0, 0.0])
    for f in ([3.0, 0.25], [3.0, 0.75]):  # neighbours, which differ outside of U
        noise = rng.normal(size=2)
        assert (f + inside * noise)[1] == f[1]
        assert (inside * (f + noise))[1] == 0.0
    # With the variance σ instead of σ², noise below 1 is larger and above 1 smaller.
    z = paper_noise_multiplier(1.0, 1e-6, 100)
    assert accountant.gdp_delta(1.0, 10 / math.sqrt(z)) > 0.1
    assert accountant.gdp_delta(1.0, 10 / z) < 1e-6


@pytest.mark.parametrize(("delta", "limit"), [(1e-5, 1.83), (1e-6, 1.73)])
def test_2_how_far_theorem_4_1_reaches(delta, limit):
    log = -math.log(delta)

    def found(ratio):
        return accountant.gdp_delta(ratio * log, ratio * log / math.sqrt(3 * log))

    assert found(1.101) <= found(limit - 0.005) <= delta < found(limit + 0.01)
    paper_noise_multiplier(1.1 * log, delta, 1)
    with pytest.raises(ValueError, match=r"1\.101"):
        paper_noise_multiplier(1.11 * log, delta, 1)


def test_3_the_factor_12_is_for_replaced_records():
    epsilon, delta, n_rows, n_steps, bound = 1.0, 1e-6, 100, 50, 1.0
    std = math.sqrt(12 * bound**2 * n_steps * math.log(1 / delta)) / (n_rows * epsilon)

    def cost(std, moved):
        mu = math.sqrt(n_steps) * moved / n_rows / std
        return accountant.gdp_delta(epsilon, mu)

    assert cost(std, 2 * bound) <= delta
    assert cost(std / 2, bound) == pytest.approx(cost(std, 2 * bound))
    assert cost(std / 2, 2 * bound) > 50 * delta


def test_5_the_printed_number_of_steps_is_not_the_best():
    """R²/K + 12 K u² is least at K = R/(u√12), where it is 2√12 R u and not 13."""
    budget = Budget(n_rows=10**4, epsilon=1.0, delta=1e-6)
    rate = convex_printed(distance_squared=4.0, sigma_squared=9.0, budget=budget)
    fewer = rate.take_steps(round(rate.n_steps / math.sqrt(12)))
    assert rate.bound / fewer.bound == pytest.approx(13 / (2 * math.sqrt(12)), rel=1e-3)


def test_14_uniform_coordinates_are_not_better_than_dp_cd():
    rng = np.random.default_rng(0)
    for _ in range(200):
        d = int(rng.integers(1, 6))
        root = rng.normal(size=(d, d))
        hessian = root @ root.T + 0.01 * np.eye(d)
        M = np.abs(hessian).sum(axis=1) * rng.uniform(1, 3, d)  # Diag(M) ⪰ H
        euclidean = np.linalg.eigvalsh(hessian)[0]
        scaled = np.linalg.eigvalsh(hessian / np.sqrt(np.outer(M, M)))[0]
        assert M.max() * d / euclidean >= d / scaled * (1 - 1e-9)


def test_15_the_convex_bound_fails_below_one_step():
    """f = ½w², one step of length 1: the excess is ½σ² if noise is all there is."""
    ratios = []
    for n_rows in (100, 10, 1):
        budget = Budget(n_rows=n_rows, epsilon=0.1, delta=1e-6)
        rate = convex_printed(distance_squared=1.0, sigma_squared=1.0, budget=budget)
        std = paper_noise_multiplier(0.1, 1e-6, 1) * 2 / n_rows
        ratios.append(0.5 * std**2 / rate.bound)
    assert rate.n_steps == 1  # it is rounded up: nεR/(Σ√log(1/δ)) is below 1
    assert ratios[0] < 1 < ratios[1] < ratios[2]
