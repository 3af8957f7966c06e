"""Decide what a fit will do, from public facts alone.

The first part is the rule behind the defaults, which has nothing to tune. The second
part has the named presets, among them the methods of the paper. `make_plan` chooses
among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import lambertw

from skdp.descent import algorithm1, bounds, eso_bounds, samplings, smoothness
from skdp.descent.geometry import RESIDUAL, USUAL_SCALE, Diagonal, Geometry
from skdp.descent.matrix import InterceptOnly, Matrix, make_prior
from skdp.descent.plan import Plan, expect_visits
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.privacy import accountant, queries
from skdp.privacy.budget import check_budget, default_delta
from skdp.privacy.visits import visit_gradients
from skdp.schema import IntArray, Layout, check, check_integer

# ---- Choose the geometry and the number of steps by the untuned rule
#
# The geometry includes the cap on gradients, the floor that is added to the eigenvalues
# of the Gram matrix, and the shrinkage. The rule has no parameters that users must
# tune. It uses public facts alone, so its choices cost no privacy.
# `docs/guide/method.md` derives the constants below and says what else was tried.
#
# Below, nν is the number of rows divided by the noise of a sum (see `choose_geometry`).


#: Number of passes over the table: with noise, without noise (at least this many), and
#: for a model with an intercept only.
N_STEPS, NOISELESS_STEPS, CONSTANT_STEPS = 80, 500, 20
#: Share of μ² spent on the Gram matrix.
GRAM_SHARE = 0.15
#: Shares of μ² spent on the target's histogram: the smallest for classes, the smallest
#: for numbers, and the largest.
CLASS_SHARE, NUMBER_SHARE, MOST_SHARE = 0.005, 0.03, 0.1
#: Smallest share of μ² spent on the sum of slopes that corrects the intercept.
LEVEL_SHARE = 0.02
#: Desired ratio of the number of rows to the noise of the sum of slopes that corrects
#: the intercept. For classes, the share of this sum is raised to reach the ratio, up to
#: `MOST_SHARE`.
LEVEL_RECORDS = 40.0
#: Desired ratio of the number of rows to the noise of the target's histogram, for
#: classes and for numbers. The share of the histogram is raised to reach this ratio, up
#: to `MOST_SHARE`.
CLASS_RECORDS, NUMBER_RECORDS = 10.0, 30.0
#: Desired ratio of the number of rows to the noise of the target's histogram, for wide
#: tables. It is larger, because their intercept hardly moves away from its start.
WIDE_RECORDS = 50.0
#: Ratio of the floor, which is added to the eigenvalues of the Gram matrix, to the
#: operator norm of the noise in this matrix.
FLOOR = 0.5
#: Ratio of the cap on gradients to (nν)^(1/3), for classes. nν is the number of rows
#: divided by the noise of a sum.
CAP = 0.25
#: If nν is below LOW_SIGNAL, the cap for classes decreases faster, as (nν)^(5/6), but
#: not below LOWEST_CAP times its usual value. A lower cap would hide strong effects.
LOW_SIGNAL, LOWEST_CAP = 500.0, 0.65
#: Share of the clipped amount that remains as bias. The rest cancels, because residuals
#: have both signs.
COHERENCE = 0.1
#: Ratio of the ridge to √p·cap/(nν√(1 - s)), where p is the number of coordinates, and
#: s is the share of μ² that is not spent on steps.
SHRINKAGE = 0.2
#: Norm of the weights that a run on a wide table aims for.
WIDE_NORM = 10.0
#: Largest cost of noise on a wide table, in nats. A fit gains some tenths of a nat.
WIDE_COST = 0.05
#: Part of the curvature that is reserved for the intercept of a wide table, relative to
#: the part of all other coordinates.
SLOW_INTERCEPT = 0.1
#: Only an intercept is fitted if nν is below this. nν is the number of rows divided by
#: the noise of a sum.
TOO_FEW = 40.0
#: Prior variance of the intercept: of log-odds, and of a mean in [-1, 1].
ODDS_VARIANCE, MEAN_VARIANCE = 1.0, 0.1
#: Added to the eigenvalues of the Gram matrix in runs without noise.
NOISELESS_FLOOR = 1e-6


def choose_n_steps(loss: Loss, noiseless: bool = False) -> int:
    """Return the number of steps of the untuned rule, which is 80 for most losses.

    Let β be the bound on the curvature of the loss, and h its usual curvature. A step
    of length 1/β closes a share h/β of the remaining gap to the optimum. So the number
    of steps is proportional to β/h. More steps do not make the result noisier. If there
    are twice as many steps, each with half the budget, then their average has the same
    noise. A run without noise gains nothing from stopping early, so it takes 4 times as
    many steps, and at least 500.
    """
    usual = loss.usual_curvature or loss.curvature
    n_steps = math.ceil(N_STEPS * loss.curvature / usual)
    return max(4 * n_steps, NOISELESS_STEPS) if noiseless else n_steps


def choose_geometry(
    layout: Layout,
    loss: Loss,
    n_rows: float,
    mu: float,
    neighbours: queries.Neighbours = "replace-one",
) -> Matrix | InterceptOnly:
    """Return the geometry of the untuned rule.

    All choices follow from two numbers, nν and p. The signal nν is the number of rows n
    divided by the noise 1/ν of a sum. Under replace-one ν is μ/2, because one record
    may change a sum by twice the bound on a record. Otherwise ν is μ. If nν is below
    40, only an intercept is fitted. The other number, p, counts the coordinates. In
    this count, a coordinate whose weight has a small variance in `make_prior` counts as
    less than 1.

    Parameters
    ----------
    layout : Layout
        The coordinates of an encoded row.
    loss : Loss
        The loss.
    n_rows : float
        The public or released number of rows, n.
    mu : float
        Gaussian-DP parameter of the whole run. If it is infinite, there is no noise,
        and the cap is so large that no record reaches it.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    """
    check(
        n_rows * mu > 0,
        f"n_rows and mu must be positive, got {n_rows} and {mu}.",
    )
    if mu == math.inf:
        longest = math.sqrt(layout.squared_norm(np.arange(layout.n_features)))
        radius = loss.slope_bound * longest / math.sqrt(NOISELESS_FLOOR)
        return Matrix(radius=4.0 * radius, floor=NOISELESS_FLOOR, momentum=True)
    signal = n_rows * mu / queries.count_changes(neighbours)
    intercept = layout.groups[-1].kind == "ones"
    if signal < TOO_FEW and intercept:
        return _choose_intercept(loss, signal)
    number = loss.n_classes == 0
    least, needed = (
        (NUMBER_SHARE, NUMBER_RECORDS) if number else (CLASS_SHARE, CLASS_RECORDS)
    )
    target_share = min(max(least, (needed / signal) ** 2), MOST_SHARE)
    level_share = LEVEL_SHARE if loss.canonical and intercept else 0.0
    if level_share and not number:
        level_share = min(max(LEVEL_SHARE, (LEVEL_RECORDS / signal) ** 2), MOST_SHARE)
    p = float(np.sum((make_prior(layout) / layout.scales[:, None]) ** 2))
    pattern = queries.GramPattern.of(layout, neighbours, centred=True)
    noise = pattern.sensitivity / (n_rows * mu * math.sqrt(GRAM_SHARE))
    steps = signal * math.sqrt(1.0 - GRAM_SHARE - target_share - level_share)
    shrinkage, level_cap = SHRINKAGE * math.sqrt(p) / steps, math.inf
    if number:
        radius = RESIDUAL * choose_cap(steps, p)
        if level_share > 0:
            level_cap = choose_cap(signal * math.sqrt(level_share), 1, 1.0)
            # Counts have long tails, and a model explains little of them.
            level_cap *= RESIDUAL if loss.target_law == "normal" else 1.0
    else:
        radius = CAP * signal ** (1 / 3)
        if level_share > 0 and signal < LOW_SIGNAL:
            # A lower cap mainly biases the intercept, which is corrected at the end.
            # The penalty, which is the product of radius and shrinkage, stays the same.
            lower = max(math.sqrt(signal / LOW_SIGNAL), LOWEST_CAP)
            radius, shrinkage = radius * lower, shrinkage / lower
    return Matrix(
        radius=radius,
        floor=max(FLOOR * noise * math.sqrt(2.0 * p), NOISELESS_FLOOR),
        gram_share=GRAM_SHARE,
        target_share=target_share,
        shrinkage=shrinkage,
        scaled=number,
        level_share=level_share,
        level_cap=level_cap,
    )


def choose_wide_geometry(
    layout: Layout,
    loss: Loss,
    n_rows: float,
    mu: float,
    neighbours: queries.Neighbours = "replace-one",
) -> tuple[Diagonal | InterceptOnly, int]:
    """Return the geometry and the steps for tables too wide for a Gram matrix.

    Each step moves all coordinates, in a norm that is made from public bounds. The run
    starts at a constant model and stops early. The noise is isotropic, and a row has
    length at most R. Noise of variance s² in each weight therefore costs at most
    ½ R² s², for any number of weights. Let the time τ be the number of steps times
    their length. After time τ, s = Rτ/(nν), with nν as in `choose_geometry`, and the
    remaining excess is at most ‖w*‖²/(2τ), where w* are the optimal weights. The best
    time satisfies τ³ = ‖w*‖² (nν)²/(2R⁴). The run stops earlier if the noise would cost
    more than `WIDE_COST`.
    """
    signal = n_rows * mu / queries.count_changes(neighbours)
    intercept = layout.groups[-1].kind == "ones"
    if signal < TOO_FEW and intercept:
        return _choose_intercept(loss, signal), _count_constant_steps(loss)
    d = layout.n_features
    at = np.flatnonzero(layout.penalised)
    squared = layout.squared_norm(at)
    # M must satisfy β (Σ_j x_j²/M_j + 1/M_0) ≤ 1. The intercept starts near its
    # optimum, so it gets the larger M_0, which means shorter steps.
    lean = 1.0 + SLOW_INTERCEPT if intercept else 1.0
    smoothness = np.full(d, loss.curvature * squared * lean)
    if intercept:
        smoothness[-1] = loss.curvature * (1.0 + 1.0 / SLOW_INTERCEPT)
    scale = 1.0 if loss.n_classes else USUAL_SCALE
    time = (0.5 * (scale * WIDE_NORM * signal / squared) ** 2) ** (1 / 3)
    time = min(time, scale * math.sqrt(2.0 * WIDE_COST) * signal / squared)
    least = CLASS_SHARE if loss.n_classes else NUMBER_SHARE
    share = min(max(least, (WIDE_RECORDS / signal) ** 2), MOST_SHARE)
    geometry = Diagonal(
        smoothness=smoothness, elliptical=True, share=share if intercept else 0.0
    )
    return geometry, max(1, round(time * float(smoothness[0])))


def choose_cap(signal: float, p: float, coherence: float = COHERENCE) -> float:
    """Return the best cap c on gradients, as a multiple of their mean length m.

    The length of a gradient is v = |residual|·‖Bx‖, where x is a row and B is the
    matrix that whitens rows. Suppose that v has an exponential distribution with mean
    m. A cap at cm then removes E(v - cm)₊ = m e⁻ᶜ from a gradient on average. A share α
    of the removed amount, the `coherence`, remains as bias. The noise costs
    p (cm/(nν))², where p is the number of coordinates and nν is `signal`. The total
    cost, divided by m², is α² e⁻²ᶜ + p c²/(nν)². The total is smallest where
    2c e²ᶜ = 2 (α nν)²/p.
    """
    return float(lambertw(2.0 * (coherence * signal) ** 2 / p).real) / 2.0


def _choose_intercept(loss: Loss, signal: float) -> InterceptOnly:
    """Return an intercept-only geometry whose ridge follows from the prior variance."""
    variance = ODDS_VARIANCE if loss.n_classes else MEAN_VARIANCE
    shrinkage = 0.0 if loss.target_law == "poisson" else 1.0 / (variance * signal**2)
    return InterceptOnly(radius=1.0, shrinkage=shrinkage)


def _count_constant_steps(loss: Loss) -> int:
    """Return the steps of a constant model. One sum of counts is all that it needs."""
    return 1 if loss.target_law == "poisson" else CONSTANT_STEPS


def make_default_plan(
    layout: Layout,
    loss: Loss,
    *,
    n_rows: int,
    epsilon: float = math.inf,
    delta: float | None = None,
    n_steps: int | None = None,
    **options: Any,
) -> Plan:
    """Plan a run by the untuned rule.

    Each step moves all coordinates. Later iterates get more weight in the average.

    Parameters
    ----------
    layout, loss, n_rows, epsilon, delta
        As in `Plan`. `delta` defaults to min(1e-6, 1/(10 n_rows)).
    n_steps : int, optional
        The number of steps. By default `choose_n_steps` chooses it, or it is 20 for a
        model with an intercept only.
    **options
        Further parameters of `Plan`: penalty, neighbours, … As in `Plan`, neighbours
        are replace-one by default. The default of estimators is add-remove.
    """
    delta = default_delta(n_rows) if delta is None else delta
    check_budget(epsilon, delta, n_rows)
    mu = accountant.gdp_mu(epsilon, delta)
    neighbours = options.get("neighbours", "replace-one")
    geometry = choose_geometry(layout, loss, n_rows, mu, neighbours)
    usual = choose_n_steps(loss, epsilon == math.inf)
    if geometry.is_constant:
        usual = _count_constant_steps(loss)
    settings: dict[str, Any] = {"average": algorithm1.rising} | options
    return Plan(
        layout=layout,
        loss=loss,
        n_rows=n_rows,
        epsilon=epsilon,
        delta=delta,
        sampling=samplings.Full(layout.n_features),
        geometry=geometry,
        n_steps=usual if n_steps is None else n_steps,
        **settings,
    )


# ---- Make plans for the paper's methods, by name
#
# Each method is a choice of a sampling, a geometry and a number of steps.


#: The ridge of the strongly convex preset, unless another one is given.
DEFAULT_RIDGE = 0.01
#: Number of passes over the coordinates in runs without noise.
NOISELESS_PASSES = 200

SamplingOf = Callable[[Layout], samplings.Sampling]


def _full(layout: Layout) -> samplings.Sampling:
    return samplings.Full(layout.n_features)


def _single(layout: Layout) -> samplings.Sampling:
    return samplings.SingleCoordinate.uniform(layout.n_features)


def _sample_columns(layout: Layout) -> samplings.Sampling:
    return samplings.Blocks.uniform(layout.blocks)


def _columns_importance(layout: Layout) -> samplings.Sampling:
    uniform = samplings.Blocks.uniform(layout.blocks)
    groups = smoothness.from_bounds(uniform, layout.blocks, curvature=1.0)
    return samplings.Blocks.importance(layout.blocks, groups, floor=0.5)


def _columns_shuffled(layout: Layout) -> samplings.Sampling:
    return samplings.ShuffledBlocks(layout.blocks)


#: The function that makes each method's sampling, by the method's name.
PRESETS: dict[str, SamplingOf] = {
    "skgd": _sample_columns,
    "dp_gd": _full,
    "dp_cd": _single,
    "dp_skgd": _sample_columns,
    "dp_skgd_importance": _columns_importance,
    "dp_skgd_shuffled": _columns_shuffled,
    "dp_skgd_strong": _sample_columns,
    "dp_skgd_matrix": _sample_columns,
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
    prior: bounds.Prior | None = None,
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
    sampling, prior = PRESETS[name](layout), prior or bounds.Prior()
    v = smoothness.from_bounds(sampling, layout.blocks, loss.curvature)
    geometry: Geometry = Diagonal(smoothness=v, elliptical=elliptical)
    if name == "dp_skgd_matrix":
        geometry = _make_matrix(layout, loss, n_rows, epsilon, delta, options)
    rate, strong = None, name == "dp_skgd_strong"
    if epsilon < math.inf and (n_steps is None or strong):
        budget = bounds.Budget(
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
            options.setdefault("average", algorithm1.growing(rate.decay))
        else:
            rate = choose_rate(sampling, v, layout, loss, prior, budget, penalty)
    # A bound is shown only at the K that it was computed for.
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
    prior: bounds.Prior,
    budget: bounds.Budget,
    penalty: Penalty | None,
    n_steps: int | None = None,
) -> bounds.Rate:
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
        sigma_squared=bounds.sigma_squared(sampling, m, lipschitz, layout.blocks),
        step_sigma_squared=bounds.step_sigma_squared(
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
    prior: bounds.Prior,
    budget: bounds.Budget,
) -> bounds.Rate:
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


def find_presence(
    budget: bounds.Budget, sampling: samplings.Sampling, layout: Layout, n_steps: int
) -> bounds.Budget:
    """Return the budget with the part of the steps that a record can take part in.

    The sets are examples (`expect_visits`). The noise of the paper has a presence of 1.
    """
    if budget.calibration == "paper":
        return budget
    count = partial(visit_gradients, layout)
    return replace(budget, presence=expect_visits(sampling, count, n_steps) / n_steps)


def choose_rate(
    sampling: samplings.Sampling,
    v: np.typing.NDArray[np.float64],
    layout: Layout,
    loss: Loss,
    prior: bounds.Prior,
    budget: bounds.Budget,
    penalty: Penalty | None = None,
    n_steps: int | None = None,
) -> bounds.Rate:
    """Return the best number of steps K* and the utility bound that it achieves.

    If `n_steps` is given, the bound is for this number of steps.

    The bound for full steps is `bounds.convex_tight` (Theorem A), which requires
    Diag(M) ⪰ H. The bound for other samplings is `bounds.convex_eso` (Theorem B). These
    bounds determine K*. The returned bound after K* steps takes the penalty into
    account. A ridge is added to the smoothness M. For any other penalty, the bound is
    from Theorem D.

    All bounds hold only under the assumptions in `prior`, which `Rate.theorem` repeats.
    The noise is what steps need in which one record takes part as often as with example
    sets (`find_presence`).
    """
    lipschitz = find_lipschitz(layout, loss.slope_bound)

    def compute_rate(
        m: np.typing.NDArray[np.float64], composite: bool = False
    ) -> bounds.Rate:
        distance = prior.distance_squared(m / sampling.probabilities, layout.blocks)
        facts: dict[str, Any] = {"distance_squared": distance, "budget": budget}
        own: dict[str, Any] = {
            "step_sigma_squared": bounds.step_sigma_squared(
                sampling, m, lipschitz, layout.blocks
            ),
            "smallest_probability": float(sampling.probabilities.min()),
            "excess": prior.excess,
        }
        if composite:
            return eso_bounds.convex_composite(**facts, **own)
        sigma = bounds.sigma_squared(sampling, m, lipschitz, layout.blocks)
        if isinstance(sampling, samplings.Full):
            return bounds.convex_tight(**facts, sigma_squared=sigma)
        return bounds.convex_eso(**facts, **own, sigma_squared=sigma)

    rate = compute_rate(v)
    # The part of the steps that a record takes part in depends on their number, and the
    # other way round. It changes slowly, so two rounds are enough.
    for _ in range(2):
        budget = find_presence(budget, sampling, layout, n_steps or rate.n_steps)
        rate = compute_rate(v) if budget.presence < 1 else rate
    n_steps, condition = n_steps or rate.n_steps, f"if {prior}"
    rate = rate.take_steps(n_steps)
    if budget.presence < 1:
        part = f"{budget.presence:.2g}"
        condition += f", a record takes part in at most {part} of the steps"
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


# ---- Decide what a fit will do, from public facts alone


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
    layout: Layout,
    loss: Loss,
    alpha: float | str,
    l1_ratio: float,
    epsilon: float = 1.0,
) -> ElasticNet:
    """Return the penalty alpha (l1_ratio ‖w‖₁ + ½ (1 - l1_ratio) ‖w‖²).

    With "auto", alpha is light, or 0 in a run without noise (an infinite `epsilon`),
    which then reaches the optimum of the likelihood.
    The intercept is not penalised. Here w are the weights of numbers on the scale on
    which rows have length one (`Group.inner`), so a generous range is not penalised
    more than a tight one. Only a ridge is used with such a scale.
    """
    _check_penalty(alpha, l1_ratio)
    if isinstance(alpha, str):
        alpha = LIGHT_ODDS_RIDGE if loss.n_classes else LIGHT_RIDGE
        alpha *= epsilon < math.inf
    penalised = layout.penalised
    if layout.clips is not None:
        check(l1_ratio == 0, "An ℓ₁ penalty requires numbers without a fill.")
        filled = np.array([group.inner != (0.0, 1.0) for group in layout.groups])
        scales = np.where(filled[layout.group_of], layout.scales, 1.0)
        penalised = penalised / scales**2
    return ElasticNet(
        l1=alpha * l1_ratio, l2=alpha * (1 - l1_ratio), penalised=penalised
    )


def _check_penalty(alpha: Any, l1_ratio: Any) -> None:
    number = int | float | np.number
    strong = alpha == "auto" or (isinstance(alpha, number) and 0 <= alpha < math.inf)
    check(
        bool(strong and isinstance(l1_ratio, number) and 0 <= l1_ratio <= 1),
        "alpha must be 'auto' or a finite number of at least 0, and l1_ratio must be "
        f"in [0, 1], got {alpha!r} and {l1_ratio!r}.",
    )


def check_options(
    *,
    alpha: float | str,
    l1_ratio: float,
    sampling: str | samplings.Sampling,
    geometry: str | Geometry,
    n_steps: int | str,
) -> None:
    """Raise if an option of `make_plan` would be invalid for every table.

    Call it where users pass options. `make_plan` relies on it.
    """
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
    penalty = make_penalty(layout, loss, alpha, l1_ratio, epsilon)
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
            steps = _count_constant_steps(loss)
        # A block that is drawn with probability q gets as many steps as full steps
        # would give it, if there are 1/q times as many.
        elif sampling not in ("auto", "full"):
            law = _make_sampling(sampling, layout)
            steps = math.ceil(steps / float(law.probabilities.min()))
            if isinstance(geometry, Matrix) and not isinstance(law, samplings.Full):
                geometry = replace(geometry, momentum=False)
        return Plan(
            sampling=law,
            geometry=geometry,
            n_steps=steps if n_steps == "auto" else int(n_steps),
            average=algorithm1.last if mu == math.inf else algorithm1.rising,
            **settings,
        )
    average = algorithm1.rising if geometry != "diagonal" else algorithm1.mean
    # Without noise, full steps have momentum, which steps on single columns do not
    # have.
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
            budget = bounds.Budget(
                n_rows=n_rows,
                epsilon=epsilon,
                delta=delta,
                neighbours=neighbours,
                calibration=calibration,
            )
            prior = bounds.Prior()
            rate = choose_rate(
                law, geometry.smoothness, layout, loss, prior, budget, penalty
            )
            n_steps = rate.n_steps
    return Plan(
        sampling=law,
        geometry=geometry,
        n_steps=int(n_steps),
        average=algorithm1.last if mu == math.inf else average,
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
    # An intercept-only plan came from the same rule. With more rows the rule may choose
    # a matrix, which is what a forecast for more rows must show.
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
