"""The curves of mechanisms that are not Gaussian, against their definitions."""

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import ndtr, ndtri

from skdp.privacy import profiles
from skdp.privacy.accountant import gdp_delta, gdp_mu

#: (μ, κ): little and much curvature for the noise.
CASES = [(0.2, 0.05), (0.2, 0.2), (0.2, 1.0), (1.0, 0.3), (1.0, 2.0), (2.0, 1.0)]
EPSILONS = np.array([0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.5, 2.5])
cases = pytest.mark.parametrize(("mu", "kappa"), CASES)
signs_of = pytest.mark.parametrize("signs", [1, 2])


def worst(epsilon, mu, kappa, signs, step=0.02):
    """Largest P(A) - e^ε P'(A) over paths s(t) and sets A on a grid, by dynamic
    programming: what the worst record and the best attacker reach, from below."""
    levels = np.arange(-mu if signs == 2 else 0.0, mu + 1e-12, kappa * step)
    value = np.zeros(len(levels))
    for t in np.arange(-8.0, 8.0, step)[::-1]:
        other = math.exp(epsilon) * (ndtr(t + step) - ndtr(t))
        here = ndtr(t + levels)
        flat = value + np.maximum(0, ndtr(t + step + levels) - here - other)
        rise = np.zeros(len(levels))
        gained = ndtr(t + step + levels[1:]) - here[:-1] - other
        rise[:-1] = value[1:] + np.maximum(0, gained)
        value = np.maximum(flat, rise)
    return float(value.max())


@signs_of
@cases
def test_no_record_and_no_attacker_exceed_the_curve(mu, kappa, signs):
    bound = profiles.objective_delta(EPSILONS, mu, kappa, signs)
    reached = [worst(epsilon, mu, kappa, signs) for epsilon in EPSILONS]
    assert (reached <= bound + 1e-12).all()
    if signs == 1 and kappa >= mu:  # there it is tight
        seen = bound > 1e-6
        print(np.array(reached) / bound)
        assert (np.array(reached)[seen] >= 0.8 * bound[seen]).all()


@signs_of
@cases
def test_random_records_stay_below_the_curve_in_both_directions(mu, kappa, signs):
    rng = np.random.default_rng(3)
    t = np.linspace(-10, 10, 20_001)
    for _ in range(20):
        slope = kappa * rng.uniform(size=3) ** 3
        at, width = rng.normal(size=3) * 2, rng.uniform(0.05, 3, size=3)
        rise = sum(
            a * w * ndtr((t - c) / w)
            for a, c, w in zip(slope / 3, at, width, strict=True)
        )  # each has slope at most a φ(0) < a/2, so that all have less than κ
        span = mu * signs
        s = np.clip(rise, 0, span) - (mu if signs == 2 else 0.0)
        without = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
        present = np.diff(ndtr(t + s))
        absent = np.diff(ndtr(t))
        assert without.sum() * (t[1] - t[0]) == pytest.approx(1)
        bound = profiles.objective_delta(EPSILONS, mu, kappa, signs)
        for epsilon, most in zip(EPSILONS, bound, strict=True):
            for one, other in ((present, absent), (absent, present)):
                delta = np.maximum(one - math.exp(epsilon) * other, 0).sum()
                assert delta <= most + 1e-9


def test_quadrature_and_roots_against_a_grid():
    mu, kappa = 0.3, 0.4
    s, t = np.linspace(0, mu, 301)[1:, None], -np.linspace(0, 25, 25_001)[None, :]
    for epsilon in (0.2, 0.4, 0.8, 1.5):
        here = (1 + kappa) * np.exp(-((t + s) ** 2) / 2) - np.exp(epsilon - t**2 / 2)
        peaks = here.max(axis=1) / math.sqrt(2 * math.pi)
        points = profiles._peaks(s.T, np.array([[epsilon]]), kappa)[0]
        assert points == pytest.approx(peaks, rel=1e-4, abs=1e-50)
        assert (points >= peaks - 1e-15).all()
        first = max(0.0, 1 + kappa - math.exp(epsilon)) / math.sqrt(2 * math.pi)
        exact = trapezoid(np.append(first, peaks), dx=mu / 300) / kappa
        nodes = mu * profiles._NODES
        found = profiles._peaks(nodes[None, :], np.array([[epsilon]]), kappa)
        found = float((found @ profiles._WEIGHTS)[0]) * mu / kappa
        assert found == pytest.approx(exact, rel=1e-3)
        bound = profiles.objective_delta(np.array([epsilon]), mu, kappa, 1)[0]
        assert bound <= found * (1 + 2e-6)


def test_quadrature_loses_less_than_its_margin():
    roots, weights = np.polynomial.legendre.leggauss(300)
    roots = np.append((roots + 1) / 20, 0.1 + (roots + 1) * 0.45)
    weights = np.append(weights / 20, weights * 0.45)
    ratios = np.array([0, 0.1, 1, 3, 10, 30])
    for mu in (0.03, 1.5):
        for kappa in (0.05 * mu, mu, 8 * mu):
            epsilon = np.append(ratios * mu, math.log1p(kappa) * (1 + ratios / 10))
            epsilon = epsilon[:, None]
            fine = profiles._peaks(mu * roots[None, :], epsilon, kappa)
            coarse = profiles._peaks(mu * profiles._NODES[None, :], epsilon, kappa)
            exact, found = fine @ weights, coarse @ profiles._WEIGHTS
            assert (found * profiles._MARGIN >= exact)[exact > 1e-250].all()
            assert found == pytest.approx(exact, rel=1e-5, abs=1e-250)


@signs_of
@pytest.mark.parametrize("epsilon", [0.003, 0.03, 0.1, 1.0, 8.0])
def test_what_is_charged_is_above_the_curve_everywhere(epsilon, signs):
    target = gdp_mu(epsilon, 1e-6)
    kappa = 0.5 * target
    mu = profiles.objective_mu(target, kappa, signs)
    assert 0.2 * target < mu < target
    grid = np.append(
        np.linspace(0, 3 * epsilon + target, 900), np.linspace(0, 30 * target, 500)
    )
    below = profiles.objective_delta(grid, mu, kappa, signs)
    above = [gdp_delta(e, target) for e in grid]
    assert (below <= above).all()
    assert not profiles.is_dominated(1.2 * mu, target, kappa, signs)
    cost = profiles.objective_cost(mu, kappa, signs, target)
    assert 0.99 * target < cost <= target


def test_with_less_noise_an_attacker_exceeds_what_is_charged():
    """The curve is not only unproved beyond: it is crossed."""
    target, kappa = gdp_mu(1.0, 1e-6), 0.2
    mu = profiles.objective_mu(target, kappa, 1)
    assert all(worst(e, mu, kappa, 1) <= gdp_delta(e, target) for e in (0.1, 0.3, 0.9))
    assert worst(0.05, 1.2 * mu, kappa, 1) > gdp_delta(0.05, target)
    assert worst(0.9, 1.3 * mu, kappa, 1) > gdp_delta(0.9, target)


def test_too_little_ridge_is_not_made_good_by_noise():
    assert profiles.objective_mu(gdp_mu(0.1, 1e-6), 1.0, 1) == 0.0


@cases
def test_the_printed_curve_is_above_ours(mu, kappa):
    for epsilon in EPSILONS:
        ours = profiles.objective_delta(np.array([epsilon]), mu, kappa, 2)[0]
        printed = profiles.printed_delta(epsilon, mu, kappa)
        assert ours <= printed * (1 + 1e-5)


@pytest.mark.parametrize("width", [0.01, 0.3, 1.0, 4.0])
def test_bounded_range_against_all_coins(width):
    mu = profiles.bounded_range_mu(width)
    t = np.linspace(0, width, 1001)[1:-1]
    heads = (math.exp(width) - np.exp(t)) / math.expm1(width)  # losses t and t - width
    corners = ndtri(heads) - ndtri(heads * np.exp(-t))
    assert corners.max() <= mu
    assert corners.max() == pytest.approx(mu, rel=1e-6)
    assert profiles.bounded_range_width(mu) == pytest.approx(width, rel=1e-9)
    assert profiles.bounded_range_mu(profiles.bounded_range_width(mu)) <= mu


def test_choices_stay_below_the_curve_of_bounded_range():
    rng = np.random.default_rng(5)
    width, largest = 1.0, 0.0
    mu = profiles.bounded_range_mu(width)
    for _ in range(200):
        scores = rng.normal(size=5) * 3
        moved = scores + rng.choice([-1, 1], size=5) * width / 2
        one, other = (np.exp(s) / np.exp(s).sum() for s in (scores, moved))
        for epsilon in (0.0, 0.1, 0.3, 0.6, 1.0):
            delta = np.maximum(one - math.exp(epsilon) * other, 0).sum()
            assert delta <= gdp_delta(epsilon, mu)
            largest = max(largest, delta / gdp_delta(epsilon, mu))
    assert largest > 0.9
