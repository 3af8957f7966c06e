"""Define the lines of a summary.

A line shows a coefficient, its exponential, the coefficients of all classes, or a term
(column or pair) of an additive model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.special import ndtr

#: A standard normal lies within ±Z with a probability of 95 %.
Z = 1.959964


@dataclass(frozen=True)
class Line:
    """A line of a summary, about one coefficient.

    Unknown numbers are nan. The standard error is infinite if noise hides the effect.
    It covers sampling, privacy, shrinkage and capped slopes together. With three
    classes or more, `output` is the class.
    """

    column: str
    label: str
    coef: float
    sampling_std: float
    noise_std: float
    std: float
    output: str = ""

    @property
    def z(self) -> float:
        """The coefficient divided by its standard error, or nan if unknown."""
        return self.coef / self.std if 0 < self.std < math.inf else math.nan

    @property
    def p(self) -> float:
        """Probability of a larger |z| if the true coefficient were 0, or nan."""
        return float(2.0 * ndtr(-abs(self.z)))

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval."""
        return self.coef - Z * self.std, self.coef + Z * self.std

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers by name. Unknown and infinite numbers become None."""
        low, high = self.interval
        numbers = {
            "coef": self.coef,
            "sampling_std": self.sampling_std,
            "noise_std": self.noise_std,
            "std": self.std,
            "z": self.z,
            "p": self.p,
            "low": low,
            "high": high,
        }
        names = {"column": self.column, "label": self.label}
        own = {"class": self.output} if self.output else {}
        return own | names | _keep_finite(numbers)

    def format_cells(self) -> list[str]:
        """Format the numbers. Unknown and infinite numbers become empty strings."""
        numbers = [self.coef, self.sampling_std, self.noise_std, self.std, self.z]
        cells = [
            _format_number(v, 2 if i == 4 else None) for i, v in enumerate(numbers)
        ]
        p = "" if math.isnan(self.p) else f"{self.p:.3f}"
        return [*cells, p, *(_format_number(v, None) for v in self.interval)]


class RatioLine(Line):
    """A line of a summary, about the exponential of a coefficient.

    z and p belong to the coefficient.
    """

    @property
    def ratio_interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of the ratio."""
        low, high = self.interval
        return _exponentiate(low), _exponentiate(high)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the coefficient, and the ratio with its interval."""
        low, high = self.ratio_interval
        ratio = _exponentiate(self.coef)
        numbers = {"ratio": ratio, "ratio_low": low, "ratio_high": high}
        return super().to_dict() | _keep_finite(numbers)

    def format_cells(self) -> list[str]:
        """Format the ratio, z, p and the interval of the ratio."""
        numbers = (_exponentiate(self.coef), *self.ratio_interval)
        ratio, low, high = (_format_number(value, None) for value in numbers)
        return [ratio, *super().format_cells()[4:6], low, high]


@dataclass(frozen=True)
class ClassLine:
    """A line of a summary: the coefficients of all classes, without standard errors."""

    column: str
    label: str
    coefs: tuple[float, ...]
    output: ClassVar[str] = ""

    def format_cells(self) -> list[str]:
        """Format the numbers."""
        return [_format_number(coef, None) for coef in self.coefs]

    def to_dict(self) -> dict[str, Any]:
        """Return the coefficients of all classes, in the order of the classes."""
        return {"column": self.column, "label": self.label, "coefs": list(self.coefs)}


@dataclass(frozen=True, kw_only=True)
class TermLine:
    """A line of the summary of an additive model: a column, a pair or the intercept.

    Attributes
    ----------
    column : str
        The name of the column or of the pair.
    points : int
        The number of knots or levels, or of their combinations in a pair. It is 1 for
        the intercept.
    lowest, highest : float
        The smallest and the largest effect.
    at : str
        The point with the largest absolute effect, among those whose standard error is
        known. If no standard error is known, all points are compared.
    effect, std : float
        The effect at this point and its standard error, which is nan or infinite if it
        is unknown.
    output : str
        With three classes or more, the class.
    is_ratio : bool
        Whether the exponentials of effects are shown.
    """

    column: str
    points: int
    lowest: float
    highest: float
    at: str
    effect: float
    std: float
    output: str = ""
    is_ratio: bool = False

    @property
    def label(self) -> str:
        """The name of the line, which is the name of the column or pair."""
        return self.column

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of the effect."""
        return self.effect - Z * self.std, self.effect + Z * self.std

    @property
    def is_told(self) -> bool:
        """Whether the effect has an interval."""
        return math.isfinite(self.std)

    def _list_numbers(self) -> tuple[float, ...]:
        """Return lowest, highest, effect and its interval, as ratios if `is_ratio`."""
        numbers = (self.lowest, self.highest, self.effect, *self.interval)
        return tuple(map(_exponentiate, numbers)) if self.is_ratio else numbers

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name. Unknown and infinite numbers become None."""
        names = ["lowest", "highest", "effect", "low", "high"]
        numbers = [self.lowest, self.highest, self.effect, *self.interval]
        if self.is_ratio:
            names += [f"ratio_{name}" for name in names]
            numbers += self._list_numbers()
        kept = _keep_finite(dict(zip(names, numbers, strict=True)))
        about = {"column": self.column, "points": self.points, "at": self.at}
        return ({"class": self.output} if self.output else {}) | about | kept

    def format_cells(self) -> list[str]:
        """Format the values. Unknown and infinite numbers become empty strings."""
        lowest, highest, effect, low, high = (
            _format_number(value, None) for value in self._list_numbers()
        )
        if self.points == 1:
            return ["", "", "", "", effect, low, high]
        return [str(self.points), lowest, highest, self.at, effect, low, high]


def _keep_finite(numbers: dict[str, float]) -> dict[str, float | None]:
    return {name: v if math.isfinite(v) else None for name, v in numbers.items()}


def _exponentiate(value: float) -> float:
    return math.exp(min(value, 700.0)) if math.isfinite(value) else math.inf


def _format_number(value: float, places: int | None) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.{places}f}" if places is not None else f"{value:.4g}"
