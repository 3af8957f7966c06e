"""skdp.plan: everything that a fit will do, from public facts alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdp.descent import averages, samplings, smoothness
from skdp.descent.geometry import Diagonal, Geometry
from skdp.descent.intercept import InterceptOnly
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet
from skdp.planning import theory
from skdp.planning.plan import Plan, check_budget
from skdp.planning.presets import NOISELESS_PASSES, PRESETS, best_rate
from skdp.planning.rule import (
    CONSTANT_STEPS,
    default_geometry,
    default_n_steps,
    wide_geometry,
)
from skdp.privacy import accountant, queries
from skdp.schema import Layout, check

#: Accelerated passes without noise: √(smoothness/alpha) of them halve the error.
NOISELESS_FULL = 6000
#: Most coordinates whose Gram matrix is worth its noise and its d² memory.
MATRIX_LIMIT = 1000
#: A ridge that no one asked for: weak, and ten times weaker for log-odds, which are
#: about ten times larger than weights of a target in [-1, 1].
LIGHT_RIDGE, LIGHT_ODDS_RIDGE = 1e-4, 1e-5
#: δ where the number of rows is private.
PRIVATE_DELTA = 1e-9
#: Names of samplings that a user may write.
SAMPLING_NAMES = {
    "full": "dp_gd",
    "coordinates": "dp_cd",
    "columns": "dp_skgd",
    "importance": "dp_skgd_importance",
    "shuffled": "dp_skgd_shuffled",
}


def default_delta(n_rows: float | None) -> float:
    """Return the δ of a budget that names none: min(1e-6, 1/(10 n)).

    Where the number of rows is private (None), δ must not follow from it, and it is
    fixed before the number is released. `PRIVATE_DELTA` keeps δ ≤ 1/(10 n) up to a
    hundred million rows. At ε = 1 it takes 1.3 times the noise of 1e-6.
    """
    return PRIVATE_DELTA if n_rows is None else min(1e-6, 0.1 / max(n_rows, 1.0))


def penalty_of(
    layout: Layout, loss: Loss, alpha: float | str, l1_ratio: float
) -> ElasticNet:
    """Alpha (l1_ratio ‖w‖₁ + ½ (1 - l1_ratio) ‖w‖²), the intercept free."""
    if alpha == "auto":
        alpha = LIGHT_ODDS_RIDGE if loss.n_classes else LIGHT_RIDGE
    check(
        not isinstance(alpha, str) and 0 <= alpha < math.inf and 0 <= l1_ratio <= 1,
        f"alpha must be 'auto' or finite and ≥ 0, and l1_ratio in [0, 1]. Got {alpha!r}"
        f" and {l1_ratio}: alpha=1e-4, l1_ratio=0 is a light ridge.",
    )
    assert not isinstance(alpha, str)
    return ElasticNet(
        l1=alpha * l1_ratio, l2=alpha * (1 - l1_ratio), penalised=layout.penalised
    )


def make_plan(
    layout: Layout,
    loss: Loss,
    *,
    n_rows: int,
    epsilon: float,
    delta: float,
    mu_squared: float | None = None,
    relation: queries.Relation = "replace-one",
    alpha: float | str = "auto",
    l1_ratio: float = 0.0,
    sampling: str | samplings.Sampling = "auto",
    geometry: str | Geometry = "auto",
    n_steps: int | str = "auto",
    calibration: Any = "exact",
    assumptions: tuple[str, ...] = (),
) -> Plan:
    """Decide sampling, geometry, steps and penalty.

    Parameters
    ----------
    layout, loss, n_rows, epsilon, delta, relation, calibration, assumptions
        As in `Plan`.
    mu_squared : float, optional
        What is left of the budget, if something was spent before (on ranges, say).
    alpha, l1_ratio : float or "auto", float
        Penalty alpha (l1_ratio ‖w‖₁ + ½ (1 - l1_ratio) ‖w‖²), the intercept free; by
        default a light ridge, 1e-4 for numbers and 1e-5 for classes.
    sampling : str or Sampling
        ``"auto"``, ``"full"``, ``"coordinates"``, ``"columns"``, ``"importance"``,
        ``"shuffled"``, or an object.
    geometry : str or Geometry
        ``"auto"``, ``"matrix"``, ``"diagonal"``, or an object.
    n_steps : int or "auto"
        K.
    """
    check_budget(epsilon, delta, n_rows)
    check(
        n_steps == "auto" or (isinstance(n_steps, (int, np.integer)) and n_steps >= 1),
        f"n_steps must be 'auto' or at least 1. Got {n_steps!r}: leave it out.",
    )
    penalty = penalty_of(layout, loss, alpha, l1_ratio)
    settings: dict[str, Any] = {
        "layout": layout,
        "loss": loss,
        "n_rows": n_rows,
        "epsilon": epsilon,
        "delta": delta,
        "penalty": penalty,
        "relation": relation,
        "calibration": calibration,
        "assumptions": assumptions,
    }
    mu = accountant.gdp_mu(epsilon, delta) if mu_squared is None else mu_squared**0.5
    if geometry == "auto":
        whole = isinstance(sampling, samplings.Full) or sampling in ("auto", "full")
        small = layout.n_features <= MATRIX_LIMIT
        geometry = "matrix" if whole and small else "diagonal"
        if whole and not small and mu < math.inf:
            sampling = samplings.Full(layout.n_features)
            geometry, steps = wide_geometry(layout, loss, n_rows, mu, relation)
            n_steps = steps if n_steps == "auto" else n_steps
    if geometry == "matrix":
        geometry = default_geometry(layout, loss, n_rows, mu, relation)
    if not isinstance(geometry, (str, Diagonal)):
        steps = default_n_steps(loss, mu == math.inf)
        whole_vector: samplings.Sampling = samplings.Full(layout.n_features)
        if isinstance(geometry, InterceptOnly):
            steps = CONSTANT_STEPS
        elif sampling not in ("auto", "full"):
            whole_vector = _sampling(sampling, layout)
            steps = math.ceil(steps / float(whole_vector.probabilities.min()))
        return Plan(
            sampling=whole_vector,
            geometry=geometry,
            n_steps=steps if n_steps == "auto" else int(n_steps),
            average=averages.last if mu == math.inf else averages.rising,
            **settings,
        )
    average = averages.rising if geometry != "diagonal" else averages.mean
    exact = mu == math.inf and sampling == "auto"
    law = _sampling("full" if exact else sampling, layout)
    if not isinstance(geometry, Diagonal):
        check(
            geometry == "diagonal",
            f"geometry must be 'auto', 'matrix' or 'diagonal'. Got {geometry!r}.",
        )
        v = smoothness.from_bounds(law, layout.blocks, loss.curvature)
        geometry = Diagonal(smoothness=v, momentum=exact)
    rate = None
    if n_steps == "auto":
        passes = NOISELESS_FULL if exact else NOISELESS_PASSES
        n_steps = math.ceil(passes / float(law.probabilities.min()))
        if mu < math.inf:
            budget = theory.Budget(
                n_rows=n_rows,
                epsilon=epsilon,
                delta=delta,
                neighbours=relation,
                accounting=calibration,
            )
            prior = theory.Prior()
            rate = best_rate(law, geometry.smoothness, layout, loss, prior, budget)
            n_steps = rate.n_steps
    return Plan(
        sampling=law,
        geometry=geometry,
        n_steps=int(n_steps),
        average=averages.last if mu == math.inf else average,
        rate=rate,
        **settings,
    )


def _sampling(sampling: str | samplings.Sampling, layout: Layout) -> samplings.Sampling:
    if isinstance(sampling, samplings.Sampling):
        return sampling
    name = "shuffled" if sampling == "auto" else sampling
    check(
        name in SAMPLING_NAMES,
        f"sampling must be 'auto' or one of {sorted(SAMPLING_NAMES)}. Got {name!r}.",
    )
    return PRESETS[SAMPLING_NAMES[name]](layout)


def replanned(plan: Plan, **changes: Any) -> Plan:
    """Make the plan again by the same rules for other public facts.

    What was decided automatically is decided anew; the sampling is kept.
    """
    penalty = plan.penalty
    net = penalty if isinstance(penalty, ElasticNet) else ElasticNet()
    alpha, l1 = net.l1 + net.l2, net.l1
    facts: dict[str, Any] = {
        "n_rows": plan.n_rows,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
    }
    geometry: str | Geometry = plan.geometry
    sampling: str | samplings.Sampling = plan.sampling
    if not isinstance(geometry, Diagonal):
        geometry = "matrix"
    elif geometry.share > 0:  # the rule for wide tables
        geometry = sampling = "auto"
    return make_plan(
        plan.layout,
        plan.loss,
        relation=plan.relation,
        alpha=alpha,
        l1_ratio=l1 / alpha if alpha else 0.0,
        sampling=sampling,
        geometry=geometry,
        calibration=plan.calibration,
        **(facts | changes),
    )
