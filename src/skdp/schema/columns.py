"""The kinds of columns that a schema can have: numbers, categories and vectors.

Each class defines everything about its kind of column: which columns of the table are
read, which coordinates they fill, how cells are mapped to scaled values or codes, and
the units of the coefficients. All of this is public. Encoding rounds the mapped values
to a grid, predictions use them unrounded, and exporters reproduce the same map in other
libraries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from skdp.schema.validation import FloatArray, check, check_numbers, list_values

#: Most levels of a column that its description lists.
MOST_SHOWN = 6


class CodedCells(Protocol):
    """Categorical cells as a reader returns them: the cells are `values[codes]`.

    A code that is not an index of `values` means that the cell is missing.
    """

    @property
    def codes(self) -> npt.NDArray[Any]:
        """Index of each cell's value."""

    @property
    def values(self) -> Sequence[object]:
        """The values that the codes refer to."""


@dataclass(frozen=True)
class Numeric:
    """A number in the public range [low, high], scaled to [0, 1].

    Parameters
    ----------
    low, high : float
        The ends of the range. Values outside are clipped to it.
    scale : {"linear", "log"}
        ``"log"`` maps x to log(1 + x - low) / log(1 + high - low).
    bins : int, optional
        Cut the scaled range into this many equal bins. Each bin has one coordinate.
    missing : float, optional
        The value used for a cell that is missing or is not a number. The default is the
        middle of the range. It cannot be combined with `indicator`.
    indicator : bool
        Whether missing values have a coordinate of their own instead.
    """

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    bins: int | None = None
    missing: float | None = None
    indicator: bool = False

    def __post_init__(self) -> None:
        low, high, bins = self.low, self.high, self.bins
        check_numbers("A numeric column", low=low, high=high, missing=self.missing)
        check(
            math.isfinite(low) and math.isfinite(high - low) and low < high,
            f"A numeric column must have finite low < high, got {low}, {high}.",
        )
        check(
            self.scale in ("linear", "log"),
            f"scale must be 'linear' or 'log', got {self.scale!r}.",
        )
        check(
            bins is None or (isinstance(bins, int) and 2 <= bins <= 65000),
            f"bins must be an integer from 2 to 65000, got {bins}.",
        )
        check(
            self.missing is None or low <= self.missing <= high,
            f"missing must be in [low, high] = [{low}, {high}], got {self.missing}.",
        )
        check(
            self.missing is None or not self.indicator,
            "missing and indicator=True exclude each other, got "
            f"missing={self.missing}.",
        )

    signed = False

    @property
    def kind(self) -> Literal["dense", "code"]:
        """How a cell is stored: as values, or as the number of a bin."""
        return "dense" if self.bins is None else "code"

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return (self.bins or 1) + self.indicator

    @property
    def default(self) -> float:
        """The value used for a missing cell."""
        return (self.low + self.high) / 2 if self.missing is None else self.missing

    @property
    def span(self) -> float:
        """The length of the range, after the logarithm if the scale is "log".

        Values above `low` are divided by this length.
        """
        width = self.high - self.low
        return math.log1p(width) if self.scale == "log" else width

    def describe(self) -> str:
        """Return the range and the settings that are not default, as text."""
        words = [f"{self.low:g} to {self.high:g}"]
        words += ["log scale"] if self.scale == "log" else []
        words += [f"{self.bins} bins"] if self.bins is not None else []
        words += [] if self.missing is None else [f"missing as {self.missing:g}"]
        words += ["missing apart"] if self.indicator else []
        return ", ".join(words)

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of the table's columns that are read."""
        return (name,)

    def list_labels(self, name: str) -> tuple[str, ...]:
        """Return the names of the coordinates."""
        bins = range(self.bins or 0)
        labels = tuple(f"{name}#{bin}" for bin in bins) if bins else (name,)
        return (*labels, f"{name}?") if self.indicator else labels

    def rescale(self, values: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return the values mapped to [0, 1], and a mask of the missing ones (nan)."""
        missing = np.isnan(values)
        filled = np.where(missing, self.default, values)
        above = np.clip(filled, self.low, self.high) - self.low
        if self.scale == "log":
            above = np.log1p(above)
        return np.clip(above / self.span, 0.0, 1.0), missing

    def compute_features(self, cells: Any) -> npt.NDArray[Any]:
        """Map floats (n,) to values (n, width) in [0, 1], or to numbers of bins (n,).

        With an indicator, a missing number has a value of zero and an indicator of one.
        So the norm of each row of values is at most one.
        """
        scaled, missing = self.rescale(np.asarray(cells, dtype=np.float64))
        if self.bins is not None:
            bins = np.minimum(np.floor(scaled * self.bins), self.bins - 1).astype(int)
            return np.where(missing & self.indicator, self.bins, bins)
        if self.indicator:
            return np.column_stack([np.where(missing, 0.0, scaled), missing])
        return scaled[:, None]

    def find_units(self) -> tuple[FloatArray, FloatArray]:
        """Return offsets and divisors, so that a coordinate is x / divisor - offset.

        Here x is the number in the user's units or, on a log scale, the logarithm
        log(1 + number - low).
        """
        offsets, divisors = np.zeros(self.width), np.ones(self.width)
        if self.bins is None:
            divisors[0] = self.span
            if self.scale == "linear":
                offsets[0] = self.low / self.span
        return offsets, divisors


@dataclass(frozen=True)
class Categorical:
    """One of the public `levels`; any other value counts as `other`.

    Parameters
    ----------
    levels : sequence of str, int, float or bool
        All categories, known without looking at the records.
    other : optional
        The level that missing and unknown values count as. If None, such a value leaves
        all coordinates of the column at zero. If the value is the target of a record,
        that record adds nothing to any gradient.
    """

    levels: Sequence[object]
    other: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", list_values(self.levels, "levels"))
        keys = [level_key(level) for level in self.levels]
        check(
            1 <= len(keys) <= 65000,
            f"A categorical column must have 1 to 65000 levels, got {len(keys)}.",
        )
        twice = [key for key, times in Counter(keys).items() if times > 1][:1]
        check(not twice, f"levels must be distinct, got {twice} more than once.")
        same = all(level == level for level in self.levels)
        check(same, "levels must not contain nan, because missing is not a level.")
        check(
            self.other is None or level_key(self.other) in keys,
            f"other must be one of the levels, got {self.other!r}.",
        )

    signed = False
    kind: ClassVar[Literal["dense", "code"]] = "code"

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.levels)

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each level, by the level's key (see `level_key`)."""
        return {level_key(level): code for code, level in enumerate(self.levels)}

    @property
    def default_code(self) -> int:
        """The code of missing and unknown values.

        It is ``len(levels)`` if `other` is None, which stands for no coordinate.
        """
        if self.other is None:
            return len(self.levels)
        return self.codes[level_key(self.other)]

    def describe(self) -> str:
        """Return the first levels and their number, as text."""
        shown = ", ".join(str(level) for level in self.levels[:MOST_SHOWN])
        more = len(self.levels) - MOST_SHOWN
        shown += f" and {more} more" if more > 0 else ""
        return shown + ("" if self.other is None else f"; others as {self.other}")

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of the table's columns that are read."""
        return (name,)

    def list_labels(self, name: str) -> tuple[str, ...]:
        """Return the names of the coordinates."""
        return tuple(f"{name}={level}" for level in self.levels)

    def compute_features(self, cells: CodedCells) -> npt.NDArray[Any]:
        """Map cells to the codes (n,) of their levels, in [0, len(levels)].

        If the reader has coded the cells by these levels, the reader's codes are kept.
        Otherwise each of the reader's values is looked up by its key. A code that is
        not an index of the values means that the cell is missing.
        """
        default, codes, values = self.default_code, cells.codes, cells.values
        inside = (codes >= 0) & (codes < len(values))
        if values is self.levels:
            return np.where(inside, codes, default)
        known = [self.codes.get(level_key(value), default) for value in values]
        return np.array([*known, default])[np.where(inside, codes, len(known))]

    def find_units(self) -> tuple[FloatArray, FloatArray]:
        """Return offsets of zero and divisors of one, because levels have no unit."""
        return np.zeros(self.width), np.ones(self.width)


@dataclass(frozen=True)
class Vector:
    """Several numeric columns (text, embeddings) with a bound on their joint norm.

    Parameters
    ----------
    names : sequence of str
        The names of the table's columns.
    norm : float
        The bound. Rows with a larger Euclidean norm are scaled down to it.
    """

    names: Sequence[str]
    norm: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", list_values(self.names, "names"))
        check(
            0 < len(self.names) == len(set(self.names)),
            "A vector must have at least one column name, and no name twice.",
        )
        check(
            0 < self.norm < math.inf,
            f"norm must be positive and finite, got {self.norm}.",
        )

    signed = True
    kind: ClassVar[Literal["dense", "code"]] = "dense"

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.names)

    def describe(self) -> str:
        """Return the number of columns and the bound on their norm, as text."""
        return f"{len(self.names)} columns of joint norm {self.norm:g}"

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of the table's columns that are read."""
        return tuple(self.names)

    def list_labels(self, name: str) -> tuple[str, ...]:
        """Return the names of the coordinates."""
        return tuple(self.names)

    def compute_features(self, cells: Any) -> FloatArray:
        """Map floats (n, m) to rows of norm at most one, up to rounding."""
        return divide_by_norm(cells, self.norm)

    def find_units(self) -> tuple[FloatArray, FloatArray]:
        """Return offsets and divisors, so that a coordinate is x / divisor - offset."""
        return np.zeros(self.width), np.full(self.width, float(self.norm))


Column = Numeric | Categorical | Vector


Target = Numeric | Categorical


def divide_by_norm(values: Any, norm: float) -> FloatArray:
    """Divide each row by `norm`, or by the row's own norm if that is larger."""
    finite = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)
    largest = np.abs(finite).max(axis=1, keepdims=True, initial=0.0)
    direction = finite / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        scale = np.minimum(largest / norm, 1.0 / np.where(length > 0, length, 1.0))
    return np.asarray(direction * scale)


def level_key(value: object) -> str:
    """Return the text by which a category is compared with other categories.

    The text of 1, 1.0 and "1" is the same, so they are the same level. The text of True
    is "true".
    """
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, int) and value.bit_length() > 10_000:
        return hex(value)  # Python refuses to write so many decimal digits
    return str(value)
