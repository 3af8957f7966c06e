"""Minimise a penalised sum, and prove how far the result is from the minimiser."""

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

# ---- Compute a regularised sum of losses in floating point, and bound rounding errors
#
# The function is F(w) = Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ² + b·w, where i runs over the records
# of a problem. All qⱼ are positive. The quadratic term defines the norms: ‖w‖_q² = Σ
# qⱼwⱼ² for weights, and ‖g‖_{1/q}² = Σ gⱼ²/qⱼ for gradients. For
# all tables, no record contributes more than its bound to a gradient, because its
# weight is clipped to `max_weight`, and its slope to the bound of the loss.


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
        f"This solver requires a loss with one output, got {problem.loss.kind} with "
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
        self._blocks = list(_join_blocks(pieces))
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
                parts.append(_make_hat_columns(part[rows], group))
            else:
                numbers: Any = csr_array(part[rows])
                parts.append(numbers.astype(np.float64) / FEATURE_ONE)
        yield csr_array(hstack(parts, format="csr")), rows


def _make_hat_columns(positions: AnyArray, group: Group) -> csr_array:
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


def _join_blocks(pieces: Iterator[Block]) -> Iterator[Block]:
    """Join short pieces into blocks of at most `BLOCK` rows.

    However the N rows are divided into pieces, there are at most 2N/BLOCK + 1 blocks.
    """
    held: list[Block] = []
    for piece in pieces:
        if held and sum(len(one[1]) for one in held) + len(piece[1]) > BLOCK:
            yield _stack_blocks(held)
            held = []
        held.append(piece)
    if held:
        yield _stack_blocks(held)


def _stack_blocks(held: list[Block]) -> Block:
    matrices, targets, weights = zip(*held, strict=True)
    matrix = csr_array(vstack(matrices, format="csr"))
    return matrix, np.concatenate(targets), np.concatenate(weights)


# ---- Minimise regularised losses in floating point, with a proof of accuracy
#
# The objective is F(w) = Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ² + b·w, with all qⱼ > 0. The first
# sum is over the N records of a table. The vector b is called the tilt. The slopes φᵢ'
# are the functions of `losses`, taken over the real numbers. Let r be a bound on the
# slopes, and β a bound on their derivatives. Slopes are increasing, so F is strongly
# convex. Let w* be its minimiser and F* its minimum. Then ‖w - w*‖_q ≤ ‖∇F(w)‖_{1/q}
# for every w, where ‖v‖_q² = Σ qⱼvⱼ² and ‖g‖_{1/q}² = Σ gⱼ²/qⱼ. A point is returned
# only when its gradient is *proved* to be small, that is, when the computed gradient is
# small even after the largest possible rounding error is added.
#
# **Every table is solved**, so the success of a proof reveals nothing about the
# records. Let E(w) bound the error of the gradient computed at w, in the norm
# ‖·‖_{1/q}. A point is certified if its computed gradient is at most 3 E(w). Then
# ‖∇F(w)‖_{1/q} ≤ 4 E(w).
#
# *Proof that a certified point is found.* `minimise` takes three kinds of steps.
#
# (a) A step that halves the smallest computed gradient so far. This can happen only a
# bounded number of times: if A is the least value of E, a gradient below 3A is
# certified.
#
# (b) A step d that ends at w and does not raise F. Strong convexity gives
# F(w - d) ≥ F(w) - ∇F(w)·d + ½‖d‖_q². So F(w) ≤ F(w - d) if ∇F(w)·d ≤ ½‖d‖_q². The step
# is taken if this inequality holds for the computed product plus its largest possible
# rounding error.
#
# (c) The plain step d = -g/(Lq), with g the computed gradient and L = 1 +
# Nβ sup‖x‖²_{1/q}. It satisfies
#
# .. math:: F(w + d) ≤ F(w) - \frac{1}{2L} (‖∇F(w)‖_{1/q}² - E(w)²) ,
#
# because ∇F is L-Lipschitz in these norms. E also covers the rounding errors of the
# step. As long as no point is certified, ‖∇F(w)‖_{1/q} > 2 E(w). Since F - F* ≤
# ½‖∇F‖²_{1/q}, a plain step then multiplies F - F* by at most 1 - 3/(4L).
#
# Each round that does not halve the gradient ends with a plain step, and gradients
# cannot be halved forever. So after the last step of kind (a), either a point is
# certified or F decreases to F*, where gradients are below 3A and points are certified.
# Thus the loop ends, for every table. ∎
#
# Newton steps make the minimisation fast, but the proof does not depend on them. A
# public condition, L ≤ `STEEPEST`, limits the run time if Newton steps do not help.
#
# **How far results may differ.** Let w̃ be a certified point. `Rounding` gives
# E(w) ≤ A + B‖w‖_q + C‖b‖_{1/q}. At the minimum b = -q∘w* - Σᵢ φᵢ'(xᵢ·w*) xᵢ, so
# ‖b‖_{1/q} ≤ ‖w*‖_q + N r sup‖x‖_{1/q}. C times the last term is below A/100. With
# s = ‖w*‖_q and 4B ≤ 1/100, this gives ‖w̃ - w*‖_q ≤ τ(s) = 4.1 (1.01 A + (B + C) s).
#
# `locate_minimiser` returns Π(w̃), which is w̃ shortened to a public radius S. For two
# tables with the same w*, Π(w̃) and Π(w̃') differ by at most 2τ(2S), for every s. If s
# ≤ 2S, this holds because Π does not lengthen distances. If s > 2S, both points are
# longer than s/2, because τ(2S) ≤ S (which is checked). There Π multiplies distances by
# at most 2S/s, and 4S τ(s)/s ≤ 2τ(2S). Nothing is assumed about b, so tilts of any
# length are covered.
#
# **Private numbers of rows** (add-remove). A and B grow with the number of rows N,
# which may be larger than the public `n_rows`. The proofs hold for N < 2M, with M =
# max(2²⁴, 4 n_rows). `locate_minimiser` returns f(N) Π(w̃), where f(N) = min(1, 2 -
# N/M), and 0 for tables of 2M rows or more. Since |f(N+1) - f(N)| ≤ 1/M, this adds S/M
# to the sensitivity. This is little, because 2S is about √N. Tables of at most M rows
# are not affected.


#: Largest number of rounds in a run without noise. Its result needs no proof.
ROUNDS = 1000
#: Newton steps use difference quotients of slopes, alternately at these two distances
#: on either side of the margin. The second distance is the spacing of the tables from
#: which slopes are read.
STEPS = (1e-6, 1.0 / 128)
#: Largest ratio of the curvature of the loss, summed over all rows, to the curvature of
#: the quadratic term.
STEEPEST = 1e7
#: Bound on the value at margin 0 of every loss with one output. It also holds if the
#: slopes of the loss are read from tables.
START_VALUE = 1.01
#: Largest accepted B, the rate at which rounding errors grow with the weights.
LARGEST_GROWTH = 1.0 / 400
#: If the number of rows is private, results for tables of more than M rows are scaled
#: down (`fade`). This is the smallest M.
LEAST_ROWS = 1 << 24


def read_ridge(problem: Problem) -> FloatArray:
    """Return the ridge penalty n·alpha of each coordinate, shape (d,).

    Raise if the penalty is not a ridge.
    """
    penalty = problem.penalty
    if not penalty.is_ridge:
        raise ValueError("This solver requires a ridge penalty or none (l1_ratio=0).")
    return problem.n_rows * penalty.quadratic(np.arange(problem.layout.n_features))


def check_ridge(quadratic: FloatArray) -> None:
    """Raise if the quadratic term is zero for some coordinate."""
    check(
        float(quadratic.min()) > 0,
        "ridge must be > 0 unless every coordinate is penalised; omit it for the "
        "default.",
    )


@dataclass(frozen=True)
class Bounds:
    """Bounds that hold for all tables of a problem. They follow from public facts.

    Attributes
    ----------
    radius : float
        The radius S. Weights with a norm ‖w‖_q above S are shortened to S. For tables
        whose rows the proofs cover (`count_covered_rows`), minimisers are shorter than
        S, unless the tilt b is longer than the `pull` for which S was computed.
    tolerance : float
        τ(2S), a bound on the distance of the computed minimiser from the exact one, if
        the exact one is not longer than 2S.
    slack : float
        For two neighbouring tables, the results of `locate_minimiser` are farther apart
        than the exact minimisers by at most `slack`, in the norm ‖·‖_q.
    """

    radius: float
    tolerance: float
    slack: float

    @classmethod
    def of(cls, problem: Problem, quadratic: FloatArray, pull: float = 0.0) -> Self:
        """Return bounds for a problem and its neighbour relation.

        The radius is longer than the minimisers w* for all tilts b with ‖b‖_{1/q} ≤
        `pull`. Losses are nonnegative, so F(w*) ≤ F(0) implies
        ½‖w*‖_q² ≤ F(0) + ‖b‖_{1/q}‖w*‖_q.
        """
        full, most = count_covered_rows(problem)
        weight = problem.records.max_weight
        value = most * START_VALUE * weight * max(1.0, problem.loss.slope_bound)
        radius = round_up(2 * pull + math.sqrt(2 * value))
        lost = Rounding.of(problem, quadratic, most)
        grows = (lost.growth + lost.tilt) * 2 * radius
        tolerance = 4.1 * (1.01 * lost.fixed + grows)
        check(
            tolerance <= radius,
            "Rounding errors could be as large as the weights, because the slope bound "
            f"{problem.slope_bound:.3g} is too large for the penalty.",
        )
        slack = 2 * (tolerance + 8 * U * radius)
        slack += radius / full if most > full else 0.0
        return cls(radius, tolerance, round_up(slack))


def count_covered_rows(problem: Problem) -> tuple[int, int]:
    """Return M and the largest number of rows that the proofs cover.

    Results for tables of at most M rows are not scaled down (`fade`). If the number of
    rows is private, the proofs cover 2M rows. Otherwise both numbers are the public
    number of rows.
    """
    if problem.neighbours != "add-remove":
        return problem.n_rows, problem.n_rows
    full = max(LEAST_ROWS, 4 * problem.n_rows)
    return full, 2 * full


def fade(problem: Problem, n_rows: int) -> float:
    """Return the factor f(N) by which the result for a table of N rows is multiplied.

    It is 1 up to M rows and falls linearly to 0 at 2M rows (`count_covered_rows`).
    """
    return min(1.0, max(0.0, 2.0 - n_rows / count_covered_rows(problem)[0]))


def refuse_steep(problem: Problem, quadratic: FloatArray) -> None:
    """Raise if the quadratic term is too small to solve every table.

    The decision depends on public facts alone.
    """
    check(
        problem.slope_bound * problem.n_rows * problem.row_norm < 1e100,
        f"The slope bound {problem.slope_bound:.3g} is too large for this solver.",
    )
    ratio = problem.n_rows * bound_steepness(problem, quadratic)
    lost = Rounding.of(problem, quadratic, count_covered_rows(problem)[1])
    check(
        ratio <= STEEPEST and lost.growth <= LARGEST_GROWTH,
        "The ridge is too small to find the minimiser of every table, because the loss "
        f"may be curved {ratio:.3g} times as much as the penalty. ridge must be at "
        f"least {find_least_ridge(problem):.3g}; omit it for the default.",
    )


def find_least_ridge(problem: Problem) -> float:
    """Return the smallest ridge on the mean loss that `refuse_steep` accepts."""
    flat = np.full(problem.layout.n_features, float(problem.n_rows))
    ratio = problem.n_rows * bound_steepness(problem, flat)
    lost = Rounding.of(problem, flat, count_covered_rows(problem)[1])
    return max(ratio / STEEPEST, lost.growth / (LARGEST_GROWTH - 16 * U)) * (1 + 1e-6)


@np.errstate(all="ignore")
def minimise(objective: Objective, rounds: float = math.inf) -> FloatArray:
    """Find weights at which the gradient of F is proved to be small.

    Newton steps use difference quotients of slopes as second derivatives. To smooth
    kinks, every second step uses quotients over a longer distance (`STEPS`). A Newton
    step is shortened if F would rise. If it does not halve the gradient, a plain
    gradient step follows.

    Notes
    -----
    **Guarantee.** For all tables, weights w are returned at which the exact gradient of
    F has a norm ‖∇F(w)‖_{1/q} of at most 4 `objective.error`. The distance ‖w - w*‖_q
    from the exact minimiser w* has the same bound. The comment that opens this section
    has the proof. With finite `rounds` nothing is guaranteed.
    """
    w = np.zeros(len(objective.quadratic))
    gradient, least, index = objective.gradient(w), math.inf, 0
    while objective.norm(gradient) > 3 * objective.error(w) and index < rounds:
        before = objective.norm(gradient)
        least = min(least, before)
        direction = objective.newton(w, gradient, STEPS[index % 2])
        w, gradient = _along(objective, w, gradient, direction, least / 2)
        if objective.norm(gradient) > before / 2:
            w = w - gradient / (objective.quadratic * objective.steepness)
            gradient = objective.gradient(w)
        index += 1
    return w


def _along(
    objective: Objective,
    w: FloatArray,
    gradient: FloatArray,
    direction: FloatArray,
    small: float,
) -> tuple[FloatArray, FloatArray]:
    """Return weights and gradient after a step along `direction`.

    The step brings the gradient below `small`, or does not raise F.
    """
    if not np.isfinite(direction).all():
        return w, gradient
    moved = w + direction
    trial = objective.gradient(moved)
    halved = objective.norm(trial) <= small
    if halved or objective.falls(moved, moved - w, trial):  # the rounded step
        return moved, trial
    start, low, high = float(gradient @ direction), 0.0, 1.0
    best = (w, gradient)
    for _ in range(40):
        length = (low + high) / 2
        moved = w + length * direction
        trial = objective.gradient(moved)
        slope = float(trial @ direction)
        if slope <= 0 and objective.falls(moved, moved - w, trial):
            best = (moved, trial)
            if slope >= 0.1 * start:
                break
        low, high = (length, high) if slope < 0 else (low, length)
    return best


def locate_minimiser(
    objective: Objective, bounds: Bounds, *, proved: bool
) -> FloatArray:
    """Return the computed minimiser, shape (d,), which a solver may release with noise.

    The minimiser w̃ that `minimise` finds is shortened to `games.radius` and
    multiplied by `fade`. In the proof that opens this section, the result is called
    f(N) Π(w̃). If `proved` is false, the minimisation ends after at most `ROUNDS`
    rounds. This is for runs without noise, which claim no privacy.

    Notes
    -----
    **Guarantee.** For all neighbouring tables and all tilts, two results that are
    `proved` are farther apart than the exact minimisers by at most `games.slack`, in
    the norm ‖·‖_q. In particular, if the exact minimisers are the same, the results
    differ by at most `games.slack`.
    """
    share = fade(objective.problem, objective.n_rows)
    if share == 0.0:
        return np.zeros(len(objective.quadratic))
    w = minimise(objective, math.inf if proved else ROUNDS)
    return share * w * min(1.0, bounds.radius / max(objective.length(w), 1e-300))
