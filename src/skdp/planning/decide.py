"""Decide what a fit will do, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from skdp.descent import averages, samplings, smoothness
from skdp.descent.geometry import Diagonal, Geometry
from skdp.descent.matrix import Matrix
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet
from skdp.planning import theory
from skdp.planning.plan import Plan, check_budget, check_calibration
from skdp.planning.presets import NOISELESS_PASSES, PRESETS, choose_rate
from skdp.planning.rule import (
    CONSTANT_STEPS,
    choose_geometry,
    choose_n_steps,
    choose_wide_geometry,
)
from skdp.privacy import accountant, queries
from skdp.schema import Layout, check, check_integer

#: Number of accelerated passes in runs without noise. About √(smoothness/alpha) passes
#: halve the error.
NOISELESS_FULL = 6000
#: Largest number of coordinates for which a Gram matrix is worth its noise and memory.
MATRIX_LIMIT = 1000
#: The default ridge, which is weak. For log-odds it is ten times weaker than for a
#: target in [-1, 1], because the weights are about ten times larger.
LIGHT_RIDGE, LIGHT_ODDS_RIDGE = 1e-4, 1e-5
#: Names of samplings that users may pass, and their presets.
SAMPLING_NAMES = {
    "full": "dp_gd",
    "coordinates": "dp_cd",
    "columns": "dp_skgd",
    "importance": "dp_skgd_importance",
    "shuffled": "dp_skgd_shuffled",
}
SAMPLING_CHOICES = ("auto", *SAMPLING_NAMES)
GEOMETRY_CHOICES = ("auto", "matrix", "diagonal")


def make_penalty(
    layout: Layout, loss: Loss, alpha: float | str, l1_ratio: float
) -> ElasticNet:
    """Return the penalty alpha (l1_ratio ‖w‖₁ + ½ (1 - l1_ratio) ‖w‖²).

    The intercept is not penalised.
    """
    _check_penalty(alpha, l1_ratio)
    if isinstance(alpha, str):
        alpha = LIGHT_ODDS_RIDGE if loss.n_classes else LIGHT_RIDGE
    return ElasticNet(
        l1=alpha * l1_ratio, l2=alpha * (1 - l1_ratio), penalised=layout.penalised
    )


def _check_penalty(alpha: float | str, l1_ratio: float) -> None:
    strong = not isinstance(alpha, str) and 0 <= alpha < math.inf
    check(
        (strong or alpha == "auto") and 0 <= l1_ratio <= 1,
        "alpha must be 'auto' or a finite number of at least 0, and l1_ratio must be "
        f"in [0, 1], got {alpha!r} and {l1_ratio}.",
    )


def check_options(
    *,
    epsilon: float,
    delta: float,
    alpha: float | str,
    l1_ratio: float,
    sampling: str | samplings.Sampling,
    geometry: str | Geometry,
    n_steps: int | str,
    calibration: Any,
) -> None:
    """Raise if an option of `make_plan` would be invalid for every table."""
    _check_penalty(alpha, l1_ratio)
    check(
        isinstance(sampling, samplings.Sampling) or sampling in SAMPLING_CHOICES,
        f"sampling must be one of {SAMPLING_CHOICES}, got {sampling!r}.",
    )
    check(
        hasattr(geometry, "count_directions") or geometry in GEOMETRY_CHOICES,
        f"geometry must be one of {GEOMETRY_CHOICES}, got {geometry!r}.",
    )
    if n_steps != "auto":
        check_integer(n_steps, "n_steps")
    check_calibration(calibration, epsilon, delta)


def make_plan(
    layout: Layout,
    loss: Loss,
    *,
    n_rows: int,
    epsilon: float,
    delta: float,
    mu_squared: float | None = None,
    neighbours: queries.Neighbours = "replace-one",
    alpha: float | str = "auto",
    l1_ratio: float = 0.0,
    sampling: str | samplings.Sampling = "auto",
    geometry: str | Geometry = "auto",
    n_steps: int | str = "auto",
    calibration: Any = "exact",
    assumptions: tuple[str, ...] = (),
    reasons: tuple[str, ...] = (),
) -> Plan:
    """Choose sampling, geometry, number of steps and penalty, and return the plan.

    Parameters
    ----------
    layout, loss, n_rows, epsilon, delta, neighbours, calibration, assumptions, reasons
        As in `Plan`.
    mu_squared : float, optional
        The remaining budget, if part of the budget was spent earlier, for example on
        the ranges of columns.
    alpha, l1_ratio : float or "auto", float
        The penalty is alpha (l1_ratio ‖w‖₁ + ½ (1 - l1_ratio) ‖w‖²), without the
        intercept. The default is a light ridge: alpha is 1e-4 for numeric targets and
        1e-5 for classes.
    sampling : str or Sampling
        ``"auto"``, ``"full"``, ``"coordinates"``, ``"columns"``, ``"importance"``,
        ``"shuffled"``, or a `Sampling` object.
    geometry : str or Geometry
        ``"auto"``, ``"matrix"``, ``"diagonal"``, or a `Geometry` object.
    n_steps : int or "auto"
        The number of steps K.
    """
    check_budget(epsilon, delta, n_rows)
    check_options(
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        l1_ratio=l1_ratio,
        sampling=sampling,
        geometry=geometry,
        n_steps=n_steps,
        calibration=calibration,
    )
    penalty = make_penalty(layout, loss, alpha, l1_ratio)
    settings: dict[str, Any] = {
        "layout": layout,
        "loss": loss,
        "n_rows": n_rows,
        "epsilon": epsilon,
        "delta": delta,
        "penalty": penalty,
        "neighbours": neighbours,
        "calibration": calibration,
        "assumptions": assumptions,
        "reasons": reasons,
    }
    mu = accountant.gdp_mu(epsilon, delta) if mu_squared is None else mu_squared**0.5
    if geometry == "auto":
        whole = isinstance(sampling, samplings.Full) or sampling in ("auto", "full")
        small = layout.n_features <= MATRIX_LIMIT
        geometry = "matrix" if whole and small else "diagonal"
        if whole and not small and mu < math.inf:
            sampling = samplings.Full(layout.n_features)
            geometry, steps = choose_wide_geometry(layout, loss, n_rows, mu, neighbours)
            n_steps = steps if n_steps == "auto" else n_steps
    if geometry == "matrix":
        geometry = choose_geometry(layout, loss, n_rows, mu, neighbours)
    if not isinstance(geometry, (str, Diagonal)):
        steps = choose_n_steps(loss, mu == math.inf)
        law: samplings.Sampling = samplings.Full(layout.n_features)
        if geometry.is_constant:
            steps = CONSTANT_STEPS
        elif sampling not in ("auto", "full"):
            law = _make_sampling(sampling, layout)
            steps = math.ceil(steps / float(law.probabilities.min()))
        return Plan(
            sampling=law,
            geometry=geometry,
            n_steps=steps if n_steps == "auto" else int(n_steps),
            average=averages.last if mu == math.inf else averages.rising,
            **settings,
        )
    average = averages.rising if geometry != "diagonal" else averages.mean
    exact = mu == math.inf and sampling == "auto"
    law = _make_sampling("full" if exact else sampling, layout)
    if isinstance(geometry, str):
        v = smoothness.from_bounds(law, layout.blocks, loss.curvature)
        geometry = Diagonal(smoothness=v, elliptical=True, momentum=exact)
    rate = None
    if n_steps == "auto":
        passes = NOISELESS_FULL if exact else NOISELESS_PASSES
        n_steps = math.ceil(passes / float(law.probabilities.min()))
        if mu < math.inf:
            budget = theory.Budget(
                n_rows=n_rows,
                epsilon=epsilon,
                delta=delta,
                neighbours=neighbours,
                calibration=calibration,
            )
            prior = theory.Prior()
            rate = choose_rate(
                law, geometry.smoothness, layout, loss, prior, budget, penalty
            )
            n_steps = rate.n_steps
    return Plan(
        sampling=law,
        geometry=geometry,
        n_steps=int(n_steps),
        average=averages.last if mu == math.inf else average,
        rate=rate,
        **settings,
    )


def scale_caps(plan: Plan, max_weight: float) -> Plan:
    """Return the plan with caps multiplied by `max_weight`, for a fit with weights.

    A slope is multiplied by the weight of its row before it is capped. If all weights
    and `max_weight` are multiplied by the same number, the caps are too. The fit then
    changes only because the penalty becomes relatively weaker or stronger.
    """
    return replace(plan, geometry=plan.geometry.scale_caps(max_weight))


def _make_sampling(
    sampling: str | samplings.Sampling, layout: Layout
) -> samplings.Sampling:
    if isinstance(sampling, samplings.Sampling):
        return sampling
    name = "shuffled" if sampling == "auto" else sampling
    return PRESETS[SAMPLING_NAMES[name]](layout)


def replan(plan: Plan, **changes: Any) -> Plan:
    """Return a plan made by the same rules from changed public facts.

    `changes` are arguments of `make_plan`. Automatic choices are made again. The
    sampling and a geometry that no rule chose are kept.
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
    if plan.geometry.is_constant or isinstance(geometry, Matrix):
        geometry = "matrix"
    elif isinstance(geometry, Diagonal) and geometry.share > 0:  # as for wide tables
        geometry = sampling = "auto"
    return make_plan(
        plan.layout,
        plan.loss,
        neighbours=plan.neighbours,
        alpha=alpha,
        l1_ratio=l1 / alpha if alpha else 0.0,
        sampling=sampling,
        geometry=geometry,
        calibration=plan.calibration,
        **(facts | changes),
    )
