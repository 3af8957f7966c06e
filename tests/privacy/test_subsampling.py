"""The cost of Poisson batches, against other programs, formulas and direct sums."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from skdp.privacy import accountant, subsampling
from skdp.privacy.subsampling import (
    calibrate_noise,
    compute_profile,
    from_add_remove,
    to_add_remove,
)

EPSILONS = (0.05, 0.2, 0.5, 1.0, 2.0)
CASES = [(2.0, 0.01, 1000), (1.0, 0.02, 200), (0.7, 0.05, 20), (6.0, 0.3, 100)]


def other(z, rate, n_steps, pessimistic):
    one = pld.from_gaussian_mechanism(
        z,
        sampling_prob=rate,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=2e-4,
    )
    return one.self_compose(n_steps)


@pytest.mark.parametrize(("z", "rate", "n_steps"), CASES)
def test_profile_is_a_tight_upper_bound(z, rate, n_steps):
    """Above an optimistic estimate of dp-accounting, close to a pessimistic one."""
    curve = compute_profile(z, rate, n_steps)
    low, high = (other(z, rate, n_steps, p) for p in (False, True))
    for epsilon in EPSILONS:
        ours = curve.delta(epsilon)
        assert ours >= low.get_delta_for_epsilon(epsilon)
        theirs = high.get_delta_for_epsilon(epsilon)
        assert ours <= theirs * 1.01 + 2 * subsampling.rounding_allowance(
            n_steps, 1 << 17
        )
    assert (np.diff(curve.deltas) <= 0).all()


@pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.9])
def test_one_step_has_a_formula(z, rate):
    """Removal: q δ_GDP(log(1 + (e^ε - 1)/q)), the larger of the two directions."""
    curve = compute_profile(z, rate, 1)
    step = curve.epsilons[1]
    for epsilon in EPSILONS:
        with mpmath.workdps(40):
            inside = mpmath.log(1 + mpmath.expm1(epsilon) / rate)
            gap = mpmath.mpf(1) / (2 * z)
            upper = mpmath.ncdf(gap - inside * z)
            lower = mpmath.exp(inside) * mpmath.ncdf(-gap - inside * z)
            exact = float(rate * (upper - lower))
        assert curve.delta(epsilon) >= exact
        assert curve.delta(epsilon - step) <= max(exact * 1.1, exact + 1e-3 * rate)


def test_adding_is_bounded_too():
    """Both directions of one step, integrated, are below the profile."""
    z, rate = 0.8, 0.5
    x = np.linspace(-12, 13, 400_001)
    q = np.exp(-(x**2) / 2 / z**2)
    q /= q.sum()
    p = (1 - rate) * q + rate * q * np.exp((x - 0.5) / z**2)
    curve = compute_profile(z, rate, 1)
    for epsilon in (0.1, 0.3, 0.6):
        adding = np.maximum(q - math.exp(epsilon) * p, 0).sum()
        removing = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        assert max(adding, removing) <= curve.delta(epsilon) * (1 + 1e-6)
        assert removing >= 0.99 * curve.delta(epsilon + curve.epsilons[1])


@pytest.mark.parametrize(("z", "rate"), [(1.0, 0.1), (0.5, 0.9999), (0.3, 0.01)])
def test_no_mass_is_lost_off_the_grid(z, rate):
    """Losses beyond a grid that is too small count as infinite, in both directions."""
    for mass, infinite in subsampling._masses(z, rate, 0.01, 128):
        assert mass.sum() + infinite == pytest.approx(1.0, abs=1e-12)
        assert (mass >= 0).all()


def test_a_loss_that_may_be_infinite_in_any_step_counts_in_all_of_them():
    """A step that tells all with probability p: T steps do with 1 - (1 - p)^T."""
    chance, n_steps = 1e-3, 50
    mass = np.zeros(256)
    mass[128] = 1.0 - chance  # otherwise nothing is learnt: the loss is 0
    composed = subsampling._compose(mass, chance, 0.01, n_steps)
    exact = -math.expm1(n_steps * math.log1p(-chance))
    assert (composed >= exact).all()
    assert composed[-2] <= 1.05 * exact


def test_transform_rounds_less_than_it_is_allowed():
    z, rate, n_steps = 1.0, 0.2, 8
    half = 1 << 11
    step = 20.0 / half
    for mass, infinite in subsampling._masses(z, rate, step, half):
        direct = np.array([1.0])
        for _ in range(n_steps):
            direct = np.convolve(direct, mass)
        losses = (np.arange(len(direct)) - n_steps * half) * step
        composed = subsampling._compose(mass, infinite, step, n_steps)
        for at in (0, 10, 100, 400):
            above = losses > at * step
            exact = (direct[above] * -np.expm1(at * step - losses[above])).sum()
            assert exact <= composed[at]
            allowed = subsampling.rounding_allowance(n_steps, 2 * half)
            assert composed[at] - exact <= 3 * allowed + 1e-9 * exact + 1e-12


@pytest.mark.parametrize(("z", "rate", "n_steps"), CASES)
def test_charge_is_the_smallest_curve_that_is_never_crossed(z, rate, n_steps):
    delta = 1e-7
    curve = compute_profile(z, rate, n_steps)
    mu = subsampling.smallest_mu(curve, delta)
    ends = np.flatnonzero(curve.deltas > delta)
    for at in np.linspace(0, ends[-1], 200).astype(int):
        charged = accountant.gdp_delta(float(curve.epsilons[at]), mu) + delta
        assert curve.deltas[at] <= charged
    assert not curve.is_below(mu * 0.999, delta)


def test_nothing_is_charged_too_little_where_tails_are_heavy():
    """With little noise, rare draws make δ(ε) fall slowly: no small μ covers it."""
    curve = compute_profile(0.7, 0.01, 100)
    limit = 0.01 * math.sqrt(100 * math.expm1(0.7**-2))
    assert subsampling.smallest_mu(curve, 1e-7) > 2 * limit


@pytest.mark.parametrize(("mu", "rate", "n_steps"), [(0.24, 0.01, 900), (1.5, 0.1, 50)])
def test_calibration_is_tight(mu, rate, n_steps):
    delta = 1e-7
    z = calibrate_noise(mu, delta, rate, n_steps)
    assert compute_profile(z, rate, n_steps).is_below(mu, delta)
    assert not compute_profile(z * 0.999, rate, n_steps).is_below(mu, delta)


def test_budget_is_hardly_more_than_direct_accounting_needs():
    """(μ, δ) charges cost less than 2 % of noise against the PLD at one (ε, δ)."""
    epsilon, delta, rate, n_steps = 1.0, 1e-6, 0.01, 1000
    mu = accountant.calibrate(epsilon, 0.9 * delta, 1 << 24)
    z = calibrate_noise(mu, 0.1 * delta, rate, n_steps)
    assert other(z, rate, n_steps, True).get_epsilon_for_delta(delta) <= epsilon
    assert other(z * 0.98, rate, n_steps, True).get_epsilon_for_delta(delta) > epsilon


@pytest.mark.parametrize("mu", [0.01, 0.2, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6])
def test_a_replacement_is_a_removal_and_an_addition(mu, delta):
    half, least = to_add_remove(mu, delta, "replace-one")
    assert half == mu / 2
    twice, whole = from_add_remove(half, least, "replace-one")
    assert twice == mu
    assert 0.99 * delta < whole <= delta
    assert to_add_remove(mu, delta, "zero-out") == (mu, delta)
    # Events of size x: P(E) ≤ F(F(x) + δ₀) + δ₀ must be below F_{2μ}(x) + δ.
    from scipy.special import ndtr, ndtri

    x = np.logspace(-14, -1e-9, 2000)
    chain = ndtr(ndtri(np.minimum(ndtr(ndtri(x) + half) + least, 1.0)) + half) + least
    assert (chain <= ndtr(ndtri(x) + mu) + delta * (1 + 1e-6)).all()


def test_too_many_steps_are_refused():
    with pytest.raises(ValueError, match="larger batches"):
        calibrate_noise(0.2, 1e-7, 1e-5, 10**9)
    with pytest.raises(ValueError, match="rate must be in"):
        compute_profile(1.0, 1.0, 10)
