"""Make plans for the paper's methods, by name.

Each method is a choice of a sampling, a geometry and a number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from skdp.descent import averages, samplings, smoothness
from skdp.descent.geometry import Diagonal, Geometry
from skdp.descent.matrix import Matrix
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.planning import eso_bounds, theory
from skdp.planning.plan import Plan, check_budget, default_delta
from skdp.planning.rule import TOO_FEW, choose_geometry
from skdp.privacy import accountant
from skdp.schema import IntArray, Layout, check

#: The ridge of the strongly convex preset, unless another one is given.
DEFAULT_RIDGE = 0.01
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
    "dp_skgd_strong": _columns,
    "dp_skgd_matrix": _columns,
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
        ``"skgd"``
            One column per step, without noise.
        ``"dp_gd"``
            All coordinates in each step.
        ``"dp_cd"``
            One coordinate per step.
        ``"dp_skgd"``
            One column per step. All columns are equally likely.
        ``"dp_skgd_importance"``
            One column per step, with probabilities that follow from public bounds on
            the smoothness of each column. These bounds are equal for all columns, so
            the plan is the same as for ``"dp_skgd"``.
        ``"dp_skgd_shuffled"``
            One column per step, in shuffled cycles.
        ``"dp_skgd_strong"``
            One column per step, and a ridge on all coordinates, by default 0.01. The
            weights of the average follow from Theorem E.
        ``"dp_skgd_matrix"``
            One column per step, in the metric of a released Gram matrix (Theorem F).
            The loss must be a classification loss.
    layout, loss, n_rows, epsilon, delta
        As in `Plan`. `delta` defaults to min(1e-6, 1/(10 n_rows)).
    n_steps : int, optional
        The number of steps. The default is K*, which minimises the utility bound.
    prior : Prior, optional
        The assumptions of the utility bound about the optimal weights. By default, the
        weights of each block have norm at most 1.
    elliptical : bool
        Whether the noise on a set is elliptical (`Diagonal`). By default it is
        isotropic, as in the paper.
    **options
        Further parameters of `Plan`: penalty, neighbours (by default the paper's
        replace-one, where estimators have add-remove), calibration, …
    """
    options.setdefault("neighbours", "replace-one")
    if name == "dp_skgd_strong":
        options.setdefault("penalty", ElasticNet(l2=DEFAULT_RIDGE))
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
    sampling, prior = PRESETS[name](layout), prior or theory.Prior()
    v = smoothness.from_bounds(sampling, layout.blocks, loss.curvature)
    geometry: Geometry = Diagonal(smoothness=v, elliptical=elliptical)
    if name == "dp_skgd_matrix":
        geometry = _make_matrix(layout, loss, n_rows, epsilon, delta, options)
    rate, strong = None, name == "dp_skgd_strong"
    if epsilon < math.inf and (n_steps is None or strong):
        budget = theory.Budget(
            n_rows=n_rows,
            epsilon=epsilon,
            delta=delta,
            neighbours=options["neighbours"],
            calibration=options.get("calibration", "exact"),
        )
        penalty = options.get("penalty")
        if isinstance(geometry, Matrix):
            rate = choose_matrix_rate(geometry, sampling, loss, prior, budget)
        elif strong:
            rate = choose_strong_rate(sampling, v, layout, loss, prior, budget, penalty)
            options.setdefault("average", averages.growing(rate.decay))
        else:
            rate = choose_rate(sampling, v, layout, loss, prior, budget, penalty)
    if n_steps is not None:
        rate = None
    elif rate is not None:
        n_steps = rate.n_steps
    else:
        n_steps = math.ceil(NOISELESS_PASSES / float(sampling.probabilities.min()))
    return Plan(
        layout=layout,
        loss=loss,
        n_rows=n_rows,
        epsilon=epsilon,
        delta=delta,
        sampling=sampling,
        geometry=geometry,
        n_steps=n_steps,
        rate=rate,
        **options,
    )


def _make_matrix(
    layout: Layout,
    loss: Loss,
    n_rows: int,
    epsilon: float,
    delta: float,
    options: dict[str, Any],
) -> Matrix:
    """Return the geometry of `choose_geometry`, without its optional releases.

    Only the Gram matrix and the steps are released.
    """
    # With a smaller μ, `choose_geometry` would return an intercept-only geometry.
    mu = max(accountant.gdp_mu(epsilon, delta), 2.0 * TOO_FEW / n_rows)
    made = choose_geometry(layout, loss, n_rows, mu, options["neighbours"])
    check(loss.n_classes > 0, "'dp_skgd_matrix' requires a classification loss.")
    assert isinstance(made, Matrix)
    return replace(made, target_share=0.0, level_share=0.0)


def choose_strong_rate(
    sampling: samplings.Sampling,
    v: np.typing.NDArray[np.float64],
    layout: Layout,
    loss: Loss,
    prior: theory.Prior,
    budget: theory.Budget,
    penalty: Penalty | None,
    n_steps: int | None = None,
) -> theory.Rate:
    """Return the number of steps and the bound of Theorem E, for a ridge λ.

    Let M be the smoothness `v`, and P the diagonal matrix of the probabilities p. A
    proximal step of the ridge is a gradient step with M + λ instead of M. So the
    modulus of strong convexity in the norm of (M + λ)P⁻¹ is at least
    λ min_j (p_j/(M_j + λ)). If `n_steps` is given, the bound is for this number of
    steps.
    """
    penalty = penalty or ElasticNet()
    each = penalty.quadratic(np.arange(layout.n_features))
    ridge = float(each.min())
    check(
        ridge > 0 and ridge == float(each.max()),
        "'dp_skgd_strong' requires penalty=ElasticNet(l2=…) with l2 > 0 that penalises "
        "every coordinate, including the intercept.",
    )
    lipschitz = find_lipschitz(layout, loss.slope_bound)
    m, p = v + ridge, sampling.probabilities
    rate = eso_bounds.strongly_convex_eso(
        modulus=ridge * float((p / m).min()),
        distance_squared=prior.distance_squared(m / p, layout.blocks),
        sigma_squared=theory.sigma_squared(sampling, m, lipschitz, layout.blocks),
        step_sigma_squared=theory.step_sigma_squared(
            sampling, m, lipschitz, layout.blocks
        ),
        smallest_probability=float(p.min()),
        excess=prior.excess,
        budget=budget,
        composite=not penalty.is_ridge,
        n_steps=n_steps,
    )
    condition = f"if {prior} and the excess of w⁰ is at most {prior.excess:.3g}"
    return replace(rate, theorem=f"{rate.theorem}; {condition}")


def choose_matrix_rate(
    geometry: Matrix,
    sampling: samplings.Sampling,
    loss: Loss,
    prior: theory.Prior,
    budget: theory.Budget,
) -> theory.Rate:
    """Return the number of steps and the bound of Theorem F, for blocks.

    If C is the cap on gradients on all d coordinates, a block of d_B coordinates has
    the cap C√(d_B/d). The steps share the budget that is left after the release of the
    Gram matrix. The norms in the prior are measured in the released metric.
    """
    sets, q = sampling.support, sampling.set_probabilities
    assert sets is not None
    assert q is not None
    sizes = np.array([len(block) for block in sets], dtype=np.float64)
    caps = geometry.radius * np.sqrt(sizes / sizes.sum())
    curvature = loss.curvature + geometry.shrinkage * geometry.radius
    _, step = eso_bounds.matrix_sigmas(sizes, q, caps, curvature)
    rate = eso_bounds.convex_composite(
        distance_squared=curvature * prior.block_norm**2 * float((1.0 / q).sum()),
        step_sigma_squared=step / (1.0 - geometry.share),
        smallest_probability=float(q.min()),
        excess=prior.excess,
        budget=budget,
    )
    condition = (
        f"if {prior} in the released metric, the excess of w⁰ is at most "
        f"{prior.excess:.3g}, the metric is at least the Gram matrix, and no slope is "
        "capped"
    )
    theorem = "Theorem F: convex, with a matrix for each block"
    return replace(rate, theorem=f"{theorem}; {condition}")


def find_lipschitz(layout: Layout, slope_bound: float) -> Callable[[IntArray], float]:
    """Return the function L_S that bounds the norm of a record's gradient on S."""
    return lambda at: slope_bound * math.sqrt(layout.squared_norm(at))


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
    Diag(M) ⪰ H. The bound for other samplings is `theory.convex_eso` (Theorem B). These
    bounds determine K*. The returned bound after K* steps takes the penalty into
    account. A ridge is added to the smoothness M. For any other penalty, the bound is
    from Theorem D.

    All bounds hold only under the assumptions in `prior`, which `Rate.theorem` repeats.
    """
    lipschitz = find_lipschitz(layout, loss.slope_bound)

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
    if penalty is not None and penalty.is_ridge:
        ridge = penalty.quadratic(np.arange(layout.n_features))
        rate = compute_rate(v + ridge).take_steps(n_steps)
    elif penalty is not None:
        rate = compute_rate(v, composite=True).take_steps(n_steps)
    listed = sampling.support or ()
    if rate.theorem.startswith("Theorem D") and sum(map(len, listed)) != len(v):
        condition += ", the noise is the same on all sets"
    if not rate.theorem.startswith("Theorem A"):
        condition += f" and the excess of w⁰ is at most {prior.excess:.3g}"
    return replace(rate, theorem=f"{rate.theorem}; {condition}")
