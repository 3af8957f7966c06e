r"""DP-GCD: greedy coordinate descent, for sparse solutions in wide tables.

A step chooses the coordinate of the largest derivative, penalty included, and moves it
alone, by 1/M_j of its noisy derivative and through the penalty's proximal map. After T
steps at most T weights are other than zero.

**Printed** (Mangold, Bellet, Salmon, Tommasi 2023, the privacy theorem of their
Algorithm 1; constants recalled, not checked against the text): with Laplace noise of
scale λ_j = 8 L_j √(T log(1/δ))/(nε) on every score and on the chosen derivative, T
steps are (ε, δ)- private for ε ≤ 1, by advanced composition of 2T pure mechanisms,
records replaced. It has room: a noisy maximum is 2Δ/λ-private, Δ = 2L/n, a derivative
Δ/λ, and T of both cost no more than μ = .10 at ε = 1, δ = 1e-6, of .237. Their noise
has the standard deviation 42 L√T/n; ours have 8.4 (Gaussian, but see L) and 19
(exponential).

Two choices that are charged exactly:

``"gaussian"`` (the default). The whole gradient is released with Gaussian noise; choice
and move are post-processing, so that the derivative is not paid for twice. It pays the
Euclidean norm of a record's gradient: nothing more than a coordinate's for joint
columns (text), √G times as much for G columns.

``"exponential"``. The coordinate is drawn by the exponential mechanism with scores of
the exact gradient, whose sensitivity is that of one coordinate, exactly sampled; then
its derivative is released, half of μ² for each. Noisy maxima of Laplace noise, as
printed, are private in the same sense, but not of bounded range: with exponents that
move by at most ω/2 the loss lies in an interval of length ω, and

    μ = 2 Φ⁻¹(1/(1 + e^{-ω/2})) ≈ .63 ω

is the smallest GDP curve below it (`profiles`), half of what pure ω costs. It gains if
√G √(2 log d) is far above 1.8·log d: many columns of few categories.

M_j is β, which is safe for all tables, but for wide joint columns β times the mean of
x_j, released once for a tenth of μ²: for entries in [0, 1] no less than the mean of
x_j². (Of both signs it may be too small, which costs accuracy, not privacy.) The paper
takes M_j from the data as if it were public, and chooses by |derivative|/√M_j; with
equal noise on all derivatives that rule chooses rare coordinates for their noise, and
is not ours.

Relations: all sums have their own sensitivities, twice as large for replace-one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import numpy as np

from skdp.descent.algorithm1 import Step
from skdp.descent.geometry import clip_to_box
from skdp.models.losses import Squared
from skdp.privacy import accountant, profiles, queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.exponential import choose
from skdp.privacy.grid import WEIGHT_BOX, round_up
from skdp.privacy.mechanism import Released, release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, Layout, check
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    ReferenceEngine,
    Run,
    Solved,
    opened,
    whole,
)

#: Share of μ² that smoothness gets, and of the rest the choice, if it is apart.
SMOOTHNESS_SHARE, CHOICE_SHARE = 0.1, 0.5
#: Steps a coordinate without noise.
NOISELESS_STEPS = 300
#: Joint columns of more coordinates than this have their means released.
WIDE = 8
#: Scores are rounded to this part of their sensitivity.
SCORE_UNITS = 1 << 20


def default_steps(problem: Problem, mu: float) -> int:
    """T = (R/c)^⅔, which balances R²/T and R c √T.

    R = √β·G is the public guess of Σ √M_j |w_j|, each of G columns' weights of ℓ₁ norm
    1; c√T = L√(2T log d)/(nμ√β) is how far noise makes the choice miss.
    """
    layout = problem.layout
    if mu == math.inf:
        return NOISELESS_STEPS * layout.n_features
    likely = math.sqrt(2 * math.log(1 + layout.n_features))
    reach = problem.slope_bound * problem.row_norm * likely
    signal = problem.curvature * len(layout.groups) * problem.n_rows * mu
    return max(1, round(math.pow(signal / reach, 2 / 3)))


def dp_gcd(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    engine: EngineOf = ReferenceEngine,
    callback: Callback | None = None,
    calibration: Literal["exact", "printed"] = "exact",
    selection: Literal["gaussian", "exponential"] = "gaussian",
    smoothness: Literal["private", "public"] = "private",
    n_steps: int | None = None,
) -> Solved:
    """Fit by greedy coordinate descent.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver (`skdp.solvers.problem`).
    calibration : {"exact", "printed"}
        Spend all of the budget, or take the scales printed for the record's (ε, δ), for
        exponential selection only, charged at what they truly cost.
    selection : {"gaussian", "exponential"}
        How the coordinate is chosen; see the module.
    smoothness : {"private", "public"}
        Whether M_j of wide joint columns is β times a released mean of x_j, or β, as
        for all others and without an intercept.
    n_steps : int, optional
        T; `default_steps` by default.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the weights and all that the callback
    sees are post-processing of Gaussian releases of exact sums and of choices by the
    exponential mechanism, each charged before it is drawn.
    """
    check(
        selection in ("gaussian", "exponential"),
        f"selection must be 'gaussian' or 'exponential'. Got {selection!r}.",
    )
    check(
        calibration == "exact"
        or (calibration == "printed" and selection == "exponential"),
        "calibration must be 'exact', or 'printed' with selection='exponential'. Got "
        f"{calibration!r} with {selection!r}.",
    )
    check(
        smoothness in ("private", "public"),
        f"smoothness must be 'private' or 'public'. Got {smoothness!r}.",
    )
    run = opened(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
    )
    adder = engine(problem.records)
    M = np.full(problem.layout.n_features, problem.curvature)
    joint = _joint(problem.layout)
    if smoothness == "private" and len(joint) and run.mu < math.inf:
        means = _means(problem, run.share(SMOOTHNESS_SHARE), adder)
        M[joint] *= means[joint]
        run = run.share(1 - SMOOTHNESS_SHARE)
    steps = whole(n_steps or default_steps(problem, run.mu), "n_steps")
    if selection == "gaussian":
        step = _gaussian(problem, run, adder, M, steps)
    else:
        scales = _scales(run, steps, printed=calibration == "printed")
        step = _exponential(problem, run, adder, M, scales)
    weights = problem.start
    for index in range(steps):
        at, weights, released = step(weights)
        if callback is not None:
            callback(Step(0, index, at, released, weights))
    return Solved(
        weights=weights,
        record=run.record,
        n_steps=steps,
        settings={
            "calibration": calibration,
            "selection": selection,
            "smoothness": M,
            "n_steps": steps,
        },
    )


Stepper = Callable[[FloatArray], tuple[IntArray, FloatArray, Released]]


def _gradient(
    problem: Problem, adder: queries.Engine, weights: FloatArray, at: IntArray
) -> queries.BoundedSum:
    shape = np.ones(len(at))
    return queries.gradient(
        adder, problem.slopes(), weights, at, problem.neighbours, shape
    )


def _moved(
    problem: Problem,
    M: FloatArray,
    weights: FloatArray,
    slope: FloatArray,
    at: IntArray,
) -> FloatArray:
    """Rows `at` of the weights after a step along the sum `slope` of gradients."""
    moved = weights[at] - slope / (problem.n_rows * M[at, None])
    return clip_to_box(problem.penalty.prox(moved, M[at], at))


def _gaussian(
    problem: Problem, run: Run, adder: queries.Engine, M: FloatArray, steps: int
) -> Stepper:
    """Release all derivatives, move one."""
    z = accountant.noise_multiplier(run.mu, steps)

    def step(weights: FloatArray) -> tuple[IntArray, FloatArray, Released]:
        total = _gradient(problem, adder, weights, problem.all)
        released = release(total, z, run.noise, run.record)
        moved = _moved(problem, M, weights, released.values, problem.all)
        size = np.linalg.norm(moved - weights, axis=1) * M
        at = np.array([int(size.argmax())])
        weights = weights.copy()
        weights[at] = moved[at]
        return at, weights, released

    return step


def _scales(run: Run, steps: int, *, printed: bool) -> tuple[float, float]:
    """Width of the choice's privacy loss and noise multiplier of the derivative."""
    if run.mu == math.inf:
        return math.inf, 0.0
    if printed:  # λ = 4·root Δ/ε: exponents of score/λ, and the deviation √2 λ
        root = math.sqrt(steps * math.log(1 / run.record.delta)) / run.record.epsilon
        return 1 / (2 * root), 4 * math.sqrt(2) * root
    mu = run.share(CHOICE_SHARE).mu / math.sqrt(steps)
    z = accountant.noise_multiplier(run.share(1 - CHOICE_SHARE).mu, steps)
    return profiles.bounded_range_width(mu * (1 - 1e-12)), z


def score_reach(problem: Problem, M: FloatArray) -> float:
    """Bound on what one record does to M_j |move_j|, as it is computed.

    Proximal maps do not lengthen differences, so that it moves by at most sup |x_j
    s|/n, doubled for a replacement. Roundings of move, map and score, each by 2⁻⁵³ of
    what a weight in the box, |w| ≤ W, can come from, add less than 2⁻⁴⁸(MW + l₂W + l₁)
    on two tables.
    """
    times = 2.0 if problem.neighbours == "replace-one" else 1.0
    l1, l2 = (getattr(problem.penalty, name, 0.0) for name in ("l1", "l2"))
    lost = 2.0**-48 * ((float(M.max()) + l2) * WEIGHT_BOX + l1)
    return round_up(times * problem.slope_bound / problem.n_rows + lost)


def scored(
    problem: Problem,
    M: FloatArray,
    weights: FloatArray,
    exact: FloatArray,
    reach: float,
) -> FloatArray:
    """M_j |move_j| of each coordinate, in parts of its sensitivity, not yet rounded.

    Rounding to integers adds one unit to that of `SCORE_UNITS`; two are paid for.
    """
    with np.errstate(over="ignore"):  # what is beyond the box is clipped to it
        moved = _moved(problem, M, weights, exact, problem.all)
    return np.abs(moved - weights)[:, 0] * M / reach * SCORE_UNITS


def _exponential(
    problem: Problem,
    run: Run,
    adder: queries.Engine,
    M: FloatArray,
    scales: tuple[float, float],
) -> Stepper:
    """Choose a coordinate by the exponential mechanism, release its derivative."""
    check(
        problem.loss.n_outputs == 1,
        "selection='exponential' needs a loss with one output: take 'gaussian'.",
    )
    width, z = scales
    reach = score_reach(problem, M)
    z_choice, rate = 0.0, Fraction(0)
    if width < math.inf:
        z_choice = accountant.noise_multiplier(profiles.bounded_range_mu(width), 1)
        rate = Fraction(math.floor(width * 2.0**53), 2**54 * (SCORE_UNITS + 2))

    def step(weights: FloatArray) -> tuple[IntArray, FloatArray, Released]:
        total = _gradient(problem, adder, weights, problem.all)
        exact = total.value.astype(np.float64) * total.unit
        scores = scored(problem, M, weights, exact, reach)
        query = f"choice among {len(scores)} coordinates"
        if z_choice:
            run.record.charge(Event(query, reach, z_choice, 1))
            run.record.seeded |= run.noise.seeded
            # Python's integers: one table's scores must not overflow where others' fit.
            whole_units = [int(score) for score in np.rint(scores).tolist()]
            chosen = choose(whole_units, rate, run.noise)
        else:
            chosen = int(scores.argmax())
        at = np.array([chosen])
        asked = _gradient(problem, adder, weights, at)
        released = release(asked, z, run.noise, run.record)
        weights = weights.copy()
        weights[at] = _moved(problem, M, weights, released.values, at)
        return at, weights, released

    return step


def _joint(layout: Layout) -> IntArray:
    """Coordinates of wide joint columns; none if there is no intercept."""
    wide = [g.coordinates for g in layout.groups if g.signed and g.width > WIDE]
    known = any(group.kind == "ones" for group in layout.groups)
    return np.concatenate(wide) if wide and known else np.arange(0)


def _means(problem: Problem, run: Run, adder: queries.Engine) -> FloatArray:
    """Mean of each x_j, at least what noise alone reaches, at most 1."""
    d, layout = problem.layout.n_features, problem.layout
    # Far above all targets the squared loss, clipped, has slope one: gradients are x.
    slopes = queries.Slopes(Squared(1.0), problem.records.max_weight)
    high = np.where(layout.penalised > 0, 0.0, 1000.0)[:, None]
    total = queries.gradient(
        adder, slopes, high, problem.all, problem.neighbours, np.ones(d)
    )
    z = accountant.noise_multiplier(run.mu, 1)
    released = release(total, z, run.noise, run.record)
    floor = z * total.sensitivity * math.sqrt(2 * math.log(1 + d)) / problem.n_rows
    means = released.values[:, 0] / problem.n_rows
    return np.clip(means, min(floor, 1.0), 1.0)
