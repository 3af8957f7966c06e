"""DP-SVRG (Wang, Ye, Xu 2017): stochastic steps corrected by a full gradient.

There are T epochs. Each begins with weights w̃ and computes the full gradient ṽ there.
Each of its m steps moves the weights x. A step draws a batch B, moves along
∇f_B(x) - ∇f_B(w̃) + ṽ plus noise, and applies the penalty's proximal map. The next
epoch begins with the mean of the iterates x.

`"paper"` draws fresh noise for all three terms in every step. Its variance is
σ² = c G² Tm log(1/δ)/(nε)², where G bounds the norm of a record's gradient. The paper
leaves the constant c open. `"exact"` releases ṽ once per epoch and reuses the released
value. The two other terms form a correction, to which a record adds little if x is
close to w̃. For a record with features u and slope φ', the change of the slope is
|φ'(u·x) - φ'(u·w̃)| ≤ β sup_u |u·(x - w̃)|. Here β bounds the curvature of the loss,
and the supremum is over all possible records. Both points are released, so the bound is
public. Close to w̃, corrections therefore need hardly any noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from skdp.descent.algorithm1 import Step
from skdp.descent.geometry import clip_to_box
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Loss
from skdp.privacy import accountant, queries
from skdp.privacy.budget import BudgetError, PrivacyRecord
from skdp.privacy.mechanism import Released, release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, Layout, check, check_integer
from skdp.solvers.dp_sgd import choose_batch_rate, choose_sgd_steps
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

#: Share of μ² spent on full gradients. Corrections get less, because they are smaller.
FULL_SHARE = 0.8
#: Default constants c in the variance of the paper's noise. With these, the cost is
#: within the budget for all ε ≤ 1 and δ ≥ 1e-9.
PRINTED_CONSTANT = {"replace-one": 64.0, "zero-out": 16.0, "add-remove": 16.0}


@register_solver(delta_share=DELTA_SHARE, reads_rows="draws random batches of rows")
def dp_svrg(
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
    n_epochs: int | None = None,
    n_inner: int | None = None,
    rate: float | None = None,
    learning_rate: float | None = None,
    full_share: float = FULL_SHARE,
    constant: float | None = None,
) -> Solved:
    """Fit by DP-SVRG, which corrects stochastic steps by a full gradient.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver (`skdp.solvers.problem`).
    calibration : {"exact", "paper"}
        "exact" uses numerical accounting. "paper" uses the paper's σ, charged at its
        true cost.
    n_epochs, n_inner : int, optional
        The number T of epochs, and the number m of steps in an epoch. By default, both
        are about √K, where K is the default number of steps of DP-SGD.
    rate : float, optional
        Probability that a record is in a batch. The paper draws one record, which is a
        rate of 1/n. The default for "exact" is the same as for DP-SGD. The default for
        "paper" is 1/√(Tm), which satisfies the paper's condition on the rate.
    learning_rate : float, optional
        Step size. The default is 1.9/(βR²), where β bounds the curvature of the loss,
        and R the norm of a row. At 2/(βR²), the steps of some tables diverge.
    full_share : float
        Share of the budget μ² spent on full gradients. Used only with "exact".
    constant : float, optional
        The constant c in the variance of the paper's noise. The default is 64 for
        replace-one, and 16 for the other neighbour relations.

    Notes
    -----
    **Guarantee.** For all neighbouring tables, as the problem defines them, the
    weights and everything that the callback receives cost what the record says: full
    gradients one by one, corrections together (`Batches.charge_all`).
    """
    check(0 < full_share < 1, f"full_share must be in (0, 1), got {full_share}.")
    exact = rate == 1.0
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
        calibration=calibration,
        delta_share=0.0 if exact else DELTA_SHARE,
    )
    steps = choose_sgd_steps(problem, run)
    epochs = check_integer(n_epochs or math.ceil(math.sqrt(steps)), "n_epochs")
    inner = check_integer(n_inner or math.ceil(steps / epochs), "n_inner")
    if calibration == "paper":
        plan = _plan_as_in_paper(problem, run, epochs, inner, rate, constant)
    else:
        plan = _plan_exact(problem, run, epochs, inner, rate, full_share)
    step = learning_rate or 1.9 / (problem.curvature * problem.row_norm**2)
    check(step > 0, f"learning_rate must be positive, got {learning_rate}.")
    weights = _Descent(problem, run, plan, step, engine, callback).run()
    settings = {
        "calibration": calibration,
        "n_epochs": epochs,
        "n_inner": inner,
        "rate": plan.batches.rate,
        "learning_rate": step,
        "full_noise_multiplier": plan.full,
        "noise_multiplier": plan.batches.noise_multiplier,
    }
    return Solved(
        weights=weights, record=run.record, n_steps=epochs * inner, settings=settings
    )


@dataclass(frozen=True)
class _EpochPlan:
    """The numbers of epochs and steps, and the noise in their releases.

    `full` is the noise multiplier of the full gradient, and `batches` has that of the
    corrections. If `fresh` is true, every step releases the full gradient again.
    """

    n_epochs: int
    n_inner: int
    full: float
    batches: Batches
    fresh: bool


def _plan_exact(
    problem: Problem,
    run: Run,
    n_epochs: int,
    n_inner: int,
    rate: float | None,
    share: float,
) -> _EpochPlan:
    """Plan one release of the full gradient per epoch, and one correction per step.

    The first step of an epoch has no correction, because it begins at the weights at
    which the full gradient was computed.
    """
    corrections = n_epochs * (n_inner - 1)
    if not corrections:  # plain gradient descent
        z = accountant.noise_multiplier(run.mu, n_epochs)
        none = Batches(rate=1.0, n_steps=0, noise_multiplier=z, mu=0.0, delta=0.0)
        return _EpochPlan(n_epochs, n_inner, z, none, fresh=False)
    left = run.share(1.0 - share)
    z = accountant.noise_multiplier(run.share(share).mu, n_epochs)
    chance = rate or choose_batch_rate(problem.n_rows, left.mu, corrections)
    batches = Batches.calibrate(left, chance, corrections)
    return _EpochPlan(n_epochs, n_inner, z, batches, fresh=False)


def _plan_as_in_paper(
    problem: Problem,
    run: Run,
    n_epochs: int,
    n_inner: int,
    rate: float | None,
    constant: float | None,
) -> _EpochPlan:
    """Plan fresh noise in every step, as in the paper.

    The noise has the variance σ² of the module's docstring. A third of σ² goes to the
    full gradient, and the rest to the correction.
    """
    steps = n_epochs * n_inner
    chance = rate or 1.0 / math.sqrt(steps)
    if run.mu == math.inf:
        batches = Batches.calibrate(run, rate or 1.0, steps)
        return _EpochPlan(n_epochs, n_inner, 0.0, batches, fresh=True)
    full, correction = compute_paper_noises(
        constant or PRINTED_CONSTANT[problem.neighbours],
        epsilon=run.record.epsilon,
        delta=run.record.delta,
        n_steps=steps,
        replace=problem.neighbours == "replace-one",
    )
    batches = Batches.price(run, chance, steps, chance * correction)
    cost = steps / full**2 + batches.mu**2
    if cost > run.budget:
        raise BudgetError(
            f"The paper's noise costs μ² = {cost:.4g}, but only {run.budget:.4g} is "
            "left. Raise constant, which the paper leaves open, or use "
            "calibration='exact'."
        )
    return _EpochPlan(n_epochs, n_inner, full, batches, fresh=True)


def compute_paper_noises(
    constant: float, *, epsilon: float, delta: float, n_steps: int, replace: bool
) -> tuple[float, float]:
    """Return the paper's noise multipliers of the full gradient and of a correction.

    The second multiplier is for batches of rate 1. For batches of rate q, multiply it
    by q.

    The paper's noise has the variance σ² = c G² Tm log(1/δ)/(nε)², where G bounds the
    norm of a record's gradient. A third of σ² goes to the full gradient ṽ, and the rest
    to the correction. One record changes ṽ by at most G/n, or by 2G/n if it is
    replaced. One record changes the correction of a batch of rate q by at most 2G/(qn).
    The sum of both parts has the paper's noise. Releasing the two parts reveals at
    least as much as releasing their sum, so the charge is safe.
    """
    sigma = math.sqrt(constant * n_steps * math.log(1.0 / delta)) / epsilon
    return sigma / math.sqrt(3.0) / (2 if replace else 1), sigma / math.sqrt(6.0)


@dataclass(frozen=True)
class Difference:
    """A pseudo-loss whose slope is the difference of a loss's slopes at two points.

    The points are two vectors of weights. Margins have 2k columns: k for the first
    point and k for the second. The first k columns of the slopes are the differences,
    and the others are zero.
    """

    loss: Loss
    slope_bound: float

    def slope(self, margin: FloatArray, target: Any) -> FloatArray:
        """Return differences of slopes (n, 2k) for margins (n, 2k)."""
        k = self.loss.n_outputs
        here = self.loss.slope(margin[:, :k], target)
        there = self.loss.slope(margin[:, k:], target)
        return np.hstack([here - there, np.zeros_like(here)])


def bound_margin(layout: Layout, move: FloatArray) -> float:
    """Return a bound on ‖x·move‖ over all encoded rows x.

    `move` is the difference of two weight vectors.
    """
    sizes = np.linalg.norm(move, axis=1)
    total = 0.0
    for group in layout.groups:
        part = sizes[group.coordinates]
        joint = group.kind == "dense"
        total += float(np.linalg.norm(part) if joint else part.max())
    norm = math.sqrt(layout.squared_norm(np.arange(layout.n_features)))
    return min(total, norm * float(np.linalg.norm(move)))


class _Descent:
    """The loop over epochs and the loop over the steps of an epoch."""

    def __init__(
        self,
        problem: Problem,
        run: Run,
        plan: _EpochPlan,
        learning_rate: float,
        engine: EngineOf,
        callback: Callback | None,
    ) -> None:
        self.problem, self.noise, self.record = problem, run.noise, run.record
        self.plan, self.callback = plan, callback
        self.learning_rate = learning_rate
        self.engine = engine(problem.records)
        batches = plan.batches
        n_draws = 2 * problem.start.size * batches.n_steps
        most = 2 * problem.slope_bound * problem.row_norm
        if batches.n_steps:
            n_draws = n_draws if batches.noise_multiplier else 0
            self.private = batches.charge_all(run, most, n_draws)

    def run(self) -> FloatArray:
        """Run all epochs, and return the mean of the last epoch's iterates."""
        anchor = self.problem.start
        for epoch in range(self.plan.n_epochs):
            anchor = self._run_epoch(epoch, anchor)
        return anchor

    def _run_epoch(self, epoch: int, anchor: FloatArray) -> FloatArray:
        total = self._ask_gradient(anchor)
        weights, mean = anchor, np.zeros_like(anchor)
        full = release(total, self.plan.full, self.noise, self.record)
        everything = self.problem.all
        for index in range(self.plan.n_inner):
            if self.plan.fresh and index:
                full = release(total, self.plan.full, self.noise, self.record)
            slope = full.values / self.problem.n_rows
            if index or self.plan.fresh:
                slope = slope + self._release_correction(weights, anchor)
            moved = weights - self.learning_rate * slope
            metric = np.full(len(moved), 1.0 / self.learning_rate)
            weights = clip_to_box(self.problem.penalty.prox(moved, metric, everything))
            mean += weights / self.plan.n_inner
            if self.callback is not None:
                self.callback(Step(epoch, index, everything, full, weights))
        return mean

    def _ask_gradient(self, weights: FloatArray) -> queries.BoundedSum:
        problem = self.problem
        shape = np.ones(problem.layout.n_features)
        return queries.gradient(
            self.engine,
            problem.slopes(),
            weights,
            problem.all,
            problem.neighbours,
            shape,
        )

    def _release_correction(
        self, weights: FloatArray, anchor: FloatArray
    ) -> FloatArray:
        """Release the mean of a batch's corrections ∇f_i(x) - ∇f_i(w̃)."""
        problem, batches = self.problem, self.plan.batches
        bound = 2 * problem.loss.slope_bound
        if not self.plan.fresh:
            reach = bound_margin(problem.layout, weights - anchor)
            bound = min(bound, problem.loss.curvature * reach * 1.0001 + 1e-9)
        slopes = queries.Slopes(
            Difference(problem.loss, bound), problem.records.max_weight
        )
        records = draw_batch(problem.records, batches.rate, self.noise)
        # The sensitivity is for add-remove. The accounting counts a replacement as two
        # changes.
        total = queries.gradient(
            ReferenceEngine(records),
            slopes,
            np.hstack([weights, anchor]),
            problem.all,
            "add-remove",
            np.ones(problem.layout.n_features),
        )
        released: Released = release(
            total, batches.noise_multiplier, self.noise, self.private
        )
        # All corrections were charged together before the first one. The entries of
        # single corrections are dropped, as adding them up would slow down every step.
        self.private.events.clear()
        mean = released.values / (batches.rate * problem.n_rows)
        return np.asarray(mean[:, : problem.loss.n_outputs])
