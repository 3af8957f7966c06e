"""The excess of a run after each number of passes over the data.

A system calls ``callback(passes, weights)`` after each step: the passes so far and the
weights that it would return if it stopped there. A pass reads every cell once. A batch
of rate q is q passes; the gradient on a set of columns is their share of a pass,
because engines keep margins and move them by what changed; a release over all rows
that is not a gradient (such as a Gram matrix) is a whole pass.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from skdp.descent import algorithm1
from skdp.descent.algorithm1 import Average, Step
from skdp.engines.choice import choose_engine
from skdp.schema import FloatArray, Layout

Callback = Callable[[float, FloatArray], None]

#: What adds up the records in all experiments: compiled, with one thread.
ENGINE: Any = choose_engine("compiled", n_threads=1)


def columns_share(layout: Layout) -> Callable[[Step], float]:
    """Passes of a step on a set of coordinates: its columns' share of all columns."""

    def passes(step: Step) -> float:
        touched = len(np.unique(layout.group_of[step.at]))
        return touched / len(layout.groups)

    return passes


def running(average: Average) -> Callable[[FloatArray], FloatArray]:
    """Return a function that is handed iterates and gives their average so far.

    Parameters
    ----------
    average : Average
        One of ``mean``, ``rising``, ``most`` and ``last`` of `skdp.descent.algorithm1`.
    """
    if average is algorithm1.most:
        sums: list[Any] = [0.0]

        def most(weights: FloatArray) -> FloatArray:
            sums.append(sums[-1] + weights)
            count = len(sums) - 1
            dropped = count // 5
            return np.asarray((sums[-1] - sums[dropped]) / (count - dropped))

        return most
    share = {
        algorithm1.mean: lambda count: 1.0 / count,
        algorithm1.rising: lambda count: 2.0 / (count + 1),
        algorithm1.last: lambda count: 1.0,
    }[average]
    state: list[Any] = [0, 0.0]

    def mixed(weights: FloatArray) -> FloatArray:
        state[0] += 1
        state[1] = state[1] + share(state[0]) * (weights - state[1])
        return np.asarray(state[1])

    return mixed


def followed(
    callback: Callback | None,
    passes: Callable[[Step], float],
    average: Average,
    before: float = 0.0,
) -> Callable[[Step], None] | None:
    """Return a solver's callback that tells of passes and averages so far.

    Parameters
    ----------
    callback : callable (passes, weights), optional
        Who is told; if None there is no callback.
    passes : callable Step -> float
        Passes of one step.
    average : Average
        How the system makes one point of its iterates.
    before : float
        Passes before the first step.
    """
    if callback is None:
        return None
    total, averaged = [before], running(average)

    def after(step: Step) -> None:
        total[0] += passes(step)
        callback(total[0], averaged(step.weights))

    return after
