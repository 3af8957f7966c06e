"""Compute means of capped slopes over surrogate rows, and the bias due to caps.

Caps bound the slope of each record. This is post-processing, because no record is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from skdp.schema import FloatArray

#: Number of Newton steps that correct weights for the bias from capped slopes.
N_NEWTON = 4


@dataclass(frozen=True, eq=False)
class MeanSlopes:
    """The mean derivative and the mean square of capped slopes, for each row, (n,)."""

    curvature: FloatArray
    square: FloatArray


def average_bernoulli(margins: FloatArray, caps: FloatArray) -> MeanSlopes:
    """Return the means for slopes σ(m) - y, where y is 1 with probability σ(m)."""
    chance = expit(margins)
    below, above = np.minimum(chance, caps), np.minimum(1.0 - chance, caps)
    steep = chance * (1.0 - chance)
    free = (1.0 - chance) * (chance < caps) + chance * (1.0 - chance < caps)
    return MeanSlopes(steep * free, (1.0 - chance) * below**2 + chance * above**2)


def derive_uncapped(law: str | None, margins: FloatArray) -> FloatArray:
    """Return the derivatives (n,) of slopes without caps."""
    chance = expit(margins)
    return chance * (1.0 - chance) if law == "bernoulli" else np.ones_like(margins)


def average_normal(caps: FloatArray, std: float) -> MeanSlopes:
    """Return the means for slopes that are normal residuals."""
    z = caps / std
    free = 2.0 * norm.cdf(z) - 1.0
    square = std**2 * (free - 2.0 * z * norm.pdf(z)) + caps**2 * (1.0 - free)
    return MeanSlopes(np.asarray(free), np.asarray(square))


def compute_capping(rows: FloatArray, w: FloatArray, caps: FloatArray) -> FloatArray:
    """Return the bias w - w* of the weights due to capped slopes of classes.

    Caps affect the slopes of a rare class more often than the slopes of other classes.
    Suppose that classes are drawn with the true weights w*. The mean capped slope is
    then zero not at w*, but at other weights w. Given w, the true weights w* solve Σ_i
    x_i ((1 - σ(x·w*)) min(p, c) - σ(x·w*) min(1 - p, c)) = 0 with p = σ(x·w).
    """
    chance = expit(rows @ w)
    below, above = np.minimum(chance, caps), np.minimum(1.0 - chance, caps)
    true = w.copy()
    for _ in range(N_NEWTON):
        guess = expit(rows @ true)
        excess = (1.0 - guess) * below - guess * above
        weight = guess * (1.0 - guess) * (below + above)
        normal = (rows * weight[:, None]).T @ rows
        normal += 1e-6 * np.trace(normal) / len(w) * np.eye(len(w))
        true += np.linalg.solve(normal, rows.T @ excess)
    return np.asarray(w - true)
