"""Format numbers and strings for a page, and compute positions in its pictures.

Positions are percentages of a picture's width or height. Pictures therefore fit both a
phone and a printed page, and their labels are as large as the text around them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def escape_unprintable(value: Any, keep: str = "") -> Any:
    """Replace every unprintable character that is not in `keep` by its escape code.

    Models, schemas and the names in them may come from strangers. They may contain
    characters that reverse the reading direction, that cannot be written to a file, or
    that move the cursor of a terminal and hide text.
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):  # safe template HTML
        return value
    return "".join(
        letter if letter in keep or letter.isprintable() else ascii(letter)[1:-1]
        for letter in value
    )


def replace_infinities(value: Any) -> Any:
    """Replace infinities and nan by None, for JSON, in dicts and lists of any depth."""
    if isinstance(value, dict):
        return {key: replace_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_infinities(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shorten(text: str, longest: int = 48) -> str:
    """Shorten a string to at most `longest` characters, to fit next to a picture."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def format_number(value: Any, digits: int = 4) -> str:
    """Format a number with `digits` significant digits, and nan as an empty string.

    Integers are written in full.
    """
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    tiny = 0 < abs(value) < 1e-3
    text = f"{value:.{digits - 1}e}" if tiny else f"{value:.{digits}g}"
    if "e" in text:
        mantissa, _, power = text.partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        raised = "10" + str(int(power)).translate(_RAISED)
        text = {"1": raised, "-1": f"-{raised}"}.get(mantissa, f"{mantissa}·{raised}")
    return text.replace("-", "−")


def format_range(low: float, high: float) -> str:
    """Format a range of numbers as "low to high"."""
    return f"{format_number(low)} to {format_number(high)}"


def format_fixed(value: float, digits: int) -> str:
    """Format a number with `digits` digits after the point. Never return "-0"."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def format_percent(share: float) -> str:
    """Format a share as a percentage with at most one digit after the point."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis of a picture, from the value `low` to the value `high`.

    It is drawn from `start` to `end` percent of the picture's width or height.
    """

    low: float
    high: float
    start: float = 2.0
    end: float = 98.0
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return where a number lies on the axis, in percent of its length.

        Numbers outside the axis are placed at its ends.
        """
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        share = (at - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 3)

    @property
    def ticks(self) -> list[float]:
        """The round numbers to label on the axis."""
        if self.log:
            return _choose_log_ticks(self.low, self.high)
        span = self.high - self.low
        step = 10.0 ** math.floor(math.log10(span))
        step *= next(f for f in (0.1, 0.2, 0.5, 1.0, 2.0) if span / (step * f) <= 6)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def _choose_log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        found = [d * 10.0**p for p in range(first, last + 1) for d in digits]
        found = [value for value in found if low <= value <= high]
        if len(found) >= 3:
            return found[:: math.ceil(len(found) / 5)]
    return found or [low, high]


def make_axis(values: Iterable[float], centre: float = 0.0) -> Axis:
    """Return an axis that covers all finite values and the centre."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = min([centre, *finite]), max([centre, *finite])
    if high - low < 1e-300:
        low, high = centre - 1.0, centre + 1.0
    return Axis(low=low, high=high)
