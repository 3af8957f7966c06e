"""Proximal maps in a matrix metric: post-processing, solved to a stated accuracy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from skdp.descent.threads import one_thread
from skdp.models.penalties import ElasticNet, Penalty
from skdp.schema import FloatArray, IntArray

#: When a sweep over the coordinates moves none by more, relative to the largest, it is
#: the last; or after so many.
TOLERANCE, MOST_SWEEPS = 1e-8, 200

Prox = Callable[[FloatArray], FloatArray]


def metric_prox(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    """Map w to argmin_u ½ ‖u - w‖²_M + ψ(u) with M = inverse⁻¹, on the rows `at`.

    A ridge is one linear system, factored once for all steps. Any other separable
    penalty is solved coordinate by coordinate, each exactly, from where the last call
    ended (Tseng 2001: a quadratic and a separable penalty, so it converges).
    """
    if isinstance(penalty, ElasticNet) and penalty.l1 == 0:
        return _ridge(inverse, penalty, at)
    return _coordinates(inverse, penalty, at)


def _ridge(inverse: FloatArray, penalty: ElasticNet, at: IntArray) -> Prox:
    if penalty.l2 == 0:
        return lambda weights: weights
    strength = np.ones(len(at)) if penalty.penalised is None else penalty.penalised[at]
    with one_thread(len(at)):
        system = np.eye(len(at)) + penalty.l2 * inverse * strength
        factors = lu_factor(system, check_finite=False)
    return lambda weights: np.asarray(lu_solve(factors, weights, check_finite=False))


def _coordinates(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    with one_thread(len(at)):
        metric = np.linalg.inv(inverse)
    each = np.diag(metric)
    state: list[FloatArray] = []  # of the last call: steps are close to each other

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
