"""Why what stays below a ceiling is private, in numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.ledger.ceiling import Terms
from skdp.privacy import accountant
from skdp.privacy.budget import ALLOWED_DRAWS


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_all_that_fits_under_the_ceiling_is_private(epsilon, delta, share):
    """The three sums at their most, by the lemma's formula, give at most (ε, δ)."""
    terms = Terms.of(epsilon, delta, share * delta)
    slack = terms.n_draws * accountant.SLACK_PER_DRAW
    mu = math.sqrt(terms.mu_squared * (1 + 2e-12))  # what records may be off by
    ideal = accountant.gdp_delta(epsilon - 2 * slack, mu)
    real = math.exp(slack) * (ideal + terms.reserved_delta * (1 + 2e-12))
    assert real <= delta
    assert terms.n_draws >= 64 * ALLOWED_DRAWS
    # and nothing to speak of is lost beside what is set aside
    whole = accountant.gdp_mu(epsilon, delta * (1 - share)) ** 2
    lost = 1 - terms.mu_squared / whole
    assert lost < (2e-3 if share > 0.5 else max(4e-4, 8e-6 / epsilon))


def h(epsilon, squared):
    """gdp_delta for ε of either sign."""
    mu = math.sqrt(squared)
    if epsilon >= 0:
        return accountant.gdp_delta(epsilon, mu)
    grown = math.exp(epsilon)
    return 1 - grown + grown * accountant.gdp_delta(-epsilon, mu)


def two_steps(epsilon, first, d, second):
    """δ(ε) of an adaptive pair, computed from the law of the first one's loss.

    The first mechanism is Gaussian with μ² = `first` and shows all with probability d;
    `second` maps its losses to the δ(ε - loss) of what follows.
    """
    mean, std = first / 2, math.sqrt(first)
    loss = np.linspace(mean - 9 * std, mean + 9 * std, 601)
    weight = np.exp(-((loss - mean) ** 2) / (2 * first))
    reached = np.array([second(x) for x in loss])
    return d + (1 - d) * float(weight @ reached / weight.sum())


@settings(max_examples=25)
@given(st.floats(0.1, 4), st.floats(0.01, 0.9), st.floats(0, 1e-3), st.floats(0, 1e-3))
def test_two_steps_add_up(epsilon, share, first_d, second_d):
    """Mechanisms that fail with probability d, the worst there are, obey the lemma."""
    whole = accountant.gdp_mu(epsilon, 1e-4) ** 2
    first, rest = whole * share, whole * (1 - share)

    def second(loss):
        return second_d + (1 - second_d) * h(epsilon - loss, rest)

    reached = two_steps(epsilon, first, first_d, second)
    assert reached <= (h(epsilon, whole) + first_d + second_d) * (1 + 1e-6)
    assert reached >= h(epsilon, whole) * (1 - 1e-6)


@settings(max_examples=25)
@given(st.floats(0.1, 4), st.floats(0.05, 0.95), st.floats(0, 1), st.floats(0, 1))
def test_no_use_of_a_rectangle_is_better_than_all_of_it(epsilon, share, r, cut):
    """The second run depends on the first answer: both within budget, or neither."""
    whole, r = accountant.gdp_mu(epsilon, 1e-6) ** 2, r * 1e-6
    first = whole * share
    border = epsilon * cut

    def second(loss):
        shown = max(0.0, 1 - math.exp(epsilon - loss))
        if loss < border:  # show all with probability r, or else stop
            return r + (1 - r) * shown
        return r + (1 - r) * h(epsilon - loss, whole - first)

    assert two_steps(epsilon, first, 0.0, second) <= (1e-6 + r) * (1 + 1e-6)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_trading_one_sum_for_the_other_would_not_be_private(share):
    """The natural rule, h(ε, √Σμ²) + Σd ≤ δ, lets an adaptive analyst reach 2δ."""
    epsilon, delta = 1.0, 1e-6
    whole = accountant.gdp_mu(epsilon, delta) ** 2
    first = whole * share
    left = delta - h(epsilon, first)  # what the rule would still allow as d

    def second(loss):
        shown = max(0.0, 1 - math.exp(epsilon - loss))
        go_on = h(epsilon - loss, whole - first)
        return max(go_on, left + (1 - left) * shown)

    reached = two_steps(epsilon, first, 0.0, second)
    assert 1.7 * delta < reached < 2 * delta
