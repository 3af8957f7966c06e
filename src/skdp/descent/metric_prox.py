"""Apply proximal maps in the metric of a matrix, to released weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lu_factor
from scipy.linalg.lapack import dgetrs

from skdp.descent.threads import one_thread
from skdp.models.penalties import Penalty
from skdp.models.proximal import iterate
from skdp.schema import FloatArray, IntArray

#: Stop after a sweep in which no coordinate moves by more than `TOLERANCE`, relative to
#: the largest coordinate, and in any case after `MOST_SWEEPS` sweeps.
TOLERANCE, MOST_SWEEPS = 1e-8, 200

Prox = Callable[[FloatArray], FloatArray]


def make_metric_prox(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    """Return the map from w to argmin_u ½ ‖u - w‖²_M + ψ(u), with M = inverse⁻¹.

    Here ψ is the penalty. The map acts on the rows `at` of the weights. For a ridge, it
    solves one linear system, which is factored once for all steps. For any other
    separable penalty, the map minimises exactly over one coordinate at a time, starting
    from the last solution. This converges for a quadratic plus a separable penalty
    (Tseng 2001). For a penalty that couples coordinates, the map takes proximal steps
    in a diagonal metric that is at least M. The map reads only released values, so it
    is post-processing.
    """
    if not penalty.separable:
        return _make_coupled_prox(inverse, penalty, at)
    if penalty.is_ridge:
        return _make_ridge_prox(inverse, penalty.quadratic(at))
    return _make_coordinate_prox(inverse, penalty, at)


def _make_coupled_prox(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    with one_thread(len(at)):
        metric = np.asarray(np.linalg.inv(inverse), dtype=np.float64)
        root = np.sqrt(np.diag(metric))
        stretch = float(np.linalg.eigvalsh(metric / np.outer(root, root))[-1])
    above = penalty.raise_metric(stretch * (1 + 1e-9) * root**2, at)
    state: list[FloatArray] = []  # the last solution: a good start, as steps are small

    def prox(weights: FloatArray) -> FloatArray:
        found = iterate(
            lambda moved: penalty.prox(moved, above, at),
            1.0 / above[:, None],
            metric,
            weights,
            state.pop() if state else weights,
        )
        state.append(found)
        return found.copy()

    return prox


def _make_ridge_prox(inverse: FloatArray, ridge: FloatArray) -> Prox:
    if not ridge.any():
        return lambda weights: weights
    with one_thread(len(ridge)):
        system = np.eye(len(ridge)) + inverse * ridge
        factors = lu_factor(system, check_finite=False)
    # This is `lu_solve` without its checks, which take longer than the solution.
    return lambda weights: np.asarray(dgetrs(*factors, weights)[0])


def _make_coordinate_prox(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    with one_thread(len(at)):
        metric = np.linalg.inv(inverse)
    each = np.diag(metric)
    state: list[FloatArray] = []  # the last solution: a good start, as steps are small

    def prox(weights: FloatArray) -> FloatArray:
        found = penalty.prox(state.pop() if state else weights, each, at)
        pull = metric @ (found - weights)
        for _ in range(MOST_SWEEPS):
            moved = 0.0
            for j in range(len(at)):
                aim = found[j : j + 1] - pull[j : j + 1] / each[j]
                move = penalty.prox(aim, each[j : j + 1], at[j : j + 1]) - found[j]
                if move.any():
                    found[j] += move[0]
                    pull += metric[:, j : j + 1] * move
                    moved = max(moved, float(np.abs(move).max()))
            if moved <= TOLERANCE * (1.0 + float(np.abs(found).max())):
                break
        state.append(found)
        return found.copy()

    return prox
