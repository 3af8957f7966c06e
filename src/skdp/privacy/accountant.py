r"""Exact Gaussian-DP accounting: budgets, noise multipliers and their conversions.

A mechanism is *μ-GDP* if telling two neighbouring tables apart from its output is
at least as hard as telling N(0, 1) from N(μ, 1) [1]_. A Gaussian release with noise
of standard deviation z times the sensitivity is exactly (1/z)-GDP, adaptive
compositions obey μ² = Σ μᵢ², and μ-GDP is the same as (ε, δ(ε))-DP for all ε with

.. math:: δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2)

[1]_, [2]_. Every function here errs on the safe side: in real numbers no returned ε,
δ or noise multiplier is below the true one, and no μ for a budget above it. Only
`pure_mu`, which says what was spent, rounds μ up.

**Sampler slack.** A noise sampler on a real machine draws each value from a law
whose cell probabilities are within factors e^±η of the ideal ones, η =
`SLACK_PER_DRAW`. Let P, Q be the ideal output laws on two neighbouring tables and
P', Q' the real ones, after at most D draws, each of which may depend on the earlier
ones.

1. Laws of outputs are sums of products of at most D conditional cell probabilities,
   so e^{-Dη} P(E) ≤ P'(E) ≤ e^{Dη} P(E) for every event E; likewise Q and Q'.
2. If P(E) ≤ e^ε Q(E) + δ, then P'(E) ≤ e^{Dη} P(E) ≤ e^{Dη} (e^ε Q(E) + δ)
   ≤ e^{Dη} (e^{ε+Dη} Q'(E) + δ) = e^{ε+2Dη} Q'(E) + e^{Dη} δ.
3. So an ideal (ε, δ) becomes a real (ε + 2Dη, e^{Dη} δ). ∎

References
----------
.. [1] J. Dong, A. Roth, W. J. Su, "Gaussian differential privacy", JRSS B 84 (2022).
.. [2] B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential
   privacy: analytical calibration and optimal denoising", ICML 2018.
.. [3] A. Maranjyan, A. Sadiev, P. Richtárik, "Differentially private random block
   coordinate descent", AISTATS 2025.
.. [4] I. Mironov, "Rényi differential privacy", CSF 2017.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.special import erfcx, erfinv, ndtr, ndtri_exp

__all__ = [
    "SLACK_PER_DRAW",
    "calibrate",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "noise_multiplier",
    "paper_noise_multiplier",
    "pure_mu",
    "spent_epsilon",
]

SLACK_PER_DRAW = 2.0**-50
"""Bound η on |log(real / ideal cell probability)| of one draw of the sampler."""

# gdp_delta is within 4e-13 (+ 5e-15 μ, from ε/μ - μ/2) of the truth; it is raised by:
_ROUND_UP, _ROUND_UP_PER_MU = 2e-12, 1e-14
_MU_MAX = 1e9  # beyond it double precision cannot tell δ from 1
_DELTA_MIN = 1e-300  # below it φ(a) is subnormal; reported instead of anything smaller
_ULPS = 2.0**-50  # four units in the last place: covers two or three roundings
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)

_Real = TypeVar("_Real", float, np.ndarray)


def _check(function: str, name: str, value: float, valid: bool, rule: str) -> None:
    """Refuse a public argument; rules are written so that nan makes them false."""
    if not valid:
        must_be, remedy = rule.split("; ")
        raise ValueError(
            f"The {name!r} parameter of {function} must be {must_be}. "
            f"Got {value!r} instead; {remedy}."
        )


def _check_budget(function: str, epsilon: float, delta: float) -> None:
    rule = "greater than 0; choose, say, 1.0, or inf for no privacy"
    _check(function, "epsilon", epsilon, epsilon > 0, rule)
    rule = "in (0, 1), ends excluded; choose it well below one over the number of rows"
    _check(function, "delta", delta, 0 < delta < 1, rule)


def _check_mu(function: str, mu: float, valid: bool, rule: str) -> None:
    _check(function, "mu", mu, valid, f"{rule}; gdp_mu finds it from epsilon and delta")


def _check_count(function: str, name: str, count: int, least: int) -> None:
    valid = isinstance(count, int | np.integer) and least <= count <= 2**53
    rule = f"an integer in [{least}, 2**53]; count every one the run may make"
    _check(function, name, count, valid and not isinstance(count, bool), rule)


def _mills(x: _Real) -> _Real:
    """Mills ratio (1 - Φ(x)) / φ(x)."""
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))  # type: ignore[no-any-return]


def _switch(before: Callable[[float], bool]) -> tuple[float, float]:
    """Adjacent floats lo, hi in [0, inf] with ``before(lo)`` and not ``before(hi)``."""
    lo, hi = 0.0, 1.0
    while before(hi):
        lo, hi = hi, 2 * hi
    while lo < (middle := lo + (hi - lo) / 2) < hi:
        lo, hi = (middle, hi) if before(middle) else (lo, middle)
    return lo, hi
