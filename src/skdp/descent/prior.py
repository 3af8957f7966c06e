"""State what forecasts assume about a table, and the public facts of a run.

The prior assumes that

* columns are independent, numeric columns are uniform on their range, and the
  categories of a column are equally frequent;
* the curvature of the loss is half of its largest value, or equal to its largest value
  for squared losses;
* the residuals of squared losses have a standard deviation of a fifth of the
  half-range of the target;
* the margins of the best model vary around a constant with variance 3, like the
  log-odds of common tables, or with the variance of the residuals for squared losses;
* this variance is spread evenly over all directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp.schema import FloatArray, Group, Layout

#: Residual variance of a target in [-1, 1], under the prior.
RESIDUAL_VARIANCE = 0.04
#: Variance of x·w* under the prior, for losses that are not squared.
SIGNAL_VARIANCE = 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorRun:
    """The public facts of a run, from which a geometry forecasts its cost.

    Attributes
    ----------
    layout : Layout
        The coordinates of an encoded row.
    n_rows, n_outputs : int
        The numbers of rows and of outputs k.
    slope_bound, curvature : float
        The largest slope of the loss, and its curvature c under the prior.
    signal : float
        What the best model gains over a constant, in units of the loss.
    noise : float
        The standard deviation of the noise on a sum to which each record adds at
        most 1.
    n_steps : int
        The number of steps.
    n_averaged : float
        The number of equally weighted iterates that an average of independent noise
        would need to have the same variance.
    probabilities : float64
        The probability with which a step moves each coordinate.
    """

    layout: Layout
    n_rows: int
    n_outputs: int
    slope_bound: float
    curvature: float
    signal: float
    noise: float
    n_steps: int
    n_averaged: float
    probabilities: FloatArray


def prior_moments(group: Group) -> tuple[float, float]:
    """Return E[x] and E[x²] of each coordinate of a group, under the prior."""
    if group.kind in ("code", "hats"):
        return 1.0 / group.width, 1.0 / group.width
    if group.kind == "ones":
        return 1.0, 1.0
    return (0.0, 1.0 / group.width) if group.signed else (0.5, 1.0 / 3.0)


def prior_spectrum(layout: Layout) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues of E[x xᵀ] under the prior, and their multiplicities.

    The coordinates of a group have equal moments and are orthogonal, so contrasts
    between them have the eigenvalue E[x²]. One direction per group remains, the sum of
    its coordinates. If these sums have means z and second moments s, the remaining
    matrix is diag(s - z²) + zzᵀ. The entries of s - z² take few distinct values. Among
    the groups that share a value, every direction orthogonal to z has this value as its
    eigenvalue, and one direction is left. So only a matrix with one row per distinct
    value must be decomposed, and a thousand columns take hardly any time.
    """
    widths = np.array([group.width for group in layout.groups], dtype=np.float64)
    moments = np.array([prior_moments(group) for group in layout.groups])
    mean, second = moments[:, 0] * np.sqrt(widths), moments[:, 1]
    own, kind = np.unique(np.round(second - mean**2, 12), return_inverse=True)
    joint = np.sqrt(np.bincount(kind, mean**2))
    left = np.linalg.eigvalsh(np.diag(own) + np.outer(joint, joint))
    values = np.concatenate([second, own, left])
    counts = np.concatenate([widths - 1, np.bincount(kind) - 1.0, np.ones(len(own))])
    return np.maximum(values, 0.0)[counts > 0], counts[counts > 0]
