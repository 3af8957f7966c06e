"""Define the lines of a summary: for a coefficient, a ratio, or several classes."""

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
    With three classes or more, `output` is the class.
    """

    column: str
    label: str
    coef: float
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
    def sampling_std(self) -> float:
        """The part of the standard error that is not due to privacy."""
        if not self.std < math.inf:
            return self.std
        return math.sqrt(max(0.0, self.std**2 - self.noise_std**2))

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
        kept = {k: v if math.isfinite(v) else None for k, v in numbers.items()}
        names = {"column": self.column, "label": self.label}
        return ({"class": self.output} if self.output else {}) | names | kept

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

    z and p belong to the coefficient. The interval is the exponential of the
    coefficient's interval.
    """

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of the ratio."""
        low, high = super().interval
        return _exponentiate(low), _exponentiate(high)

    def to_dict(self) -> dict[str, Any]:
        """Return the ratio together with the numbers of the coefficient."""
        return super().to_dict() | {"ratio": _exponentiate(self.coef)}

    def format_cells(self) -> list[str]:
        """Format the ratio, z, p and the interval."""
        cells = super().format_cells()
        return [_format_number(_exponentiate(self.coef), None), *cells[4:]]


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


def _exponentiate(value: float) -> float:
    return math.exp(min(value, 700.0)) if math.isfinite(value) else math.inf


def _format_number(value: float, places: int | None) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.{places}f}" if places is not None else f"{value:.4g}"
