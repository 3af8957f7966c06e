"""Check that a penalty is separable, so that steps may move a part of the weights."""

import numpy as np

from skdp.descent import samplings
from skdp.models.penalties import Penalty
from skdp.schema import IntArray, check


def check_separable(
    penalty: Penalty,
    sampling: samplings.Sampling,
    n_outputs: int,
    diagonal: bool = True,
) -> None:
    """Raise if the penalty couples coordinates that different steps may move.

    A step on a set S may apply the proximal map only if the penalty is a function of
    the coordinates in S plus a function of the others. If a penalty has
    ``separable = False``, its method `splits` says for which sets this holds.
    Any other penalty is tested by `is_separable`, unless it is ``trusted``, or every
    step moves all coordinates in a diagonal metric.
    """
    name, support = type(penalty).__name__, sampling.support
    if not penalty.separable:
        check(
            support is not None and all(map(penalty.splits, support)),
            f"{name} couples coordinates that different steps move. Use full steps, "
            "blocks that do not split its parts, or skdp.solvers.dp_sega.",
        )
        return
    full = isinstance(sampling, samplings.Full)
    if penalty.trusted or (full and diagonal):
        return
    label = np.arange(sampling.n_coordinates)
    sets = support or ()
    if diagonal and sum(map(len, sets)) == len(label):  # disjoint blocks
        for number, block in enumerate(sets):
            label[block] = number
    check(
        is_separable(penalty, label, n_outputs),
        f"{name} couples coordinates that different steps move, so its proximal map on "
        "a part of them would be wrong. Use full steps in the diagonal geometry.",
    )


def is_separable(penalty: Penalty, label: IntArray, n_outputs: int) -> bool:
    """Return whether a penalty appears to be a sum of one function per label.

    `label` numbers the sets of coordinates that steps move together. For each binary
    digit, consider the coordinates whose label has a 1 in this digit. The proximal map
    of these coordinates alone must agree with the proximal map of all coordinates. Any
    two labels differ in some digit, so every pair of labels is tested. The weights in
    the test are fixed and of three sizes. No record is read.
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
