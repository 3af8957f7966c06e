"""One way to refuse what is public and wrong, and the array types."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


IntArray = npt.NDArray[np.intp]


def check(holds: bool, sentence: str) -> None:
    """Refuse what is public and wrong; never called on a record's value.

    The sentence names the rule, the value and the remedy.
    """
    if not holds:
        raise ValueError(sentence)
