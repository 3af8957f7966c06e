"""Compute a regularised sum of losses in floating point, and bound rounding errors.

The function is F(w) = Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ² + b·w, where i runs over the records of
a problem. All qⱼ are positive. The quadratic term defines the norms: ‖w‖_q² = Σ qⱼwⱼ²
for weights, and ‖g‖_{1/q}² = Σ gⱼ²/qⱼ for gradients. Whatever the records are, this
module ensures that none contributes more than its bound to a gradient. It clips the
records' weights to `max_weight`, and slopes to the bound of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, hstack, vstack
from scipy.sparse.linalg import LinearOperator, cg

from skdp.privacy.encoding import AnyArray, Chunk
from skdp.privacy.grid import FEATURE_ONE, round_up
from skdp.schema import FloatArray, Group, Layout, check, split_hats
from skdp.solvers.problem import Problem

#: Largest number of rows in a block. Gradients are added up within blocks first.
BLOCK = 4096
#: Half a unit in the last place of 1.
U = 2.0**-53
#: Largest number of coordinates for which Newton steps factorise the Hessian.
DENSE = 600
#: Slopes are interpolated linearly in tables with entries 1/128 apart. The derivative
#: of an interpolated slope may exceed the curvature bound β, by at most this factor.
STEEPER = 1.01
#: Smallest A, the part of an error bound that does not depend on the weights. Tables
#: without rows have this A.
LEAST_ERROR = 1e-300


def refuse_outputs(problem: Problem) -> None:
    """Raise if the loss has several outputs, because such slopes are not monotone."""
    check(
        problem.loss.n_outputs == 1,
        f"This solver requires a loss with one output, got {problem.loss.name} with "
        f"{problem.loss.n_outputs}. Fit one class against the rest.",
    )


def bound_reach(problem: Problem, quadratic: FloatArray) -> float:
    """Return a bound on ‖x‖_{1/q} for all encoded rows x, with q = `quadratic`."""
    return math.sqrt(problem.layout.squared_norm(problem.all, 1.0 / quadratic))


def bound_steepness(problem: Problem, quadratic: FloatArray) -> float:
    """Return κ, a bound on a record's curvature relative to the quadratic term.

    For all rows x, κ ≥ φ'' xᵀQ⁻¹x with Q = Diag(q).
    """
    return round_up(STEEPER * problem.curvature * bound_reach(problem, quadratic) ** 2)


@dataclass(frozen=True)
class Rounding:
    """Bound E = A + B‖w‖ + C‖b‖ on the rounding error of a gradient, in ‖·‖_{1/q}.

    A, B and C are `fixed`, `growth` and `tilt`. U is the relative error of one
    rounding. The error has these parts:

    * A margin that is a sum of k terms has error (k+1)U‖x‖_{1/q}‖w‖_q. This changes the
      slope by at most β times this error, where β bounds the curvature of the loss.
    * Slopes are computed with a few roundings of numbers below 4096(1 + bound)/128,
      which are positions in tables.
    * Relative to Σ‖x‖_{1/q}|slope|, the sum of the m terms of a block has error mU, and
      the sum over all blocks has an error of U times the number of blocks.
    * The quadratic and the linear term have errors of a few U.

    The total is doubled. It then also covers LU‖w‖_q, the rounding error of a plain
    step of `minimise`, where L is `Objective.steepness`.
    """

    fixed: float
    growth: float
    tilt: float = 16 * U

    @classmethod
    def of(cls, problem: Problem, quadratic: FloatArray, n_rows: int) -> Self:
        """Return the bound for tables of at most `n_rows` rows."""
        reach = bound_reach(problem, quadratic)
        entries = sum(group.n_entries for group in problem.layout.groups)
        margin = (entries + 4) * U * reach
        weight, bound = problem.records.max_weight, problem.loss.slope_bound
        slope = 512 * U * weight * (1 + bound)
        added = (BLOCK + 2 * n_rows / BLOCK + 4) * U * problem.slope_bound
        bend = STEEPER * problem.curvature * margin
        fixed = 2 * n_rows * reach * (slope + added)
        return cls(max(fixed, LEAST_ERROR), 2 * n_rows * reach * bend + 16 * U)

    def at(self, size: float, pull: float) -> float:
        """Return the value of the bound for ‖w‖_q = `size` and ‖b‖_{1/q} = `pull`."""
        return self.fixed + self.growth * size + self.tilt * pull


@dataclass(eq=False, repr=False)
class Objective:
    """The function F(w) of a problem.

    Parameters
    ----------
    problem : Problem
        The problem, with its records and its loss.
    quadratic : float64 (d,)
        The coefficients q of the quadratic term.
    linear : float64 (d,), optional
        The coefficients b of the linear term. By default there is none.
    """

    problem: Problem
    quadratic: FloatArray
    linear: FloatArray | None = None

    def __post_init__(self) -> None:
        refuse_outputs(self.problem)
        chunks, layout = self.problem.records.chunks, self.problem.layout
        most = self.problem.records.max_weight
        pieces = (
            (matrix, chunk.target[rows], _clip_weights(chunk.weight[rows], most))
            for chunk in chunks
            for matrix, rows in _cut_rows(chunk, layout)
        )
        self._blocks = list(_join(pieces))
        self.n_rows = sum(matrix.shape[0] for matrix, _, _ in self._blocks)
        self.steepness = 1.0 + self.n_rows * bound_steepness(
            self.problem, self.quadratic
        )
        self._lost = Rounding.of(self.problem, self.quadratic, self.n_rows)
        self._pull = 0.0 if self.linear is None else self.norm(self.linear)

    def gradient(self, w: FloatArray) -> FloatArray:
        """Return ∇F(w) as computed in floating point, shape (d,)."""
        total = self.quadratic * w
        if self.linear is not None:
            total = total + self.linear
        for matrix, target, weight in self._blocks:
            slope = self._slope((matrix @ w)[:, None], target) * weight
            total = total + matrix.T @ slope[:, 0]
        return np.asarray(total)

    def _slope(self, margin: FloatArray, target: AnyArray) -> FloatArray:
        """Return slopes, clipped to the bound of the loss.

        Codes beyond the last class count as the last class.
        """
        loss = self.problem.loss
        if loss.n_classes:
            target = np.minimum(target, loss.n_classes - 1)
        slope = loss.slope(margin, target)
        return np.clip(slope, -loss.slope_bound, loss.slope_bound)

    def length(self, step: FloatArray) -> float:
        """Return the norm ‖step‖_q."""
        return float(np.linalg.norm(np.sqrt(self.quadratic) * step))

    def norm(self, gradient: FloatArray) -> float:
        """Return the norm ‖gradient‖_{1/q}."""
        return float(np.linalg.norm(gradient / np.sqrt(self.quadratic)))

    def error(self, w: FloatArray) -> float:
        """Return a bound on the rounding error of `gradient` at w, in ‖·‖_{1/q}."""
        return self._lost.at(self.length(w), self._pull)

    def falls(self, w: FloatArray, step: FloatArray, gradient: FloatArray) -> bool:
        """Return whether the gradient computed at w proves that F(w) ≤ F(w - step)."""
        length, size = self.length(step), self.norm(gradient)
        if not (0 < length < 1e100 and size < 1e100):
            return False
        lost = self.error(w) + 2 * len(w) * U * size
        return float(gradient @ step) + lost * length <= length**2 / 2

    def newton(self, w: FloatArray, gradient: FloatArray, step: float) -> FloatArray:
        """Return an approximation of the Newton step -(∇²F)⁻¹ ∇F.

        Second derivatives are differences of slopes over `step`. No proof depends on
        the result, which may even be nan.
        """
        if not self._blocks:
            return -gradient / self.quadratic
        bends = []
        for matrix, target, weight in self._blocks:
            margin = (matrix @ w)[:, None]
            up, down = (self._slope(margin + h, target) for h in (step, -step))
            bends.append(((up - down) * weight)[:, 0] / (2 * step))
        if len(w) <= DENSE:
            hessian = np.diag(self.quadratic)
            for (matrix, _, _), bend in zip(self._blocks, bends, strict=True):
                hessian += (matrix.T @ (matrix * bend[:, None])).toarray()
            try:
                return np.asarray(-np.linalg.solve(hessian, gradient))
            except np.linalg.LinAlgError:
                return np.full(len(w), np.nan)
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


def _cut_rows(chunk: Chunk, layout: Layout) -> Iterator[tuple[csr_array, slice]]:
    """Yield blocks of a chunk's rows, and the positions of these rows in the chunk.

    Features are converted to floats without rounding.
    """
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
            elif group.kind == "hats":
                parts.append(_make_hats(part[rows], group))
            else:
                numbers: Any = csr_array(part[rows])
                parts.append(numbers.astype(np.float64) / FEATURE_ONE)
        yield csr_array(hstack(parts, format="csr")), rows


def _make_hats(positions: AnyArray, group: Group) -> csr_array:
    """Return the values of hat functions, for a curve or a pair of columns.

    The result is a sparse matrix of floats.
    """
    places, units = split_hats(positions, group.axes, FEATURE_ONE)
    rows = np.repeat(np.arange(len(places)), places.shape[1])
    at, values = places.ravel(), units.ravel() / FEATURE_ONE
    kept = np.flatnonzero((at < group.width) & (values > 0))
    entries = (values[kept], (rows[kept], at[kept]))
    return csr_array(entries, shape=(len(places), group.width))


Block = tuple[Any, AnyArray, FloatArray]


def _clip_weights(weight: AnyArray, most: float) -> FloatArray:
    """Return records' weights (n, 1), clipped to [0, most].

    The bounds on slopes and curvature contain the factor `most`. Only this clipping
    ensures that they hold.
    """
    known = np.where(np.isnan(weight), 0.0, np.asarray(weight, dtype=np.float64))
    return np.clip(known, 0.0, most)[:, None]


def _join(pieces: Iterator[Block]) -> Iterator[Block]:
    """Join short pieces into blocks of at most `BLOCK` rows.

    However the N rows are divided into pieces, there are at most 2N/BLOCK + 1 blocks.
    """
    held: list[Block] = []
    for piece in pieces:
        if held and sum(len(one[1]) for one in held) + len(piece[1]) > BLOCK:
            yield _stack(held)
            held = []
        held.append(piece)
    if held:
        yield _stack(held)


def _stack(held: list[Block]) -> Block:
    matrices, targets, weights = zip(*held, strict=True)
    matrix = csr_array(vstack(matrices, format="csr"))
    return matrix, np.concatenate(targets), np.concatenate(weights)
