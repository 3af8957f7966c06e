"""What a run costs whose releases are not Gaussian one by one, computed anew.

Such a run is charged (μ, δ₀): its curve δ(ε) must be below that of μ-GDP plus δ₀ for
all ε ≥ 0. The curve is computed anew at a number of ε.
"""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from skdp.schema import FloatArray
from skdp.verification.given import Given

#: How far, relatively, a curve that is computed anew may be from what was charged:
#: above, since both are rounded up on grids of their own, and below, since noise is
#: chosen so that the two touch (seen: .917 to .996 of it).
ABOVE, BELOW = 0.05, 0.2
#: Points of a curve that are compared, and the least δ at which they are.
POINTS, LEAST = 24, 1e-11
#: Losses whose slope has the sign of the record's class.
ONE_SIGN = ("logistic", "hinge")
#: Slopes are read from tables, whose lines are that much steeper than the loss.
STEEPER = 1.01

Found = tuple[bool | None, str]


def gdp_delta(epsilon: FloatArray, mu: float) -> FloatArray:
    """δ(ε) of μ-GDP at many ε."""
    low = log_ndtr(-epsilon / mu - mu / 2) + epsilon
    return np.asarray(ndtr(-epsilon / mu + mu / 2) - np.exp(low))


def _epsilons(mu: float) -> FloatArray:
    """Points at which the curve of μ-GDP is not negligible."""
    ends = np.linspace(0.0, mu * (7.0 + mu), 1000)
    return np.linspace(0.0, float(ends[gdp_delta(ends, mu) > LEAST][-1]), POINTS)


def batches(given: Given) -> Found:
    """Whether Poisson batches cost what was charged, by dp-accounting.

    A replacement is a removal and an addition: with F(x) = Φ(Φ⁻¹(x) + μ), steps that
    cost (μ, δ₀) each way cost (2μ, δ₀ + F(δ₀)) together.
    """
    charge = next(r for r in given.releases if "Poisson batch" in r["query"])
    rate, z = given.number("rate"), given.number("noise_multiplier")
    steps = int(given.number("n_steps")) if "n_steps" in given.plan else 0
    if "n_epochs" in given.plan:
        epochs, inner = given.number("n_epochs"), given.number("n_inner")
        steps = int(epochs * (inner - 1))
    said = f"{steps} batches of rate {rate:.6g} with noise {z:.6g}"
    mu, delta = 1.0 / charge["noise_multiplier"], float(charge["delta"])
    if not (0 < rate <= 1 and z > 0 and 0 < steps < 1e7):
        return False, f"{said} are none"
    if given.apart == 2:
        mu, delta = mu / 2, _one_way(mu / 2, delta)
    if rate == 1:
        exact = math.sqrt(steps) / z
        return exact <= mu * (1 + 1e-9), f"{said} are {exact:.6g}-GDP"
    try:
        dp = import_module("dp_accounting")
    except ModuleNotFoundError:
        return None, "not checked: dp-accounting is missing, pip install 'skdp[verify]'"
    account = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    drawn = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z))
    account.compose(dp.SelfComposedDpEvent(drawn, steps))
    epsilons = _epsilons(mu)
    curve = np.array([account.get_delta(float(e)) for e in epsilons])
    return _touches(curve, gdp_delta(epsilons, mu) + delta, said)


def _one_way(mu: float, delta: float) -> float:
    """Largest δ₀ with δ₀ + Φ(Φ⁻¹(δ₀) + μ) ≤ δ."""
    low, high = 0.0, delta
    for _ in range(80):
        middle = (low + high) / 2
        fits = middle + float(ndtr(ndtri(middle) + mu)) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low


def tilt(given: Given) -> Found:
    """Whether objective perturbation costs what was charged.

    With g the bound on a record's gradient, m = g/σ, κ the bound on its curvature over
    that of the quadratic term and φ the normal density, the curve is at most (twice, if
    slopes have both signs)

        (1/κ') ∫₀ᵐ max_t [(1+κ') φ(t+s) - e^ε φ(t)] ds   for every κ' ≥ κ,

    and at most that of m-GDP at ε - log(1+κ) (`skdp.privacy.profiles` has the proof).
    """
    charge = next(r for r in given.releases if r["query"].startswith("objective"))
    std = given.number("noise_std")
    said = f"a tilt of standard deviation {std:.6g}"
    if not std > 0:
        return False, f"{said} hides nothing"
    signs = 1 if given.loss.name in ONE_SIGN else 2
    m = given.slope * math.sqrt(given.reach()) / std
    target = 1.0 / charge["noise_multiplier"] / given.apart
    bend = STEEPER * given.loss.curvature * given.weight
    kappa = bend * given.reach([1.0 / q for q in given.quadratic()])
    epsilons = _epsilons(target)
    curve = np.full(POINTS, np.inf)
    shifted = epsilons - math.log1p(kappa)
    far = shifted >= (0.0 if signs == 1 else m * m / 2)
    curve[far] = signs * gdp_delta(shifted[far], m)
    for larger in kappa * np.geomspace(1.0, max(1.0, 8 * m / kappa), 6):
        curve = np.minimum(curve, signs * _integral(epsilons, m, float(larger)))
    return _touches(curve, gdp_delta(epsilons, target), said)


def _integral(epsilons: FloatArray, m: float, kappa: float) -> FloatArray:
    """(1/κ) ∫₀ᵐ max_t [(1+κ) φ(t+s) - e^ε φ(t)] ds, by the trapezoidal rule."""
    s = np.linspace(0.0, m, 121)[:, None]
    t = np.linspace(-12.0, 4.0, 1601)[None, :]
    ahead = (1 + kappa) * np.exp(-((t + s) ** 2) / 2) / math.sqrt(2 * math.pi)
    behind = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
    found = []
    for epsilon in epsilons.tolist():
        peak = np.maximum((ahead - math.exp(epsilon) * behind).max(axis=1), 0.0)
        area = float(peak.sum() - (peak[0] + peak[-1]) / 2) * m / (len(peak) - 1)
        found.append(area / kappa)
    return np.array(found)


def _touches(curve: FloatArray, charged: FloatArray, said: str) -> Found:
    """Compare a curve with what was charged, and say how near they come."""
    ratio = float((curve / charged).max())
    right = 1 - BELOW <= ratio <= 1 + ABOVE
    return right, f"{said}: δ(ε) is at most {ratio:.3g} of what was charged"
