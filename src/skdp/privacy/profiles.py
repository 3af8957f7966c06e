r"""Bound the privacy profiles of mechanisms that are not Gaussian by profiles of μ-GDP.

The privacy profile of a mechanism is its smallest δ as a function of ε. A mechanism is
μ-GDP if its δ(ε) stays below the δ(ε) of μ-GDP for *all* ε ≥ 0, with the two tables in
either order (Dong, Roth, Su 2022, Proposition 2.12). It may then be charged μ² and
composed with any other release. This is stronger than being (ε, δ)-private at one ε.

**Objective perturbation** of a generalised linear model. Let w minimise
Σᵢ ℓᵢ(xᵢ·w) + ½ wᵀQw + b·w with b ~ N(0, σ²I), and let one table have one more record
(x, ℓ) than the other. Orthogonally to x, the condition for a minimum does not contain
the record, so the part of b orthogonal to x is the same function of w for both tables.
Given that part, w lies on a curve along which x·w increases. Let t be the coordinate on
this curve that is standard normal for the table without the record. For the table with
the record, t + s(t) is standard normal, with

    s = ℓ'(x·w) ‖x‖ / σ,   0 ≤ s ≤ μ := sup|ℓ'| ‖x‖/σ   (or -s, or both signs),
    0 ≤ s'(t) ≤ κ := sup ℓ'' · xᵀQ⁻¹x .

**Theorem.** For slopes of one sign (logistic, hinge) and all ε ≥ 0, with φ the normal
density,

.. math:: δ(ε) ≤ P(ε) = \frac1κ ∫_0^μ \max_t [(1+κ) φ(t+s) - e^ε φ(t)] ds

and for slopes of both signs δ(ε) ≤ 2P(ε).

*Proof.* Let the table with the record come first. Then δ(ε) is the integral of
[φ(t+s)(1+s') - e^ε φ(t)]₊ over t. Let F(s)/κ be the integrand of P, G(t, s) =
∫_t^∞ [φ(u+s) - e^ε φ(u)]₊ du and V = ∫_s^μ F/κ + G. Along every path, -dV/dt =
-V_t - s'V_s is at least the integrand of δ(ε). The derivative is linear in s' and the
integrand is convex in s', so it is enough to check two values of s'. One is s' = 0,
where V_t = -[φ(t+s) - e^ε φ(t)]₊. The other is s' = κ. For s' = κ, let e^ε φ(t*) =
φ(t*+s) and D(s) = ∫_{-∞}^{t*} [φ(u+s) - e^ε φ(u)] du, which has the derivative φ(t*+s).
For t ≥ t*, G = 0 and κV_s = -F ≤ -[(1+κ)φ(t+s) - e^ε φ(t)]. For t < t*, G_s = D' -
φ(t+s), so V_t + κV_s = e^ε φ(t) - φ(t+s)(1+κ) - F + κD'. Here F ≥ κD', because the
maximum F is at least the value at t*, which is κφ(t*+s). So δ(ε) ≤ V(-∞, s(-∞)),
and V(-∞, s) = ∫_s^μ F/κ + D(s) decreases in s from its value P(ε) at s = 0. If the
table with the record comes second, the ratio of densities is at most that of N(0, 1) to
N(s, 1) with 0 ≤ s ≤ μ. Then δ(ε) is at most the δ of μ-GDP, which is V with κ = 0 and
less than P. A slope of both signs is first negative, then positive. Its negative part,
mirrored, is a path as above. So is its positive part, and each of the two integrals is
at most P. ∎

The theorem also holds with any κ' ≥ κ in place of κ in P. In the limit κ' → ∞, P = μ
φ(0) for all ε ≥ 0. A simpler bound considers each t separately. For slopes of one sign
it is δ(ε) ≤ δ_GDP(ε - log(1+κ); μ) for ε ≥ log(1+κ). For slopes of both signs, the
simpler bound is about twice as large. Redberg, Koskela, Wang (2023, arXiv 2401.00583)
use this larger bound for all slopes, with |log(1-κ)| in place of log(1+κ).
`printed_delta` computes their bound.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import ndtri

from skdp.privacy.accountant import gdp_delta
from skdp.schema import FloatArray

# The nodes s/μ = y²(3 - 2y) are dense at both ends, where integrands change fastest.
_ROOTS, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_ROOTS = (_ROOTS + 1) / 2
_NODES, _WEIGHTS = _ROOTS**2 * (3 - 2 * _ROOTS), 3 * _WEIGHTS * _ROOTS * (1 - _ROOTS)
#: Relative margin for the errors of quadrature and of root finding.
_MARGIN = 1.0 + 1e-6
#: Spacing, in units of μ, of the ε at which two curves are compared.
_SPACING = 0.02


def _peaks(s: FloatArray, epsilon: FloatArray, kappa: float) -> FloatArray:
    """Return max_t (1+κ) φ(t+s) - e^ε φ(t), rounded up.

    The maximum is at t = -(v+s), where v solves (1+κ) v φ(v) = e^ε (v+s) φ(v+s). Its
    value is (1+κ) φ(v) s/(v+s). Bisection finds v and rounds it down, which rounds the
    value up.
    """
    excess = math.log1p(kappa) - epsilon + s * s / 2
    low, high = np.full(excess.shape, -80.0), np.full(excess.shape, 10.0)
    for _ in range(42):
        middle = (low + high) / 2
        v = np.exp(middle)
        above = np.log1p(s / v) > excess + v * s
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    v = np.exp(low)
    density = np.exp(-v * v / 2) / math.sqrt(2 * math.pi)
    return np.asarray((1 + kappa) * density * s / (v + s))


def objective_delta(
    epsilon: FloatArray, mu: float, kappa: float, signs: int
) -> FloatArray:
    """Bound δ(ε) of objective perturbation by this module's theorem.

    Parameters
    ----------
    epsilon : float64 (m,)
        The values of ε, each at least 0.
    mu : float
        The bound on a record's gradient, divided by the noise's standard deviation.
    kappa : float
        The bound on a record's curvature, divided by the quadratic term's curvature.
    signs : {1, 2}
        1 if a record's slope keeps its sign at all margins, 2 if its sign may change.

    Notes
    -----
    **Guarantee.** For all pairs of tables where one has one more record than the
    other, and all ε, exact objective perturbation is (ε, objective_delta(ε))-private,
    with the two tables in either order.
    """
    shift = math.log1p(kappa)
    bound = np.full(len(epsilon), mu / math.sqrt(2 * math.pi))
    s = mu * _NODES
    for larger in np.unique(kappa * np.geomspace(1.0, max(1.0, 8 * mu / kappa), 6)):
        peaks = _peaks(s[None, :], epsilon[:, None], float(larger))
        bound = np.minimum(bound, peaks @ _WEIGHTS * (mu / larger))
    pointwise = [_pointwise(e - shift, mu, signs) for e in epsilon.tolist()]
    return np.minimum(pointwise, signs * bound * _MARGIN)


def _pointwise(epsilon: float, mu: float, signs: int) -> float:
    """Return the δ(ε) that follows from an upper bound on the privacy loss.

    Let g be standard normal. The loss is at most [μg + μ²/2]₊ for slopes of one sign,
    and at most μ|g| + μ²/2 for slopes of both signs.
    """
    knee = 0.0 if signs == 1 else mu * mu / 2
    if epsilon >= knee:
        return min(1.0, signs * gdp_delta(epsilon, mu))
    share = math.exp(epsilon - knee)
    return 1.0 - share + share * signs * gdp_delta(knee, mu)


def printed_delta(epsilon: float, mu: float, kappa: float) -> float:
    """Return δ(ε) as Theorem 3.1 of Redberg, Koskela and Wang (2023) states it.

    That theorem requires κ < 1. For larger κ the result is 1.
    """
    return 1.0 if kappa >= 1 else _pointwise(epsilon + math.log1p(-kappa), mu, 2)


def is_dominated(mu: float, target: float, kappa: float, signs: int) -> bool:
    """Return whether δ(ε) of objective perturbation stays below `target`-GDP.

    Both curves decrease in ε, so it is enough to compare them on a grid. At each ε of
    the grid, the bound for objective perturbation must be at most the target's δ at the
    next ε. Beyond the last ε of the grid, `_stays_below` decides.
    """
    if signs * mu > target:
        return False
    ratio, epsilon, above = 0.0, [0.0], [gdp_delta(0.0, target)]
    while not _stays_below(epsilon[-1], mu, target, kappa, signs):
        ratio += _SPACING * max(1.0, ratio / 3)
        epsilon.append(ratio * target)
        above.append(gdp_delta(epsilon[-1], target))
        if above[-1] < 1e-250:
            return False
    below = objective_delta(np.array(epsilon[:-1]), mu, kappa, signs)
    return bool((below <= np.array(above[1:])).all())


def _stays_below(
    epsilon: float, mu: float, target: float, kappa: float, signs: int
) -> bool:
    """Return whether the pointwise bound stays below `target`-GDP from `epsilon` on.

    Both curves tend to 0, so it is enough that the target's curve falls faster. As
    functions of e^ε, the target's curve has the derivative -Φ(-a'), and the bound has
    the derivative -signs Φ(-a) e^{-c}, with a' = ε/target + target/2, a = (ε-c)/μ + μ/2
    and c = log(1+κ). If a = a' + x with x ≥ 0 and a'x + x²/2 ≥ log(signs), then
    signs Φ(-a) ≤ signs exp(-a'x - x²/2) Φ(-a') ≤ Φ(-a'). Both x and a' grow with ε, so
    the condition holds for all larger ε as well. For slopes of both signs, the bound
    has this formula where ε - c ≥ μ²/2, which follows from x ≥ 0 if target ≥ 2μ. For
    slopes of one sign, it has this formula where ε ≥ c.
    """
    needed = epsilon / target + target / 2
    spare = (epsilon - math.log1p(kappa)) / mu + mu / 2 - needed
    return spare >= 0 and (needed + spare / 2) * spare >= math.log(signs)


@cache
def objective_mu(target: float, kappa: float, signs: int) -> float:
    """Return the largest μ at which objective perturbation is `target`-GDP.

    Here μ is the bound on a record's gradient divided by the noise's standard
    deviation. The result is rounded down, by at most .003 of `target`. It is 0 if no
    amount of noise is enough.

    Parameters
    ----------
    target : float
        The budget, as the μ of a GDP guarantee.
    kappa : float
        The bound on a record's curvature, divided by the quadratic term's curvature.
    signs : {1, 2}
        1 if a record's slope keeps its sign at all margins, 2 if its sign may change.

    Notes
    -----
    **Guarantee.** For all pairs of tables where one has one more record than the
    other, exact objective perturbation is `target`-GDP if the standard deviation of the
    noise is at least 1/objective_mu times the bound on a record's gradient.
    """
    low, high = 0.0, 0.998
    while high - low > 0.003:
        middle = (low + high) / 2
        fits = is_dominated(middle * target, target, kappa, signs)
        low, high = (middle, high) if fits else (low, middle)
    return low * target


def objective_cost(mu: float, kappa: float, signs: int, most: float) -> float:
    """Return the smallest target at which objective perturbation with μ is target-GDP.

    Here μ is the bound on a record's gradient divided by the noise's standard
    deviation. The result is rounded up, by a factor of at most 1.003. The caller
    guarantees that objective perturbation is `most`-GDP.
    """
    low, high = mu, most
    while high / low > 1.003:
        middle = math.sqrt(low * high)
        fits = is_dominated(mu, middle, kappa, signs)
        low, high = (low, middle) if fits else (middle, high)
    return high


def bounded_range_mu(width: float) -> float:
    """Return μ of mechanisms whose privacy loss stays in an interval of length `width`.

    Such a mechanism reveals at most as much about two tables as some coin whose two
    faces have the privacy losses t and t - width, for some t in [0, width] (Dong,
    Durfee, Rogers 2020). Let p < p' be the probabilities of heads for the two tables.
    The trade-off curve of the coin has one corner, which lies above the curve of μ-GDP
    if μ ≥ Φ⁻¹(p') - Φ⁻¹(p). The right-hand side is largest at t = width/2, where
    p + p' = 1. This gives

        μ = 2 Φ⁻¹(1 / (1 + exp(-width/2)))

    Notes
    -----
    **Guarantee.** For every mechanism whose privacy loss stays in an interval of length
    `width`, the mechanism is bounded_range_mu(width)-GDP. An example is the exponential
    mechanism, if its exponents differ by at most width/2 between neighbouring tables.
    """
    return float(2 * ndtri(1 / (1 + math.exp(-width / 2)))) * (1 + 2.0**-40)


def bounded_range_width(mu: float) -> float:
    """Return the largest width whose `bounded_range_mu` is at most `mu`."""
    low, high = 0.0, 1.0
    while bounded_range_mu(high) <= mu and high < 64:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        fits = bounded_range_mu(middle) <= mu
        low, high = (middle, high) if fits else (low, middle)
    return low
