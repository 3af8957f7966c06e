"""Categories as text, for finding them privately: no level is known yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from skdp.privacy.encoding import Coded
from skdp.tables.cells import MISSING, as_text


def keys(column: Any) -> Coded:
    """Return the text that each cell is compared by; missing cells have code -1."""
    if not isinstance(column, (np.ndarray, Coded)):
        from skdp.tables import arrow

        column = arrow.coded(column)
    if isinstance(column, Coded):
        texts = [as_text(value) for value in column.values]
        inside = (column.codes >= 0) & (column.codes < len(texts))
        own = np.where(inside, column.codes, len(texts))
    elif column.dtype.kind in "biuf":
        unique, own = np.unique(column, return_inverse=True)
        texts = [as_text(value) for value in unique]
    else:
        texts, own = [as_text(cell) for cell in column], np.arange(len(column))
    found = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    found.pop(None, None)
    values = list(found)
    places = {text: code for code, text in enumerate(values)}
    codes = np.array([*(places.get(t, MISSING) for t in texts), MISSING])
    return Coded(codes[own], values)
