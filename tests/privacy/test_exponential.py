"""The exponential mechanism draws what it says it draws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chi2

from skdp.privacy.randomness import Randomness
from skdp.privacy.selection import _ExponentialCoins, choose

SCORES = [0, 3, 5, 5, 2]
DRAWS = 6000


def plausible(counts, rate):
    chances = np.exp(rate * (np.array(SCORES) - max(SCORES)))
    expected = DRAWS * chances / chances.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return statistic < chi2.ppf(1 - 1e-9, len(SCORES) - 1)


def test_chances_are_exponential_in_the_scores():
    noise, rate = Randomness(1), Fraction(2, 5)
    drawn = [choose(SCORES, rate, noise) for _ in range(DRAWS)]
    counts = np.bincount(drawn, minlength=len(SCORES))
    assert plausible(counts, 0.4)
    assert not plausible(counts, 0.4 * 2 / 3)
    assert not plausible(counts, 0.4 * 3 / 2)


@pytest.mark.parametrize("gamma", [0.0, 0.25, 1.0, 2.5])
def test_coins(gamma):
    coins = _ExponentialCoins(Randomness(2))
    heads = sum(coins.toss(Fraction(gamma)) for _ in range(DRAWS))
    low, high = binom.ppf([1e-10, 1 - 1e-10], DRAWS, math.exp(-gamma))
    assert low <= heads <= high


@pytest.mark.parametrize("bound", [1, 2, 3, 2**64, 2**64 + 1, 3 * 2**90])
def test_integers_are_uniform_below_any_bound(bound):
    coins = _ExponentialCoins(Randomness(3))
    drawn = [coins.draw_below(bound) for _ in range(2000)]
    assert all(0 <= value < bound for value in drawn)
    mean = sum(drawn) / len(drawn)
    spread = math.sqrt((bound * bound - 1) / 12 / len(drawn))
    assert abs(mean - (bound - 1) / 2) <= 6.5 * spread


def test_bits_are_not_used_twice():
    noise = Randomness(4)
    assert [choose([0] * 50, Fraction(1), noise) for _ in range(9)] != [
        choose([0] * 50, Fraction(1), noise) for _ in range(9)
    ]
