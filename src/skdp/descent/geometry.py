"""In which norm a step is taken, and how the noise is shaped.

A geometry turns a task (records, loss, penalty) into the two functions that Algorithm 1
needs: a query for the exact sum and an update that sees released values only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from skdp.descent.skgd import Query, Update
from skdp.descent.threads import one_thread
from skdp.penalties import ElasticNet, Penalty
from skdp.privacy import sums
from skdp.privacy.grid import WEIGHT_BOX
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, Layout, check


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What a geometry works on.

    `n_rows` is the public or released number of rows; `release` spends the share of the
    budget that the geometry asked for.
    """

    engine: sums.Engine
    slopes: sums.Slopes
    curvature: float
    relation: sums.Relation
    n_rows: float
    penalty: Penalty
    release: Callable[[sums.BoundedSum], Released]


class Geometry(Protocol):
    """Step and noise shape of a run; adding one means adding a class."""

    @property
    def share(self) -> float:
        """The share of the budget (of μ²) that `prepare` spends."""

    def prepare(self, task: Task) -> tuple[Query, Update]:
        """Return the query and the update of Algorithm 1."""


def boxed(weights: FloatArray) -> FloatArray:
    """Weights clipped to the box that queries clip them to."""
    return np.clip(weights, -WEIGHT_BOX, WEIGHT_BOX)


def diagonal_update(step: FloatArray, penalty: Penalty, n_rows: float) -> Update:
    """θ_S - ΓC(∇f + η) then the proximal map, ΓC = Diag(step) on S.

    With Γ = PM⁻¹ and C = I_S P⁻¹ the probabilities cancel: step = 1/M.
    """

    def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        if not isinstance(released, Released):
            raise TypeError("An update takes released values only: call release first.")
        moved = weights[at] - step[at, None] * released.values / n_rows
        result = weights.copy()
        result[at] = boxed(penalty.prox(moved, 1.0 / step[at], at))
        return result

    return update


def accelerated(update: Update) -> Update:
    """Nesterov's momentum on full steps, restarted where it points uphill.

    For runs without noise: momentum would add up the noise of many steps.
    """
    before: list[FloatArray] = []
    speed = [1.0]

    def faster(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        reached = update(weights, released, at)
        last = before.pop() if before else reached
        before.append(reached)
        if float(((weights - reached) * (reached - last)).sum()) > 0:
            speed[0] = 1.0
        following = (1.0 + math.sqrt(1.0 + 4.0 * speed[0] ** 2)) / 2.0
        push = (speed[0] - 1.0) / following
        speed[0] = following
        return boxed(reached + push * (reached - last))

    return faster


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagonal:
    """Steps Γ = PM⁻¹ in the norm of a diagonal smoothness M (the paper's).

    Parameters
    ----------
    smoothness : float64 (d,)
        M, valid for the sampling (`descent.smoothness`).
    elliptical : bool
        Shape the noise to the groups: variance ∝ τ_G^(-1/2), τ_G = Σ_{j in G} 1/M_j,
        which minimises Σ_j s_j²/M_j at a given sensitivity. Isotropic otherwise.
    momentum : bool
        Accelerate full steps, for runs without noise.
    """

    smoothness: FloatArray
    elliptical: bool = True
    momentum: bool = False
    share = 0.0

    def __post_init__(self) -> None:
        check(
            bool(np.all(self.smoothness > 0) and np.all(np.isfinite(self.smoothness))),
            "Diagonal needs positive, finite smoothness: see descent.smoothness.",
        )

    @classmethod
    def of_step_sizes(cls, gamma: FloatArray, probabilities: FloatArray) -> Diagonal:
        """Return the geometry of given step sizes Γ: M = P Γ⁻¹."""
        return cls(smoothness=probabilities / gamma)

    def shape(self, at: IntArray, group_of: IntArray) -> FloatArray:
        """Relative noise scale of each coordinate in `at`."""
        if not self.elliptical:
            return np.ones(len(at))
        groups = group_of[at]
        tau = np.bincount(groups, weights=1.0 / self.smoothness[at])
        shape = np.power(tau[groups], -0.25)
        return np.asarray(shape / shape.max(), dtype=np.float64)

    def prepare(self, task: Task) -> tuple[Query, Update]:
        """Return the query and the update of Algorithm 1."""
        group_of = task.engine.records.layout.group_of

        def query(at: IntArray, weights: FloatArray) -> sums.BoundedSum:
            shape = self.shape(at, group_of)
            return sums.gradient(
                task.engine, task.slopes, weights, at, task.relation, shape
            )

        update = diagonal_update(1.0 / self.smoothness, task.penalty, task.n_rows)
        return query, accelerated(update) if self.momentum else update


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Steps in the norm of the Gram matrix, released once (the paper's future work).

    With A = XᵀX/n, noisy and its eigenvalues floored, B = A^(-1/2): slopes are capped
    so that ‖B g_i‖ ≤ radius, B Σ_i g_i is released with isotropic noise, and the step
    is w ← w - Bᵀ(B g̃)/(β n), a Newton-like step that needs tens of passes.

    Parameters
    ----------
    radius : float
        The cap C.
    floor : float
        Smallest eigenvalue of A that is kept.
    share : float
        Share of μ² spent on the Gram matrix.
    shrinkage : float
        λ of a penalty ½ λ ‖w‖²_A, which keeps noise from piling up in directions that
        the loss does not curve.
    """

    radius: float
    floor: float
    share: float = 0.2
    shrinkage: float = 0.0

    def __post_init__(self) -> None:
        for name, high in (("radius", math.inf), ("floor", math.inf), ("share", 1.0)):
            value = getattr(self, name)
            check(
                0 < value < high,
                f"Matrix needs 0 < {name} < {high}. Got {value}: move it inside.",
            )
        check(
            0 <= self.shrinkage < math.inf,
            f"Matrix needs shrinkage ≥ 0. Got {self.shrinkage}: 0 is none.",
        )

    def prepare(self, task: Task) -> tuple[Query, Update]:
        """Release the Gram matrix; return the query and the update of Algorithm 1."""
        penalty = task.penalty
        check(
            isinstance(penalty, ElasticNet) and penalty.l1 == 0,
            "The matrix geometry takes a ridge only: choose geometry 'diagonal'.",
        )
        layout = task.engine.records.layout
        pattern = sums.GramPattern.of(layout, task.relation)
        released = task.release(sums.gram(task.engine, pattern))
        gram = symmetric(layout, pattern, released.values, task.n_rows) / task.n_rows
        metric = sums.Metric.of(inverse_root(gram, self.floor), self.radius)
        capped = sums.capped(task.engine, task.slopes, metric)
        root = np.ldexp(metric.units, -metric.bits)
        prox = ridge_prox(root, task.curvature, penalty)

        def query(at: IntArray, weights: FloatArray) -> sums.BoundedSum:
            check(
                len(at) == layout.n_features,
                "The matrix geometry takes whole-vector steps: use Full sampling.",
            )
            return sums.mapped_gradient(task.engine, capped, weights, task.relation)

        def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
            if not isinstance(released, Released):
                raise TypeError("An update takes released values only: release first.")
            moved = weights - root.T @ released.values / (task.curvature * task.n_rows)
            moved /= 1.0 + self.shrinkage / task.curvature
            return boxed(prox(moved))

        return query, update


def symmetric(
    layout: Layout, pattern: sums.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """Put released entries of the Gram matrix, and those that are known, in place."""
    full = np.zeros((layout.n_features, layout.n_features))
    full[pattern.rows, pattern.columns] = full[pattern.columns, pattern.rows] = values
    for one in (group.start for group in layout.groups if group.kind == "ones"):
        if one not in pattern.rows:
            full[one, one] = n_rows
        for at in (
            group.coordinates for group in layout.groups if group.kind == "code"
        ):
            full[one, at] = full[at, one] = full[at, at]
    return full


def inverse_root(matrix: FloatArray, floor: float) -> FloatArray:
    """A^(-1/2) of a symmetric matrix whose eigenvalues are raised to `floor`."""
    with one_thread(len(matrix)):
        values, vectors = np.linalg.eigh(matrix)
        scaled = vectors / np.sqrt(np.maximum(values, floor))
        return np.asarray(scaled @ vectors.T)


def ridge_prox(
    root: FloatArray, curvature: float, penalty: Penalty
) -> Callable[[FloatArray], FloatArray]:
    """Map w to argmin_u β/2 ‖u - w‖²_A + ½ l2 Σ_j s_j u_j² with A = (BᵀB)⁻¹.

    It solves a linear system whose matrix is factored once, for all steps.
    """
    if not isinstance(penalty, ElasticNet) or penalty.l2 == 0:
        return lambda weights: weights
    strength = np.ones(len(root)) if penalty.penalised is None else penalty.penalised
    with one_thread(len(root)):
        inverse = root.T @ root / curvature
        system = np.eye(len(root)) + penalty.l2 * inverse * strength
        factors = lu_factor(system, check_finite=False)

    def prox(weights: FloatArray) -> FloatArray:
        solved = lu_solve(factors, weights, check_finite=False)
        return np.asarray(solved, dtype=np.float64)

    return prox
