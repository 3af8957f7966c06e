"""Whiten rows by a released Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp.descent.threads import one_thread
from skdp.privacy import queries
from skdp.schema import FloatArray, Layout


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
        scaled.
    moments : float64 (d, d)
        The estimated Gram matrix of centred rows, without most of the noise.
    """

    root: FloatArray
    share: FloatArray
    vectors: FloatArray
    moments: FloatArray

    @property
    def dimension(self) -> float:
        """Expected squared length of a whitened row, E‖Bx‖² = tr(A⁻¹G), from 1 to d.

        If noise hides every direction, the value is still 1, as for a single direction.
        Otherwise the cap on gradients could become too small.
        """
        return max(1.0, float(self.share.sum()))


def whiten(
    gram: FloatArray, floor: float, shift: FloatArray, scales: FloatArray | None = None
) -> Whitening:
    """Compute the whitening from the Gram matrix of the centred rows x - shift/2.

    The result is B = A^(-1/2) S (I - ½ shift e₀ᵀ), where S has the `scales` on its
    diagonal, A belongs to the scaled rows, and e₀ selects the intercept. B centres and
    scales rows itself, so it applies to rows as they are encoded.
    """
    scales = np.ones(len(gram)) if scales is None else scales
    with one_thread(len(gram)):
        values, vectors = np.linalg.eigh(gram * np.outer(scales, scales))
        metric = np.maximum(values, 0.0) + floor
        root = (vectors / np.sqrt(metric)) @ vectors.T * scales
        clean = remove_noise(values, floor)
        moments = (vectors * clean) @ vectors.T / np.outer(scales, scales)
    root[:, -1] -= root @ shift / 2.0
    share = np.clip(clean / metric, 0.0, 1.0)
    return Whitening(root=root, share=share, vectors=vectors, moments=moments)


def remove_noise(values: FloatArray, floor: float) -> FloatArray:
    """Estimate the eigenvalues that the matrix would have without noise.

    The untuned rule sets the floor to half the operator norm of the noise. Eigenvalues
    above twice the floor are kept. Noise spreads the smaller eigenvalues but preserves
    their sum, because the trace averages over all coordinates. Each of them is
    therefore replaced by their mean.
    """
    hidden = values <= 2.0 * floor
    if not hidden.any():
        return values
    return np.where(hidden, max(float(values[hidden].mean()), 0.0), values)


def fill_gram(
    layout: Layout, pattern: queries.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """Return the full Gram matrix, made of released and of known entries."""
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
