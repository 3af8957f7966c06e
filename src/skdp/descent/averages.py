"""Define averages of the iterates θ_1..θ_K of an inner loop.

Each function returns the weight of every iterate, shape (K,).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skdp.schema import FloatArray

Average = Callable[[int], FloatArray]


def mean(n_steps: int) -> FloatArray:
    """Weigh θ_1..θ_K equally, as in the paper."""
    return np.full(n_steps, 1.0 / n_steps)


def tail(n_steps: int) -> FloatArray:
    """Average the last half of the iterates."""
    kept = n_steps - n_steps // 2
    return np.repeat([0.0, 1.0 / kept], [n_steps - kept, kept])


def most(n_steps: int) -> FloatArray:
    """Average all iterates except the first fifth.

    This suits runs that move away from their start quickly.
    """
    dropped = n_steps // 5
    return np.repeat([0.0, 1.0 / (n_steps - dropped)], [dropped, n_steps - dropped])


def rising(n_steps: int) -> FloatArray:
    """Weigh θ_k in proportion to k.

    The influence of the start decreases as 1/K². The variance is 4/3 times the variance
    of the plain mean.
    """
    weights = np.arange(1.0, n_steps + 1.0)
    return np.asarray(weights / weights.sum())


def last(n_steps: int) -> FloatArray:
    """Give all the weight to the last iterate."""
    return np.repeat([0.0, 1.0], [n_steps - 1, 1])


def growing(rate: float) -> Average:
    """Return an average that weighs θ_k in proportion to (1 - rate)^(-k).

    It is meant for strongly convex functions (erratum 7).
    """

    def average(n_steps: int) -> FloatArray:
        powers = np.power(1.0 - rate, np.arange(n_steps - 1, -1, -1.0))
        return np.asarray(powers / powers.sum(), dtype=np.float64)

    return average


AVERAGES: dict[str, Average] = {
    "mean": mean,
    "tail": tail,
    "most": most,
    "rising": rising,
    "last": last,
}
