"""Whiten rows by a released Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from skdp.descent.threads import one_thread
from skdp.privacy import queries
from skdp.schema import FloatArray, Layout

#: Shrinking assumes that this share of the variance of a curve or surface is
#: independent at each knot or category.
ROUGH = 0.2


@dataclass(frozen=True, eq=False)
class Whitening:
    """A matrix B with BᵀB = A⁻¹, which whitens rows.

    A is the released Gram matrix, with negative eigenvalues set to zero, plus `floor`
    times the identity.

    Attributes
    ----------
    root : float64 (d, d)
        B, which maps feature rows to whitened rows.
    share : float64 (d,)
        For each whitened direction, an estimate of the share of A that comes from the
        true Gram matrix and not from noise or `floor`. It is at most one.
    vectors : float64 (d, d)
        The whitened directions, one per column, for rows that are already centred and
        multiplied by the prior (`make_prior`).
    moments : float64 (d, d)
        The estimated Gram matrix of centred rows, without most of the noise.
    """

    root: FloatArray
    share: FloatArray
    vectors: FloatArray
    moments: FloatArray

    @property
    def dimension(self) -> float:
        """Expected squared length E‖Bx‖² of a whitened row, estimated from `share`.

        E‖Bx‖² equals tr(A⁻¹G), where G is the true Gram matrix. The estimate is at most
        d. It is at least 1 even if noise hides every direction, because a smaller value
        could make the cap on gradients too small.
        """
        return max(1.0, float(self.share.sum()))


def whiten(
    gram: FloatArray, floor: float, shift: FloatArray, prior: FloatArray | None = None
) -> Whitening:
    """Compute the whitening from the Gram matrix of the centred rows x - shift/2.

    Here x is an encoded row and shift/2 is public (`GramPattern`). The result is
    B = A^(-1/2) T (I - ½ shift eᵀ), where T is the `prior`, A is the matrix of
    `Whitening` for the rows T(x - shift/2), and e selects the intercept. B includes the
    centring and T, so it is applied directly to encoded rows. Without a prior, T = I.
    """
    prior = np.eye(len(gram)) if prior is None else prior
    with one_thread(len(gram)):
        values, vectors = np.linalg.eigh(prior @ gram @ prior.T)
        metric = np.maximum(values, 0.0) + floor
        root = (vectors / np.sqrt(metric)) @ (vectors.T @ prior)
        clean = remove_noise(values, floor)
        back = np.linalg.solve(prior, vectors)
        moments = (back * clean) @ back.T
    root[:, -1] -= root @ shift / 2.0
    share = np.clip(clean / metric, 0.0, 1.0)
    return Whitening(root=root, share=share, vectors=vectors, moments=moments)


def make_prior(layout: Layout) -> FloatArray:
    """Return the matrix T by which a matrix geometry multiplies centred rows.

    A matrix geometry shrinks weights in two ways. It adds a floor to the eigenvalues of
    the Gram matrix, and it pulls weights to the start. Both shrink all directions of Tx
    alike. Shrinking therefore assumes that the weights have the covariance TᵀT. The
    variance of a weight is the square of its group's scale. The rough directions of a
    curve have a smaller variance (see `measure_smoothness`). The covariance of a
    surface is the Kronecker product of the covariances of its two sides.
    """
    prior = np.diag(layout.scales)
    for group in layout.groups:
        if group.sides:
            roots = [_root_of_side(width, knots) for width, knots in group.sides]
            root = roots[0] if len(roots) == 1 else np.kron(*roots)
            at = slice(group.start, group.start + group.width)
            prior[at, at] = group.scale * root
    return prior


@cache
def _root_of_side(width: int, n_knots: int) -> FloatArray:
    """Return the symmetric root of the covariance that shrinking assumes for a side.

    A side is a curve, or one of the two columns of a surface. Coordinates after the
    knots belong to missing numbers, and are independent of all others. A side without
    knots consists of categories, which have no order.
    """
    root = np.eye(width)
    n = n_knots or width
    covariance = (
        measure_smoothness(n)
        if n_knots
        else np.eye(n) - (1.0 - ROUGH) / n  # only the mean varies less
    )
    values, vectors = np.linalg.eigh(covariance)
    root[:n, :n] = (vectors * np.sqrt(values)) @ vectors.T
    return root


def measure_smoothness(n_knots: int) -> FloatArray:
    """Return the covariance that shrinking assumes for the heights of a curve.

    The heights are the values at the knots. Neighbouring heights are assumed to be
    alike. The share 1 - `ROUGH` of the covariance belongs to a random walk from knot to
    knot, from which its mean is subtracted. The rest is independent at each knot. The
    largest variance in any direction is one. The mean of all heights has the smallest
    variance, `ROUGH`, because the intercept can take over this mean. In a surface, the
    curve of the other column can take it over.
    """
    at = np.arange(n_knots, dtype=np.float64)
    walk = np.minimum.outer(at, at)
    walk -= walk.mean(axis=0)
    walk -= walk.mean(axis=1)[:, None]
    walk /= np.linalg.eigvalsh(walk)[-1]
    return (1.0 - ROUGH) * walk + ROUGH * np.eye(n_knots)


def remove_noise(values: FloatArray, floor: float) -> FloatArray:
    """Estimate the eigenvalues that the matrix would have without noise.

    The default rule (`planning.rule`) sets the floor to half the operator norm of the
    noise. Eigenvalues above twice the floor are kept. Noise spreads the other
    eigenvalues but hardly changes their sum, because it averages out in the trace. Each
    of them is therefore replaced by their mean, or by 0 if this mean is negative.
    """
    hidden = values <= 2.0 * floor
    if not hidden.any():
        return values
    return np.where(hidden, max(float(values[hidden].mean()), 0.0), values)


def fill_gram(
    layout: Layout, pattern: queries.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """Return the full Gram matrix, made from its released and its known entries."""
    full = np.zeros((layout.n_features, layout.n_features))
    full[pattern.rows, pattern.columns] = full[pattern.columns, pattern.rows] = values
    for one in (group.start for group in layout.groups if group.kind == "ones"):
        if one not in pattern.rows:
            full[one, one] = n_rows
        for at in (
            group.coordinates for group in layout.groups if group.kind == "code"
        ):
            full[one, at] = full[at, one] = full[at, at]
    return full
