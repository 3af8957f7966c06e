"""Run Algorithm 1 of the paper as it is printed, on any function or table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from skdp.descent import algorithm1
from skdp.descent.bounds import paper_noise_multiplier
from skdp.descent.geometry import (
    Diagonal,
    Task,
    clip_to_box,
    make_diagonal_update,
    make_sega_update,
)
from skdp.descent.plan import (
    Calibration,
    check_calibration,
    check_separable,
    check_start,
)
from skdp.descent.rule import find_lipschitz
from skdp.descent.samplings import Sampling, check_positive
from skdp.descent.sega_bounds import choose_metric
from skdp.descent.smoothness import from_bounds
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.privacy import accountant, queries
from skdp.privacy.budget import (
    ALLOWED_DRAWS,
    PrivacyRecord,
    check_budget,
    default_delta,
)
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, check, count_in_words

Gradient = Callable[[FloatArray], ArrayLike]
OfSet = float | Callable[[IntArray], float]
"""One number for all sets, or a function of the set S."""

STATED = (
    "The caller stated that, on each set S of coordinates that a step may draw, no "
    "record's gradient has a norm above lipschitz in exact arithmetic."
)


def descend(
    f: Gradient | Records,
    sampling: Sampling,
    *,
    n_steps: int,
    n_restarts: int = 1,
    step_sizes: ArrayLike | None = None,
    smoothness: ArrayLike | None = None,
    noise: OfSet | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    start: ArrayLike | None = None,
    loss: Loss | None = None,
    lipschitz: OfSet | None = None,
    n_rows: int | None = None,
    neighbours: queries.Neighbours = "replace-one",
    penalty: Penalty | None = None,
    elliptical: bool = False,
    calibration: Calibration = "exact",
    damping: float | None = None,
    directions: ArrayLike | None = None,
    average: algorithm1.Average = algorithm1.mean,
    engine: Callable[[Records], queries.Engine] = ReferenceEngine,
    callback: Callable[[algorithm1.Step], None] | None = None,
    random_state: int | None = None,
) -> tuple[FloatArray, PrivacyRecord]:
    """Minimise f by DP-SkGD, Algorithm 1 of the paper.

    For t = 0, …, T-1 the algorithm sets θ⁰ = w^t. For k = 0, …, K-1 it draws a set S
    of coordinates and noise η ∼ N(0, σ_S² I), and computes
    θ^{k+1} = θ^k - ΓC(∇f(θ^k) + η). Here Γ is the diagonal matrix of step sizes,
    C = I_S P⁻¹, and P is the diagonal matrix of the probabilities P(j ∈ S). The average
    of θ¹, …, θ^K is w^{t+1}. In addition to the paper, only two things are done to the
    weights: they are clipped to ±1024, and if there is a penalty, each step applies its
    proximal map.

    Parameters
    ----------
    f : callable w -> ∇f(w), or Records
        The gradient (d,) of f at weights (d,), or an encoded table (`skdp.encode`),
        for which f is the mean loss over the rows.
    sampling : Sampling
        The distribution of S (`skdp.descent.samplings`).
    n_steps, n_restarts : int
        K and T.
    step_sizes, smoothness : float64 (d,), optional
        Γ, or the smoothness constants M, from which Γ = PM⁻¹ follows. Give only one of
        them. If f is an encoded table, the default M follows from public bounds.
    noise : float or callable S -> float, optional
        σ_S, the standard deviation of each coordinate of η.
    epsilon, delta : float, optional
        A budget, in place of `noise`. Exact accounting then determines σ_S, which is
        proportional to L_S. δ is min(1e-6, 1/(10n)) by default. If neither `noise` nor
        `epsilon` is given, there is no noise.
    start : float64 (d,), optional
        w⁰, by default 0. It must be public.
    loss : Loss, optional
        The loss. It is required if f is an encoded table.
    lipschitz : float or callable S -> float, optional
        L_S, a bound on the norm of a record's gradient on S. It is required if f is a
        gradient and noise is added, and the privacy claim then relies on it. If f is an
        encoded table, the bound follows from the layout.
    n_rows : int, optional
        The number n of rows. It is required if f is a gradient and noise is added, and
        if f is an encoded table and the neighbours are add-remove.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours. The default is replace-one, as in the paper. The
        default of estimators is add-remove.
    penalty : Penalty, optional
        A separable penalty, by default none, as in the paper.
    elliptical : bool
        Whether the noise on a set is elliptical (`Diagonal`) instead of isotropic. This
        is possible only if f is an encoded table and `noise` is not given.
    calibration : {"exact", "paper"}
        How a budget determines σ_S: by exact accounting, or by the paper's Theorem 4.1,
        σ_S² = 12 L_S² K T log(1/δ)/(nε)².
    damping : float, optional
        The damping α in (0, 1] of DP-SEGA (docs/guide/sega.md). Steps then move all
        coordinates along an estimate of the whole gradient, and every convex penalty is
        allowed. The step sizes are the inverse of the metric Q. If `smoothness` is
        given instead, it must satisfy Diag(M) ⪰ H, and Q follows from it.
    directions : float64 (r, d), optional
        A public matrix Q whose rows are drawn instead of coordinates, if f is a
        gradient. A step on a set S of rows releases Q_S ∇f, and subtracts
        Q_Sᵀ Γ_S P_S⁻¹ (Q_S ∇f + η) from the weights. The sampling, the step sizes, the
        smoothness and L_S are then those of the rows: L_S bounds ‖Q_S g‖ for the
        gradient g of one record. There can be no penalty.
    average : callable K -> weights (K,)
        How θ¹, …, θ^K are averaged (`skdp.descent.algorithm1`).
    engine : callable Records -> Engine
        Makes the engine that adds up records.
    callback : callable, optional
        Called with a `Step` after each step.
    random_state : int, optional
        A seed, for tests only. A seeded run claims no privacy.

    Returns
    -------
    weights : float64 (d,), or (d, k) for a loss with several outputs
        w^T.
    privacy : PrivacyRecord
        What was spent.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the weights and everything that the
    callback receives cost what `privacy` says. If f is an encoded table, this is
    unconditional. The sets are drawn first, and the cost follows from the steps that
    one record can take part in (`skdp.privacy.visits`). If f is a gradient, it requires
    that no record's gradient on S has a norm above L_S, and that f is the mean over n
    records. In this case `privacy` lists the bound as an assumption. If σ_S/L_S varies,
    every step is charged as if it drew the set with the smallest σ_S/L_S.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import descend
    >>> from skdp.descent.samplings import SingleCoordinate
    >>> M = np.array([1.0, 4.0])
    >>> w, privacy = descend(
    ...     lambda w: M * (w - 1),
    ...     SingleCoordinate.importance(M),
    ...     smoothness=M,
    ...     n_steps=200,
    ...     random_state=0,
    ... )
    >>> np.round(w, 1)
    array([1., 1.])
    """
    check(
        noise is None or epsilon is None,
        "Give noise or epsilon, not both, because one determines the other.",
    )
    check(
        not elliptical or (isinstance(f, Records) and noise is None),
        "elliptical=True requires records as f, and epsilon instead of noise.",
    )
    check(
        calibration == "exact" or epsilon is not None,
        "calibration='paper' requires epsilon, got noise or no budget.",
    )
    p, noisy = sampling.probabilities, noise is not None or epsilon is not None
    source = Randomness(random_state)
    if isinstance(f, Records):
        check(loss is not None, "Records require a loss, such as skdp.Logistic().")
        assert loss is not None
        check(
            lipschitz is None,
            "lipschitz must be omitted, because it follows from the records' schema.",
        )
        lipschitz = find_lipschitz(f.layout, loss.slope_bound * f.max_weight)
        n_rows = f.count() if n_rows is None and neighbours != "add-remove" else n_rows
        check(
            f.layout.n_features == len(p),
            f"sampling must have {f.layout.n_features} coordinates, as the records "
            f"have, got {len(p)}.",
        )
    check(
        n_rows is not None or not (noisy or isinstance(f, Records)),
        "n_rows is required.",
    )
    check(
        lipschitz is not None or not noisy,
        "lipschitz is required with noise. It bounds the gradient of one record, and "
        "the privacy cost is computed from it.",
    )
    check(
        damping is None or 0 < damping <= 1,
        f"damping must be in (0, 1], got {damping}.",
    )
    rows = None if directions is None else np.asarray(directions, dtype=np.float64)
    check(
        rows is None or (rows.ndim == 2 and rows.shape[0] == len(p)),
        f"directions must be a matrix with {len(p)} rows, as the sampling has.",
    )
    check(
        rows is None
        or not (isinstance(f, Records) or penalty is not None or damping is not None),
        "directions require a gradient as f, and no penalty or damping. For a table, "
        "use a plan with the geometry Sketched.",
    )
    free = step_sizes is None and smoothness is None
    if free and damping is not None and isinstance(f, Records):  # Diag(M) ⪰ H
        assert loss is not None
        reach = f.layout.squared_norm(np.arange(len(p)))
        smoothness = np.full(len(p), loss.curvature * f.max_weight * reach)
    gamma = _choose_step_sizes(f, loss, sampling, step_sizes, smoothness)
    n = 1 if n_rows is None else n_rows
    diagonal = Diagonal(smoothness=p / gamma, elliptical=elliptical)
    # What a user's gradient does to single coordinates is not known, so every record is
    # assumed to take part in every step.
    count = None
    if isinstance(f, Records):
        count = partial(diagonal.count_visits, f.layout)
    course = algorithm1.draw_course(
        sampling.sets,
        count,
        n_steps=n_steps,
        n_restarts=n_restarts,
        randomness=source,
    )
    budget = _RunBudget(sampling, n, neighbours, course, calibration)
    if epsilon is not None:
        record, z = budget.spend(epsilon, delta)
    elif noise is not None and lipschitz is not None:
        record, z = budget.measure(noise, lipschitz, delta)
    else:
        record, z = budget.spend(math.inf, delta)
    if isinstance(f, Records):
        assert loss is not None
        exact = _sum_records(f, loss, diagonal, engine, neighbours, n)
        n_outputs, record.unit = loss.n_outputs, f.layout.unit
    else:
        exact, n_outputs = _state(f, lipschitz or 0.0, n, neighbours, rows), 1
        record.assumptions = (STATED,) if noisy else ()

    def query(at: IntArray, theta: FloatArray) -> queries.BoundedSum:
        total = exact(at, theta)
        if noise is None or not z:
            return total
        # A sensitivity may be overstated. Here it is raised until the noise, which is
        # z times the sensitivity, is as large as requested.
        wanted = _evaluate(noise, at) * n / z
        return replace(total, sensitivity=max(total.sensitivity, wanted))

    penalty = penalty or ElasticNet()
    zero = np.zeros((len(p) if rows is None else rows.shape[1], n_outputs))
    if rows is not None:
        update = _make_row_update(gamma / p, rows, n)
    elif damping is not None:
        inverse = 1.0 / gamma
        if step_sizes is None:
            inverse = choose_metric(p / gamma, p, damping)
        metric = penalty.raise_metric(inverse, np.arange(len(p)))
        update = make_sega_update(metric, p, damping, penalty, n)
    else:
        check_separable(penalty, sampling, n_outputs)
        update = make_diagonal_update(gamma / p, penalty, n)
    weights = algorithm1.run_steps(
        query=query,
        update=update,
        course=course,
        average=average,
        start=zero if start is None else check_start(start, zero),
        noise_multiplier=z,
        randomness=source,
        record=record,
        callback=callback,
    )
    return (weights[:, 0] if n_outputs == 1 else weights), record


@dataclass(frozen=True)
class _RunBudget:
    """Computes the noise from the budget, or the budget from the noise."""

    sampling: Sampling
    n_rows: int
    neighbours: queries.Neighbours
    course: algorithm1.Course
    calibration: Calibration

    def spend(self, epsilon: float, delta: float | None) -> tuple[PrivacyRecord, float]:
        """Return a privacy record, and the noise multiplier.

        With exact accounting, all steps together use up the budget (ε, δ) of the
        record. The noise of the paper is larger.
        """
        delta = default_delta(self.n_rows) if delta is None else delta
        if epsilon < math.inf:
            check_budget(epsilon, delta, self.n_rows)
        check_calibration(self.calibration, epsilon, delta)
        record = PrivacyRecord(epsilon=epsilon, delta=delta, neighbours=self.neighbours)
        z = accountant.noise_multiplier(math.sqrt(record.budget), self.course.most)
        if self.calibration == "paper" and z:
            n_releases = self.course.n_steps * len(self.course.loops)
            z = max(z, paper_noise_multiplier(epsilon, delta, n_releases))
        return record, z

    def measure(
        self, noise: OfSet, lipschitz: OfSet, delta: float | None
    ) -> tuple[PrivacyRecord, float]:
        """Return a privacy record for the cost of noise σ_S, and the noise multiplier.

        The multiplier is the smallest over all sets S. If the sampling does not list
        its sets, the bound L on a record's whole gradient replaces every L_S. This is
        safe, because L is at least L_S for every S.
        """
        sets = self.sampling.support
        check(
            sets is not None or not callable(noise),
            "noise must be one number. A function of the set requires a sampling that "
            "lists its sets.",
        )
        everything = np.arange(self.sampling.n_coordinates)
        reach = queries.count_changes(self.neighbours)
        z = min(
            _evaluate(noise, at) * self.n_rows / (reach * _evaluate(lipschitz, at))
            for at in (sets or (everything,))
        )
        check(0 <= z < math.inf, "noise must be finite and at least 0 for every set.")
        if z == 0:
            return self.spend(math.inf, delta)
        z *= 1 - 1e-9  # the sensitivity that is stated below is rounded up
        delta = default_delta(self.n_rows) if delta is None else delta
        mu = math.sqrt(self.course.most) / z
        epsilon = accountant.spent_epsilon(mu, delta, ALLOWED_DRAWS) * (1 + 1e-6)
        check_budget(epsilon, delta, self.n_rows)
        record = PrivacyRecord(epsilon=epsilon, delta=delta, neighbours=self.neighbours)
        return record, z


def _evaluate(value: OfSet, at: IntArray) -> float:
    """Return `value(at)` if `value` is a function of sets, and `value` otherwise."""
    return float(value(at) if callable(value) else value)


def _choose_step_sizes(
    f: Gradient | Records,
    loss: Loss | None,
    sampling: Sampling,
    step_sizes: ArrayLike | None,
    smoothness: ArrayLike | None,
) -> FloatArray:
    """Return the step sizes, which by default are probabilities/smoothness."""
    check(
        step_sizes is None or smoothness is None,
        "Give step_sizes or smoothness, not both, because one determines the other.",
    )
    if step_sizes is not None:
        return check_positive(
            step_sizes, sampling.n_coordinates, "descend", "step_sizes"
        )
    if smoothness is None and isinstance(f, Records) and loss is not None:
        beta = loss.curvature * f.max_weight
        smoothness = from_bounds(sampling, f.layout.blocks, beta)
    if smoothness is None:
        raise ValueError("If f is a gradient, it requires step_sizes or smoothness.")
    m = check_positive(smoothness, sampling.n_coordinates, "descend", "smoothness")
    return np.asarray(sampling.probabilities / m)


def _sum_records(
    records: Records,
    loss: Loss,
    geometry: Diagonal,
    engine: Callable[[Records], queries.Engine],
    neighbours: queries.Neighbours,
    n_rows: int,
) -> algorithm1.Query:
    """Return the query for the exact sum of the records' gradients on S."""

    def refuse(total: queries.BoundedSum, share: float) -> Released:
        raise AssertionError("Algorithm 1 releases nothing before its first step.")

    task = Task(
        engine=engine(records),
        loss=loss,
        slopes=queries.Slopes(loss=loss, max_weight=records.max_weight),
        curvature=loss.curvature * records.max_weight,
        neighbours=neighbours,
        n_rows=n_rows,
        penalty=ElasticNet(),
        release=refuse,
    )
    return geometry.prepare(task).query


def _make_row_update(
    step: FloatArray, rows: FloatArray, n_rows: float
) -> algorithm1.Update:
    """Return an update that moves all weights along the rows of Q that were drawn."""

    def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
        if not isinstance(released, Released):
            raise TypeError(
                f"An update takes only released values, got {type(released).__name__}."
            )
        move = step[at, None] * released.values / n_rows
        return clip_to_box(weights - rows[at].T @ move)

    return update


def _state(
    gradient: Gradient,
    lipschitz: OfSet,
    n_rows: int,
    neighbours: queries.Neighbours,
    rows: FloatArray | None,
) -> algorithm1.Query:
    """Return the query for n ∇f on S, with the sensitivity that the caller states.

    If there are `rows` of a matrix Q, the query is for n Q_S ∇f.
    """
    reach = queries.count_changes(neighbours)

    def query(at: IntArray, theta: FloatArray) -> queries.BoundedSum:
        bound = _evaluate(lipschitz, at)
        check(
            0 <= bound < math.inf,
            f"lipschitz must be finite and at least 0 for every set, got {bound}.",
        )
        found = np.asarray(gradient(theta[:, 0].copy()), dtype=np.float64)
        check(
            found.shape == (len(theta),),
            f"The gradient must have shape ({len(theta)},), got {found.shape}.",
        )
        rounding = 2.0**-30 * math.sqrt(len(at))  # by state_sensitivity
        sensitivity = reach * bound + rounding
        name = f"gradient of {count_in_words(len(at), 'coordinate')}"
        value = n_rows * (found[at] if rows is None else rows[at] @ found)[:, None]
        return queries.state_sensitivity(value, sensitivity, Kind.STATED, name)

    return query
