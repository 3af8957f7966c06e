r"""Compute excess that no private method can beat, with constants (Theorem G).

The proofs are in docs/guide/theory.md. They follow the method of fingerprints, which
is behind the lower bounds of Bassily, Smith and Thakurta (2014) [1]_, with the χ²
divergence of Gaussian differential privacy in place of (ε, δ). Here all constants are
explicit, and every coordinate has its own smoothness and its own bound on gradients.

References
----------
.. [1] R. Bassily, A. Smith, A. Thakurta, "Private empirical risk minimization:
   efficient algorithms and tight error bounds", FOCS 2014.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from skdp.descent.bounds import Budget
from skdp.schema import FloatArray, check

#: Numbers of active records that are tried: all up to here, and then in ratios of 1 %.
FEW = 1000
#: From this μ on, λ counts as infinite, and nothing is bounded.
MOST = 26.0


def replacement_scale(budget: Budget) -> float:
    """Return λ = √(e^{m²} - 1), where m is the μ of replacing one record.

    It is 2μ if μ is for a record that is added, removed or zeroed out. λ² bounds the χ²
    divergence between the outputs of two tables that differ in one record.
    """
    mu = budget.mu * (1.0 if budget.neighbours == "replace-one" else 2.0)
    return math.sqrt(math.expm1(mu**2)) if mu < MOST else math.inf


def mean_error(weights: ArrayLike, n_rows: int, scale: float) -> float:
    """Bound Σ_j b_j² E(M_j - x̄_j)² from below, for some table of n rows of ±1.

    M is any private estimate of the mean x̄ of the rows. The bound is
    (4/9)(Σ b_j)²/(nλ + √(4d/3))².

    Parameters
    ----------
    weights : array of shape (d,)
        b_j > 0.
    n_rows : int
        n.
    scale : float
        λ (`replacement_scale`).
    """
    b = np.asarray(weights, dtype=np.float64)
    reach = n_rows * scale + math.sqrt(4.0 * len(b) / 3.0)
    return 4.0 / 9.0 * (float(b.sum()) / reach) ** 2


def convex_lower(
    *,
    coordinate_lipschitz: ArrayLike,
    smoothness: ArrayLike,
    distance: float,
    budget: Budget,
) -> float:
    """Bound E f(w) - f* from below, for some convex f with Diag(M) ⪰ H.

    Every record's derivative in coordinate j is at most G_j, and w* is at most
    `distance` away from w⁰ in the norm of M. The bound is the largest of

        (2/9) (a/n) R T^{3/2} / ((1 + a/n)(aλ + √(4d/3))²)

    with T = Σ_j G_j^{2/3} M_j^{-1/3}, over numbers a of active records for which
    (1 + n/a) R ≥ √T max_j G_j^{2/3} M_j^{-1/3}. If the best a is small and n is large,
    this is R T^{3/2}/(18 √(4d/3) nλ).

    Parameters
    ----------
    coordinate_lipschitz : array of shape (d,)
        G_j.
    smoothness : array of shape (d,)
        M_j.
    distance : float
        R.
    budget : Budget
        The budget.
    """
    bounds = np.asarray(coordinate_lipschitz, dtype=np.float64)
    m = np.asarray(smoothness, dtype=np.float64)
    check(bounds.shape == m.shape, "G and M must have one entry per coordinate each.")
    parts = np.cbrt(bounds**2 / m)
    total, n = float(parts.sum()), budget.n_rows
    few = np.arange(1, min(n, FEW) + 1)
    many = np.geomspace(FEW, max(n, FEW), 1 + math.ceil(100 * math.log(max(n, FEW))))
    active = np.unique(np.append(few, np.minimum(many.astype(np.int64), n)))
    share = active / n
    reach = active * replacement_scale(budget) + math.sqrt(4.0 * len(m) / 3.0)
    found = 2.0 / 9.0 * share * distance * total**1.5 / ((1.0 + share) * reach**2)
    # The curvature that is needed must not be above M.
    fits = distance >= share / (1.0 + share) * math.sqrt(total) * parts.max()
    return float(found[fits].max(initial=0.0))


def strongly_convex_lower(
    *, coordinate_lipschitz: ArrayLike, modulus: float, budget: Budget
) -> float:
    """Bound E f(w) - f* from below, for f = ½μ‖w‖² - ⟨c, w⟩ with some c.

    Every record's derivative in coordinate j is at most G_j in a box that has all
    minimisers. The bound is (Σ_j G_j)²/(18 μ (nλ + √(4d/3))²).
    """
    bounds = np.asarray(coordinate_lipschitz, dtype=np.float64)
    error = mean_error(bounds, budget.n_rows, replacement_scale(budget))
    return error / (8.0 * modulus)


def spread_lipschitz(smoothness: ArrayLike, lipschitz: float) -> FloatArray:
    """Return the G_j with Σ G_j² = L² for which `convex_lower` is largest.

    They are proportional to M_j^{-1/4}, and T^{3/2} = L Σ_j M_j^{-1/2}.
    """
    root = np.asarray(smoothness, dtype=np.float64) ** -0.5
    return np.asarray(lipschitz * np.sqrt(root / root.sum()))
