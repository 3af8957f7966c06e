import importlib
from fractions import Fraction
from math import comb, exp

import pytest
from bugs import noise_times

import skdp
from skdp import audit

steinke = importlib.import_module("skdp.audit.one_run")


def brute_force(m, r, v, epsilon, delta):
    """The theorem's formula in fractions, for a q that is one."""
    q = Fraction(1 / (1 + exp(-epsilon)))
    mass = [comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    steepest = max((sum(mass[v - i : v]) / i for i in range(1, v + 1)), default=0)
    return min(1.0, float(sum(mass[v:]) + 2 * m * Fraction(delta) * steepest))


@pytest.mark.parametrize("v", [0, 1, 7, 12, 15])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.2])
def test_p_values_are_those_of_the_theorem(v, epsilon, delta):
    ours = steinke.p_value(20, 15, v, epsilon, delta)
    assert ours == pytest.approx(brute_force(20, 15, v, epsilon, delta), rel=1e-9)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "published"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_bounds_are_those_that_were_published(m, r, v, delta, published):
    """Appendix D and section 7 of the paper, at 95 %; the second is cut, not rounded"""
    assert steinke.epsilon_lower(m, r, v, delta, 0.05) == pytest.approx(
        published, abs=1e-3
    )


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("delta", [1e-3, 0.05])
def test_private_mechanisms_stay_below_their_p_values(together, delta):
    """Randomised response that shows the truth with probability δ, of each or of all"""
    m, epsilon = 30, 1.0
    q = 1 / (1 + exp(-epsilon))
    shown = q if together else delta + (1 - delta) * q
    for v in range(m + 1):
        chance = sum(
            comb(m, k) * shown**k * (1 - shown) ** (m - k) for k in range(v, m + 1)
        )
        if together:
            chance = delta + (1 - delta) * chance
        assert chance <= steinke.p_value(m, m, v, epsilon, delta) + 1e-12


def test_too_many_guesses_are_refused():
    with pytest.raises(ValueError, match="n_correct must be at most"):
        steinke.p_value(10, 5, 6, 1.0, 0.0)


def test_no_correct_guesses_prove_nothing():
    assert steinke.epsilon_lower(100, 50, 25, 1e-6, 1e-3) == 0.0


@pytest.mark.parametrize("geometry", ["diagonal", "matrix"])
def test_one_fit_with_many_canaries(geometry):
    model = skdp.HuberRegressor(epsilon=8.0, geometry=geometry, n_steps=4, delta=1e-6)
    found = audit.one_run(model, n_canaries=400)
    assert found.passed
    assert 0.5 * found.mu < found.reached <= found.mu
    assert geometry == "matrix" or found.reached == pytest.approx(found.mu)
    assert found.epsilon_lower < found.epsilon
    assert geometry == "matrix" or found.epsilon_lower > 0.5
    assert found.n_correct <= found.n_guesses <= 400
    assert found.to_dict()["passed"] is True


def test_one_fit_shows_noise_that_is_far_too_small():
    model = skdp.HuberRegressor(epsilon=2.0, geometry="diagonal", n_steps=4)
    with noise_times(0.2):
        assert not audit.one_run(model, n_canaries=2000).passed
