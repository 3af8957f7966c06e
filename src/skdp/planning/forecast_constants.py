"""Define measured constants, which turn linearised costs into costs of real fits.

`planning.forecast` computes the linearised costs. ``make bench NAME=forecasts``
compares plans with fits and derives all numbers here. The page
docs/evidence/utility/forecasts.md shows how often the forecast ranges hold on tables
that were left out of the measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The sampling error, multiplied by the number of rows per coefficient. With n rows and
#: d coefficients, the sampling error is d/(2n) in log-loss. In R² it is (1 - R²) d/n,
#: and 1 - R² is often about a half. Hinge loss and deviance are assumed to be similar.
SAMPLING = 0.5
#: Ranges are widened by this share of the sampling error. A private fit and a fit
#: without privacy may differ by that much, although neither is better.
SLACK = 0.5


@dataclass(frozen=True, kw_only=True)
class ForecastConstants:
    """The measured cost of privacy for a loss, and words to describe it.

    The typical cost is ``factor * linearised**power``. In 80 % of the fits, the cost
    lies between `below` and `above` times the typical cost. This range is widened on
    both sides by `SLACK` times the sampling error.

    Attributes
    ----------
    score : str
        The score in which the cost is measured.
    constant : str
        What a constant model predicts, in words.
    clipped : str
        The targets that may be under-predicted because gradients are capped, in words.
    factor, power, below, above : float
        The numbers in the formula above.
    gain : float
        How much better a fit without privacy is than a constant model, on the median
        table.
    n_tables : int
        Number of tables that were fitted.
    """

    score: str
    constant: str
    clipped: str
    factor: float
    power: float
    below: float
    above: float
    gain: float
    n_tables: int

    def range(self, linearised: float, size: float) -> tuple[float, float, float]:
        """Return the low end of the range, the typical cost and the high end.

        `size` is the number of coefficients divided by the number of rows. A low end of
        0 means that privacy may cost nothing, or may even improve the fit.
        """
        typical = self.factor * linearised**self.power
        slack = SLACK * SAMPLING * size
        low = max(0.0, self.below * typical - slack)
        return low, typical, self.above * typical + slack


_MEASURED = {
    "logistic": ForecastConstants(
        score="log-loss",
        constant="the base rate",
        clipped="Rare classes",
        factor=0.96,
        power=0.76,
        below=0.33,
        above=2.8,
        gain=0.16,
        n_tables=13,
    ),
    "linear": ForecastConstants(
        score="R²",
        constant="the mean",
        clipped="Extreme values",
        factor=65,
        power=0.87,
        below=0.18,
        above=3.6,
        gain=0.4,
        n_tables=11,
    ),
    "svc": ForecastConstants(
        score="hinge loss",
        constant="the larger class",
        clipped="Rare classes",
        factor=0.26,
        power=0.39,
        below=0,
        above=3,
        gain=0.041,
        n_tables=4,
    ),
    "poisson": ForecastConstants(
        score="D² (deviance explained)",
        constant="the mean",
        clipped="Large counts",
        factor=3.5,
        power=0.54,
        below=0,
        above=9.7,
        gain=0.21,
        n_tables=6,
    ),
}
#: The constants for each score. A loss names its score as `Loss.score`.
FORECAST_CONSTANTS = {known.score: known for known in _MEASURED.values()}
