r"""Exact Gaussian-DP accounting: budgets, noise multipliers and their conversions.

A mechanism is *μ-GDP* if telling two neighbouring tables apart from its output is
at least as hard as telling N(0, 1) from N(μ, 1) [1]_. A Gaussian release with noise
of standard deviation z times the sensitivity is exactly (1/z)-GDP, adaptive
compositions obey μ² = Σ μᵢ², and μ-GDP is the same as (ε, δ(ε))-DP for all ε with

.. math:: δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2)

[1]_, [2]_. Every function here rounds to the safe side. A returned ε, δ or noise
multiplier is never below the exact value. The μ that is returned for a budget is never
above the exact value.

**Sampler slack.** A noise sampler on a real machine rounds each value to a cell. The
probability of each cell is within factors e^±η of the ideal one, where η =
`SLACK_PER_DRAW`. Let P, Q be the ideal output laws on two neighbouring tables and
P', Q' the real output laws. A run makes at most D draws, and each draw may depend on
the earlier ones.

1. Laws of outputs are sums of products of at most D conditional cell probabilities,
   so e^{-Dη} P(E) ≤ P'(E) ≤ e^{Dη} P(E) for every event E. The same holds for Q and
   Q'.
2. If P(E) ≤ e^ε Q(E) + δ, then P'(E) ≤ e^{Dη} P(E) ≤ e^{Dη} (e^ε Q(E) + δ)
   ≤ e^{Dη} (e^{ε+Dη} Q'(E) + δ) = e^{ε+2Dη} Q'(E) + e^{Dη} δ.
3. So an ideal (ε, δ)-DP guarantee becomes a real (ε + 2Dη, e^{Dη} δ)-DP guarantee. ∎

References
----------
.. [1] J. Dong, A. Roth, W. J. Su, "Gaussian differential privacy", JRSS B 84
   (2022); theorems are numbered as in arXiv 1905.02383.
.. [2] B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential
   privacy: analytical calibration and optimal denoising", ICML 2018.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtr

from skdp.schema import check

SLACK_PER_DRAW = 2.0**-50
"""The bound η. In one draw, cell probabilities are within e^±η of the ideal ones."""

# gdp_delta has a relative error of at most 4e-13, plus 5e-15 μ from ε/μ - μ/2. The two
# constants below (the second is per unit of μ) raise the result by more than that.
_ROUND_UP, _ROUND_UP_PER_MU = 2e-12, 1e-14
# For μ above _MU_MAX, δ rounds to 1. For δ below _DELTA_MIN, φ(a) is subnormal, so
# _DELTA_MIN is returned instead. _ULPS covers rounding errors by four units in the last
# place.
_MU_MAX, _DELTA_MIN, _ULPS = 1e9, 1e-300, 2.0**-50
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_RULES: dict[str, tuple[Callable[[float], bool], str]] = {
    "epsilon": (lambda x: x > 0, "above 0"),
    "delta": (lambda x: 0 < x < 1, "in (0, 1) and above the δ already spent"),
    "mu": (lambda x: x >= 0, "at least 0"),
    "n_releases": (lambda n: 1 <= n <= 2**53, "in [1, 2**53]"),
    "n_draws": (lambda n: 0 <= n <= 2**53, "in [0, 2**53]"),
}


def check_range(**arguments: float) -> None:
    """Raise an error if an argument is out of range. A nan is always out of range."""
    for name, value in arguments.items():
        valid, rule = _RULES[name]
        check(valid(value), f"{name} must be {rule}, got {value!r}.")


def _mills(x: Any) -> Any:
    """Return the Mills ratio (1 - Φ(x)) / φ(x) of a number or an array."""
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))


def _find_switch(before: Callable[[float], bool]) -> tuple[float, float]:
    """Find by bisection where a condition on floats ≥ 0 changes from true to false.

    Return adjacent floats lo < hi such that ``before(hi)`` is false and ``before(lo)``
    is true. The condition is assumed to be true at 0 and is not tested there.
    """
    lo, hi = 0.0, 1.0
    while before(hi):
        lo, hi = hi, 2 * hi
    while lo < (middle := lo + (hi - lo) / 2) < hi:
        lo, hi = (middle, hi) if before(middle) else (lo, middle)
    return lo, hi


def gdp_delta(epsilon: float, mu: float) -> float:
    r"""Return the smallest δ at which μ-GDP implies (ε, δ)-DP.

    Let t = ε/μ, h = μ/2 and a = h - t, and let m be the Mills ratio (1 - Φ)/φ. Then
    e^ε φ(t + h) = φ(a), so

    .. math:: δ(ε) = Φ(a) - φ(a) m(t+h) = φ(a) ∫_{t-h}^{t+h} (1 - x m(x)) dx ,

    where the integrand is -m'. For small μ, cancellation destroys all digits of the
    first formula but none of the integral. For μ < 1, a Gauss rule with eight nodes
    computes the integral up to rounding errors.

    Parameters
    ----------
    epsilon : float
        In [0, inf].
    mu : float
        In [0, inf].

    Returns
    -------
    float
        A number in [0, 1]. It is 0 if `mu` is 0 or `epsilon` is infinite, and at least
        1e-300 otherwise.

    Notes
    -----
    **Guarantee.** For all ε ≥ 0 and μ ≥ 0, every μ-GDP mechanism is
    (ε, gdp_delta(ε, μ))-DP (Dong, Roth & Su 2022, Corollary 2.13; for the Gaussian
    mechanism Balle & Wang 2018, Theorem 8). For ε ≤ 1e3, μ ≤ 100 and results above
    1e-300, the result exceeds the exact δ by a relative error of at most 4e-12.
    """
    if not (epsilon >= 0 and mu >= 0):
        check_range(epsilon=epsilon or 1.0, mu=mu)  # ε = 0 is allowed here
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu > _MU_MAX:
        return 1.0
    epsilon, mu = float(epsilon), float(mu)  # numpy's floats would warn of overflow
    h = mu / 2
    t = min(epsilon / mu, h + 40)  # beyond h + 40, δ is far below 1e-300
    density = math.exp(-(t - h) * (t - h) / 2) / math.sqrt(2 * math.pi)
    if mu < 1:
        x = t + h * _NODES
        delta = density * h * float(_WEIGHTS @ (1 - x * _mills(x)))
    else:
        upper = ndtr(h - t) if t < h else density * _mills(t - h)
        delta = float(upper - density * _mills(t + h))
    return min(1.0, max(_DELTA_MIN, delta * (1 + _ROUND_UP + _ROUND_UP_PER_MU * mu)))


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ for which every μ-GDP mechanism is (ε, δ)-DP.

    Parameters
    ----------
    epsilon : float
        In (0, inf].
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The largest μ, rounded down. It is infinite if `epsilon` is infinite, and 0 if
        `delta` is below 1e-300.

    Notes
    -----
    **Guarantee.** For all ε > 0 and δ in (0, 1), every mechanism that is μ-GDP with
    μ ≤ gdp_mu(ε, δ) is (ε, δ)-DP (Dong, Roth & Su 2022, Corollary 2.13), and
    gdp_delta(ε, gdp_mu(ε, δ)) ≤ δ holds in floating point.
    """
    check_range(epsilon=epsilon, delta=delta)
    if epsilon == math.inf:
        return math.inf
    return _find_switch(lambda mu: gdp_delta(epsilon, mu) <= delta)[0]


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε ≥ 0 for which every μ-GDP mechanism is (ε, δ)-DP.

    Parameters
    ----------
    mu : float
        In [0, inf].
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The smallest ε, rounded up. It is 0 if `mu` is 0, and infinite if `mu` is
        infinite or `delta` is below 1e-300.

    Notes
    -----
    **Guarantee.** For all μ ≥ 0 and δ in (0, 1), every μ-GDP mechanism is
    (gdp_epsilon(μ, δ), δ)-DP (Dong, Roth & Su 2022, Corollary 2.13), and
    gdp_delta(gdp_epsilon(μ, δ), μ) ≤ δ holds in floating point.
    """
    check_range(mu=mu, delta=delta)
    if gdp_delta(0.0, mu) <= delta:
        return 0.0
    return _find_switch(lambda epsilon: gdp_delta(epsilon, mu) > delta)[1]


def noise_multiplier(mu: float, n_releases: float) -> float:
    """Return the noise multiplier z = √n/μ at which n Gaussian releases are μ-GDP.

    Parameters
    ----------
    mu : float
        In [0, inf].
    n_releases : float
        Number of releases that share the budget equally. For steps on public sets it is
        the number that one record can take part in (`skdp.privacy.visits`), which may
        be a fraction.

    Returns
    -------
    float
        z, rounded up. It is 0 if `mu` is infinite, and infinite if `mu` is 0.

    Notes
    -----
    **Guarantee.** For all μ > 0 and n ≥ 1, any n Gaussian releases are together μ-GDP
    if the noise of each has a standard deviation of at least noise_multiplier(μ, n)
    times the sensitivity of that release (Dong, Roth & Su 2022, Theorem 2.7 and
    Corollary 3.3). Each release may be chosen knowing the earlier ones. The inequality
    n/z² ≤ μ² holds in floating point.
    """
    check_range(mu=mu, n_releases=n_releases)
    return math.sqrt(n_releases) / float(mu) * (1 + _ULPS) if mu else math.inf


def calibrate(epsilon: float, delta: float, n_draws: int) -> float:
    """Return the largest μ that a run may spend under an (ε, δ) budget.

    The result allows for the slack of a real noise sampler over `n_draws` draws.

    Parameters
    ----------
    epsilon : float
        In (0, inf]. It must exceed the slack 2Dη of D draws.
    delta : float
        In (0, 1).
    n_draws : int
        Largest number D of noise values that the whole run may draw.

    Returns
    -------
    float
        gdp_mu(ε - 2Dη, δ e^{-Dη}), rounded down. It is infinite if `epsilon` is
        infinite.

    Notes
    -----
    **Guarantee.** For all ε > 0, δ in (0, 1) and D, a run is (ε, δ)-DP if its ideal
    version is μ-GDP with μ ≤ calibrate(ε, δ, D), and if it draws at most D values, each
    from a law within factors e^±η of the ideal one (Dong, Roth & Su 2022, Corollary
    2.13, and the sampler slack lemma of this module).
    """
    check_range(epsilon=epsilon, delta=delta, n_draws=n_draws)
    slack = 2 * n_draws * SLACK_PER_DRAW
    left = epsilon * (1 - _ULPS) - slack
    check(
        left > 0,
        f"epsilon must be above {slack:.2g}, the sampler's slack over {n_draws} draws, "
        f"got {epsilon!r}.",
    )
    # δ is lowered by 1e-11, so that spent_epsilon never reports more than epsilon.
    return gdp_mu(left, delta * math.exp(-n_draws * SLACK_PER_DRAW) * (1 - 1e-11))


def spent_epsilon(
    mu: float, delta: float, n_draws: int, extra_delta: float = 0.0
) -> float:
    """Return the smallest ε for which a run that has spent μ is (ε, δ)-DP.

    The result includes the slack of a real noise sampler over `n_draws` draws.

    Parameters
    ----------
    mu : float
        The square root of Σ μᵢ² over all releases, in [0, inf].
    delta : float
        The total δ, in (0, 1).
    n_draws : int
        Number D of noise values drawn.
    extra_delta : float
        The sum of the δ that releases cost in addition to their μ, in [0, δ).

    Returns
    -------
    float
        gdp_epsilon(μ, δ e^{-Dη} - extra_delta) + 2Dη, rounded up.

    Notes
    -----
    **Guarantee.** For all μ ≥ 0, δ in (0, 1) and D, a run is (spent_epsilon(...), δ)-DP
    if its ideal version is (ε', gdp_delta(ε', μ) + extra_delta)-DP for all ε' ≥ 0, and
    if it draws at most D values, each from a law within factors e^±η of the ideal one
    (Dong, Roth & Su 2022, Corollary 2.13, and the sampler slack lemma of this module).
    The factor e^{Dη} of the lemma also multiplies `extra_delta`.
    """
    check_range(mu=mu, delta=delta, n_draws=n_draws)
    left = delta * math.exp(-n_draws * SLACK_PER_DRAW) * (1 - _ULPS) - extra_delta
    check_range(delta=left if extra_delta >= 0 else math.nan)
    return (gdp_epsilon(mu, left) + 2 * n_draws * SLACK_PER_DRAW) * (1 + 2**-52)
