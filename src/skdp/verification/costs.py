"""Recompute the cost of runs with releases that are not Gaussian.

Such a run is charged as a pair (μ, δ₀). For all ε ≥ 0, its δ(ε) must be at most δ₀ plus
the δ(ε) of μ-GDP (Gaussian differential privacy). This module recomputes the run's δ(ε)
at several ε and compares it with this bound.
"""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from skdp.schema import FloatArray, count_in_words
from skdp.verification.given import Given

#: Limits on the largest ratio of a recomputed curve to the charged curve. Solvers
#: choose the noise so that the curves touch, so the ratio should be about 1 (observed:
#: .917 to .996). It may exceed 1 by at most ABOVE, because the two curves are rounded
#: up on different grids. It may fall short of 1 by at most BELOW.
ABOVE, BELOW = 0.05, 0.2
#: Number of points at which curves are compared, and the smallest δ of such a point.
POINTS, LEAST = 24, 1e-11
#: Slopes are read from tables. The curvature of a table may exceed that of the loss by
#: this factor.
STEEPER = 1.01
#: Relative rounding error of a float64.
U = 2.0**-53

Found = tuple[bool | None, str]


def gdp_delta(epsilon: FloatArray, mu: float) -> FloatArray:
    """Return δ(ε) of μ-GDP for many ε at once."""
    low = log_ndtr(-epsilon / mu - mu / 2) + epsilon
    return np.asarray(ndtr(-epsilon / mu + mu / 2) - np.exp(low))


def _choose_epsilons(mu: float) -> FloatArray:
    """Return values of ε at which δ(ε) of μ-GDP is not negligible."""
    ends = np.linspace(0.0, mu * (7.0 + mu), 1000)
    return np.linspace(0.0, float(ends[gdp_delta(ends, mu) > LEAST][-1]), POINTS)


def check_batches(given: Given) -> Found:
    """Check the charge for Poisson batches with dp-accounting.

    Replacing a record means removing one and adding another. If the steps cost (μ, δ₀)
    when a record is removed, and as much when one is added, they cost
    (2μ, δ₀ + F(δ₀)) when one is replaced, with F(x) = Φ(Φ⁻¹(x) + μ).
    """
    charge = next(r for r in given.releases if "Poisson batch" in r.query)
    rate, z = given.number("rate"), given.number("noise_multiplier")
    steps = int(given.number("n_steps")) if "n_steps" in given.plan else 0
    if "n_epochs" in given.plan:
        epochs, inner = given.number("n_epochs"), given.number("n_inner")
        steps = int(epochs * (inner - 1))
    many = count_in_words(steps, "batch", "batches")
    said = f"{many} of rate {rate:.6g} with noise multiplier {z:.6g}"
    mu, delta = 1.0 / charge.noise_multiplier, float(charge.delta)
    if not (0 < rate <= 1 and z > 0 and 0 < steps < 1e7):
        return False, f"{said}: these settings are not valid"
    if given.apart == 2:
        mu, delta = mu / 2, _solve_one_way(mu / 2, delta)
    if rate == 1:
        exact = math.sqrt(steps) / z
        return exact <= mu * (1 + 1e-9), f"{said}: the cost is {exact:.6g}-GDP"
    try:
        dp = import_module("dp_accounting")
    except ModuleNotFoundError:
        return None, "dp-accounting is not installed: pip install 'skdp[verify]'"
    account = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    drawn = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z))
    account.compose(dp.SelfComposedDpEvent(drawn, steps))
    epsilons = _choose_epsilons(mu)
    curve = np.array([account.get_delta(float(e)) for e in epsilons])
    return _compare(curve, gdp_delta(epsilons, mu) + delta, said)


def _solve_one_way(mu: float, delta: float) -> float:
    """Return the largest δ₀ with δ₀ + Φ(Φ⁻¹(δ₀) + μ) ≤ δ."""
    low, high = 0.0, delta
    for _ in range(80):
        middle = (low + high) / 2
        fits = middle + float(ndtr(ndtri(middle) + mu)) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low


def check_tilt(given: Given) -> Found:
    """Check the charge for objective perturbation's tilt, the random linear term.

    Let σ be the standard deviation of the tilt, let g be the bound on a record's
    gradient, and let m = g/σ. Let κ be the bound on a record's curvature divided by the
    curvature of the quadratic term, and let φ be the normal density. Then δ(ε) is at
    most

        (1/κ') ∫₀ᵐ max_t [(1+κ') φ(t+s) - e^ε φ(t)] ds   for every κ' ≥ κ,

    and also at most the δ of m-GDP at ε - log(1+κ). If slopes have both signs, both
    bounds are doubled. The proof is in `skdp.privacy.profiles`.
    """
    charge = next(r for r in given.releases if r.query.startswith("objective"))
    std = given.number("noise_std")
    said = f"a tilt of standard deviation {std:.6g}"
    if not std > 0:
        return False, f"{said} protects nothing"
    signs = 1 if given.loss.one_sign else 2
    m = given.slope * math.sqrt(given.reach()) / std
    target = 1.0 / charge.noise_multiplier / given.apart
    bend = STEEPER * given.loss.curvature * given.weight
    kappa = bend * given.reach([1.0 / q for q in given.quadratic()])
    epsilons = _choose_epsilons(target)
    curve = np.full(POINTS, np.inf)
    shifted = epsilons - math.log1p(kappa)
    far = shifted >= (0.0 if signs == 1 else m * m / 2)
    curve[far] = signs * gdp_delta(shifted[far], m)
    for larger in kappa * np.geomspace(1.0, max(1.0, 8 * m / kappa), 6):
        curve = np.minimum(curve, signs * _integrate(epsilons, m, float(larger)))
    return _compare(curve, gdp_delta(epsilons, target), said)


def _integrate(epsilons: FloatArray, m: float, kappa: float) -> FloatArray:
    """Return (1/κ) ∫₀ᵐ max_t [(1+κ) φ(t+s) - e^ε φ(t)] ds, by the trapezoidal rule."""
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


def _compare(curve: FloatArray, charged: FloatArray, said: str) -> Found:
    """Compare a recomputed curve with the charged one, and describe the result."""
    ratio = float((curve / charged).max())
    right = 1 - BELOW <= ratio <= 1 + ABOVE
    return right, f"{said}: δ(ε) is at most {ratio:.3g} times what was charged"


def bound_solver_error(given: Given) -> float:
    """Bound the distance between computed solutions with the same exact minimiser.

    Two neighbouring tables, with different tilts, may have the same exact minimiser.
    The computed solutions then differ only by rounding. This function recomputes the
    bounds of `skdp.solvers.certified`.
    """
    quadratic, n = given.quadratic(), int(given.number("n_rows"))
    full = max(2**24, 4 * n) if given.record.neighbours == "add-remove" else n
    most = 2 * full if full > n else n
    d, reach = len(quadratic), math.sqrt(given.reach([1.0 / q for q in quadratic]))
    cells = sum(group.n_entries for group in given.layout.groups)
    summed = (4096 + most / 2048 + 4) * given.slope
    fixed = 2 * most * reach * (512 * (given.weight + given.slope) + summed) * U
    bend = 1.01 * given.loss.curvature * given.weight * (cells + 4) * reach
    growth = (2 * most * reach * bend + 32) * U
    floor, std = math.sqrt(min(quadratic)), given.number("noise_std")
    pull = std * (1 + 2.0**-8) * (math.sqrt(d) + 8) / floor
    start = 1.01 * most * given.weight * max(1.0, given.loss.slope_bound)
    radius = 2 * pull + math.sqrt(2 * start)
    found = 2 * 4.1 * (1.01 * fixed + 2 * growth * radius) + 16 * U * radius
    found += radius / full if most > full else 0.0
    return found + 2 * math.sqrt(d) * (std * 2.0**-35 / floor + 2.0**-31)
