"""Numbers and texts as a page shows them."""

from __future__ import annotations

import math
from typing import Any

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown(value: Any) -> Any:
    """A text in which nothing is hidden: what does not print is written out.

    Columns and categories may be a stranger's, with letters that turn the direction of
    reading or that no file can hold.
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):  # the page's own
        return value
    return "".join(
        letter if letter.isprintable() else ascii(letter)[1:-1] for letter in value
    )


def shortened(text: str, longest: int = 48) -> str:
    """A text that fits beside a picture; tables have all of it."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def number(value: Any, digits: int = 4) -> str:
    """A number with so many digits that count; one that is not known is empty."""
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


def fixed(value: float, digits: int) -> str:
    """A number with so many digits after the point; zero has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share of one, with a digit after the point if there is something there."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def plural(count: int, one: str) -> str:
    """A number of things."""
    return f"{count:,} {one}" + ("" if count == 1 else "s")
