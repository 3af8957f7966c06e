"""The function that refuses public mistakes, and type aliases for arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


IntArray = npt.NDArray[np.intp]


def check(holds: bool, sentence: str) -> None:
    """Raise a ValueError with this sentence unless a public condition holds.

    The condition must not depend on a record's value, because the error would reveal
    it. The sentence states the rule and the wrong value, and the remedy if that is not
    obvious.
    """
    if not holds:
        raise ValueError(sentence)
