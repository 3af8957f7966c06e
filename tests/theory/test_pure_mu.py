"""The smallest μ that covers every ε-DP mechanism, to 80 digits."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from experiments.theory.rates import pure_mu
from skdp.privacy.accountant import gdp_delta


def log_uniform(low, high):
    exponents = st.floats(math.log(low), math.log(high))
    return exponents.map(lambda x: min(high, max(low, math.exp(x))))


def exact_cdf(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def test_no_privacy_has_no_mu():
    assert pure_mu(math.inf) == math.inf


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_an_impossible_epsilon_is_refused(bad):
    with pytest.raises(ValueError, match="epsilon"):
        pure_mu(bad)


@settings(deadline=None)
@given(log_uniform(1e-300, 1e3), st.floats(1, 10))
def test_a_larger_epsilon_has_no_smaller_mu(epsilon, more):
    assert pure_mu(epsilon) <= pure_mu(epsilon * more)


@settings(deadline=None)
@given(log_uniform(1e-300, 1e3))
@example(1.0)
@example(1 - 2**-53)
@example(1e3)
def test_pure_mu_is_exact_and_on_the_safe_side(epsilon):
    mu = pure_mu(epsilon)
    with mpmath.workdps(80 if epsilon > 1e-30 else 640):
        corner = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        assert exact_cdf(-mpmath.mpf(mu) / 2) <= corner
        assert exact_cdf(-mpmath.mpf(mu) * (1 - mpmath.mpf("1e-9")) / 2) > corner


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 10.0])
def test_pure_mu_bounds_the_trade_off_curve_and_is_the_smallest(epsilon):
    alpha = np.linspace(1e-6, 1 - 1e-6, 20_001)
    alpha = np.append(alpha, 1 / (1 + math.exp(epsilon)))
    pure = np.maximum(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha))

    def gaussian(mu):
        return ndtr(ndtri(1 - alpha) - mu)

    assert np.all(gaussian(pure_mu(epsilon)) <= pure + 1e-12)
    assert np.any(gaussian(pure_mu(epsilon) * (1 - 1e-6)) > pure + 1e-12)


@settings(deadline=None)
@given(log_uniform(1e-3, 30), st.floats(0, 1))
def test_pure_mu_covers_randomised_response(epsilon, fraction):
    """Its worst mechanism has δ(ε') = (e^ε - e^ε')/(1 + e^ε)."""
    smaller = fraction * epsilon
    delta = (math.exp(epsilon) - math.exp(smaller)) / (1 + math.exp(epsilon))
    assert gdp_delta(smaller, pure_mu(epsilon)) >= delta
