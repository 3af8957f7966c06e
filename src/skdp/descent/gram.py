"""Whitening by a released Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp.descent.threads import one_thread
from skdp.privacy import queries
from skdp.schema import FloatArray, Layout


@dataclass(frozen=True, eq=False)
class Whitening:
    """B with BᵀB = A⁻¹, where A is the released Gram matrix plus `floor`.

    Attributes
    ----------
    root : float64 (d, d)
        B, which maps feature rows to whitened rows.
    share : float64 (d,)
        For each whitened direction, the estimated share of A that is the Gram matrix
        rather than noise or floor; at most one.
    vectors : float64 (d, d)
        Columns are the whitened directions, before rows are centred.
    """

    root: FloatArray
    share: FloatArray
    vectors: FloatArray

    @property
    def dimension(self) -> float:
        """Expected squared length of a whitened row, E‖Bx‖² = tr(A⁻¹G), from 1 to d.

        Noise may hide all of it, but no cap should be below that of one direction.
        """
        return max(1.0, float(self.share.sum()))


def whiten(gram: FloatArray, floor: float, shift: FloatArray) -> Whitening:
    """Compute the whitening of a centred Gram matrix, of x - shift/2 · intercept.

    B = A^(-1/2) (I - ½ shift e₀ᵀ), which applies to rows as they are encoded.
    """
    with one_thread(len(gram)):
        values, vectors = np.linalg.eigh(gram)
        metric = np.maximum(values, 0.0) + floor
        root = (vectors / np.sqrt(metric)) @ vectors.T
    root[:, -1] -= root @ shift / 2.0
    share = np.clip(remove_noise(values, floor) / metric, 0.0, 1.0)
    return Whitening(root=root, share=share, vectors=vectors)


def remove_noise(values: FloatArray, floor: float) -> FloatArray:
    """Estimate eigenvalues without their noise.

    Those above twice the floor, the operator norm of the noise by the untuned rule, are
    kept. Below, noise spreads the eigenvalues but preserves their sum, since the trace
    averages over all coordinates. Each is therefore replaced by their mean.
    """
    hidden = values <= 2.0 * floor
    if not hidden.any():
        return values
    return np.where(hidden, max(float(values[hidden].mean()), 0.0), values)


def fill_gram(
    layout: Layout, pattern: queries.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """Return the symmetric Gram matrix of released entries and those that are known."""
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
