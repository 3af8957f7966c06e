r"""DP-GCD: greedy coordinate descent, for sparse solutions in wide tables.

A step chooses the coordinate with the largest derivative, including the penalty. It
moves only this coordinate, by the noisy derivative divided by M_j, and applies the
penalty's proximal map. After T steps at most T weights are nonzero.

**Paper** (Mangold, Bellet, Salmon, Tommasi 2023, the privacy theorem of their
Algorithm 1; the constants are quoted from memory, not checked against the text).
Laplace noise of scale λ_j = 8 L_j √(T log(1/δ))/(nε) is added to every score and to the
chosen derivative. By advanced composition of 2T pure mechanisms, T steps are
(ε, δ)-private for ε ≤ 1 and replaced records. The true cost is smaller. With Δ = 2L/n,
a noisy maximum is 2Δ/λ-private and a derivative Δ/λ-private. At ε = 1, δ = 1e-6, T
steps cost at most μ = .10, and the budget is .237. The standard deviation of the
paper's noise is 42 L√T/n. Ours is 8.4 L√T/n (Gaussian, but with a different L, see
below) or 19 L√T/n (exponential).

There are two ways to choose a coordinate. Both are charged exactly.

``"gaussian"`` (the default). The whole gradient is released with Gaussian noise. The
choice and the move are post-processing, so the derivative is not paid for twice. The
cost depends on the Euclidean norm of a record's gradient. This L is as large as for a
single coordinate if there is one joint column (text), and √G times as large if there
are G columns.

``"exponential"``. The coordinate is drawn exactly by the exponential mechanism. Scores
are computed from the exact gradient. Their sensitivity is the sensitivity of a single
coordinate. Then the derivative of the chosen coordinate is released. The choice and the
release each get half of μ². The privacy loss of the exponential mechanism has a bounded
range: if exponents change by at most ω/2, the loss lies in an interval of length ω.
Therefore

    μ = 2 Φ⁻¹(1/(1 + e^{-ω/2})) ≈ .63 ω

is the smallest μ that covers its cost (`profiles`). If nothing but ω-privacy were known
of the mechanism, the cost would be twice as high. Noisy maxima with Laplace noise, as
in the paper, are private in the same sense, but have no such bounded range. The
exponential choice is better than the Gaussian one if √G √(2 log d) is far above
1.8·log d, that is, for many columns of few categories.

M_j is β, which is safe for all tables. For wide joint columns M_j is β times the mean
of x_j, which is released once for a tenth of μ². For entries in [0, 1] this mean is at
least the mean of x_j². (For entries of both signs it may be too small, which costs
accuracy, not privacy.) The paper takes M_j from the data as if it were public, and
chooses by |derivative|/√M_j. We do not use that rule. With equal noise on all
derivatives, it would choose rare coordinates because of their noise.

Neighbours: each sum has its own sensitivity, which is twice as large for replace-one.
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
    check_whole,
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


def choose_steps(problem: Problem, mu: float) -> int:
    """Return the default number of steps, T = (R/c)^⅔, which balances R²/T and R c √T.

    R = √β·G is a public guess of Σ √M_j |w_j|. It assumes that the weights of each of
    the G columns have ℓ₁ norm 1. The error of the choice due to noise is
    c√T = L√(2T log d)/(nμ√β).
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
        How M_j of wide joint columns is chosen: β times a released mean of x_j
        ("private"), or β ("public"). M_j is β for all other columns, and for layouts
        without an intercept.
    n_steps : int, optional
        T. By default `choose_steps` chooses it.

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
        calibration == "exact"
        or (calibration == "paper" and selection == "exponential"),
        "calibration must be 'exact', or 'paper' with selection='exponential', got "
        f"{calibration!r} with {selection!r}.",
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
        persons=True,
    )
    adder = engine(problem.records)
    M = np.full(problem.layout.n_features, problem.curvature)
    joint = _find_joint(problem.layout)
    if smoothness == "private" and len(joint) and run.mu < math.inf:
        means = _release_means(problem, run.share(SMOOTHNESS_SHARE), adder)
        M[joint] *= means[joint]
        run = run.share(1 - SMOOTHNESS_SHARE)
    steps = check_whole(n_steps or choose_steps(problem, run.mu), "n_steps")
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
    """Return the range ω of a choice's privacy loss, and a noise multiplier.

    The noise multiplier is that of the release of the chosen derivative.
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

    Proximal maps do not lengthen differences. So one record changes the exact score by
    at most sup |x_j s|/n, or twice as much if the record is replaced. The move, the
    proximal map and the score are computed with relative rounding errors of 2⁻⁵³, from
    weights in the box |w| ≤ W. For two tables, these errors add less than
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

    The unit is the sensitivity divided by `SCORE_UNITS`, so the sensitivity is
    `SCORE_UNITS` units. Rounding to integers adds at most one unit, and the choice of a
    coordinate allows for two.
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
        many = "coordinate" if len(scores) == 1 else "coordinates"
        query = f"choice among {len(scores)} {many}"
        if z_choice:
            run.record.charge(Event(query, reach, z_choice, 1))
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

    If the layout has no intercept, return no coordinates, because means cannot be
    released then.
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
    z = accountant.noise_multiplier(run.mu, 1)
    released = release(total, z, run.noise, run.record)
    floor = z * total.sensitivity * math.sqrt(2 * math.log(1 + d)) / problem.n_rows
    means = released.values[:, 0] / problem.n_rows
    return np.clip(means, min(floor, 1.0), 1.0)
