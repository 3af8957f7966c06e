"""Choose the geometry and the number of steps by the untuned rule.

The geometry includes the cap on gradients, the floor that is added to the eigenvalues
of the Gram matrix, and the shrinkage. The rule has no parameters that users must tune.
It uses public facts alone, so its choices cost no privacy. `docs/guide/method.md`
derives the constants below and says what else was tried.

Below, nν is the number of rows divided by the noise of a sum (see `choose_geometry`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import lambertw

from skdp.descent import averages, samplings
from skdp.descent.geometry import Diagonal
from skdp.descent.gram import make_prior
from skdp.descent.intercept import InterceptOnly
from skdp.descent.matrix import Matrix
from skdp.descent.target import RESIDUAL, USUAL_SCALE
from skdp.models.losses import Loss
from skdp.planning.plan import Plan, check_budget, default_delta
from skdp.privacy import accountant, queries
from skdp.schema import Layout, check

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
    n_steps = math.ceil(N_STEPS * loss.curvature / loss.usual_curvature)
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
        return Matrix(radius=4.0 * radius, floor=NOISELESS_FLOOR)
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
        return _choose_intercept(loss, signal), CONSTANT_STEPS
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
    return InterceptOnly(radius=1.0, shrinkage=1.0 / (variance * signal**2))


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
        usual = CONSTANT_STEPS
    settings: dict[str, Any] = {"average": averages.rising} | options
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
