r"""DP-GCD: greedy coordinate descent, for sparse solutions in wide tables.

A step chooses the coordinate with the largest derivative, including the penalty. It
moves only this coordinate, by the noisy derivative divided by M_j, and applies the
penalty's proximal map. After T steps at most T weights are nonzero.

**Paper** (Mangold, Bellet, Salmon, Tommasi 2023, the privacy theorem of their
Algorithm 1; the constants are quoted from memory, not checked against the text).
Laplace noise of scale λ_j = 8 L_j √(T log(1/δ))/(nε) is added to every score and to the
chosen derivative, where L_j bounds a record's derivative. By advanced composition of 2T
pure mechanisms, T steps are (ε, δ)-private for ε ≤ 1 if a record is replaced. The true
cost is smaller. With Δ = 2L/n, a noisy maximum is 2Δ/λ-private and a derivative is
Δ/λ-private. At ε = 1 and δ = 1e-6, T steps cost at most μ = .10, although the budget is
μ = .237. The standard deviation of the paper's noise is then 42 L√T/n. Ours is
8.4 L√T/n (Gaussian, with a different L, see below) or 19 L√T/n (exponential).

There are two ways to choose a coordinate. Both are charged exactly.

``"gaussian"`` (the default). The whole gradient is released with Gaussian noise. The
choice and the move are post-processing, so the derivative is not paid for twice. The
cost depends on L, a bound on the Euclidean norm of a record's gradient. With a single
joint column, one that bounds the norm of all its coordinates together (text), L is as
large as for one coordinate. With G columns, L is √G times as large.

``"exponential"``. The coordinate is drawn exactly by the exponential mechanism. Scores
are computed from the exact gradient, and their sensitivity is that of one coordinate's
derivative. Then the derivative of the chosen coordinate is released. The choice and the
release each get half of μ². The privacy loss of the exponential mechanism has a bounded
range: if exponents change by at most ω/2, the loss lies in an interval of length ω.
Therefore

    μ = 2 Φ⁻¹(1/(1 + e^{-ω/2})) ≈ .63 ω

is the smallest μ that covers its cost (`profiles`). Without the bounded range, we would
know only that the mechanism is ω-private, and the cost would be twice as high. This is
the case for noisy maxima with Laplace noise, as in the paper. Let d be the number of
coordinates. The exponential choice is better than the Gaussian one if √G √(2 log d) is
far above 1.8·log d, that is, for many columns of few categories.

The smoothness constant M_j of a coordinate is β, the bound on the curvature of the
loss. This is safe for all tables. For wide joint columns M_j is β times the mean of
x_j, which is released once for a tenth of μ². For entries in [0, 1] this mean is at
least the mean of x_j². (For entries of both signs the mean may be too small, which
costs accuracy, not privacy.) The paper takes M_j from the data as if it were public,
and chooses the largest |derivative|/√M_j. We do not use that rule. With equal noise on
all derivatives, it would choose rare coordinates because of their noise.

Neighbours: for replace-one, the sensitivity of every sum is twice as large as for the
other relations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Literal

import numpy as np

from skdp.descent.algorithm1 import Step
from skdp.descent.geometry import clip_to_box
from skdp.models.losses import Squared
from skdp.privacy import accountant, profiles, queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.grid import WEIGHT_BOX, round_up
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.privacy.selection import choose
from skdp.schema import (
    FloatArray,
    IntArray,
    Layout,
    check,
    check_integer,
    count_in_words,
)
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    ReferenceEngine,
    Run,
    Solved,
    open_run,
    refuse_coupled_penalty,
    register_solver,
)

#: Share of μ² spent on smoothness, and share of the rest spent on exponential choices.
SMOOTHNESS_SHARE, CHOICE_SHARE = 0.1, 0.5
#: Number of steps per coordinate in a run without noise.
NOISELESS_STEPS = 300
#: A joint column is wide if it has more coordinates than this. Its means are released.
WIDE = 8
#: Scores are rounded to multiples of 1/SCORE_UNITS of their sensitivity.
SCORE_UNITS = 1 << 20


def choose_gcd_steps(problem: Problem, mu: float) -> int:
    """Return the default number of steps, T = (R/c)^⅔, which balances R²/T and R c √T.

    Up to constants, R²/T is the error of stopping after T steps, and R c √T is the
    error due to noise. R = √β·G is a public guess of Σ √M_j |w_j|. It assumes that the
    weights of each of the G columns have ℓ₁ norm 1. The noise enters by
    c = L√(2 log(1 + d))/(nμ√β), where L bounds the norm of a record's gradient, and d
    is the number of coordinates.
    """
    layout = problem.layout
    if mu == math.inf:
        return NOISELESS_STEPS * layout.n_features
    likely = math.sqrt(2 * math.log(1 + layout.n_features))
    reach = problem.slope_bound * problem.row_norm * likely
    signal = problem.curvature * len(layout.groups) * problem.n_rows * mu
    return max(1, round(math.pow(signal / reach, 2 / 3)))


@register_solver(persons=True)
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
    calibration: Literal["exact", "paper"] = "exact",
    selection: Literal["gaussian", "exponential"] = "gaussian",
    smoothness: Literal["private", "public"] = "private",
    n_steps: int | None = None,
) -> Solved:
    """Fit by greedy coordinate descent.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver (`skdp.solvers.problem`).
    calibration : {"exact", "paper"}
        "exact" spends all of the budget. "paper" uses the noise scales that the paper
        gives for the (ε, δ) of the privacy record, charged at their true cost. It
        requires exponential selection.
    selection : {"gaussian", "exponential"}
        How the coordinate is chosen. See the docstring of the module.
    smoothness : {"private", "public"}
        The smoothness constants M_j of wide joint columns: β times a released mean of
        x_j ("private"), or β, the bound on the curvature of the loss ("public"). For
        all other columns, and for layouts without an intercept, M_j is always β.
    n_steps : int, optional
        The number of steps. By default `choose_gcd_steps` chooses it.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the weights and everything that the
    callback receives are post-processing of Gaussian releases of exact sums and of
    choices by the exponential mechanism, each charged before it is drawn.
    """
    check(
        selection in ("gaussian", "exponential"),
        f"selection must be 'gaussian' or 'exponential', got {selection!r}.",
    )
    check(
        calibration != "paper" or selection == "exponential",
        "calibration='paper' requires selection='exponential', got "
        "selection='gaussian'.",
    )
    check(
        smoothness in ("private", "public"),
        f"smoothness must be 'private' or 'public', got {smoothness!r}.",
    )
    refuse_coupled_penalty(problem)
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
        calibration=calibration,
        persons=True,
    )
    adder = engine(problem.records)
    M = np.full(problem.layout.n_features, problem.curvature)
    joint = _find_joint(problem.layout)
    if smoothness == "private" and len(joint) and run.mu < math.inf:
        means = _release_means(problem, run.share(SMOOTHNESS_SHARE), adder)
        M[joint] *= means[joint]
        run = run.share(1 - SMOOTHNESS_SHARE)
    steps = check_integer(n_steps or choose_gcd_steps(problem, run.mu), "n_steps")
    if selection == "gaussian":
        step = _make_gaussian_step(problem, run, adder, M, steps)
    else:
        scales = _choose_scales(run, steps, as_in_paper=calibration == "paper")
        step = _make_exponential_step(problem, run, adder, M, scales)
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


def _ask_gradient(
    problem: Problem, adder: queries.Engine, weights: FloatArray, at: IntArray
) -> queries.BoundedSum:
    shape = np.ones(len(at))
    return queries.gradient(
        adder, problem.slopes(), weights, at, problem.neighbours, shape
    )


def _move(
    problem: Problem,
    M: FloatArray,
    weights: FloatArray,
    slope: FloatArray,
    at: IntArray,
) -> FloatArray:
    """Return the rows `at` of the weights after a step.

    `slope` is the sum of the gradients on these rows.
    """
    moved = weights[at] - slope / (problem.n_rows * M[at, None])
    return clip_to_box(problem.penalty.prox(moved, M[at], at))


def _make_gaussian_step(
    problem: Problem, run: Run, adder: queries.Engine, M: FloatArray, steps: int
) -> Stepper:
    """Return a step that releases all derivatives and moves one coordinate."""
    z = accountant.noise_multiplier(run.mu, steps)

    def step(weights: FloatArray) -> tuple[IntArray, FloatArray, Released]:
        total = _ask_gradient(problem, adder, weights, problem.all)
        released = release(total, z, run.noise, run.record)
        moved = _move(problem, M, weights, released.values, problem.all)
        size = np.linalg.norm(moved - weights, axis=1) * M
        at = np.array([int(size.argmax())])
        weights = weights.copy()
        weights[at] = moved[at]
        return at, weights, released

    return step


def _choose_scales(run: Run, steps: int, *, as_in_paper: bool) -> tuple[float, float]:
    """Return the range ω of the privacy loss of one choice, and a noise multiplier.

    The derivative of the chosen coordinate is released with this noise multiplier.
    """
    if run.mu == math.inf:
        return math.inf, 0.0
    if as_in_paper:  # λ = 4·root Δ/ε: exponents score/λ, standard deviation √2 λ
        root = math.sqrt(steps * math.log(1 / run.record.delta)) / run.record.epsilon
        return 1 / (2 * root), 4 * math.sqrt(2) * root
    mu = run.share(CHOICE_SHARE).mu / math.sqrt(steps)
    z = accountant.noise_multiplier(run.share(1 - CHOICE_SHARE).mu, steps)
    return profiles.bounded_range_width(mu * (1 - 1e-12)), z


def bound_score(problem: Problem, M: FloatArray) -> float:
    """Return a bound on the influence of one record on the computed score M_j |move_j|.

    Proximal maps do not lengthen differences. So one record with slope s changes the
    exact score by at most sup |x_j s|/n, or by twice as much if the record is replaced.
    The move, the proximal map and the score are computed with relative rounding errors
    of 2⁻⁵³, from weights in the box |w| ≤ W. Let l₁ and l₂ be the coefficients of the
    penalty, and M the largest M_j. For two tables, rounding errors add less than
    2⁻⁴⁸(MW + l₂W + l₁).
    """
    times = queries.count_changes(problem.neighbours)
    l1, l2 = (getattr(problem.penalty, name, 0.0) for name in ("l1", "l2"))
    lost = 2.0**-48 * ((float(M.max()) + l2) * WEIGHT_BOX + l1)
    return round_up(times * problem.slope_bound / problem.n_rows + lost)


def score_coordinates(
    problem: Problem,
    M: FloatArray,
    weights: FloatArray,
    exact: FloatArray,
    reach: float,
) -> FloatArray:
    """Return the score M_j |move_j| of each coordinate, before rounding.

    Scores are in units of their sensitivity `reach` divided by `SCORE_UNITS`. So one
    record changes a score by at most `SCORE_UNITS` units. Rounding scores to integers
    adds at most one unit to this change. The choice of a coordinate allows for two.
    """
    with np.errstate(over="ignore"):  # overflow is clipped to the box
        moved = _move(problem, M, weights, exact, problem.all)
    return np.abs(moved - weights)[:, 0] * M / reach * SCORE_UNITS


def _make_exponential_step(
    problem: Problem,
    run: Run,
    adder: queries.Engine,
    M: FloatArray,
    scales: tuple[float, float],
) -> Stepper:
    """Return a step that chooses a coordinate and then releases its derivative."""
    check(
        problem.loss.n_outputs == 1,
        "selection='exponential' requires a loss with one output.",
    )
    width, z = scales
    reach = bound_score(problem, M)
    z_choice, rate = 0.0, Fraction(0)
    if width < math.inf:
        z_choice = accountant.noise_multiplier(profiles.bounded_range_mu(width), 1)
        rate = Fraction(math.floor(width * 2.0**53), 2**54 * (SCORE_UNITS + 2))

    def step(weights: FloatArray) -> tuple[IntArray, FloatArray, Released]:
        total = _ask_gradient(problem, adder, weights, problem.all)
        exact = total.value.astype(np.float64) * total.unit
        scores = score_coordinates(problem, M, weights, exact, reach)
        query = f"choice among {count_in_words(len(scores), 'coordinate')}"
        if z_choice:
            run.record.charge(Event(Kind.CHOICE, query, reach, z_choice, 1))
            run.record.seeded |= run.noise.seeded
            # These are Python integers, because some tables' scores overflow int64.
            whole_units = [int(score) for score in np.rint(scores).tolist()]
            chosen = choose(whole_units, rate, run.noise)
        else:
            chosen = int(scores.argmax())
        at = np.array([chosen])
        asked = _ask_gradient(problem, adder, weights, at)
        released = release(asked, z, run.noise, run.record)
        weights = weights.copy()
        weights[at] = _move(problem, M, weights, released.values, at)
        return at, weights, released

    return step


def _find_joint(layout: Layout) -> IntArray:
    """Return the coordinates of wide joint columns.

    If the layout has no intercept, return no coordinates, because `_release_means`
    requires an intercept.
    """
    wide = [g.coordinates for g in layout.groups if g.signed and g.width > WIDE]
    known = any(group.kind == "ones" for group in layout.groups)
    return np.concatenate(wide) if wide and known else np.arange(0)


def _release_means(problem: Problem, run: Run, adder: queries.Engine) -> FloatArray:
    """Release the mean of each x_j, clipped to values from the noise level to 1."""
    d, layout = problem.layout.n_features, problem.layout
    # If margins are far above all targets, the clipped squared loss has slope 1, so a
    # record's gradient is x.
    slopes = queries.Slopes(Squared(1.0), problem.records.max_weight)
    high = np.where(layout.penalised > 0, 0.0, 1000.0)[:, None]
    total = queries.gradient(
        adder, slopes, high, problem.all, problem.neighbours, np.ones(d)
    )
    query = f"means of {count_in_words(d, 'coordinate')}"
    total = replace(total, kind=Kind.MEANS, query=query)
    z = accountant.noise_multiplier(run.mu, 1)
    released = release(total, z, run.noise, run.record)
    floor = z * total.sensitivity * math.sqrt(2 * math.log(1 + d)) / problem.n_rows
    means = released.values[:, 0] / problem.n_rows
    return np.clip(means, min(floor, 1.0), 1.0)
