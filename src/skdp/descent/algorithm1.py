"""Algorithm 1 of the paper, DP-SkGD, for any query that returns a sum of gradients.

Each step draws a public set of coordinates, computes the exact sum of gradients on that
set, releases the sum, and passes the released value to an update. Updates, penalties
and averages see only released values.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from skdp.descent.averages import Average
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import BoundedSum
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, check

Sets = Callable[[int, np.random.Generator], Iterator[IntArray]]
Query = Callable[[IntArray, FloatArray], BoundedSum]
Update = Callable[[FloatArray, Released, IntArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a run, as passed to a callback. All fields are public or released.

    Attributes
    ----------
    restart, index : int
        The paper's counters t (of inner loops) and k (of steps in an inner loop).
    at : array of int
        The set S of coordinates that the step moved.
    released : Released
        The noisy sum on S.
    weights : float64 (d, k)
        θ after the step.
    """

    restart: int
    index: int
    at: IntArray
    released: Released
    weights: FloatArray


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

    Each step draws a set S of coordinates and updates the weights θ on S.

    Parameters
    ----------
    query : callable (S, θ) -> BoundedSum
        The exact sum of the gradients on S at θ.
    update : callable (θ, Released, S) -> θ
        Computes θ - ΓC(∇f + η) on S, and then applies the proximal map, if any. In the
        paper, Γ holds the step sizes, C is the sketch that selects S, and η is noise.
    sets : callable (K, generator) -> iterator of S
        Draws the sets of K steps, for example ``Sampling.sets``.
    average : callable K -> weights (K,)
        Returns the weights of θ_1..θ_K in the average (`descent.averages`). The next
        inner loop starts at this average.
    start : float64 (d, k)
        The weights w⁰ at which the run starts.
    n_steps, n_restarts : int
        K (steps per inner loop) and T (number of inner loops).
    noise_multiplier : float
        Standard deviation of the noise divided by the sensitivity. 0 means no noise
        and no privacy.
    randomness : Randomness
        Source of the noise and of the public sets.
    record : PrivacyRecord
        The record to which every release is charged.
    callback : callable, optional
        Called with a `Step` after each step.

    Returns
    -------
    weights : float64 (d, k)
        The average of the last inner loop.

    Notes
    -----
    **Guarantee.** For all queries, updates and callbacks, the result and everything
    that updates and callbacks receive are functions of public values and of at most K·T
    releases, each charged to `record` (Theorem 4.1 of the paper, with exact
    accounting).
    """
    check(
        min(n_steps, n_restarts) >= 1,
        f"n_steps and n_restarts must be at least 1, got {n_steps} and {n_restarts}.",
    )
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
