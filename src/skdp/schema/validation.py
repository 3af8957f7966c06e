"""Check public settings, limit codes, count things in words, and define array types."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


IntArray = npt.NDArray[np.intp]


class InputError(ValueError):
    """Raised if a setting, a schema or a table breaks a rule.

    The message contains only what is public, and no value of a record.
    """


def check(holds: bool, sentence: str) -> None:
    """Raise an InputError with this sentence unless a public condition holds.

    The condition must not depend on records, because the error would then reveal
    something about them. The sentence states the rule and the wrong value. It adds the
    remedy if that is not obvious.
    """
    if not holds:
        raise InputError(sentence)


def fact() -> Any:
    """Return a field that is not an argument, but follows from the arguments.

    The dataclass sets it in `__post_init__`. It is not compared, shown or saved.
    """
    return field(init=False, repr=False, compare=False)


def check_integer(value: Any, name: str, low: int = 1, high: int | None = None) -> int:
    """Return a public integer. Raise a ValueError if it is not one in [low, high]."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    span = f"of at least {low}" if high is None else f"from {low} to {high}"
    check(
        whole and low <= value and (high is None or value <= high),
        f"{name} must be an integer {span}, got {value!r}.",
    )
    return int(value)


def check_numbers(what: str, **values: Any) -> None:
    """Raise a ValueError if a public setting is neither a number nor None.

    None is allowed only for ``missing``, where it means the default.
    """
    for name, value in values.items():
        if isinstance(value, Real) or (value is None and name == "missing"):
            continue
        dated = hasattr(value, "isoformat") or isinstance(value, np.datetime64)
        remedy = "Write the number without quotes."
        if dated:
            remedy = "Convert dates to numbers first, such as days since a fixed day."
        elif not isinstance(value, str):
            remedy = "State a number that is known without looking at the records."
        raise InputError(f"{what} needs a number as {name}, got {value!r}. {remedy}")


def as_number(value: Any) -> Any:
    """Return a public setting as an int or a float of Python, or None if it is None.

    Sums of numpy's narrow integers would wrap around. Integers above 2⁵³ are rounded to
    floats, because the cells that they are compared with are floats.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or (type(value) in (int, float) and abs(value) <= 2**53):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def count_in_words(n: int | str, noun: str, plural: str | None = None) -> str:
    """Return a number followed by its noun, such as "1 column" or "2 columns".

    Pass a string to choose how the number is written, such as f"{n:,}".
    """
    return f"{n} {noun if str(n) == '1' else plural or noun + 's'}"


def list_values(values: Any, name: str) -> tuple[Any, ...]:
    """Return a public list as a tuple. A string is not accepted as a list."""
    check(
        isinstance(values, Iterable) and not isinstance(values, (str, bytes)),
        f"{name} must be a list, got {values!r}. Write [{values!r}] for one entry.",
    )
    return tuple(values)


def limit_codes(codes: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Return codes as indices from 0 to n. All that are not in [0, n) become n."""
    plain = codes.dtype.kind in "iu" and codes.dtype.isnative
    if not plain or n > np.iinfo(codes.dtype).max:
        with np.errstate(invalid="ignore"):  # nan becomes a negative number
            codes = codes.astype(np.int64)
    # Read as unsigned, negative numbers are larger than n.
    unsigned = codes.view(f"u{codes.dtype.itemsize}")
    least, most = unsigned.dtype.type(0), unsigned.dtype.type(n)
    # With both bounds, np.clip takes a fraction of the time of np.minimum.
    places: npt.NDArray[Any] = np.clip(unsigned, least, most)
    return places.view(codes.dtype)
