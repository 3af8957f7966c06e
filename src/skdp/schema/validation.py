"""The one way to refuse a public mistake, and the types of arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


IntArray = npt.NDArray[np.intp]


def check(holds: bool, sentence: str) -> None:
    """Refuse a public mistake; never called on a record's value.

    The sentence names the rule and the value, and the remedy if it is not obvious.
    """
    if not holds:
        raise ValueError(sentence)
