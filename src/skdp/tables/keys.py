"""Convert cells to string keys, from which levels are discovered privately.

Libraries guess a column's type from its cells, so a single cell may decide whether all
cells become strings, integers, floats or booleans. The discovered levels must not
depend on that. A cell therefore has the same key as the string that it was read from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdp.privacy.encoding import Coded
from skdp.schema import limit_codes
from skdp.tables.cells import (
    MISSING,
    as_text,
    look_up,
    number_key,
    numbers,
    text_number,
)


def keys(column: Any) -> Coded:
    """Return the distinct keys, and for each cell the code of its key.

    Missing cells have code -1.
    """
    if not isinstance(column, (np.ndarray, Coded)):
        from skdp.tables import arrow

        column = arrow.to_coded(column)
    if isinstance(column, Coded):
        texts = [_key(value) for value in column.values]
        own = limit_codes(column.codes, len(texts))
    elif column.dtype.kind in "biuf":
        unique, own = np.unique(column, return_inverse=True)
        texts = [_key(value) for value in unique]
    else:
        texts, own = [_key(cell) for cell in column], np.arange(len(column))
    found = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    found.pop(None, None)
    values = list(found)
    places = {text: code for code, text in enumerate(values)}
    codes = np.array([*(places.get(t, MISSING) for t in texts), MISSING])
    return Coded(codes[own], values)


def magnitudes(column: Any) -> Any:
    """Return cells as numbers. Strings that are not numbers are masked.

    Missing cells are nan and not masked.
    """
    values = numbers(column)
    absent = np.isnan(values)
    if not absent.any():
        return values
    found = keys(column)
    texts = np.array([bool(str(key).strip()) for key in found.values], bool)
    return np.ma.masked_array(values, absent & look_up(found.codes, texts, False))


def _key(cell: object) -> str | None:
    """Return the key of a cell, or None if the cell is missing.

    A number has the same key however it is written or stored.
    """
    text = as_text(cell)
    if text is None:
        return None
    key = number_key(text)
    if key is not None:
        return key
    return None if _is_nan(text) else text


def _is_nan(text: str) -> bool:
    """Return whether a string denotes a missing number, such as "nan"."""
    return math.isnan(text_number(text)) and text.strip().lower().lstrip("+-") == "nan"
