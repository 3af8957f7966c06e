"""Theorem G: no private method has less excess on all functions of a class."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory.lower_bounds import (
    convex_lower,
    mean_error,
    replacement_scale,
    spread_lipschitz,
    strongly_convex_lower,
)
from experiments.theory.rates import strongly_convex_corrected
from skdp.descent.bounds import Budget, convex_tight

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def find_scale(table, neighbours):
    """√χ², the largest over pairs of tables and both directions."""
    worst = 0.0
    for one, other in neighbours:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(table[one] > 0, table[one] ** 2 / table[other], 0.0)
        worst = max(worst, float(ratio.sum()) - 1.0)
    return math.sqrt(worst)


def find_error(table, outputs, tables):
    """E(M - x̄)² of one coordinate, exactly: p is uniform on [-1, 1], rows are ±1."""
    total = 0.0
    for p, weight in zip(NODES, WEIGHTS / 2, strict=True):
        for law, rows in zip(table, tables, strict=True):
            chance = np.prod((1 + np.array(rows) * p) / 2)
            total += weight * chance * float(law @ (outputs - np.mean(rows)) ** 2)
    return total


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_no_private_mean_is_closer(n_rows):
    """Random mechanisms with a few outputs, all of which is computed exactly."""
    rng = np.random.default_rng(n_rows)
    tables = list(itertools.product((-1, 1), repeat=n_rows))
    neighbours = [
        (i, j)
        for i, one in enumerate(tables)
        for j, other in enumerate(tables)
        if sum(a != b for a, b in zip(one, other, strict=True)) == 1
    ]
    means = np.array([np.mean(rows) for rows in tables])
    closest = math.inf
    for _ in range(400):
        outputs = np.unique(means) * rng.uniform(0.2, 1.2)
        sharpness = 10 ** rng.uniform(-2, 1.5)
        law = np.exp(-sharpness * np.abs(outputs - means[:, None]))
        law *= rng.uniform(0.8, 1.2, law.shape)
        law /= law.sum(axis=1, keepdims=True)
        least = mean_error([1.0], n_rows, find_scale(law, neighbours))
        closest = min(closest, find_error(law, outputs, tables) / least)
    assert 1 <= closest < 3.7  # a bound 3.7 times as large would be refuted


def test_gaussian_noise_is_within_nine_times():
    """Elliptical noise on the mean of rows of ±1, which a row moves by 2/n."""
    b, n_rows = np.array([1.0, 3.0, 0.2, 7.0]), 10**6
    budget = Budget(n_rows=n_rows, epsilon=0.5, delta=1e-6)
    std = np.sqrt(b.sum() / b) * 2 / (n_rows * budget.mu)  # costs μ, with least Σ b²σ²
    assert np.sum((2 / n_rows / std) ** 2) == pytest.approx(budget.mu**2)
    found = float(b**2 @ std**2)
    least = mean_error(b, n_rows, replacement_scale(budget))
    assert 8.9 < found / least < 9.2


def test_adding_and_removing_is_replacing():
    """Replacing costs twice the μ of one that is added, removed or zeroed out."""
    replaced = Budget(n_rows=100, epsilon=1.0, delta=1e-5)
    for neighbours in ("zero-out", "add-remove"):
        other = Budget(n_rows=100, epsilon=1.0, delta=1e-5, neighbours=neighbours)
        ratio = math.log1p(replacement_scale(other) ** 2) / replaced.mu**2
        assert ratio == pytest.approx(4.0)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 12),
    st.integers(0, 10**6),
    st.sampled_from([50, 1000, 10**5]),
    st.sampled_from(["replace-one", "zero-out"]),
)
def test_the_hard_functions_are_in_the_class(d, seed, n_rows, neighbours):
    """Rebuild them, and compare with what no bound may contradict: upper bounds."""
    rng = np.random.default_rng(seed)
    m, g = np.exp(rng.normal(size=d)), np.exp(rng.normal(size=d))
    budget = Budget(n_rows=n_rows, epsilon=1.0, delta=1e-6, neighbours=neighbours)
    distance = float(np.exp(rng.normal(0, 2)))
    found = convex_lower(
        coordinate_lipschitz=g, smoothness=m, distance=distance, budget=budget
    )
    scale, reached = replacement_scale(budget), []
    for active in range(1, min(n_rows, 400) + 1):
        share = active / n_rows
        slope = g / (1 + share)
        curve = np.cbrt((m * slope) ** 2)  # κ up to the factor that gives R
        curve *= share * math.sqrt(m @ (slope / curve) ** 2) / distance
        if np.all(curve <= m * (1 + 1e-12)):
            away = share * slope / curve  # the farthest minimiser, where φ is quadratic
            assert math.sqrt(m @ away**2) == pytest.approx(distance)
            error = mean_error(slope / np.sqrt(curve), active, scale)
            reached.append(0.5 * share**2 * error)
    if reached:
        assert found >= max(reached) * (1 - 1e-9)
    if n_rows <= 400:
        assert found == pytest.approx(max(reached, default=0.0))
    upper = convex_tight(
        distance_squared=distance**2,
        sigma_squared=float(g @ g) * float(np.sum(1 / m)),
        budget=budget,
    )
    assert found < upper.bound


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
@pytest.mark.parametrize("d", [1, 16, 100])
def test_full_gradients_are_optimal_up_to_a_constant(d, neighbours):
    """And on unequal M too, if gradients are bounded in the Euclidean norm."""
    budget = Budget(n_rows=10**7, epsilon=0.1, delta=1e-6, neighbours=neighbours)
    for m in (np.ones(d), np.geomspace(1, 1e4, d)):
        found = convex_lower(
            coordinate_lipschitz=spread_lipschitz(m, 2.0),
            smoothness=m,
            distance=3.0,
            budget=budget,
        )
        upper = convex_tight(
            distance_squared=9.0, sigma_squared=4.0 * np.sum(1 / m), budget=budget
        )
        uneven = math.sqrt(np.mean(1 / m)) / np.mean(m**-0.5)
        constant = 36 * math.sqrt(4 / 3)
        assert upper.bound / found == pytest.approx(constant * uneven, 0.03)
    # The best G for a Euclidean bound is no worse than equal ones.
    equal = convex_lower(
        coordinate_lipschitz=np.full(d, 2.0 / math.sqrt(d)),
        smoothness=m,
        distance=3.0,
        budget=budget,
    )
    assert found >= equal * (1 - 1e-9)


@pytest.mark.parametrize("n_rows", [100, 10**4, 10**6])
def test_strongly_convex_bounds_are_above(n_rows):
    budget = Budget(n_rows=n_rows, epsilon=1.0, delta=1e-6)
    d, modulus = 10, 0.3
    found = strongly_convex_lower(
        coordinate_lipschitz=np.full(d, 1 / math.sqrt(d)),
        modulus=modulus,
        budget=budget,
    )
    upper = strongly_convex_corrected(
        condition=1.0, sigma_squared=d / modulus, excess=1.0, budget=budget
    )
    assert 0 < found < upper.bound
    scale = n_rows * replacement_scale(budget) + math.sqrt(4 * d / 3)
    assert found == pytest.approx(d / (18 * modulus * scale**2))


def test_without_privacy_there_is_no_bound():
    budget = Budget(n_rows=100, epsilon=700.0, delta=1e-6)
    given = {"smoothness": np.ones(3), "distance": 1.0, "budget": budget}
    assert convex_lower(coordinate_lipschitz=np.ones(3), **given) < 1e-20
