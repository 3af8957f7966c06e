"""Columns: ranges, categories and vectors, all of them public."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from skdp.schema.validation import FloatArray, check


@dataclass(frozen=True)
class Numeric:
    """A number in the public range [low, high], scaled to [0, 1].

    Parameters
    ----------
    low, high : float
        Values outside are clipped.
    scale : {"linear", "log"}
        ``"log"`` maps x to log(1 + x - low) / log(1 + high - low).
    bins : int, optional
        Cut the scaled range into this many equal bins, one coordinate each.
    missing : float, optional
        What stands for a missing or unparsable value; the middle of the range if None.
        Not with `indicator`, which lets it stand for no value.
    indicator : bool
        Give missing values a coordinate of their own instead.
    """

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    bins: int | None = None
    missing: float | None = None
    indicator: bool = False

    def __post_init__(self) -> None:
        low, high, bins = self.low, self.high, self.bins
        check(
            math.isfinite(low) and math.isfinite(high - low) and low < high,
            f"Numeric needs finite low < high. Got {low}, {high}: swap or widen them.",
        )
        check(
            self.scale in ("linear", "log"),
            f"Numeric needs scale 'linear' or 'log'. Got {self.scale!r}: choose one.",
        )
        check(
            bins is None or (isinstance(bins, int) and 2 <= bins <= 65000),
            f"Numeric needs 2 to 65000 bins. Got {bins}: choose in that range.",
        )
        check(
            self.missing is None or low <= self.missing <= high,
            f"Numeric needs missing in [low, high]. Got {self.missing}: move it in.",
        )
        check(
            self.missing is None or not self.indicator,
            "Numeric needs missing= or indicator=True, not both. "
            f"Got missing={self.missing}: leave one of them out.",
        )

    def scaled(self, values: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Map values to [0, 1]; also say which of them were missing (nan)."""
        missing = np.isnan(values)
        default = (self.low + self.high) / 2 if self.missing is None else self.missing
        clipped = np.clip(np.where(missing, default, values), self.low, self.high)
        above, span = clipped - self.low, self.high - self.low
        if self.scale == "log":
            above, span = np.log1p(above), math.log1p(span)
        return np.clip(above / span, 0.0, 1.0), missing


@dataclass(frozen=True)
class Categorical:
    """One of the public `levels`; anything else falls on `other`.

    Parameters
    ----------
    levels : sequence of str, int, float or bool
        All categories, known without looking at the records.
    other : optional
        The level that missing and unknown values count as. If None they touch no
        coordinate of the column (as a target: the record adds to no gradient).
    """

    levels: Sequence[object]
    other: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        keys = [level_key(level) for level in self.levels]
        check(
            1 <= len(keys) <= 65000,
            f"Categorical needs 1 to 65000 levels. Got {len(keys)}: list them all.",
        )
        twice = [key for key, times in Counter(keys).items() if times > 1][:1]
        check(not twice, f"Categorical needs distinct levels. Remove one of {twice}.")
        same = all(level == level for level in self.levels)
        check(same, "Categorical needs levels other than nan: missing is no level.")
        check(
            self.other is None or level_key(self.other) in keys,
            f"Categorical needs 'other' among its levels. Add {self.other!r} to them.",
        )

    @cached_property
    def codes(self) -> dict[str, int]:
        """Code of each level, by key; what is absent takes `default_code`."""
        return {level_key(level): code for code, level in enumerate(self.levels)}

    @property
    def default_code(self) -> int:
        """Code of missing and unknown values: ``len(levels)`` touches no coordinate."""
        if self.other is None:
            return len(self.levels)
        return self.codes[level_key(self.other)]


@dataclass(frozen=True)
class Vector:
    """Several numeric columns under one joint Euclidean norm (text, embeddings).

    Parameters
    ----------
    names : sequence of str
        The columns.
    norm : float
        Rows of larger norm are scaled down to it.
    """

    names: Sequence[str]
    norm: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        check(
            0 < len(self.names) == len(set(self.names)),
            "Vector needs distinct column names: list each column once.",
        )
        check(
            0 < self.norm < math.inf,
            f"Vector needs a positive finite norm. Got {self.norm}: give a bound.",
        )


Column = Numeric | Categorical | Vector


Target = Numeric | Categorical


def level_key(value: object) -> str:
    """How a category is compared: 1, 1.0 and "1" are one level, True is "true"."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, int) and value.bit_length() > 10_000:
        return hex(value)  # Python refuses to write so many decimal digits
    return str(value)
