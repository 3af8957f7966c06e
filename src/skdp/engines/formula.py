"""Describe the slope of a loss to kernels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdp.engines import kernels
from skdp.models import losses
from skdp.models.losses import Loss
from skdp.privacy.queries import Slopes
from skdp.schema import FloatArray, check

_NO_TABLE = np.zeros(2)
_NO_TABLE.setflags(write=False)

#: The kernel's code of each formula, by the formula's kind and whether it has a table.
FORMULAS = {
    ("mean", True): kernels.MEAN,
    ("residual", False): kernels.RESIDUAL,
    ("residual", True): kernels.BENT_RESIDUAL,
    ("ramp", False): kernels.RAMP,
    ("softmax", True): kernels.SOFTMAX,
}


class Formula(NamedTuple):
    """The formula for the slope of a loss.

    The fields belong to a `kernels.SweepJob`.
    """

    code: int
    parameters: FloatArray
    table: FloatArray

    @classmethod
    def of(cls, slopes: Slopes, margin_unit: float) -> Formula:
        """Return the formula for the loss and the grid of `slopes`."""
        loss: Any = slopes.loss
        check(
            getattr(type(loss), "slope", None) is Loss.slope,
            f"The compiled engine has no formula for {type(loss).__name__}. "
            "Use the reference engine.",
        )
        formula = loss.formula
        code = FORMULAS[formula.kind, formula.table is not None]
        grid = slopes.grid
        scale = 1.0 / grid.unit  # exact: both are powers of two
        check(
            math.isfinite(scale),
            f"The slope unit {grid.unit} is too small for the compiled engine. "
            "Use the reference engine.",
        )
        parameters = np.zeros(7)
        parameters[kernels.UNIT] = margin_unit
        parameters[kernels.LOW] = losses.TABLE_LOW
        parameters[kernels.STEPS] = losses.TABLE_STEPS
        parameters[kernels.BOUND] = formula.bound
        parameters[kernels.TARGET] = formula.target_unit
        parameters[kernels.SCALE] = scale
        parameters[kernels.CAP] = grid.cap
        table = _NO_TABLE if formula.table is None else formula.table
        return cls(code, parameters, table)
