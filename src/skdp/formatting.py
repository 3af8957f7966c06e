"""Format numbers and strings for people: on pages, in pictures and in terminals."""

from __future__ import annotations

import math
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
