"""Make plans for the paper's methods, by name.

Each method is a choice of a sampling, a geometry and a number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from skdp.descent import samplings, smoothness
from skdp.descent.geometry import Diagonal
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.planning import eso_bounds, theory
from skdp.planning.plan import Plan, check_budget, default_delta
from skdp.schema import IntArray, Layout, check

#: Number of passes over the coordinates in runs without noise.
NOISELESS_PASSES = 200

SamplingOf = Callable[[Layout], samplings.Sampling]


def _full(layout: Layout) -> samplings.Sampling:
    return samplings.Full(layout.n_features)


def _single(layout: Layout) -> samplings.Sampling:
    return samplings.SingleCoordinate.uniform(layout.n_features)


def _columns(layout: Layout) -> samplings.Sampling:
    return samplings.Blocks.uniform(layout.blocks)


def _columns_importance(layout: Layout) -> samplings.Sampling:
    uniform = samplings.Blocks.uniform(layout.blocks)
    groups = smoothness.from_bounds(uniform, layout.blocks, curvature=1.0)
    return samplings.Blocks.importance(layout.blocks, groups, floor=0.5)


def _columns_shuffled(layout: Layout) -> samplings.Sampling:
    return samplings.ShuffledBlocks(layout.blocks)


#: The function that makes each method's sampling, by the method's name.
PRESETS: dict[str, SamplingOf] = {
    "skgd": _columns,
    "dp_gd": _full,
    "dp_cd": _single,
    "dp_skgd": _columns,
    "dp_skgd_importance": _columns_importance,
    "dp_skgd_shuffled": _columns_shuffled,
}


def preset(
    name: str,
    layout: Layout,
    loss: Loss,
    *,
    n_rows: int,
    epsilon: float = math.inf,
    delta: float | None = None,
    n_steps: int | None = None,
    prior: theory.Prior | None = None,
    elliptical: bool = False,
    **options: Any,
) -> Plan:
    """Return a plan for a method of the paper.

    Parameters
    ----------
    name : str
        ``"skgd"`` (one column per step, no noise), ``"dp_gd"`` (all coordinates in each
        step), ``"dp_cd"`` (one coordinate per step), ``"dp_skgd"`` (one column per
        step, all columns equally likely), ``"dp_skgd_importance"`` (columns drawn with
        probabilities that follow from public bounds on M; these are equal for all
        columns, so this is the same as ``"dp_skgd"``) or ``"dp_skgd_shuffled"`` (one
        column per step, in shuffled cycles).
    layout, loss, n_rows, epsilon, delta
        As in `Plan`. `delta` defaults to min(1e-6, 1/(10 n_rows)).
    n_steps : int, optional
        The number of steps. The default is K*, which minimises the utility bound.
    prior : Prior, optional
        Assumptions about w* in that bound. By default, each block's weights have
        norm 1.
    elliptical : bool
        Whether the noise on a set is elliptical (`Diagonal`). By default it is
        isotropic, as in the paper.
    **options
        Further parameters of `Plan`: penalty, neighbours (by default the paper's
        replace-one), calibration, …
    """
    options = {"neighbours": "replace-one"} | options
    check(
        name in PRESETS,
        f"name must be one of {sorted(PRESETS)}, got {name!r}.",
    )
    check(
        name != "skgd" or epsilon == math.inf,
        f"epsilon must be inf for 'skgd', which adds no noise, got {epsilon}.",
    )
    delta = default_delta(n_rows) if delta is None else delta
    check_budget(epsilon, delta, n_rows)
    sampling = PRESETS[name](layout)
    v = smoothness.from_bounds(sampling, layout.blocks, loss.curvature)
    rate = None
    if n_steps is None:
        if epsilon == math.inf:
            n_steps = math.ceil(NOISELESS_PASSES / float(sampling.probabilities.min()))
        else:
            accounting = options.get("calibration", "exact")
            budget = theory.Budget(
                n_rows=n_rows,
                epsilon=epsilon,
                delta=delta,
                neighbours=options["neighbours"],
                accounting=accounting,
            )
            rate = choose_rate(
                sampling,
                v,
                layout,
                loss,
                prior or theory.Prior(),
                budget,
                options.get("penalty"),
            )
            n_steps = rate.n_steps
    return Plan(
        layout=layout,
        loss=loss,
        n_rows=n_rows,
        epsilon=epsilon,
        delta=delta,
        sampling=sampling,
        geometry=Diagonal(smoothness=v, elliptical=elliptical),
        n_steps=n_steps,
        rate=rate,
        **options,
    )


def choose_rate(
    sampling: samplings.Sampling,
    v: np.typing.NDArray[np.float64],
    layout: Layout,
    loss: Loss,
    prior: theory.Prior,
    budget: theory.Budget,
    penalty: Penalty | None = None,
) -> theory.Rate:
    """Return the best number of steps K* and the utility bound that it achieves.

    The bound for full steps is `theory.convex_tight` (Theorem A), which requires
    Diag(M) ⪰ H. The bound for other samplings is `theory.convex_eso` (Theorem B). They
    determine K*. The bound after K* steps then takes the penalty into account: a ridge
    is added to M, and for any other penalty the bound is that of Theorem D.

    All bounds hold only if the prior does, and the rate's ``theorem`` says so.
    """

    def lipschitz(at: IntArray) -> float:
        return loss.slope_bound * math.sqrt(layout.squared_norm(at))

    def compute_rate(
        m: np.typing.NDArray[np.float64], composite: bool = False
    ) -> theory.Rate:
        distance = prior.distance_squared(m / sampling.probabilities, layout.blocks)
        facts: dict[str, Any] = {"distance_squared": distance, "budget": budget}
        own: dict[str, Any] = {
            "step_sigma_squared": theory.step_sigma_squared(
                sampling, m, lipschitz, layout.blocks
            ),
            "smallest_probability": float(sampling.probabilities.min()),
            "excess": prior.excess,
        }
        if composite:
            return eso_bounds.convex_composite(**facts, **own)
        sigma = theory.sigma_squared(sampling, m, lipschitz, layout.blocks)
        if isinstance(sampling, samplings.Full):
            return theory.convex_tight(**facts, sigma_squared=sigma)
        return theory.convex_eso(**facts, **own, sigma_squared=sigma)

    rate = compute_rate(v)
    n_steps, condition = rate.n_steps, f"if {prior}"
    if isinstance(penalty, ElasticNet) and penalty.l1 == 0:
        on = 1.0 if penalty.penalised is None else penalty.penalised
        rate = compute_rate(v + penalty.l2 * on).take_steps(n_steps)
    elif penalty is not None:
        rate = compute_rate(v, composite=True).take_steps(n_steps)
    if not rate.theorem.startswith("Theorem A"):
        condition += f" and the excess of w⁰ is at most {prior.excess:.3g}"
    return replace(rate, theorem=f"{rate.theorem}; {condition}")
