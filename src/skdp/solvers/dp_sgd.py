"""DP-SGD: steps along noisy gradients of random batches.

There are two variants, which the argument `form` selects. `"practised"` is the variant
in libraries (Abadi et al. 2016). It has Poisson batches, clipped gradients, a constant
step size, and noise from numerical accounting. `"analysed"` is Algorithm 1 of Bassily,
Smith and Thakurta (2014). Its step sizes decrease like 1/√t, gradients are not clipped,
and weights are projected to a ball. Its noise comes from their Theorem 2.1 or from
numerical accounting.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from skdp.descent import algorithm1, bounds, rule, samplings
from skdp.descent.algorithm1 import Step
from skdp.descent.geometry import accelerate, clip_to_box, make_diagonal_update
from skdp.engines.reference import ReferenceEngine
from skdp.privacy import queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, check, check_integer
from skdp.solvers.poisson_batches import DELTA_SHARE, Batches, draw_batch
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    Run,
    Solved,
    open_run,
    register_solver,
)

#: Number of steps in a run without noise, and the largest default number of steps in a
#: run with noise.
NOISELESS_STEPS, MOST_STEPS = 3000, 10_000
#: Default number of steps T of the analysed variant. Its default rate is 1/√T.
ANALYSED_STEPS = 2500


@register_solver(delta_share=DELTA_SHARE, reads_rows="draws random batches of rows")
def dp_sgd(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    engine: EngineOf = ReferenceEngine,
    callback: Callback | None = None,
    form: Literal["practised", "analysed"] = "practised",
    calibration: Literal["exact", "paper"] = "exact",
    n_steps: int | None = None,
    rate: float | None = None,
    clip: float | None = None,
    learning_rate: float | None = None,
    radius: float | None = None,
) -> Solved:
    """Fit by DP-SGD.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver (`skdp.solvers.problem`).
    form : {"practised", "analysed"}
        "practised" has constant step sizes and clipping. "analysed" is Algorithm 1 of
        Bassily et al.
    calibration : {"exact", "paper"}
        "exact" uses numerical accounting. "paper" requires the analysed variant and
        uses the paper's noise, √(32 log(n/δ) log(1/δ))/ε times the sensitivity, charged
        at its true cost.
    n_steps : int, optional
        The number T of steps. In the practised variant, `choose_sgd_steps` chooses the
        default. In the analysed variant, it is 1/rate², or 2500 if no rate is given.
    rate : float, optional
        Probability that a record is in a batch. The default of the practised variant is
        2μ/√T, or more if a batch would have fewer than 64 records on average. At this
        rate, sampling adds little noise. The default of the analysed variant is 1/√T.
    clip : float, optional
        Largest norm of a record's gradient after clipping. Without clipping, the norm
        is at most slope_bound·R, where R bounds the norm of a row. The default of the
        practised variant with noise is half of slope_bound·R. Otherwise the default is
        slope_bound·R, so nothing is clipped.
    learning_rate : float, optional
        Step size. The default of the practised variant with noise is 1.9/(βR²), where β
        bounds the curvature of the loss. At 2/(βR²), the steps of some tables diverge.
    radius : float, optional
        Radius of the ball to which the analysed variant projects weights. The default
        is √(number of columns).

    Notes
    -----
    **Guarantee.** For all neighbouring tables, as the problem defines them, the
    weights and everything that the callback receives cost what the record says
    (`skdp.privacy.subsampling`, `Batches.charge_all`).
    """
    check(
        form in ("practised", "analysed"),
        f"form must be 'practised' or 'analysed', got {form!r}.",
    )
    check(
        calibration != "paper" or form == "analysed",
        "calibration='paper' requires form='analysed', got form='practised'.",
    )
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
        calibration=calibration,
        delta_share=0.0 if rate == 1.0 else DELTA_SHARE,
    )
    if form == "analysed":
        steps = check_integer(n_steps or _choose_analysed_steps(rate), "n_steps")
        chance = rate or 1.0 / math.sqrt(steps)
        radius = radius or math.sqrt(len(problem.layout.groups))
    else:
        steps = check_integer(n_steps or choose_sgd_steps(problem, run), "n_steps")
        chance = rate or choose_batch_rate(problem.n_rows, run.mu, steps)
    if calibration == "paper" and run.mu < math.inf:
        z = compute_bassily_noise(
            run.record.epsilon, run.record.delta, problem.n_rows, chance, steps
        )
        batches = Batches.price(run, chance, steps, z)
    else:
        batches = Batches.calibrate(run, chance, steps)
    moves = _Moves(problem, batches, clip, learning_rate, radius)
    weights = _run_steps(problem, run, batches, moves, engine, callback)
    settings = {
        "form": form,
        "calibration": calibration,
        "n_steps": steps,
        "rate": batches.rate,
        "noise_multiplier": batches.noise_multiplier,
        "clip": moves.most,
        "learning_rate": moves.learning_rate,
        "radius": radius,
    }
    return Solved(weights=weights, record=run.record, n_steps=steps, settings=settings)


def choose_sgd_steps(problem: Problem, run: Run) -> int:
    """Return the number of steps that is best for full gradient descent.

    This number minimises the bound on the error for noise with the same scale in all
    coordinates. At most 10,000 is returned.
    """
    if run.mu == math.inf:
        return NOISELESS_STEPS
    budget = bounds.Budget(
        n_rows=problem.n_rows,
        epsilon=run.record.epsilon,
        delta=run.record.delta,
        neighbours=problem.neighbours,
    )
    rate = rule.choose_rate(
        samplings.Full(problem.layout.n_features),
        np.full(problem.layout.n_features, problem.curvature * problem.row_norm**2),
        problem.layout,
        problem.loss,
        bounds.Prior(),
        budget,
    )
    return min(rate.n_steps, MOST_STEPS)


def choose_batch_rate(n_rows: int, mu: float, n_steps: int) -> float:
    """Return a batch rate at which sampling adds little noise.

    At this rate the noise multiplier z is about 2.
    """
    return min(1.0, max(2.0 * mu / math.sqrt(n_steps), 64.0 / n_rows))


def _choose_analysed_steps(rate: float | None) -> int:
    return ANALYSED_STEPS if rate is None else math.ceil(rate**-2)


def compute_bassily_noise(
    epsilon: float, delta: float, n_rows: int, rate: float, n_steps: int
) -> float:
    """Return the noise multiplier of Theorem 2.1 for T steps at the given rate.

    The theorem is for n² steps, each along n times the gradient of one record. If the
    gradient of one record has a norm of at most L, it uses
    σ² = 32 L² n² log(n/δ) log(1/δ)/ε². The noise multiplier is then
    z = σ/(nL) = √(32 log(n/δ) log(1/δ))/ε. For T steps at rate q, the same proof gives
    q√T times this z.
    """
    logs = math.log(n_rows / delta) * math.log(1.0 / delta)
    return rate * math.sqrt(32.0 * n_steps * logs) / epsilon


class _Moves:
    """The query for each batch, and the update that uses the released answer."""

    def __init__(
        self,
        problem: Problem,
        batches: Batches,
        clip: float | None,
        learning_rate: float | None,
        radius: float | None,
    ) -> None:
        largest = problem.slope_bound * problem.row_norm
        check(clip is None or clip > 0, f"clip must be positive, got {clip}.")
        self.problem, self.radius = problem, radius
        practised = radius is None and batches.noise_multiplier > 0
        self.most = min(clip or (largest / 2 if practised else largest), largest)
        self.clipped = self.most < largest
        d = problem.layout.n_features
        smoothness = problem.curvature * problem.row_norm**2
        if radius is not None:  # R₀/√(G² + dσ²) of a batch's mean gradient
            expected = batches.rate * problem.n_rows
            std = batches.noise_multiplier * self.most / expected
            size = d * problem.loss.n_outputs
            scale = math.sqrt(self.most**2 + size * std**2)
            self.learning_rate = learning_rate or 2.0 * radius / scale
        else:
            scale = 1.9 if practised else 1.0
            self.learning_rate = learning_rate or scale / smoothness
        check(
            self.learning_rate > 0,
            f"learning_rate must be positive, got {self.learning_rate}.",
        )
        self._expected = batches.rate * problem.n_rows
        step = np.full(d, self.learning_rate)
        self.update = make_diagonal_update(step, problem.penalty, self._expected)
        if radius is None and not batches.noise_multiplier and batches.rate == 1.0:
            self.update = accelerate(self.update)

    def query(self, engine: queries.Engine, weights: FloatArray) -> queries.BoundedSum:
        """Return the sum of a batch's gradients. A record adds at most `most` to it.

        The sensitivity is for add-remove. The accounting counts a replacement as two
        changes.
        """
        problem, slopes = self.problem, self.problem.slopes()
        if self.clipped:
            metric = queries.Metric.of(np.eye(problem.layout.n_features), self.most)
            slopes = queries.cap_slopes(engine, slopes, metric)
            return queries.mapped_gradient(engine, slopes, weights, "add-remove")
        shape = np.ones(problem.layout.n_features)
        return queries.gradient(
            engine, slopes, weights, problem.all, "add-remove", shape
        )

    def project(self, weights: FloatArray, index: int, moved: FloatArray) -> FloatArray:
        """Divide the t-th step by √t, and project the weights to the ball.

        Only the analysed variant does this. Otherwise `moved` is returned unchanged.
        """
        if self.radius is None:
            return moved
        scaled = weights + (moved - weights) / math.sqrt(index + 1.0)
        size = float(np.linalg.norm(scaled))
        return clip_to_box(scaled * min(1.0, self.radius / size if size else 1.0))


def _run_steps(
    problem: Problem,
    run: Run,
    batches: Batches,
    moves: _Moves,
    engine: EngineOf,
    callback: Callback | None,
) -> FloatArray:
    steps, weights = batches.n_steps, problem.start
    n_draws = weights.size * steps if batches.noise_multiplier else 0
    private = batches.charge_all(run, moves.most, n_draws)
    shares = algorithm1.most(steps)
    if moves.radius is not None or run.mu == math.inf:
        shares = algorithm1.last(steps)
    whole_table = engine(problem.records) if batches.rate == 1.0 else None
    average = np.zeros_like(weights)
    for index in range(steps):
        asked = whole_table or engine(
            draw_batch(problem.records, batches.rate, run.noise)
        )
        total = moves.query(asked, weights)
        released = release(total, batches.noise_multiplier, run.noise, private)
        moved = moves.update(weights, released, problem.all)
        weights = moves.project(weights, index, moved)
        average += shares[index] * weights
        if callback is not None:
            callback(Step(0, index, problem.all, released, weights))
    return average
