r"""Compute the privacy cost of Poisson batches numerically, rounded up.

A step draws each record with probability q and adds up the drawn records. It releases
the sum with Gaussian noise whose standard deviation is z times the bound on one record.
If a record is added, removed or zeroed out, the worst pair of laws is

    P = (1 - q) N(0, z²) + q N(1, z²)   against   Q = N(0, z²)

in either order (Zhu, Dong, Wang 2022, Theorem 11). For T steps, each of which may
depend on the earlier ones, the worst pair is the T-fold product of this pair, for each
order separately.

**Discretisation.** The privacy losses log P/Q are rounded to a grid. The mass of each
grid interval is moved to its two ends such that both its mass under P and its mass
under Q are kept ("connect the dots", Doroshenko et al. 2022). The δ(ε) of the result
consists of chords of a convex function, so it is never below the true δ(ε). Losses
above the grid count as infinite. The T-fold convolution is computed by a Fourier
transform on a circle. The mass that may leave the circle at the top is bounded by
Chernoff's inequality and counts as infinite too. Mass that leaves the circle at the
bottom reappears at the top, which only raises δ. Every δ is raised by
`rounding_allowance` to cover rounding in the transform. Comparisons with exact
convolutions show that much less would be enough.

**Charge.** The privacy record charges a run of such steps as a pair (μ, δ₀). Suppose
δ(ε) ≤ δ_GDP(ε; μ) + δ₀ for all ε ≥ 0 and both orders of the tables. Then
P(E) ≤ F(Q(E)) + δ₀ for every event E, with F(x) = Φ(Φ⁻¹(x) + μ). (This also uses δ at
-ε < 0, which is 1 - e^{-ε}(1 - δ'(ε)), where δ' belongs to the other order.) F(Q(·)) is
a 2-alternating capacity because F is concave, so some P' within δ₀ of P in total
variation has P'(E) ≤ F(Q(E)) for every E (Huber, Strassen 1973). So the steps are
μ-GDP except with probability δ₀. Such charges add up as Σμ² and Σδ₀ under adaptive
composition.

**Replacement** is a removal followed by an addition. So P(E) ≤ F(F(Q(E)) + δ₀) + δ₀,
which is at most F(F(Q(E))) + F(δ₀) + δ₀ because F is concave and F(0) = 0. A
replacement therefore costs (2μ, δ₀ + F(δ₀)). If every batch is the whole table, a
direct calculation gives the same cost, because a replacement doubles the sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.signal import lfilter
from scipy.special import log_ndtr, ndtr, ndtri

from skdp.privacy.queries import Neighbours
from skdp.schema import FloatArray, check

#: Number of grid points per standard deviation of a step's loss, and the largest total
#: number of grid points.
FINENESS, MOST_POINTS = 50.0, 1 << 19
#: Desired probability that the sum of losses leaves the grid of the Fourier transform,
#: and the number of grid points at which two curves are compared.
TAIL, COMPARED = 1e-14, 3000
#: Relative allowance for rounding errors of `gdp_deltas`.
_ROOM = 1e-7


@dataclass(frozen=True, eq=False)
class PrivacyProfile:
    """An upper bound on δ(ε), on an increasing grid `epsilons` that starts at 0."""

    epsilons: FloatArray
    deltas: FloatArray

    def delta(self, epsilon: float) -> float:
        """Return the bound on δ at any ε ≥ 0, from the nearest grid point below ε."""
        at = int(np.searchsorted(self.epsilons, epsilon, side="right")) - 1
        return float(self.deltas[at])

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε of the grid whose bound is at most δ, or infinity."""
        at = np.flatnonzero(self.deltas <= delta)
        return float(self.epsilons[at[0]]) if len(at) else math.inf

    def is_below(self, mu: float, delta: float) -> bool:
        """Return whether δ(ε) ≤ δ_GDP(ε; μ) + δ for all ε ≥ 0.

        Both sides decrease in ε, so the left side at each grid point is compared with
        the right side at the next grid point.
        """
        end = int(np.argmax(self.deltas <= delta)) if self.deltas[-1] <= delta else -1
        if end < 0:
            return False
        at = np.unique(np.linspace(0, end, COMPARED).astype(np.intp))
        gaussian = gdp_deltas(self.epsilons[at[1:]], mu) * (1.0 - _ROOM)
        return bool(np.all(self.deltas[at[:-1]] <= gaussian + delta))


def gdp_deltas(epsilons: FloatArray, mu: float) -> FloatArray:
    """Return δ_GDP(ε; μ) for many ε at once.

    The relative error is a few parts in 10⁹ for μ > 10⁻⁴.
    """
    low = log_ndtr(-epsilons / mu - mu / 2) + epsilons
    return np.asarray(ndtr(-epsilons / mu + mu / 2) - np.exp(low))


def compute_profile(
    noise_multiplier: float, rate: float, n_steps: int
) -> PrivacyProfile:
    """Bound δ(ε) of T Poisson steps, for both adding and removing a record.

    Parameters
    ----------
    noise_multiplier : float
        The noise's standard deviation z, divided by the bound on one record.
    rate : float
        The probability q in (0, 1) that a step draws a given record.
    n_steps : int
        The number of steps T.

    Notes
    -----
    **Guarantee.** For all pairs of tables that differ by one record, T steps are
    together (ε, δ(ε))-DP for every ε ≥ 0. Each step may be chosen knowing the results
    of the earlier ones.
    """
    check(0 < rate < 1, f"rate must be in (0, 1), got {rate}.")
    check(
        noise_multiplier > 0,
        f"noise_multiplier must be positive, got {noise_multiplier}.",
    )
    spread = _spread(noise_multiplier, rate)
    reach = _reach(noise_multiplier, rate, n_steps)
    step = max(spread / FINENESS, 2 * reach / MOST_POINTS)
    half = 1 << math.ceil(math.log2(reach / step))
    masses = _masses(noise_multiplier, rate, step, half)
    both = [_compose(*mass, step, n_steps) for mass in masses]
    return PrivacyProfile(np.arange(float(half)) * step, np.maximum(*both))


def _spread(z: float, q: float) -> float:
    """Return the scale q √(e^{1/z²} - 1) of one step's loss.

    Here z is the noise multiplier, and q is the probability that a step draws a record.
    For small z, 1/z² is limited to 2.
    """
    return q * math.sqrt(math.expm1(min(1.0 / z**2, 2.0)))


def _largest(z: float, q: float) -> float:
    """Return the loss of a step whose noise is 9 standard deviations above its mean."""
    inside = (9.0 * z + 0.5) / z**2
    return float(np.logaddexp(math.log1p(-q), math.log(q) + inside))


def _reach(z: float, q: float, n_steps: int) -> float:
    """Return the half-width of the grid for the sum of `n_steps` losses."""
    x = np.linspace(-10.0, 10.0, 4001)
    density = np.exp(-(x**2) / 2)
    density /= density.sum()
    shifted = np.array([x * z, x * z + 1.0])
    loss = np.logaddexp(math.log1p(-q), math.log(q) + (shifted - 0.5) / z**2)
    weights = np.array([(1 - q) * density, q * density])

    def bound(order: float) -> float:
        log_moment = math.log(float((weights * np.exp(order * loss)).sum()))
        return (n_steps * log_moment - math.log(TAIL)) / order

    top = 600.0 / max(float(loss.max()), 1e-9)
    best = minimize_scalar(
        lambda u: bound(math.exp(u)),
        bounds=(math.log(1e-3), math.log(min(top, 1e6))),
        method="bounded",
    )
    return max(1.1 * float(best.fun), 1.1 * _largest(z, q), 1e-6)


Masses = tuple[FloatArray, float]


def _masses(z: float, q: float, step: float, half: int) -> tuple[Masses, Masses]:
    """Return the probability of each loss on the grid, and of an infinite loss.

    The losses on the grid are k·step for k = -half..half-1. P and Q are the laws of a
    step's result on the tables with and without the record. The first result is for
    removing a record (losses log P/Q under P), and the second is for adding a record
    (losses log Q/P under Q).
    """
    edges = np.arange(-half, half) * step
    inside = np.expm1(edges) + q  # e^ε - (1 - q), positive where a loss of ε can occur
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = z * (np.log(np.maximum(inside, 0.0)) - math.log(q)) + 0.5 / z
    cut = np.where(inside > 0, cut, -np.inf)  # in units of z
    under_q = _between(cut)
    under_p = (1 - q) * under_q + q * _between(cut - 1.0 / z)
    # One interval lies below the grid and one above. The losses of the interval below
    # are raised to the lower end of the grid.
    below_q = float(ndtr(cut[0]))
    below_p = (1 - q) * below_q + q * float(ndtr(cut[0] - 1.0 / z))
    above_q = float(ndtr(-cut[-1]))
    above_p = (1 - q) * above_q + q * float(ndtr(1.0 / z - cut[-1]))
    # `share` is the part of each interval's mass under Q that moves to the upper end.
    # It is chosen to keep the mass under P as well.
    ratio = np.divide(under_p, under_q, out=np.exp(edges[1:]), where=under_q > 0)
    share = np.clip((ratio * np.exp(-edges[:-1]) - 1) / math.expm1(step), 0.0, 1.0)
    up_p = np.clip(share * under_q * np.exp(edges[1:]), 0.0, under_p)
    up_p = np.where(under_q > 0, up_p, under_p)
    removing = np.zeros(2 * half)
    removing[1:] += up_p
    removing[:-1] += under_p - up_p
    removing[0] += below_p
    adding = np.zeros(2 * half)
    adding[1:] += share * under_q
    adding[:-1] += (1 - share) * under_q
    adding[-1] += above_q  # moves down to the grid's upper end, which raises log Q/P
    # Adding a record changes the sign of losses: -half..half-1 becomes half..1-half. So
    # the array is reversed and shifted by one place.
    turned = np.concatenate([[0.0], adding[::-1][:-1]])
    lost = float(adding[0]) + below_q
    return (removing, above_p), (turned, lost)


def _between(cut: FloatArray) -> FloatArray:
    """Return the normal probability between adjacent cuts.

    It is computed from the smaller of the two tails, which avoids cancellation.
    """
    low, high = cut[:-1], cut[1:]
    upper = ndtr(-low) - ndtr(-high)
    lower = ndtr(high) - ndtr(low)
    return np.asarray(np.maximum(np.where(low > 0, upper, lower), 0.0))


def _compose(
    mass: FloatArray, infinite: float, step: float, n_steps: int
) -> FloatArray:
    """Return δ at ε = 0, step, 2·step, … for the sum of T independent losses."""
    size, half = len(mass), len(mass) // 2
    circle = np.fft.rfft(np.roll(mass, -half))
    whole = np.roll(np.fft.irfft(circle**n_steps, size), half)
    leaving = _bound_tail(mass, step, n_steps, (half - 1) * step)
    backwards = np.maximum(whole[half:], 0.0)[::-1]
    tail = np.cumsum(backwards)
    # Compute Σ_{j≥i} p_j e^{(i-j)·step} by a recursion that cannot overflow.
    discounted = np.asarray(lfilter([1.0], [1.0, -math.exp(-step)], backwards))
    delta = np.maximum(tail - discounted, 0.0) + size * 2.0**-52 * tail
    # The loss of any of the steps may be infinite. As `_reach` chooses the grid, the
    # probability is below 10⁻¹⁸ per step and changes no result, but this function is
    # right for every grid.
    extra = n_steps * infinite + leaving + rounding_allowance(n_steps, size)
    return np.minimum(np.maximum.accumulate(delta) + extra, 1.0)[::-1]


def _bound_tail(mass: FloatArray, step: float, n_steps: int, top: float) -> float:
    """Return Chernoff's bound on P(sum of losses > `top`) for `n_steps` losses."""
    half = len(mass) // 2
    at = np.flatnonzero(mass > 0)
    losses, kept = (at - half) * step, mass[at]
    highest = max(float(losses.max()), step)

    def exponent(order: float) -> float:
        moment = float((kept * np.exp(order * losses)).sum())
        return n_steps * math.log(moment) - order * top

    best = minimize_scalar(
        lambda u: exponent(math.exp(u)),
        bounds=(math.log(1e-3), math.log(min(600.0 / highest, 1e6))),
        method="bounded",
    )
    return math.exp(min(0.0, float(best.fun)))


def rounding_allowance(n_steps: int, size: int) -> float:
    """Return an allowance for rounding errors of the T-fold convolution.

    It covers the Fourier transform, the T-th power and the inverse transform.
    """
    return 4.0 * n_steps * math.log2(size) * 2.0**-52


def smallest_mu(curve: PrivacyProfile, delta: float) -> float:
    """Return the smallest μ for which δ_GDP(ε; μ) + δ is never below the profile.

    The result is infinite if there is no such μ.
    """
    if curve.deltas[-1] > delta:
        return math.inf
    low, high = 1e-4, 1e-3
    while not curve.is_below(high, delta):
        low, high = high, 2 * high
        if high > 1e3:
            return math.inf
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if curve.is_below(middle, delta) else (middle, high)
    return high


@cache
def calibrate_noise(mu: float, delta: float, rate: float, n_steps: int) -> float:
    """Return the smallest noise multiplier z at which T steps cost at most (μ, δ).

    The result is rounded up, by at most one part in 10⁴.
    """
    check(
        rounding_allowance(n_steps, MOST_POINTS) < delta / 2,
        f"{n_steps} steps cannot be accounted for at δ = {delta:.3g}. Use fewer steps "
        "with larger batches.",
    )
    low, high = 0.05, max(0.5, rate * math.sqrt(n_steps) / mu)
    while not compute_profile(high, rate, n_steps).is_below(mu, delta):
        low, high = high, 1.5 * high
        check(
            high < 1e9, f"No amount of noise reaches μ = {mu:.3g} and δ = {delta:.3g}."
        )
    while high - low > 1e-4 * high:
        middle = math.sqrt(low * high)
        enough = compute_profile(middle, rate, n_steps).is_below(mu, delta)
        low, high = (low, middle) if enough else (middle, high)
    return high


def to_add_remove(
    mu: float, delta: float, neighbours: Neighbours
) -> tuple[float, float]:
    """Convert a budget (μ, δ) for `neighbours` to a budget for add-remove.

    If records may be replaced, the converted budget is μ/2 and the largest δ₀ with
    δ₀ + Φ(Φ⁻¹(δ₀) + μ/2) ≤ δ. Otherwise the budget does not change.
    """
    if neighbours != "replace-one":
        return mu, delta
    low, high = 0.0, delta
    for _ in range(60):
        middle = (low + high) / 2
        enough = middle + float(ndtr(ndtri(middle) + mu / 2)) <= delta * (1 - 1e-9)
        low, high = (middle, high) if enough else (low, middle)
    return mu / 2, low


def from_add_remove(
    mu: float, delta: float, neighbours: Neighbours
) -> tuple[float, float]:
    """Convert a cost (μ, δ) under add-remove to a cost under `neighbours`."""
    if neighbours != "replace-one":
        return mu, delta
    return 2 * mu, (delta + float(ndtr(ndtri(delta) + mu))) * (1 + 1e-12)
