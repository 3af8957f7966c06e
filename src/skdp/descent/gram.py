"""A released Gram matrix and the metric that is made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp.descent.threads import one_thread
from skdp.privacy import queries
from skdp.schema import FloatArray, Layout


@dataclass(frozen=True, eq=False)
class Whitening:
    """B with BᵀB = A⁻¹, A the released Gram matrix with `floor` added to it.

    Attributes
    ----------
    root : float64 (d, d)
        B, which maps rows of features to whitened ones.
    share : float64 (d,)
        Of each whitened direction, how much of A is the Gram matrix and not noise or
        floor: an estimate, at most one.
    vectors : float64 (d, d)
        Columns are the whitened directions, before rows are centred.
    """

    root: FloatArray
    share: FloatArray
    vectors: FloatArray

    @property
    def dimension(self) -> float:
        """Expected squared length of a whitened row, E‖Bx‖² = tr(A⁻¹G): from 1 to d.

        Noise may hide all of it; no cap should be below that of one direction.
        """
        return max(1.0, float(self.share.sum()))


def whitening(gram: FloatArray, floor: float, shift: FloatArray) -> Whitening:
    """Whiten by a centred Gram matrix, of x - shift/2 times the intercept.

    B = A^(-1/2) (I - ½ shift e₀ᵀ), so that it takes rows as they are encoded.
    """
    with one_thread(len(gram)):
        values, vectors = np.linalg.eigh(gram)
        metric = np.maximum(values, 0.0) + floor
        root = (vectors / np.sqrt(metric)) @ vectors.T
    root[:, -1] -= root @ shift / 2.0
    share = np.clip(signal(values, floor) / metric, 0.0, 1.0)
    return Whitening(root=root, share=share, vectors=vectors)


def signal(values: FloatArray, floor: float) -> FloatArray:
    """Eigenvalues without their noise, as far as can be told.

    Those above twice the floor, the operator norm of the noise by the untuned rule, are
    taken as they are. Below, noise spreads eigenvalues but leaves their sum: the trace
    averages over all coordinates. So each is given their mean.
    """
    hidden = values <= 2.0 * floor
    if not hidden.any():
        return values
    return np.where(hidden, max(float(values[hidden].mean()), 0.0), values)


def symmetric(
    layout: Layout, pattern: queries.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """Put released entries of the Gram matrix, and those that are known, in place."""
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
