"""Compute the utility bounds of sketched steps, along directions of any kind.

A step draws one of finitely many matrices B_S with probability p_S and computes
w ← w - B_Sᵀ(B_S g + η)/β. Here g is the gradient of f, and the noise η has independent
entries with standard deviation σ_S. With G_S = B_Sᵀ B_S/β, the mean step is W = E[G_S].
If W is invertible, the sketch C = G_S W⁻¹ is unbiased, which means E[C] = I. Let H be a
bound on the Hessian of f. All bounds follow from five numbers,

    D0 = ‖w0 - w*‖² in the norm of W⁻¹,      v = min{v : E[G W⁻¹ G] ⪯ v W},
    N1 = E[σ_S² tr(B_S W⁻¹ B_Sᵀ)]/β²,        N2 = E[σ_S² tr(B_S H B_Sᵀ)]/β²,

and the excess f(w0) - f* of the start. If B_S = I_S selects coordinates and steps are
1/M_j, these numbers are those of `skdp.descent.bounds`, with v = 1/p_min.
docs/guide/sketches.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from skdp.descent.samplings import check_distribution, check_positive
from skdp.schema import FloatArray, check

__all__ = ["SketchLaw", "convex_bound", "following_bound", "tight_bound"]

#: Relative tolerance for rounding errors of eigenvalues.
ROOM = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchLaw:
    """A distribution over the matrices B_S that a step may draw.

    A step is w ← w - B_Sᵀ(B_S g + η)/β, where g is the gradient and η is noise. Below,
    G_S = B_Sᵀ B_S/β.

    Parameters
    ----------
    roots : sequence of float64 (m_S, d)
        The matrices B_S.
    probabilities : float64 (len(roots),)
        p_S, positive, with sum one.
    curvature : float
        β, the inverse of the step size.
    """

    roots: Sequence[FloatArray]
    probabilities: FloatArray
    curvature: float = 1.0

    def __post_init__(self) -> None:
        given = check_distribution(self.probabilities, "SketchLaw", len(self.roots))
        object.__setattr__(self, "probabilities", given)
        check(self.curvature > 0, f"curvature must be positive, got {self.curvature}.")
        values = np.linalg.eigvalsh(self.mean)
        check(
            values[0] > 1e-12 * values[-1],
            "The rows of all matrices together must span all coordinates. Otherwise "
            "the sketch is biased.",
        )

    @cached_property
    def mean(self) -> FloatArray:
        """The mean step W = E[G_S] with G_S = B_Sᵀ B_S/β, shape (d, d)."""
        return self._expect([root.T @ root for root in self.roots]) / self.curvature

    def _expect(self, values: Sequence[FloatArray]) -> FloatArray:
        pairs = zip(self.probabilities, values, strict=True)
        return np.asarray(sum(p * value for p, value in pairs))

    @cached_property
    def _second(self) -> FloatArray:
        """The matrix E[G_S W⁻¹ G_S], shape (d, d)."""
        steps = [root.T @ root / self.curvature for root in self.roots]
        return self._expect([g @ np.linalg.solve(self.mean, g) for g in steps])

    @cached_property
    def visiting_cost(self) -> float:
        """The smallest v with E[G_S W⁻¹ G_S] ⪯ v W, where W is `mean`.

        If the B_S select disjoint blocks, v is the inverse of the smallest probability.
        """
        return float(eigh(self._second, self.mean, eigvals_only=True)[-1])

    def is_valid(self, hessian: FloatArray) -> bool:
        """Return whether E[G_S H G_S] ⪯ W, the condition of `convex_bound`.

        Here H is `hessian` and W is `mean`. The condition holds if B_S H B_Sᵀ ⪯ β I for
        every S. If sets of coordinates are drawn, the condition is the expected
        separable overapproximation of Qu and Richtárik.
        """
        steps = [root.T @ root / self.curvature for root in self.roots]
        moved = self._expect([g @ hessian @ g for g in steps])
        return bool(eigh(moved, self.mean, eigvals_only=True)[-1] <= 1 + ROOM)

    def is_tight(self, hessian: FloatArray) -> bool:
        """Return whether E[G_S W⁻¹ G_S] ⪯ H⁻¹, the condition of `tight_bound`.

        Here H is `hessian` and W is `mean`. If sets of coordinates are drawn, the
        condition is Diag(M) ⪰ H. The condition also holds if each step moves along a
        single eigenvector of H, and the step size is the inverse of the eigenvalue.
        """
        values, vectors = np.linalg.eigh(hessian)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        largest = np.linalg.eigvalsh(root @ self._second @ root)[-1]
        return bool(largest <= 1 + ROOM)

    def distance_squared(self, displacement: ArrayLike) -> float:
        """Return D0 = ‖w0 - w*‖² in the norm of W⁻¹, where W is `mean`."""
        away = np.asarray(displacement, dtype=np.float64)
        return float(away @ np.linalg.solve(self.mean, away))

    def noise(self, stds: ArrayLike) -> float:
        """Return N1 = E[σ_S² tr(B_S W⁻¹ B_Sᵀ)]/β² for standard deviations σ_S."""
        traces = [np.trace(r @ np.linalg.solve(self.mean, r.T)) for r in self.roots]
        return self._variance(stds, np.array(traces))

    def step_noise(self, stds: ArrayLike, hessian: FloatArray) -> float:
        """Return N2 = E[σ_S² tr(B_S H B_Sᵀ)]/β² for standard deviations σ_S."""
        traces = [np.trace(root @ hessian @ root.T) for root in self.roots]
        return self._variance(stds, np.array(traces))

    def _variance(self, stds: ArrayLike, traces: FloatArray) -> float:
        squares = np.square(np.asarray(stds, dtype=np.float64))
        return float(self.probabilities @ (squares * traces)) / self.curvature**2


def convex_bound(
    law: SketchLaw,
    n_steps: int,
    *,
    displacement: ArrayLike,
    excess: float,
    stds: ArrayLike,
    hessian: FloatArray,
    explore: float = 1.0,
) -> float:
    """Bound E f - f* of the average of θ_0, …, θ_{K-1} (Theorems S2 and S4).

    The bound is (D0/2 + v·(f(w0) - f*))/(φK) + (N1 + v·N2)/2. The methods of `law`
    compute D0 (`distance_squared`), v (`visiting_cost`), N1 (`noise`) and N2
    (`step_noise`).

    Parameters
    ----------
    law : SketchLaw
        The distribution of B_S. ``law.is_valid(hessian)`` must be true.
    n_steps : int
        K.
    displacement : (d,) array
        w0 - w*.
    excess : float
        f(w0) - f*.
    stds : (n_sets,) array
        σ_S, the noise of each entry of a released mean B_S g.
    hessian : (d, d) array
        H, a bound on the second derivative of f.
    explore : float
        φ, which is 1 if every step draws from `law`. If the probabilities p adapt to
        earlier releases and steps are weighted, pass a φ with p ≥ φ·law.
    """
    check_positive([n_steps, explore], 2, "convex_bound", "n_steps and explore")
    check(
        law.is_valid(hessian),
        "The steps are too long for this hessian. Raise the curvature of the law.",
    )
    initial = law.distance_squared(displacement) / 2 + law.visiting_cost * excess
    noise = law.noise(stds) + law.visiting_cost * law.step_noise(stds, hessian)
    return initial / (explore * n_steps) + noise / 2


def tight_bound(
    law: SketchLaw,
    n_steps: int,
    *,
    displacement: ArrayLike,
    stds: ArrayLike,
    hessian: FloatArray,
) -> float:
    """Bound E f - f* of the average of θ_0, …, θ_{K-1} by D0/(2K) + N1/2 (Theorem S3).

    This requires that ``law.is_tight(hessian)`` is true. The parameters, D0 and N1 are
    those of `convex_bound`.
    """
    check_positive([n_steps], 1, "tight_bound", "n_steps")
    check(law.is_tight(hessian), "The law is not tight for this hessian.")
    return law.distance_squared(displacement) / (2 * n_steps) + law.noise(stds) / 2


def following_bound(
    law: SketchLaw,
    n_steps: int,
    *,
    strength: float,
    excess: float,
    stds: ArrayLike,
    hessian: FloatArray,
    explore: float,
) -> float:
    """Bound E f(θ_K) - f* for any adaptive law with unweighted steps (Theorem S5).

    The bound assumes that ‖∇f(w)‖²_W ≥ 2m (f(w) - f*) for all w, which holds for every
    strongly convex f with some m > 0. Each step draws S with probabilities p ≥ φ·law,
    which may depend on all earlier releases. Then
    E f(θ_K) - f* ≤ (1 - φm)^K (f(w0) - f*) + V/(2φm), where V is the largest
    σ_S² tr(B_S H B_Sᵀ)/β² of any S.

    Parameters
    ----------
    law, n_steps, excess, stds, hessian, explore
        As in `convex_bound`. Every B_S must satisfy B_S H B_Sᵀ ⪯ β I.
    strength : float
        m, at most 1.
    """
    check_positive([n_steps, strength, explore], 3, "following_bound", "numbers")
    largest = [np.linalg.eigvalsh(r @ hessian @ r.T)[-1] for r in law.roots]
    check(
        max(largest) <= law.curvature * (1 + ROOM),
        "The steps are too long for this hessian. Raise the curvature of the law.",
    )
    traces = [np.trace(root @ hessian @ root.T) for root in law.roots]
    worst = float((np.square(stds) * np.array(traces)).max()) / law.curvature**2
    rate = explore * strength
    return (1.0 - rate) ** n_steps * excess + worst / (2.0 * rate)
