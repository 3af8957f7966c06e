r"""Minimisers of regularised losses in floating point, with a proved distance.

The objective is a sum over records, F(w) = Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ² + b·w, with all
qⱼ > 0. Its slopes are those of `losses`, as real functions: they increase, so F is
strongly convex and ‖w - w*‖_q ≤ ‖∇F(w)‖_{1/q} for every w, with ‖v‖_q² = Σ qⱼvⱼ² and
‖g‖_{1/q}² = Σ gⱼ²/qⱼ. A point is returned once its gradient is *proved* to be small:
the computed one plus the largest possible rounding error.

**Every table is solved**, so the success of a proof reveals nothing about the records.
Let E(w) bound the error of the gradient computed at w, in the norm ‖·‖_{1/q}. A point
is certified if its computed gradient is at most 3 E(w), so ‖∇F(w)‖_{1/q} ≤ 4 E(w).

*Proof that one is found.* `minimise` takes three kinds of steps. (a) One that halves
the smallest computed gradient so far. This happens a bounded number of times, because
a gradient below 3A, A the least value of E, is certified. (b) A step d to w that does
not raise F: F(w) ≤ F(w - d) if ∇F(w)·d ≤ ½‖d‖_q², because F(w - d) ≥ F(w) - ∇F(w)·d +
½‖d‖_q². It is taken if the computed product plus the largest rounding error satisfies
this. (c) The plain step d = -g/(Lq), with g the computed gradient and L = 1 +
Nβ sup‖x‖²_{1/q}, satisfies

.. math:: F(w + d) ≤ F(w) - \frac{1}{2L} (‖∇F(w)‖_{1/q}² - E(w)²) ,

because ∇F is L-Lipschitz in these norms; E also covers the roundings of the step. As
long as nothing is certified, ‖∇F(w)‖_{1/q} > 2 E(w), so a plain step lowers F - F* ≤
½‖∇F‖²_{1/q} by a factor of at most 1 - 3/(4L). Each round that does not halve the
gradient ends with a plain step, and gradients cannot be halved forever. So after the
last step of the first kind F falls to F*, where gradients are below 3A, unless a point
is certified before: the loop ends, for every table. ∎

Newton steps make it fast; the proof does not depend on them. A public condition, L ≤
`STEEPEST`, limits the time that plain steps take where Newton steps do not help.

**How far results may differ.** E(w) ≤ A + B‖w‖_q + C‖b‖_{1/q}, `Rounding`. At the
minimum b = -q∘w* - Σ slopes, so ‖b‖_{1/q} ≤ ‖w*‖_q + N r sup‖x‖_{1/q}, and the last
term is below A/100. With s = ‖w*‖_q and 4B ≤ 1/100 this gives ‖w̃ - w*‖_q ≤ τ(s) = 4.1
(1.01 A + (B + C) s). `locate_minimiser` returns Π(w̃), which is w̃ shortened to a public
radius S. For two tables with the same w*, Π(w̃) and Π(w̃') differ by at most 2τ(2S) for
every s: if s ≤ 2S because Π does not lengthen distances; if s > 2S because both points
are longer than s/2 (τ(2S) ≤ S is checked), where Π shortens distances by 2S/s, and
4S τ(s)/s ≤ 2τ(2S). Nothing is assumed about b: a tilt of any length is covered.

**Private numbers of rows** (add-remove). A and B grow with the number of rows N, which
may be larger than the public `n_rows`. Proofs are for N < 2M, M = max(2²⁴, 4 n_rows),
and `locate_minimiser` returns f(N) Π(w̃) with f(N) = min(1, 2 - N/M), and 0 from 2M rows
on. Since |f(N+1) - f(N)| ≤ 1/M, this adds S/M to the sensitivity, which is little,
because 2S is about √N. Only tables of more than M rows are faded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from skdp.models.penalties import ElasticNet
from skdp.privacy.grid import round_up
from skdp.schema import FloatArray, check
from skdp.solvers.penalised import Objective, Rounding, U, bound_steepness
from skdp.solvers.problem import Problem

#: Most rounds of a minimisation without noise, which needs no proof.
ROUNDS = 1000
#: Alternating distances for differences of slopes; tables have 128 entries per unit.
STEPS = (1e-6, 1.0 / 128)
#: Largest ratio of the loss's curvature, over all rows, to that of the quadratic term.
STEEPEST = 1e7
#: Bound on the value at margin 0 of every loss with one output, tables included.
START_VALUE = 1.01
#: Largest B: how rounding may grow with the weights.
LARGEST_GROWTH = 1.0 / 400
#: Smallest number of rows up to which a table is not faded if the number is private.
LEAST_ROWS = 1 << 24


def read_ridge(problem: Problem) -> FloatArray:
    """Return the penalty as n·alpha on each coordinate, shape (d,); refuse others."""
    penalty = problem.penalty
    if not isinstance(penalty, ElasticNet) or penalty.l1:
        raise ValueError("This solver requires a ridge penalty or none (l1_ratio=0).")
    d = problem.layout.n_features
    on = np.ones(d) if penalty.penalised is None else penalty.penalised
    return np.asarray(problem.n_rows * penalty.l2 * on, dtype=np.float64)


@dataclass(frozen=True)
class Bounds:
    """Bounds that hold for all tables of a problem, from public facts alone.

    Attributes
    ----------
    radius : float
        S, to which ‖w‖_q is shortened. Minimisers of tables of up to 2M rows are
        shorter, unless the tilt is longer than `pull`.
    tolerance : float
        τ(2S).
    slack : float
        Bound on how much more the results of `locate_minimiser` for two neighbouring
        tables differ than their exact minimisers, in the norm ‖·‖_q.
    """

    radius: float
    tolerance: float
    slack: float

    @classmethod
    def of(cls, problem: Problem, quadratic: FloatArray, pull: float = 0.0) -> Self:
        """Return bounds for the problem's relation and likely tilts, ‖b‖ ≤ `pull`.

        F(w*) ≤ F(0) implies ½‖w*‖_q² ≤ F(0) + ‖b‖_{1/q}‖w*‖_q for losses above 0.
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
            "Rounding could hide the minimiser of this problem: its slopes, of up to "
            f"{problem.slope_bound:.3g}, are too large for its penalty.",
        )
        slack = 2 * (tolerance + 8 * U * radius)
        slack += radius / full if most > full else 0.0
        return cls(radius, tolerance, round_up(slack))


def count_covered_rows(problem: Problem) -> tuple[int, int]:
    """Return M and the number of rows that proofs cover: 2M if private, else M."""
    if problem.neighbours != "add-remove":
        return problem.n_rows, problem.n_rows
    full = max(LEAST_ROWS, 4 * problem.n_rows)
    return full, 2 * full


def fade(problem: Problem, n_rows: int) -> float:
    """Return f(N): 1 for tables of at most M rows, 0 from 2M rows on."""
    return min(1.0, max(0.0, 2.0 - n_rows / count_covered_rows(problem)[0]))


def refuse_steep(problem: Problem, quadratic: FloatArray) -> None:
    """Refuse, from public facts, a quadratic term too small to solve every table."""
    check(
        problem.slope_bound * problem.n_rows * problem.row_norm < 1e100,
        f"The bound on slopes is too large for this solver: {problem.slope_bound:.3g}.",
    )
    ratio = problem.n_rows * bound_steepness(problem, quadratic)
    lost = Rounding.of(problem, quadratic, count_covered_rows(problem)[1])
    check(
        ratio <= STEEPEST and lost.growth <= LARGEST_GROWTH,
        "The ridge is too small to find the minimiser of every table: the loss may be "
        f"curved {ratio:.3g} times as much as the penalty. ridge must be at least "
        f"{find_least_ridge(problem):.3g}; omit it for the default.",
    )


def find_least_ridge(problem: Problem) -> float:
    """Return a ridge (of the mean loss) that `refuse_steep` accepts."""
    flat = np.full(problem.layout.n_features, float(problem.n_rows))
    ratio = problem.n_rows * bound_steepness(problem, flat)
    lost = Rounding.of(problem, flat, count_covered_rows(problem)[1])
    return max(ratio / STEEPEST, lost.growth / (LARGEST_GROWTH - 16 * U)) * (1 + 1e-6)


@np.errstate(all="ignore")
def minimise(objective: Objective, rounds: float = math.inf) -> FloatArray:
    """Find weights at which ‖∇F(w)‖_{1/q} ≤ 4 E(w) is certain.

    Newton steps use second derivatives or, every other time, differences over the
    spacing of tables, which smooth kinks. They are shortened where F would rise. A
    plain step follows each one that does not halve the gradient.

    Notes
    -----
    **Guarantee.** For all tables weights are returned, and the exact gradient of F
    there has norm at most 4 `objective.error`, hence ‖w - w*‖_q too: the proof of this
    module. With finite `rounds` nothing is certain.
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
    """Return weights and gradient after a step that halves it or does not raise F."""
    if not np.isfinite(direction).all():
        return w, gradient
    moved = w + direction
    trial = objective.gradient(moved)
    halved = objective.norm(trial) <= small
    if halved or objective.falls(moved, moved - w, trial):  # the step as it was rounded
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
    """Return f(N) Π(w̃), shape (d,), which a solver may release with noise.

    A run without noise claims nothing; if not `proved`, it ends after `ROUNDS`.

    Notes
    -----
    **Guarantee.** For all neighbouring tables and all tilts, two results that are
    `proved` differ by at most `bounds.slack` more than the exact minimisers do, and by
    `bounds.slack` if these are the same, in the norm ‖·‖_q.
    """
    share = fade(objective.problem, objective.n_rows)
    if share == 0.0:
        return np.zeros(len(objective.quadratic))
    w = minimise(objective, math.inf if proved else ROUNDS)
    return share * w * min(1.0, bounds.radius / max(objective.length(w), 1e-300))
