"""Algorithm 1 of the paper, DP-SkGD, for any query that returns a sum of gradients.

Each step draws a public set of coordinates, computes the exact sum of gradients on that
set, releases the sum, and passes the released value to an update. Updates, penalties
and averages see only released values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import BoundedSum
from skdp.privacy.randomness import Randomness
from skdp.privacy.visits import CountVisits, Visits
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


@dataclass(frozen=True, eq=False)
class Course:
    """The sets of a run, drawn before its first step if they are public.

    Attributes
    ----------
    loops : sequence of iterables of S
        The sets of the K steps of each of the T inner loops.
    n_steps : int
        K.
    visits : Visits or None
        How much of the run one record can take part in. If it is None, every record is
        assumed to take part in every step.
    """

    loops: Sequence[Iterable[IntArray]]
    n_steps: int
    visits: Visits | None = None

    @property
    def most(self) -> float:
        """The number of steps that the run must pay for (`Visits.most`)."""
        whole = float(self.n_steps * len(self.loops))
        return whole if self.visits is None else self.visits.most


def draw_course(
    sets: Sets,
    count: CountVisits | None,
    *,
    n_steps: int,
    n_restarts: int,
    randomness: Randomness,
) -> Course:
    """Draw the sets of a run, and count how much of it one record can take part in.

    Parameters
    ----------
    sets : callable (K, generator) -> iterator of S
        Draws the sets of K steps, for example ``Sampling.sets``. They must not depend
        on records, except through releases if `count` is None.
    count : callable, optional
        Returns the visits of the drawn sets (`skdp.privacy.visits`). If it is None,
        sets are drawn during the run, and every step is paid for.
    n_steps, n_restarts : int
        K (steps per inner loop) and T (number of inner loops).
    randomness : Randomness
        Source of the public sets.
    """
    check(
        min(n_steps, n_restarts) >= 1,
        f"n_steps and n_restarts must be at least 1, got {n_steps} and {n_restarts}.",
    )
    # Sets come from a generator of their own, because they may be known. The noise may
    # not, and nothing but `release` can draw it.
    public = randomness.generator()
    loops = [sets(n_steps, public) for _ in range(n_restarts)]
    if count is None:
        return Course(loops, n_steps)
    drawn = [list(loop) for loop in loops]
    flat = [at for loop in drawn for at in loop]
    for at in flat:  # callbacks get them, and must not change what was counted
        at.flags.writeable = False
    visits = count(flat)
    every = visits is None or visits.presence == 1
    return Course(drawn, n_steps, None if every else visits)


def run_steps(
    *,
    query: Query,
    update: Update,
    course: Course,
    average: Average,
    start: FloatArray,
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
    course : Course
        The sets of all steps, from `draw_course`. Its visits must be counted for the
        releases that `query` makes.
    average : callable K -> weights (K,)
        Returns the weights of θ_1..θ_K in the average (`descent.algorithm1`). The next
        inner loop starts at this average.
    start : float64 (d, k)
        The weights w⁰ at which the run starts.
    noise_multiplier : float
        Standard deviation of the noise divided by the sensitivity. 0 means no noise
        and no privacy.
    randomness : Randomness
        Source of the noise.
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
    accounting). If the course has visits, the run costs μ² = N/z², where N is the
    largest number of visits and z the noise multiplier (`skdp.privacy.visits`). This is
    charged before the first step.
    """
    shares = average(course.n_steps)
    weights, presence = start, 1.0
    if course.visits is not None and noise_multiplier:
        record.prepay(course.visits, noise_multiplier)
        presence = course.visits.presence
    for restart, sets in enumerate(course.loops):
        # The average of an inner loop is where the next one starts (Theorem 4.2,
        # restarts).
        theta, weights = weights, np.zeros_like(weights)
        for index, at in enumerate(sets):
            # Only these lines see records. All that follows is post-processing of
            # `released`, which is why a callback may keep whatever it receives.
            released = release(
                query(at, theta), noise_multiplier, randomness, record, presence
            )
            theta = update(theta, released, at)
            weights = weights + shares[index] * theta
            if callback is not None:
                callback(Step(restart, index, at, released, theta))
    return weights


# ---- Define averages of the iterates θ_1..θ_K of an inner loop
#
# Each function returns the weight of every iterate, shape (K,).


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


# ---- Define a callback that keeps all steps of a run, which are public or released


class History:
    """Collect the steps of a run: ``run(plan, records, callback=history)``.

    Attributes
    ----------
    steps : list of Step
        All steps in order.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, step: Step) -> None:
        """Append a step to `steps`."""
        self.steps.append(step)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def weights(self) -> FloatArray:
        """Iterates θ after each step, shape (steps, d, k)."""
        return np.array([step.weights for step in self.steps])

    @property
    def visits(self) -> FloatArray:
        """Number of times each coordinate was moved, shape (d,)."""
        counts = np.zeros(len(self.steps[0].weights) if self.steps else 0)
        for step in self.steps:
            counts[step.at] += 1.0
        return counts
