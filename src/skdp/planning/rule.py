"""The rule that leaves nothing to tune: geometry, caps, floor, shrinkage and steps.

It decides from public facts alone, so that the privacy of whatever it decides does not
depend on it. `docs/method.md` derives its constants and says what else was tried.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import lambertw

from skdp.descent import averages, samplings
from skdp.descent.geometry import Diagonal
from skdp.descent.intercept import InterceptOnly
from skdp.descent.matrix import Matrix
from skdp.descent.target import USUAL_SCALE
from skdp.models.losses import Loss
from skdp.planning.plan import Plan, check_budget
from skdp.privacy import accountant, queries
from skdp.schema import Layout, check

#: Passes over the table, with noise and (at least) without, and for a constant alone.
N_STEPS, NOISELESS_STEPS, CONSTANT_STEPS = 80, 500, 20
#: Share of μ² that the Gram matrix costs.
GRAM_SHARE = 0.15
#: A histogram of the target costs as much as its error needs, within these shares.
CLASS_SHARE, NUMBER_SHARE, MOST_SHARE = 0.005, 0.03, 0.1
#: Noise, in records, at which they are given the least.
CLASS_RECORDS, NUMBER_RECORDS = 10.0, 30.0
#: The same for wide tables, whose intercept hardly moves from its start.
WIDE_RECORDS = 50.0
#: The floor over the operator norm of the noise in the Gram matrix.
FLOOR = 0.5
#: The cap over (nν)^(1/3), for classes.
CAP = 0.25
#: Part of what is clipped that stays as bias, for residuals that lie on both sides.
COHERENCE = 0.1
#: What is left of a target's spread once two thirds of its variance are explained.
RESIDUAL = 0.6
#: The shrinkage over √p·cap/(nν).
SHRINKAGE = 0.2
#: Norm of the weights of a wide table's unit rows that is worth waiting for.
WIDE_NORM = 10.0
#: What its noise may cost at most, in nats: tenths of them are to be won.
WIDE_COST = 0.05
#: What the intercept of a wide table leaves of the step to the other weights.
SLOW_INTERCEPT = 0.1
#: Below so many nν, the noise of a sum in records, only a constant is fitted.
TOO_FEW = 40.0
#: Variance of a constant that is expected: of log-odds, and of a mean in [-1, 1].
ODDS_VARIANCE, MEAN_VARIANCE = 1.0, 0.1
#: What is added to eigenvalues of the Gram matrix when nothing is noisy.
NOISELESS_FLOOR = 1e-6


def default_n_steps(loss: Loss, noiseless: bool = False) -> int:
    """Return the number of steps of the untuned rule, 80 for most losses.

    A step 1/β closes a share E φ''/β of what is left, so that a loss whose curvature
    is far below its bound takes that many times more steps. Their noise averages out:
    twice the steps with half the budget each move the average no more.
    Without noise nothing is gained by stopping early: 4 times more, 500 at least.
    """
    n_steps = math.ceil(N_STEPS * loss.curvature / loss.usual_curvature)
    return max(4 * n_steps, NOISELESS_STEPS) if noiseless else n_steps


def default_geometry(
    layout: Layout,
    loss: Loss,
    n_rows: float,
    mu: float,
    relation: queries.Relation = "replace-one",
) -> Matrix | InterceptOnly:
    """Return the geometry of the untuned rule.

    ν is the μ of a sum that a record moves by its bound: μ/2 under replace-one. Then
    nν is a table's size in units of the noise, and all follows from it and from p, the
    number of coordinates. Below 40 only a constant is fitted.

    Parameters
    ----------
    layout : Layout
        The coordinates of an encoded row, p of them.
    loss : Loss
        What is minimised.
    n_rows : float
        The public or released number of rows, n.
    mu : float
        Gaussian-DP parameter of the whole run; infinite for a run without noise, where
        no record reaches the cap.
    relation : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    """
    check(
        n_rows * mu > 0,
        f"The rule needs rows and a budget. Got n_rows {n_rows} and mu {mu}: raise it.",
    )
    p = layout.n_features
    if mu == math.inf:
        longest = math.sqrt(layout.squared_norm(np.arange(p)))
        radius = loss.slope_bound * longest / math.sqrt(NOISELESS_FLOOR)
        return Matrix(radius=4.0 * radius, floor=NOISELESS_FLOOR)
    signal = n_rows * mu / (2.0 if relation == "replace-one" else 1.0)
    intercept = layout.groups[-1].kind == "ones"
    if signal < TOO_FEW and intercept:
        return _constant(loss, signal)
    number = loss.n_classes == 0
    least, needed = (
        (NUMBER_SHARE, NUMBER_RECORDS) if number else (CLASS_SHARE, CLASS_RECORDS)
    )
    target_share = min(max(least, (needed / signal) ** 2), MOST_SHARE)
    pattern = queries.GramPattern.of(layout, relation, centred=True)
    noise = pattern.sensitivity / (n_rows * mu * math.sqrt(GRAM_SHARE))
    steps = signal * math.sqrt(1.0 - GRAM_SHARE - target_share)
    return Matrix(
        radius=RESIDUAL * clipping(steps, p) if number else CAP * signal ** (1 / 3),
        floor=max(FLOOR * noise * math.sqrt(2.0 * p), NOISELESS_FLOOR),
        gram_share=GRAM_SHARE,
        target_share=target_share,
        shrinkage=SHRINKAGE * math.sqrt(p) / steps,
        scaled=number,
    )


def wide_geometry(
    layout: Layout,
    loss: Loss,
    n_rows: float,
    mu: float,
    relation: queries.Relation = "replace-one",
) -> tuple[Diagonal | InterceptOnly, int]:
    """Return the geometry and the steps for tables too wide for a Gram matrix.

    Full steps in the norm of public bounds, from a constant model, stopped early. Noise
    has no direction here, but a row has length R at most, so that noise of variance s²
    in each weight costs ½ R² s² at most, however many weights there are. After a time
    τ (steps times their length) s = Rτ/(nν), and what is still to be learnt is at most
    ‖w*‖²/2τ: τ³ = ‖w*‖² (nν)²/(2 R⁴) is the best time, unless noise would then cost
    more than there is to be won.
    """
    signal = n_rows * mu / (2.0 if relation == "replace-one" else 1.0)
    intercept = layout.groups[-1].kind == "ones"
    if signal < TOO_FEW and intercept:
        return _constant(loss, signal), CONSTANT_STEPS
    d = layout.n_features
    at = np.flatnonzero(layout.penalised)
    squared = layout.squared_norm(at)
    # β (Σ_j x_j²/M_j + 1/M_0) ≤ 1: the intercept starts where it belongs, and so takes
    # the short steps.
    lean = 1.0 + SLOW_INTERCEPT if intercept else 1.0
    smoothness = np.full(d, loss.curvature * squared * lean)
    if intercept:
        smoothness[-1] = loss.curvature * (1.0 + 1.0 / SLOW_INTERCEPT)
    scale = 1.0 if loss.n_classes else USUAL_SCALE
    time = (0.5 * (scale * WIDE_NORM * signal / squared) ** 2) ** (1 / 3)
    time = min(time, scale * math.sqrt(2.0 * WIDE_COST) * signal / squared)
    least = CLASS_SHARE if loss.n_classes else NUMBER_SHARE
    share = min(max(least, (WIDE_RECORDS / signal) ** 2), MOST_SHARE)
    geometry = Diagonal(smoothness=smoothness, share=share if intercept else 0.0)
    return geometry, max(1, round(time * float(smoothness[0])))


def clipping(signal: float, p: int) -> float:
    """Return the cap, over the mean of |residual|·‖Bx‖, that loses least.

    If that product v is exponential with mean m, a cap at cm takes E(v - cm)₊ = m e⁻ᶜ
    off a gradient, of which a share α stays as bias, and costs p (cm/nν)² in noise:
    α² e⁻²ᶜ + p c²/(nν)² is least where 2c e²ᶜ = 2 (α nν)²/p.
    """
    return float(lambertw(2.0 * (COHERENCE * signal) ** 2 / p).real) / 2.0


def _constant(loss: Loss, signal: float) -> InterceptOnly:
    """Return the ridge estimate of a constant whose variance is expected."""
    variance = ODDS_VARIANCE if loss.n_classes else MEAN_VARIANCE
    return InterceptOnly(radius=1.0, shrinkage=1.0 / (variance * signal**2))


def default_plan(
    layout: Layout,
    loss: Loss,
    *,
    n_rows: int,
    epsilon: float = math.inf,
    delta: float | None = None,
    n_steps: int | None = None,
    **options: Any,
) -> Plan:
    """Plan a run by the untuned rule: full steps, later ones counting more.

    Parameters
    ----------
    layout, loss, n_rows, epsilon, delta
        As in `Plan`; `delta` defaults to min(1e-6, 1/(10 n_rows)).
    n_steps : int, optional
        `default_n_steps` by default.
    **options
        Further parameters of `Plan`: penalty, relation (replace-one by default), …
    """
    delta = min(1e-6, 0.1 / max(n_rows, 1)) if delta is None else delta
    check_budget(epsilon, delta, n_rows)
    mu = accountant.gdp_mu(epsilon, delta)
    relation = options.get("relation", "replace-one")
    geometry = default_geometry(layout, loss, n_rows, mu, relation)
    usual = default_n_steps(loss, epsilon == math.inf)
    if isinstance(geometry, InterceptOnly):
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
