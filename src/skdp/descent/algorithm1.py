"""Algorithm 1 of the paper: DP-SkGD, on anything that can be asked for a gradient.

The loop draws a public set, asks for the exact sum on it, has it released, and hands
the released value to an update. Updates, penalties and averages see nothing else.
"""

from collections.abc import Callable, Iterator

import numpy as np

from skdp.descent.step import Step as Step
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import BoundedSum
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, check

Sets = Callable[[int, np.random.Generator], Iterator[IntArray]]
Query = Callable[[IntArray, FloatArray], BoundedSum]
Update = Callable[[FloatArray, Released, IntArray], FloatArray]
#: Weight of each iterate θ_1..θ_K in the average that ends an inner loop.
Average = Callable[[int], FloatArray]


def descend(
    *,
    query: Query,
    update: Update,
    sets: Sets,
    average: Average,
    start: FloatArray,
    n_steps: int,
    n_restarts: int = 1,
    noise_multiplier: float,
    randomness: Randomness,
    record: PrivacyRecord,
    callback: Callable[[Step], None] | None = None,
) -> FloatArray:
    """Run Algorithm 1.

    Parameters
    ----------
    query : callable (S, θ) -> BoundedSum
        The exact sum of the gradients on S at θ.
    update : callable (θ, Released, S) -> θ
        θ - ΓC(∇f + η) on S, and any proximal map.
    sets : callable (K, generator) -> iterator of S
        The sampling: ``Sampling.sets``.
    average : callable K -> weights (K,)
        How θ_1..θ_K become the next start (`descent.averages`).
    start : float64 (d, k)
        w⁰.
    n_steps, n_restarts : int
        K and T.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity; 0 for no privacy.
    randomness : Randomness
        Where noise comes from, and the public sets.
    record : PrivacyRecord
        What every release is charged to.
    callback : callable, optional
        Called with a `Step` after each.

    Returns
    -------
    weights : float64 (d, k)
        The last average.

    Notes
    -----
    **Guarantee.** For all queries, updates and callbacks, the result and everything
    handed to them is a function of public values and of at most K·T releases, each
    charged to `record` (Theorem 1 of the paper, with exact accounting).
    """
    check(min(n_steps, n_restarts) >= 1, "n_steps and n_restarts must be at least 1.")
    public = randomness.generator()
    shares = average(n_steps)
    weights = start
    for restart in range(n_restarts):
        theta, weights = weights, np.zeros_like(weights)
        for index, at in enumerate(sets(n_steps, public)):
            released = release(query(at, theta), noise_multiplier, randomness, record)
            theta = update(theta, released, at)
            weights = weights + shares[index] * theta
            if callback is not None:
                callback(Step(restart, index, at, released, theta))
    return weights
