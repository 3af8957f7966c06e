"""The paper's methods by name, each a sampling, a geometry and a number of steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from skdp.descent import samplings, smoothness
from skdp.descent.geometry import Diagonal
from skdp.models.losses import Loss
from skdp.planning import theory
from skdp.planning.plan import Plan, check_budget, default_delta
from skdp.schema import IntArray, Layout, check

#: Passes over the coordinates in runs without noise.
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


#: The sampling of each method by name.
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
    **options: Any,
) -> Plan:
    """Plan a method of the paper.

    Parameters
    ----------
    name : str
        ``"skgd"`` (columns as blocks, no noise), ``"dp_gd"`` (all coordinates),
        ``"dp_cd"`` (one coordinate), ``"dp_skgd"`` (columns as blocks, uniform),
        ``"dp_skgd_importance"`` (by public bounds on M, which are equal for columns,
        so it equals ``"dp_skgd"`` there) or ``"dp_skgd_shuffled"``.
    layout, loss, n_rows, epsilon, delta
        As in `Plan`; `delta` defaults to min(1e-6, 1/(10 n_rows)).
    n_steps : int, optional
        By default the K* of the bound that applies.
    prior : Prior, optional
        Assumptions on w* for that bound; by default each block's weights have norm 1.
    **options
        Further parameters of `Plan`: penalty, relation (by default the paper's
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
                sampling, v, layout, loss, prior or theory.Prior(), budget
            )
            n_steps = rate.n_steps
    return Plan(
        layout=layout,
        loss=loss,
        n_rows=n_rows,
        epsilon=epsilon,
        delta=delta,
        sampling=sampling,
        geometry=Diagonal(smoothness=v),
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
) -> theory.Rate:
    """Return K* and its bound: of Diag(M) ⪰ H for the full set, else of the ESO."""

    def lipschitz(at: IntArray) -> float:
        return loss.slope_bound * math.sqrt(layout.squared_norm(at))

    distance = prior.distance_squared(v / sampling.probabilities, layout.blocks)
    sigma = theory.sigma_squared(sampling, v, lipschitz)
    if isinstance(sampling, samplings.Full):
        return theory.convex_tight(
            distance_squared=distance, sigma_squared=sigma, budget=budget
        )
    return theory.convex_eso(
        distance_squared=distance,
        sigma_squared=sigma,
        step_sigma_squared=theory.step_sigma_squared(sampling, v, lipschitz),
        smallest_probability=float(sampling.probabilities.min()),
        excess=prior.excess,
        budget=budget,
    )
