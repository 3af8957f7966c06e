"""Measured constants that turn a linearised cost into the cost of real fits.

``make bench NAME=forecasts`` compares plans with fits and derives all numbers here. The
page docs/evidence/utility/forecasts.md shows how often ranges hold on tables left out.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Sampling error times rows per coefficient: d/2n in log-loss, (1 - R²) d/n in R²,
#: which is often about a half. The same is assumed for hinge loss and deviance.
SAMPLING = 0.5
#: Share of the sampling error by which a range is widened. A private fit and one
#: without privacy may differ by that much although neither is better.
SLACK = 0.5


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The measured costs of a loss on real tables, and the words to describe them.

    A cost is typically ``factor * linearised**power``. In 80 % of the fits it lies
    between `below` and `above` times that, plus or minus `SLACK` of the sampling error.

    Attributes
    ----------
    score : str
        The unit of a cost.
    constant : str
        The prediction of a constant model.
    clipped : str
        The targets that caps may hide.
    factor, power, below, above : float
        The formula above.
    gain : float
        The gain of a fit without privacy over a constant, on the median table.
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
        """Return the low end, the typical cost and the high end.

        `size` is the number of coefficients divided by that of rows. A low end of 0
        means that privacy may cost nothing, or even help.
        """
        typical = self.factor * linearised**self.power
        slack = SLACK * SAMPLING * size
        low = max(0.0, self.below * typical - slack)
        return low, typical, self.above * typical + slack


_MEASURED = {
    "logistic": Calibration(
        score="log-loss",
        constant="the base rate",
        clipped="Rare classes",
        factor=0.71,
        power=0.73,
        below=0.36,
        above=2.7,
        gain=0.16,
        n_tables=13,
    ),
    "linear": Calibration(
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
    "svc": Calibration(
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
    "poisson": Calibration(
        score="D² (deviance explained)",
        constant="the mean",
        clipped="Large counts",
        factor=3.5,
        power=0.54,
        below=0.15,
        above=5.5,
        gain=0.21,
        n_tables=6,
    ),
}
#: Calibrations by the `score` of a loss.
CALIBRATIONS = {known.score: known for known in _MEASURED.values()}
