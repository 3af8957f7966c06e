"""Minimisers of regularised losses in floating point, each with a proved distance.

The objective is a sum over records, F(w) = Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ² + b·w, with all
qⱼ > 0. Its slopes are those of `losses`, as real functions: they increase, so that F is
strongly convex and ‖w - w*‖_q ≤ ‖∇F(w)‖_{1/q} for every w. What is returned has a
gradient that is *proved* to be small: the computed one plus all that rounding can have
lost. How it was found (Newton's method) is not trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, vstack
from scipy.sparse.linalg import LinearOperator, cg

from skdp.models.penalties import ElasticNet
from skdp.privacy.encoding import AnyArray, Chunk
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import FloatArray, Layout, check
from skdp.solvers.problem import Problem

#: Rows whose gradients are added up before the blocks are: errors grow with both.
BLOCK = 4096
#: Half a unit in the last place of 1.
U = 2.0**-53
#: Coordinates up to which Newton's system is solved by factorising the Hessian.
DENSE = 600
#: Losses whose target is the code of one of two classes.
TWO_CLASSES = ("logistic", "hinge")
#: Most Newton steps; tens are enough.
ROUNDS = 1000
#: Distances over which slopes are differenced, in turn; tables have 128 entries a unit.
STEPS = (1e-6, 1.0 / 128)
#: Bound on the value at margin 0 of every loss with one output.
START_VALUE = 1.0


class NotCertifiedError(RuntimeError):
    """No point with a small enough gradient was found: never seen, see `minimise`."""


def ridge_of(problem: Problem) -> FloatArray:
    """The penalty as n·alpha on each coordinate, shape (d,); others are refused."""
    penalty = problem.penalty
    if not isinstance(penalty, ElasticNet) or penalty.l1:
        raise ValueError("This solver needs a ridge penalty or none: set l1_ratio=0.")
    d = problem.layout.n_features
    on = np.ones(d) if penalty.penalised is None else penalty.penalised
    return np.asarray(problem.n_rows * penalty.l2 * on, dtype=np.float64)


def refuse_outputs(problem: Problem) -> None:
    """Refuse several outputs, whose slopes do not increase, and a private n.

    How near a minimiser is proved to be depends on the exact number of rows: where
    that is private, whether a proof succeeds would tell it.
    """
    check(
        problem.relation != "add-remove",
        "A solver that proves how near its minimiser is needs a public number of rows: "
        "take neighbours='zero-out' or 'replace-one', or another solver.",
    )
    check(
        problem.loss.n_outputs == 1,
        f"This solver needs a loss with one output. Got {problem.loss.name} with "
        f"{problem.loss.n_outputs}: fit one class against the rest.",
    )


@dataclass(eq=False, repr=False)
class Objective:
    """F(w) of a problem.

    Parameters
    ----------
    problem : Problem
        Records and loss.
    quadratic : float64 (d,)
        q.
    linear : float64 (d,), optional
        b.
    """

    problem: Problem
    quadratic: FloatArray
    linear: FloatArray | None = None

    def __post_init__(self) -> None:
        refuse_outputs(self.problem)
        chunks, layout = self.problem.records.chunks, self.problem.layout
        self._blocks = [
            (matrix, chunk.target[rows], chunk.weight[rows, None].astype(np.float64))
            for chunk in chunks
            for matrix, rows in _rows(chunk, layout)
        ]
        self._n_rows = sum(matrix.shape[0] for matrix, _, _ in self._blocks)

    def gradient(self, w: FloatArray) -> FloatArray:
        """∇F(w), shape (d,), as computed."""
        total = self.quadratic * w
        if self.linear is not None:
            total = total + self.linear
        for matrix, target, weight in self._blocks:
            slope = self._slope((matrix @ w)[:, None], target) * weight
            total = total + matrix.T @ slope[:, 0]
        return np.asarray(total)

    def _slope(self, margin: FloatArray, target: AnyArray) -> FloatArray:
        """Slopes within their bound; classes beyond the second count as it."""
        loss = self.problem.loss
        if loss.name in TWO_CLASSES:
            target = np.minimum(target, 1)
        slope = loss.slope(margin, target)
        return np.clip(slope, -loss.slope_bound, loss.slope_bound)

    def error(self, w: FloatArray) -> float:
        """Bound on ‖computed - exact gradient‖ at w."""
        pull = 0.0 if self.linear is None else float(np.linalg.norm(self.linear))
        size = float(np.linalg.norm(w))
        return rounding(self.problem, self.quadratic, self._n_rows, size, pull)

    def newton(self, w: FloatArray, gradient: FloatArray, step: float) -> FloatArray:
        """-(∇²F)⁻¹ ∇F, about: slopes are differenced over `step`."""
        bends = []
        for matrix, target, weight in self._blocks:
            margin = (matrix @ w)[:, None]
            up, down = (self._slope(margin + h, target) for h in (step, -step))
            bends.append(((up - down) * weight)[:, 0] / (2 * step))
        if len(w) <= DENSE:
            hessian = np.diag(self.quadratic)
            for (matrix, _, _), bend in zip(self._blocks, bends, strict=True):
                hessian += (matrix.T @ (matrix * bend[:, None])).toarray()
            return np.asarray(-np.linalg.solve(hessian, gradient))
        matrix = vstack([m for m, _, _ in self._blocks], format="csr")
        bend = np.concatenate(bends)

        def product(v: FloatArray) -> FloatArray:
            return np.asarray(matrix.T @ (bend * (matrix @ v)) + self.quadratic * v)

        size = (len(w), len(w))
        diagonal = (matrix.multiply(matrix)).T @ bend + self.quadratic
        found, _ = cg(
            LinearOperator(size, matvec=product, dtype=np.float64),
            -gradient,
            rtol=1e-4,
            maxiter=500,
            M=LinearOperator(size, matvec=lambda v: v / diagonal, dtype=np.float64),
        )
        return np.asarray(found)


def _rows(chunk: Chunk, layout: Layout) -> Iterator[tuple[csr_array, slice]]:
    """Blocks of a chunk's rows as real features, exact, and where they are."""
    for start in range(0, len(chunk.target), BLOCK):
        rows = slice(start, start + BLOCK)
        n = len(chunk.target[rows])
        parts = []
        for group, part in zip(layout.groups, chunk.parts, strict=True):
            if group.kind == "ones":
                parts.append(csr_array(np.ones((n, 1))))
            elif group.kind == "code":
                at = np.asarray(part[rows], dtype=np.intp)
                known = np.flatnonzero(at < group.width)
                places = (np.ones(len(known)), (known, at[known]))
                parts.append(csr_array(places, shape=(n, group.width)))
            else:
                numbers: Any = csr_array(part[rows])
                parts.append(numbers.astype(np.float64) / FEATURE_ONE)
        yield csr_array(hstack(parts, format="csr")), rows


@dataclass(frozen=True, eq=False)
class Minimum:
    """Weights (d,) and a proved bound on the norm of the gradient there."""

    weights: FloatArray
    gradient_bound: float


def rounding(
    problem: Problem, quadratic: FloatArray, n_rows: int, size: float, pull: float
) -> float:
    """Bound on what rounding changes in a gradient at ‖w‖ = `size`, ‖b‖ = `pull`.

    A margin of k terms is off by (k+1)U‖x‖‖w‖ and moves its slope by β times that;
    slopes are computed with a few roundings of numbers below 4096(1 + bound)/128, which
    is where tables are read; a block's sum of m terms is off by mU, that of all blocks
    by their number, relatively to Σ‖x‖|slope|; quadratic and linear term by a few U.
    """
    widths = [g.width if g.kind == "dense" else 1 for g in problem.layout.groups]
    margin = (sum(widths) + 2) * U * problem.row_norm * size
    slope = problem.curvature * margin + 512 * U * (1 + problem.slope_bound)
    added = (BLOCK + n_rows / BLOCK + 4) * U * problem.slope_bound
    rest = 8 * U * (float(quadratic.max()) * size + pull)
    return 2 * (n_rows * problem.row_norm * (slope + added) + rest)


def tolerance_of(problem: Problem, quadratic: FloatArray, pull: float = 0.0) -> float:
    """A tolerance that `minimise` reaches, from public facts alone.

    It is 64 times what rounding can change at the largest minimiser there is: F(w*) ≤
    F(0) and losses are at least 0, so ‖w*‖ ≤ 2‖b‖/min q + √(2 Σφᵢ(0)/min q). The factor
    leaves room for tables of some times more rows than a private count says.
    """
    floor = float(quadratic.min())
    value = problem.n_rows * START_VALUE * max(1.0, problem.slope_bound)
    size = 2 * pull / floor + math.sqrt(2 * value / floor)
    return 64 * rounding(problem, quadratic, problem.n_rows, size, pull)


def minimise(objective: Objective, tolerance: float) -> Minimum:
    """Find weights at which ‖∇F‖ ≤ tolerance is certain.

    Newton steps with second derivatives as they are or, every other time, over the
    spacing of tables, which smooths kinks. A step that does not make the gradient
    smaller is shortened to where F is least along it.

    Notes
    -----
    **Guarantee.** For all tables, the exact gradient of F at the result has norm at
    most `tolerance`, hence ‖w - w*‖_q ≤ tolerance/√min q; or nothing is returned.
    F is strongly convex and has bounded second derivatives, so that steps to where it
    is least along Newton's direction converge, and tolerances of `tolerance_of` are
    above what rounding hides.
    """
    w = np.zeros(len(objective.quadratic))
    gradient = objective.gradient(w)
    for index in range(ROUNDS):
        size = float(np.linalg.norm(gradient))
        bound = size + objective.error(w)
        if bound <= tolerance:
            return Minimum(w, bound)
        direction = objective.newton(w, gradient, STEPS[index % 2])
        trial = objective.gradient(w + direction)
        length = 1.0
        if float(np.linalg.norm(trial)) > size / 2:
            length, trial = _shortened(objective, w, direction, gradient)
        w, gradient = w + length * direction, trial
    raise NotCertifiedError(
        "No minimiser was certified: raise alpha, or take another solver."
    )


def _shortened(
    objective: Objective, w: FloatArray, direction: FloatArray, gradient: FloatArray
) -> tuple[float, FloatArray]:
    """Length in (0, 1) near which F is least along a direction, by bisection."""
    start, low, high = float(gradient @ direction), 0.0, 1.0
    for _ in range(40):
        length = (low + high) / 2
        trial = objective.gradient(w + length * direction)
        slope = float(trial @ direction)
        if abs(slope) <= -0.1 * start:
            break
        low, high = (length, high) if slope < 0 else (low, length)
    return length, trial
