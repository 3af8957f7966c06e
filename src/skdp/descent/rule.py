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
from skdp.privacy import accountant
from skdp.schema import Layout, check

#: Passes over the table, with and without noise.
N_STEPS, NOISELESS_STEPS = 40, 100
#: The cap over (nμ)^(1/3): measured for the logistic and the squared loss alone.
CAP, SQUARED_CAP = 0.25, 0.1
#: Smallest eigenvalue of the Gram matrix that is kept when nothing is noisy.
NOISELESS_FLOOR = 1e-6


def default_geometry(
    layout: Layout,
    n_rows: float,
    mu: float,
    *,
    cap: float = CAP,
    largest_slope: float = 1.0,
) -> Matrix:
    """Return the matrix geometry of the untuned rule.

    A fifth of μ² buys the Gram matrix. With p coordinates its eigenvalues are floored
    at (√p/(nμ))^(1/2), and a record's gradient is capped at cap·(nμ)^(1/3) in its norm.

    Parameters
    ----------
    layout : Layout
        The coordinates of an encoded row, p of them.
    n_rows : float
        The public or released number of rows, n.
    mu : float
        Gaussian-DP parameter of the whole run, μ, when one record moves a sum by its
        bound; half of it under "replace-one", where it moves a sum by twice the bound.
        Infinite for a run without noise: then no record reaches the cap.
    cap : float
        0.25 for classes, 0.1 for numbers scaled to [-1, 1].
    largest_slope : float
        Bound on a record's slope; it matters without noise only.
    """
    check(
        n_rows * mu > 0,
        f"The rule needs rows and a budget. Got n_rows {n_rows} and mu {mu}: raise it.",
    )
    if mu == math.inf:
        longest = math.sqrt(layout.squared_norm(np.arange(layout.n_features)))
        radius = largest_slope * longest / math.sqrt(NOISELESS_FLOOR)
        return Matrix(radius=2.0 * radius, floor=NOISELESS_FLOOR)
    floor = math.sqrt(math.sqrt(layout.n_features) / (n_rows * mu))
    return Matrix(radius=cap * (n_rows * mu) ** (1 / 3), floor=floor)


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
    """Plan a run by the untuned rule: 40 steps on all coordinates, their tail averaged.

    Parameters
    ----------
    layout, loss, n_rows, epsilon, delta
        As in `Plan`; `delta` defaults to min(1e-6, 1/(10 n_rows)).
    n_steps : int, optional
        40 by default, 100 if epsilon is infinite.
    **options
        Further parameters of `Plan`: penalty, relation, …
    """
    delta = min(1e-6, 0.1 / max(n_rows, 1)) if delta is None else delta
    check_budget(epsilon, delta, n_rows)
    mu = accountant.gdp_mu(epsilon, delta)
    if options.get("relation", "replace-one") == "replace-one":
        mu /= 2
    cap = SQUARED_CAP if loss.name in ("squared", "huber") else CAP
    noiseless = NOISELESS_STEPS if epsilon == math.inf else N_STEPS
    settings: dict[str, Any] = {"average": averages.tail} | options
    return Plan(
        layout=layout,
        loss=loss,
        n_rows=n_rows,
        epsilon=epsilon,
        delta=delta,
        sampling=samplings.Full(layout.n_features),
        geometry=default_geometry(
            layout, n_rows, mu, cap=cap, largest_slope=loss.slope_bound
        ),
        n_steps=noiseless if n_steps is None else n_steps,
        **settings,
    )
