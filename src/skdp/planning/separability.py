"""Check that a penalty couples only coordinates that steps move together."""

from __future__ import annotations

import numpy as np

from skdp.descent import samplings
from skdp.models.penalties import Box, ElasticNet, Penalty
from skdp.schema import IntArray, check


def check_separable(
    penalty: Penalty,
    sampling: samplings.Sampling,
    n_outputs: int,
    diagonal: bool = True,
) -> None:
    """Raise if the penalty couples coordinates that a step may move apart.

    The proximal map of a set S is right only if the penalty is a part on S plus a part
    on the rest. Full steps in a diagonal metric need nothing. A penalty with
    ``separable = False`` checks its own sets.
    """
    full = isinstance(sampling, samplings.Full)
    known = isinstance(penalty, (ElasticNet, Box))
    if known or (full and diagonal) or not getattr(penalty, "separable", True):
        return
    label = np.arange(sampling.n_coordinates)
    sets = sampling.support or ()
    if diagonal and sum(map(len, sets)) == len(label):  # disjoint blocks
        for number, block in enumerate(sets):
            label[block] = number
    check(
        is_separable(penalty, label, n_outputs),
        f"{type(penalty).__name__} couples coordinates that different steps move, so "
        "its proximal map on a part of them would be wrong. Use full steps in the "
        "diagonal geometry.",
    )


def is_separable(penalty: Penalty, label: IntArray, n_outputs: int) -> bool:
    """Return whether a penalty appears to be a sum over the sets of equal label.

    For each bit of the labels, the proximal map of the coordinates with this bit is
    compared with that of all coordinates, at weights of three sizes. Every two labels
    differ in a bit. No record is read, and the weights are always the same.
    """
    at = np.arange(len(label))
    metric = 1.0 + 0.5 * np.sin(3.7 * at)
    places = np.arange(1.0, len(label) * n_outputs + 1).reshape(-1, n_outputs)
    for size in (0.1, 1.0, 10.0):
        weights = size * np.sin(12.9898 * places)
        whole = penalty.prox(weights, metric, at)
        for bit in range(int(label.max()).bit_length()):
            part = np.flatnonzero(label >> bit & 1)
            alone = penalty.prox(weights[part], metric[part], part)
            if not np.allclose(alone, whole[part], rtol=1e-6, atol=1e-9 * size):
                return False
    return True
