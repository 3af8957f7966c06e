"""DP-SEGA: sketched gradients with a memory, for any convex penalty.

SEGA (Hanzely, Mishchenko, Richtárik 2018) keeps an estimate h of the gradient. A step
draws a set S of coordinates, here the coordinates of one column, and looks at the
gradient on S alone. It corrects h there, and moves *all* coordinates along an unbiased
estimate of the whole gradient. Every step can therefore apply the proximal map of a
penalty that couples coordinates. The steps of Algorithm 1 of the paper move only the
coordinates in S, so a penalty must not couple these with other coordinates.

The private step releases the gradient sum on S, through Algorithm 1 and the function
`release`. Let g̃ be the released value divided by the number of rows n. The step is

    g ← h + P⁻¹ I_S (g̃ - h),   h ← h + α I_S (g̃ - h),   θ ← prox(θ - Q⁻¹ g).

Here θ are the weights, I_S selects the coordinates in S, P has the probabilities that
coordinates are in S, Q has the inverse step sizes, and α is the damping.

The memory h holds released values, so all of this is post-processing, and a step costs
as much privacy as a step of Algorithm 1. The damping keeps the noise of h small. The
bound from which the defaults follow is proved in docs/guide/sega.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from skdp.descent import algorithm1, bounds, rule, samplings, sega_bounds
from skdp.descent.algorithm1 import draw_course, run_steps
from skdp.descent.geometry import make_sega_update
from skdp.engines.reference import ReferenceEngine
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.randomness import Randomness
from skdp.privacy.visits import visit_gradients
from skdp.schema import FloatArray, IntArray, check, check_integer
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    Run,
    Solved,
    open_run,
    register_solver,
)

#: Number of passes over the columns in a run without noise, and the largest default
#: number of steps in a run with noise.
NOISELESS_PASSES, MOST_STEPS = 1000, 50_000
#: The damping of a run without noise.
NOISELESS_DAMPING = 0.5


@register_solver(persons=True)
def dp_sega(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    engine: EngineOf = ReferenceEngine,
    callback: Callback | None = None,
    sampling: samplings.Sampling | None = None,
    damping: float | None = None,
    metric: FloatArray | None = None,
    decay: float = 0.0,
    n_steps: int | None = None,
) -> Solved:
    """Fit by DP-SEGA, which remembers released gradients and moves all coordinates.

    Some defaults minimise a bound on the error, which is proved in docs/guide/sega.md.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver (`skdp.solvers.problem`). Every convex penalty is allowed.
    sampling : Sampling, optional
        The distribution of the set of coordinates whose gradient a step releases. By
        default the set has the coordinates of one column, and all columns are equally
        likely.
    damping : float, optional
        The factor α in [0, 1] by which the memory is corrected. The default minimises
        the bound. If α is 0, there is no memory, and the variance of the sketched
        gradient is not reduced.
    metric : float64 (d,), optional
        The inverse step sizes. The default is the smallest metric for which the bound
        is proved, but at least twice the smoothness constants. A metric that you pass
        must be public.
    decay : float
        The rate ρ at which old iterates lose weight. The result is an average in which
        the iterate θ_k has a weight proportional to (1 - ρ)^(-k).
    n_steps : int, optional
        The number K of steps. The default minimises the bound, but is at most 50,000.
        For this purpose, the bound assumes that each column's weights have norm 1, and
        that gradients are as large as they can be.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, as the problem defines them, the weights
    and everything that the callback receives cost what the record says: K steps, each
    Gaussian (`descent.algorithm1.run_steps`).
    """
    check(
        damping is None or 0 <= damping <= 1,
        f"damping must be in [0, 1], got {damping}.",
    )
    check(0 <= decay < 1, f"decay must be at least 0 and below 1, got {decay}.")
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
        persons=True,
    )
    d = problem.layout.n_features
    law = sampling or samplings.Blocks.uniform(problem.layout.blocks)
    check(
        law.n_coordinates == d,
        f"sampling must have {d} coordinates, got {law.n_coordinates}.",
    )
    steps, alpha = _choose_steps(problem, run, law, damping)
    steps = check_integer(n_steps or steps, "n_steps")
    Q = _choose_metric(problem, law, alpha, metric)
    course = draw_course(
        law.sets,
        partial(visit_gradients, problem.layout),
        n_steps=steps,
        n_restarts=1,
        randomness=run.noise,
    )
    z = accountant.noise_multiplier(run.mu, course.most)
    average = algorithm1.growing(decay) if decay else algorithm1.mean
    weights = run_steps(
        query=_make_gradient_query(problem, engine),
        update=make_sega_update(
            Q, law.probabilities, alpha, problem.penalty, problem.n_rows
        ),
        course=course,
        average=average if z else algorithm1.last,
        start=problem.start,
        noise_multiplier=z,
        randomness=run.noise,
        record=run.record,
        callback=callback,
    )
    settings = {
        "sampling": law.kind,
        "damping": alpha,
        "metric": Q,
        "decay": decay,
        "n_steps": steps,
        "noise_multiplier": z,
    }
    return Solved(weights=weights, record=run.record, n_steps=steps, settings=settings)


def _make_gradient_query(
    problem: Problem, engine: EngineOf
) -> Callable[[IntArray, FloatArray], queries.BoundedSum]:
    """Return a function that asks for the gradient on a set of coordinates.

    The noise has the same scale in all coordinates.
    """
    table, slopes = engine(problem.records), problem.slopes()

    def query(at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        shape = np.ones(len(at))
        return queries.gradient(table, slopes, weights, at, problem.neighbours, shape)

    return query


def _bound_smoothness(problem: Problem) -> FloatArray:
    """Return the smoothness constants M of the coordinates, which are all βR².

    They satisfy Diag(M) ⪰ H for the Hessian H of the mean loss. β bounds the curvature
    of the loss, and R the norm of a row.
    """
    return np.full(problem.layout.n_features, problem.curvature * problem.row_norm**2)


def _choose_metric(
    problem: Problem,
    law: samplings.Sampling,
    damping: float,
    metric: FloatArray | None,
) -> FloatArray:
    if metric is None:
        M, p = _bound_smoothness(problem), law.probabilities
        metric = sega_bounds.choose_metric(M, p, damping or NOISELESS_DAMPING)
    given = np.asarray(metric, dtype=np.float64)
    d = problem.layout.n_features
    check(
        given.shape == (d,) and bool(np.all((given > 0) & (given < math.inf))),
        f"metric must have one positive number for each of {d} coordinates.",
    )
    return problem.penalty.raise_metric(given, problem.all)


def _choose_steps(
    problem: Problem, run: Run, law: samplings.Sampling, damping: float | None
) -> tuple[int, float]:
    """Return the number of steps and the damping that minimise the bound on the error.

    A damping that is not None is kept. The bound assumes that the weights of each
    column have norm 1, and that the gradient of each column at the solution has norm L,
    the bound on a record's slope. It also assumes that weights and gradient are spread
    evenly over the coordinates of the column.
    """
    if run.mu == math.inf:
        passes = NOISELESS_PASSES / float(law.probabilities.min())
        return math.ceil(passes), NOISELESS_DAMPING if damping is None else damping
    layout = problem.layout
    even = 1.0 / np.sqrt(np.bincount(layout.group_of)[layout.group_of])

    def lipschitz(at: IntArray) -> float:
        return problem.slope_bound * math.sqrt(layout.squared_norm(at))

    def choose(budget: bounds.Budget) -> tuple[bounds.Rate, float]:
        return sega_bounds.choose_sega_rate(
            law,
            _bound_smoothness(problem),
            lipschitz,
            budget,
            distance=even,
            gradient=problem.slope_bound * even,
            n_outputs=problem.loss.n_outputs,
            damping=damping or None,
        )

    budget = bounds.Budget(
        n_rows=problem.n_rows,
        epsilon=run.record.epsilon,
        delta=run.record.delta,
        neighbours=problem.neighbours,
    )
    rate, best = choose(budget)
    budget = rule.find_presence(budget, law, layout, rate.n_steps)
    if budget.presence < 1:
        rate, best = choose(budget)
    return min(rate.n_steps, MOST_STEPS), best if damping is None else damping
