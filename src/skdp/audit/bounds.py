"""Compute lower bounds on ε and μ from the number of wrong guesses.

In each game a mechanism runs on one of two neighbouring tables, and an auditor guesses
which. If more guesses are correct than the claim allows, the claim is refuted. There
are two lower bounds:

- **plain**: (ε, δ)-DP means 1 - β ≤ e^ε α + δ for every test of error rates α, β [1]_.
  This bound assumes nothing, but it is far below the true ε unless there are about
  e^ε/δ games.
- **gdp**: μ-GDP means that every test has (α + β)/2 ≥ Φ(-μ/2) [2]_. The best test at
  its best threshold has exactly this error rate. skdp claims a μ, so this bound tests
  the claim itself. It is near the true μ after a thousand games.

Error rates are bounded by Clopper and Pearson's intervals, so no bound relies on
asymptotics.

References
----------
.. [1] P. Kairouz, S. Oh, P. Viswanath, "The composition theorem for differential
   privacy", ICML 2015, Theorem 2.1.
.. [2] J. Dong, A. Roth, W. J. Su, "Gaussian differential privacy", JRSS B 84 (2022):
   Definition 2.6; for groups of records Theorem 2.14.
.. [3] W. Hoeffding, "On the distribution of the number of successes in independent
   trials", Annals of Mathematical Statistics 27 (1956), Theorem 5.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

#: Default confidence of a bound, and default power of an audit. The power is the
#: probability that the audit finds noise that is too small.
CONFIDENCE, POWER = 0.999, 0.99
#: Audits must find noise whose scale is only this share of the correct scale.
SHRUNK = 0.8


def rate_upper(errors: int, n_trials: int, miss: float) -> float:
    """Return the Clopper-Pearson upper bound on the rate of errors.

    The bound is below the true rate with probability at most `miss`.
    """
    if errors >= n_trials:
        return 1.0
    return float(betaincinv(errors + 1.0, float(n_trials - errors), 1.0 - miss))


def mu_lower(
    errors: int, n_trials: int, miss: float, extra_delta: float = 0.0
) -> float:
    """Return a lower bound on μ, from the number of wrong guesses.

    Let α and β be the error rates on the two tables. Half of the `n_trials` = n games
    are played on each table, so the number of wrong guesses has mean n(α + β)/2. Its
    lower tail is at most the lower tail of a binomial variable with n trials and the
    same mean [3]_. A single interval therefore covers α and β together. A mechanism
    that is μ-GDP except with probability `extra_delta` has
    α + β ≥ 2Φ(-μ/2) - extra_delta. The bound is above the true μ with probability at
    most `miss`.
    """
    rate = rate_upper(errors, n_trials, miss) + extra_delta / 2
    return max(0.0, -2.0 * float(ndtri(min(rate, 0.5))))


def plain_epsilon_lower(
    false_positives: int,
    false_negatives: int,
    n_each: int,
    delta: float,
    miss: float,
) -> float:
    """Return a lower bound on ε at `delta`, from the two kinds of wrong guesses.

    Nothing is assumed about the mechanism. The bound is above the true ε with
    probability at most `miss`.
    """
    alpha = rate_upper(false_positives, n_each, miss / 2)
    beta = rate_upper(false_negatives, n_each, miss / 2)
    best = 0.0
    for missed, caught in ((alpha, 1.0 - beta), (beta, 1.0 - alpha)):
        if caught > delta:
            best = max(best, math.log((caught - delta) / missed))
    return best


def plain_threshold(mu: float, n_each: int, delta: float, miss: float) -> float:
    """Return the threshold t ≥ 0 that should make `plain_epsilon_lower` largest.

    The auditor compares the log-likelihood ratio with t. If μ is the exact privacy,
    this ratio is N(-μ²/2, μ²) on one table and N(μ²/2, μ²) on the other. The threshold
    depends on the claim alone, so it can be chosen before the games.
    """
    grid = np.linspace(0.0, mu * (mu / 2 + 4.0), 201)
    false_positives = np.floor(n_each * ndtr(-grid / mu - mu / 2)).astype(int)
    false_negatives = np.ceil(n_each * ndtr(grid / mu - mu / 2)).astype(int)
    found = [
        plain_epsilon_lower(p, n, n_each, delta, miss)
        for p, n in zip(false_positives.tolist(), false_negatives.tolist(), strict=True)
    ]
    return float(grid[int(np.argmax(found))])


def detection_power(
    mu: float, n_each: int, *, miss: float, shrunk: float = SHRUNK, reach: float = 1.0
) -> float:
    """Return the exact probability that `n_each` games per table refute the claim of μ.

    The noise is assumed to be `shrunk` times as large as the claim requires. The two
    tables are assumed to be `reach` times as far apart as the claim allows.
    """
    n = 2 * n_each
    claimed, real = ndtr(-mu / 2), ndtr(-mu * reach / shrunk / 2)
    most = int(binom.ppf(miss, n, claimed)) - 1  # errors that refute the claim
    return float(binom.cdf(most, n, real))


def trials_needed(
    mu: float,
    *,
    confidence: float = CONFIDENCE,
    shrunk: float = SHRUNK,
    reach: float = 1.0,
    power: float = POWER,
) -> int:
    """Return the number of games per table that reveal noise that is too small.

    Noise of `shrunk` times its correct scale is found with probability at least
    `power`. The two tables are `reach` times as far apart as the claim allows. If reach
    ≤ shrunk, even the smaller noise satisfies the claim on these tables, and a
    ValueError is raised.
    """
    if reach <= shrunk:
        raise ValueError(
            f"reach must be above shrunk = {shrunk}, got {reach:.3g}. These tables are "
            "so similar that an audit cannot detect noise that is too small."
        )
    miss = gdp_miss(confidence)

    def enough(n: int) -> bool:
        return detection_power(mu, n, miss=miss, shrunk=shrunk, reach=reach) >= power

    high = 16
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > max(1, low // 100):  # within one percent
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def best_group(mu: float) -> int:
    """Return the number of records in which the two tables of an audit should differ.

    An audit needs the fewest games if the group's μ is near 2.
    """
    return max(1, round(2.0 / mu))


#: Share of the error probability 1 - confidence that is allowed to the second auditor
#: of `play_games`, who measures the noise.
MEASURED_SHARE = 0.1


def gdp_miss(confidence: float) -> float:
    """Return the error probability allowed to the first auditor of `play_games`."""
    return (1.0 - confidence) * (1.0 - MEASURED_SHARE)
