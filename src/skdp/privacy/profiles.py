r"""Privacy profiles of mechanisms that are not Gaussian, and the μ that covers them.

A mechanism whose δ(ε) stays below that of μ-GDP for *all* ε ≥ 0 and in both directions
is μ-GDP (Dong, Roth, Su 2022, Proposition 2.12), so it may be charged μ² and composed
with anything. This is stronger than being (ε, δ)-private at one point.

**Objective perturbation** of a generalised linear model. Let w minimise
Σᵢ ℓᵢ(xᵢ·w) + ½ wᵀQw + b·w with b ~ N(0, σ²I), and let one table have one more record
(x, ℓ) than the other. The condition for a minimum, orthogonally to x, does not contain
the record, so the part of b orthogonal to x is the same function of w for both
tables. Given it, w runs along a curve on which x·w increases; written as t, standard
normal for the table without the record, the other table's t has t + s(t) standard
normal with

    s = ℓ'(x·w) ‖x‖ / σ,   0 ≤ s ≤ μ := sup|ℓ'| ‖x‖/σ   (or -s, or both signs),
    0 ≤ s'(t) ≤ κ := sup ℓ'' · xᵀQ⁻¹x .

**Theorem.** For slopes of one sign (logistic, hinge) and all ε ≥ 0, with φ the normal
density,

.. math:: δ(ε) ≤ P(ε) = \frac1κ ∫_0^μ \max_t [(1+κ) φ(t+s) - e^ε φ(t)] ds

and for slopes of both signs δ(ε) ≤ 2P(ε).

*Proof.* With the record first, δ(ε) = ∫ [φ(t+s)(1+s') - e^ε φ(t)]₊ dt. Let F(s)/κ be
the integrand of P, G(t, s) = ∫_t^∞ [φ(u+s) - e^ε φ(u)]₊ du and V = ∫_s^μ F/κ + G. Along
every path -dV/dt = -V_t - s'V_s is at least the integrand: that is convex in s' in [0,
κ], so s' = 0 (where V_t = -[φ(t+s) - e^ε φ(t)]₊) and s' = κ are enough. In the latter
case, let e^ε φ(t*) = φ(t*+s) and D(s) = ∫_{-∞}^{t*} [...] du, whose derivative is
φ(t*+s). For t ≥ t*, G = 0 and κV_s = -F ≤ -[(1+κ)φ(t+s) - e^ε φ(t)]. For t < t*, G_s =
D' - φ(t+s), so V_t + κV_s = e^ε φ(t) - φ(t+s)(1+κ) - F + κD', and F ≥ κD' because F is
at least its value at t*, κφ(t*+s). So δ(ε) ≤ V(-∞, s(-∞)), and V(-∞, s) = ∫_s^μ F/κ +
D(s) falls with s, from P(ε). With the record second, the ratio of densities is at most
that of N(0, 1) to N(s, 1), 0 ≤ s ≤ μ, and δ(ε) is at most that of μ-GDP, which is V
with κ = 0 and less than P. A slope of both signs is first negative, then positive;
mirrored, its first part is a path as above: the two integrals are at most P each. ∎

Any κ' ≥ κ may be put in P, also κ' → ∞, where P = μ φ(0) for all ε ≥ 0. Pointwise, the
integrand gives δ(ε) ≤ δ_GDP(ε - log(1+κ); μ) for ε ≥ log(1+κ), about twice that for
both signs. Redberg, Koskela, Wang (2023, arXiv 2401.00583) print the latter for all
slopes, and |log(1-κ)| for log(1+κ): `printed_delta`.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import ndtri

from skdp.privacy.accountant import gdp_delta
from skdp.schema import FloatArray

# Nodes s/μ = y²(3 - 2y) are dense at both ends, where integrands grow most.
_ROOTS, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_ROOTS = (_ROOTS + 1) / 2
_NODES, _WEIGHTS = _ROOTS**2 * (3 - 2 * _ROOTS), 3 * _WEIGHTS * _ROOTS * (1 - _ROOTS)
#: Relative margin for errors of the quadrature and the roots.
_MARGIN = 1.0 + 1e-6
#: Spacing, in units of μ, of the ε at which two curves are compared.
_SPACING = 0.02


def _peaks(s: FloatArray, epsilon: FloatArray, kappa: float) -> FloatArray:
    """Return max_t (1+κ) φ(t+s) - e^ε φ(t).

    The maximum is at t = -(v+s) with (1+κ) v φ(v) = e^ε (v+s) φ(v+s), where it is
    (1+κ) φ(v) s/(v+s); v is found by bisection and rounded down, which rounds that up.
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
    """Bound δ(ε) of objective perturbation by the theorem of this module.

    Parameters
    ----------
    epsilon : float64 (m,)
        At least 0.
    mu : float
        Bound on a record's gradient over the noise's standard deviation.
    kappa : float
        Bound on a record's curvature over that of the quadratic term.
    signs : {1, 2}
        Whether a record's slope keeps its sign.

    Notes
    -----
    **Guarantee.** For all tables of which one has a record more than the other, and all
    ε, exact objective perturbation is (ε, objective_delta(ε))-private in both
    directions.
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
    """Return δ(ε) of losses up to [μg + μ²/2]₊ (one sign) or μ|g| + μ²/2, g normal."""
    knee = 0.0 if signs == 1 else mu * mu / 2
    if epsilon >= knee:
        return min(1.0, signs * gdp_delta(epsilon, mu))
    share = math.exp(epsilon - knee)
    return 1.0 - share + share * signs * gdp_delta(knee, mu)


def printed_delta(epsilon: float, mu: float, kappa: float) -> float:
    """Return δ(ε) of Redberg, Koskela and Wang (2023), Theorem 3.1; 1 if κ ≥ 1."""
    return 1.0 if kappa >= 1 else _pointwise(epsilon + math.log1p(-kappa), mu, 2)


def is_dominated(mu: float, target: float, kappa: float, signs: int) -> bool:
    """Return whether objective perturbation's curve stays below that of `target`-GDP.

    δ(ε) falls, so between two ε it is at most its value at the first, which is compared
    with the target's at the second. Beyond the last ε, `_stays_below` decides.
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

    Both end at 0, so it is enough that the target's falls faster. In e^ε its
    derivative is -Φ(-a') and the bound's -signs Φ(-a) e^{-c}, with a' = ε/target +
    target/2, a = (ε-c)/μ + μ/2, c = log(1+κ). If a = a' + x with x ≥ 0 and a'x + x²/2 ≥
    log(signs), then signs Φ(-a) ≤ signs exp(-a'x - x²/2) Φ(-a') ≤ Φ(-a'); x and a' grow
    with ε. (The bound has this form where ε - c ≥ μ²/2, which x ≥ 0 implies if
    target ≥ 2μ; for one sign, where ε ≥ c.)
    """
    needed = epsilon / target + target / 2
    spare = (epsilon - math.log1p(kappa)) / mu + mu / 2 - needed
    return spare >= 0 and (needed + spare / 2) * spare >= math.log(signs)


@cache
def objective_mu(target: float, kappa: float, signs: int) -> float:
    """Return the largest μ (to .003 of it) with objective perturbation `target`-GDP.

    Parameters
    ----------
    target : float
        The budget, a μ.
    kappa : float
        Bound on a record's curvature over that of the quadratic term.
    signs : {1, 2}
        Whether a record's slope keeps its sign.

    Notes
    -----
    **Guarantee.** For all tables of which one has a record more than the other, exact
    objective perturbation with noise of standard deviation at least 1/objective_mu
    times the bound on a record's gradient is `target`-GDP; 0 if no noise is enough.
    """
    low, high = 0.0, 0.998
    while high - low > 0.003:
        middle = (low + high) / 2
        fits = is_dominated(middle * target, target, kappa, signs)
        low, high = (middle, high) if fits else (low, middle)
    return low * target


def objective_cost(mu: float, kappa: float, signs: int, most: float) -> float:
    """Return the smallest target (to .003 of it) above objective perturbation at μ.

    `most` is an upper bound on it.
    """
    low, high = mu, most
    while high / low > 1.003:
        middle = math.sqrt(low * high)
        fits = is_dominated(mu, middle, kappa, signs)
        low, high = (low, middle) if fits else (middle, high)
    return high


def bounded_range_mu(width: float) -> float:
    """Return the μ of a mechanism whose privacy loss has a range of length `width`.

    Every such mechanism is at most as revealing, between two tables, as one of the
    pairs of coins with losses t and t - width, 0 ≤ t ≤ width (Dong, Durfee, Rogers
    2020). A coin's curve has one corner, which is above that of GDP if
    μ ≥ Φ⁻¹(p') - Φ⁻¹(p) for its two probabilities p < p' of heads. The largest is at
    t = width/2, where p + p' = 1:

        μ = 2 Φ⁻¹(1 / (1 + exp(-width/2)))

    Notes
    -----
    **Guarantee.** For every mechanism of this range, such as the exponential mechanism
    with exponents that differ by at most width/2 between neighbours, it is
    bounded_range_mu(width)-GDP.
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
