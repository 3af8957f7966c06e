import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom, binomtest

from skdp.audit import games


@pytest.mark.parametrize(("errors", "n"), [(0, 10), (3, 10), (10, 10), (450, 1000)])
def test_rates_are_those_of_clopper_and_pearson(errors, n):
    exact = binomtest(errors, n, alternative="less").proportion_ci(0.99, "exact").high
    assert games.rate_upper(errors, n, 0.01) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("n", [1, 20, 200])
@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_the_gdp_bound_is_too_high_as_rarely_as_it_says(n, mu):
    """Exactly, over all outcomes and all tests that a μ-GDP mechanism allows."""
    lower = [games.mu_lower(e, 2 * n, 0.05) for e in range(2 * n + 1)]
    most = sum(bound > mu for bound in lower)  # refuting counts are 0, …, most - 1
    for threshold in np.linspace(-3.0, 3.0, 13):
        alpha, beta = ndtr(-threshold), ndtr(threshold - mu)
        each = [binom.pmf(np.arange(n + 1), n, rate) for rate in (alpha, beta)]
        assert np.convolve(*each)[:most].sum() <= 0.05


def test_the_gdp_bound_approaches_the_truth():
    n, mu = 10**9, 1.5
    errors = round(2 * n * ndtr(-mu / 2))
    assert games.mu_lower(errors, 2 * n, 1e-3) == pytest.approx(mu, abs=1e-3)
    assert games.mu_lower(errors, 2 * n, 1e-3) < mu
    assert games.mu_lower(n, 2 * n, 1e-3) == 0.0


def test_what_is_shown_with_probability_delta_refutes_nothing():
    """A test that is right by the δ alone: α = 0, β = 1 - δ."""
    n, delta = 10**6, 0.01
    errors = round(n * (1 - delta))
    assert games.mu_lower(errors, 2 * n, 1e-3, extra_delta=delta) == 0.0
    assert games.mu_lower(errors, 2 * n, 1e-3) > 0.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_plain_bound_of_randomised_response(epsilon):
    n = 10**8
    wrong = round(n / (1 + math.exp(epsilon)))
    lower = games.plain_epsilon_lower(wrong, wrong, n, 0.0, 1e-3)
    assert epsilon - 2e-3 < lower < epsilon
    # In the other direction, where only false negatives are rare:
    delta = 0.1
    lower = games.plain_epsilon_lower(n // 2, n // 100, n, delta, 1e-3)
    assert lower == pytest.approx(math.log((0.5 - delta) / 0.01), abs=0.01)
    assert games.plain_epsilon_lower(0, n - n // 20, n, delta, 1e-3) == 0.0


def test_the_plain_threshold_gives_the_best_bound():
    mu, n, delta, miss = 1.0, 10_000, 1e-6, 1e-3

    def expected(t):
        counts = (math.floor(n * ndtr(-t / mu - mu / 2)), math.ceil(n * ndtr(t - 0.5)))
        return games.plain_epsilon_lower(*counts, n, delta, miss)

    best = expected(games.plain_threshold(mu, n, delta, miss))
    assert best >= max(expected(t) for t in np.linspace(0, 4, 50)) - 0.01
    assert best > 1.3 * expected(0.0)


@pytest.mark.parametrize(("mu", "reach"), [(0.237, 1.0), (1.5, 1.0), (2.0, 0.9)])
def test_the_number_of_trials_has_the_power_it_is_chosen_for(mu, reach):
    n = games.trials_needed(mu, reach=reach)
    rng = np.random.default_rng(0)
    errors = rng.binomial(2 * n, ndtr(-mu * reach / 0.8 / 2), 2000)
    miss = games.gdp_miss(games.CONFIDENCE)
    caught = [games.mu_lower(int(e), 2 * n, miss) > mu for e in errors]
    assert 0.98 < np.mean(caught) < 0.998
    right = rng.binomial(2 * n, ndtr(-mu * reach / 2), 2000)
    flagged = [games.mu_lower(int(e), 2 * n, miss) > mu for e in right]
    assert np.mean(flagged) < 0.005


def test_tables_that_are_too_close_are_refused():
    with pytest.raises(ValueError, match="so similar"):
        games.trials_needed(1.0, reach=0.8)
