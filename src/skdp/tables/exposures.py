"""Define exposures, which are sample weights that counts are divided by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.schema import FloatArray

#: Offsets (logarithms of exposures) are clipped to plus or minus this number.
FARTHEST = 300.0


@dataclass(frozen=True, eq=False, repr=False)
class Exposure:
    """Sample weights that the target is divided by, such as years under observation.

    A count y over an exposure e has the same Poisson likelihood, up to a constant, as
    the rate y/e with weight e. A row whose exposure is not a positive number has weight
    zero.

    Attributes
    ----------
    weights : column or str
        The exposures, or the name of their column.
    logarithms : bool
        Whether `weights` holds offsets, which are logarithms of exposures.
    """

    weights: Any
    logarithms: bool = False

    @property
    def role(self) -> str:
        """The word for the column in messages, "offset" or "exposure"."""
        return "offset" if self.logarithms else "exposure"


def divide_counts(
    counts: FloatArray, given: FloatArray, role: str
) -> tuple[FloatArray, FloatArray]:
    """Return counts divided by their exposures, and the exposures as weights.

    `given` holds the exposures, or their logarithms if `role` is "offset".
    """
    if role == "offset":  # no real offset reaches the limits, which avoid overflow
        given = np.exp(np.clip(given, -FARTHEST, FARTHEST))
    positive = np.isfinite(given) & (given > 0)
    weights = np.where(positive, given, 0.0)
    rates = np.where(positive, counts / np.where(positive, given, 1.0), np.nan)
    return rates, weights
