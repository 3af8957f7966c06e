"""The provisional rule: a matrix geometry and a plan that need no tuning.

Its constants were chosen by looking at seven public tables; they are not a theorem and
will change. What is proved is the privacy of whatever it decides, because it decides
from public facts alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdp.descent import averages, samplings
from skdp.descent.geometry import Matrix
from skdp.descent.plan import Plan, check_budget
from skdp.losses import Loss
from skdp.privacy import accountant, sums
from skdp.schema import Layout, check

#: Passes over the table, with noise and (at least) without.
N_STEPS, NOISELESS_STEPS = 80, 500
#: Mean second derivative that is expected of a loss, where it is far below the bound.
#: A Poisson rate is the mean count over the largest one; a third is a guess on the high
#: side, for 480 steps (tables with 1/9 to 1/23 did best with 320 to 640 of them).
EXPECTED_CURVATURE = {"poisson": 1 / 3}
#: Share of μ² that the Gram matrix costs.
SHARE = 0.2
#: The cap over (nμ)^(1/3): measured for the logistic and the squared loss alone.
CAP, SQUARED_CAP = 0.25, 0.1
#: The shrinkage over √p·cap/(nμ): with noise of variance σ² in each of p coordinates
#: and ‖u*‖² = S, σ√(p/S) is the minimax ridge over all spectra of the Hessian.
SHRINKAGE = 0.2
#: The floor over the operator norm of the noise in the Gram matrix: what lies below
#: cannot be told from noise. A whole norm would make the step provably stable; half of
#: it was as stable on every table tried and learns small directions sooner.
FLOOR = 0.5
#: Smallest eigenvalue of the Gram matrix that is kept when nothing is noisy.
NOISELESS_FLOOR = 1e-6


def default_n_steps(loss: Loss, noiseless: bool = False) -> int:
    """Return the number of steps of the untuned rule, 80 for most losses.

    A step 1/β closes a share E φ''/β of what is left, so that a loss whose curvature
    is far below its bound takes that many times more steps. Their noise averages out:
    twice the steps with half the budget each move the average no more.
    Without noise nothing is gained by stopping early: 4 times more, 500 at least.
    """
    expected = EXPECTED_CURVATURE.get(loss.name, loss.curvature)
    n_steps = math.ceil(N_STEPS * loss.curvature / expected)
    return max(4 * n_steps, NOISELESS_STEPS) if noiseless else n_steps


def default_geometry(
    layout: Layout,
    n_rows: float,
    mu: float,
    relation: sums.Relation = "replace-one",
    *,
    cap: float = CAP,
    largest_slope: float = 1.0,
) -> Matrix:
    """Return the matrix geometry of the untuned rule.

    A fifth of μ² buys the Gram matrix. With ν the μ of a sum that a record moves by its
    bound (μ/2 under replace-one), its eigenvalues are floored at half the operator norm
    of its noise, ½ σ √(2p) for p coordinates, or at (√p/(nν))^(1/2) if that is less: a
    higher floor slows small directions more than their noise is worth. A record's
    gradient is capped at C = cap·(nν)^(1/3) in the matrix's norm, and weights are
    shrunk by a ridge of 0.2 √p C/(nν) in it.

    Parameters
    ----------
    layout : Layout
        The coordinates of an encoded row, p of them.
    n_rows : float
        The public or released number of rows, n.
    mu : float
        Gaussian-DP parameter of the whole run; infinite for a run without noise, where
        no record reaches the cap.
    relation : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    cap : float
        0.25 for classes, 0.1 for numbers scaled to [-1, 1].
    largest_slope : float
        Bound on a record's slope; it matters without noise only.
    """
    check(
        n_rows * mu > 0,
        f"The rule needs rows and a budget. Got n_rows {n_rows} and mu {mu}: raise it.",
    )
    p = layout.n_features
    if mu == math.inf:
        longest = math.sqrt(layout.squared_norm(np.arange(p)))
        radius = largest_slope * longest / math.sqrt(NOISELESS_FLOOR)
        return Matrix(radius=2.0 * radius, floor=NOISELESS_FLOOR)
    sensitivity = sums.GramPattern.of(layout, relation).sensitivity
    noise = sensitivity / (n_rows * mu * math.sqrt(SHARE))
    signal = n_rows * mu / (2.0 if relation == "replace-one" else 1.0)
    radius = cap * signal ** (1 / 3)
    slow = math.sqrt(math.sqrt(p) / signal)
    return Matrix(
        radius=radius,
        floor=max(min(FLOOR * noise * math.sqrt(2.0 * p), slow), NOISELESS_FLOOR),
        share=SHARE,
        shrinkage=SHRINKAGE * math.sqrt(p) * radius / signal,
    )


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
    """Plan a run by the untuned rule: full steps, most of them averaged.

    Parameters
    ----------
    layout, loss, n_rows, epsilon, delta
        As in `Plan`; `delta` defaults to min(1e-6, 1/(10 n_rows)).
    n_steps : int, optional
        `default_n_steps` by default.
    **options
        Further parameters of `Plan`: penalty, relation, …
    """
    delta = min(1e-6, 0.1 / max(n_rows, 1)) if delta is None else delta
    check_budget(epsilon, delta, n_rows)
    mu = accountant.gdp_mu(epsilon, delta)
    relation = options.get("relation", "replace-one")
    cap = SQUARED_CAP if loss.name in ("squared", "huber") else CAP
    usual = default_n_steps(loss, epsilon == math.inf)
    settings: dict[str, Any] = {"average": averages.most} | options
    return Plan(
        layout=layout,
        loss=loss,
        n_rows=n_rows,
        epsilon=epsilon,
        delta=delta,
        sampling=samplings.Full(layout.n_features),
        geometry=default_geometry(
            layout, n_rows, mu, relation, cap=cap, largest_slope=loss.slope_bound
        ),
        n_steps=usual if n_steps is None else n_steps,
        **settings,
    )
