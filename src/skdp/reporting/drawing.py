"""Where things stand in a picture, in percent of its width or height.

Pictures are drawn with these, so that they fit a phone and a page and their letters
stay as large as the text around them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A line of numbers from `low` to `high`, drawn from `start` to `end` percent."""

    low: float
    high: float
    start: float = 2.0
    end: float = 98.0
    log: bool = False

    def __call__(self, value: float) -> float:
        """Percent at which a number stands; beyond the ends it stands at an end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        share = (at - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 3)

    @property
    def ticks(self) -> list[float]:
        """A few round numbers within the scale."""
        if self.log:
            return _powers(self.low, self.high)
        span = self.high - self.low
        step = 10.0 ** math.floor(math.log10(span))
        step *= next(f for f in (0.1, 0.2, 0.5, 1.0, 2.0) if span / (step * f) <= 6)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        found = [d * 10.0**p for p in range(first, last + 1) for d in digits]
        found = [value for value in found if low <= value <= high]
        if len(found) >= 3:
            return found[:: math.ceil(len(found) / 5)]
    return found or [low, high]


def around(values: Iterable[float], centre: float = 0.0) -> Scale:
    """A scale that holds all the values and a centre."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = min([centre, *finite]), max([centre, *finite])
    if high - low < 1e-300:
        low, high = centre - 1.0, centre + 1.0
    return Scale(low=low, high=high)
