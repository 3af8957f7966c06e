"""Describe columns: ranges, categories, curves, vectors of a bounded norm, and pairs.

All descriptions are public. Nothing here reads a record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from skdp.schema.validation import (
    FloatArray,
    InputError,
    IntArray,
    as_number,
    check,
    check_numbers,
    fact,
    limit_codes,
    list_values,
)

# ---- Define two kinds of columns that a schema can have: numbers and categories
#
# `skdp.schema.columns` and `skdp.schema.columns` define two more.
#
# Each class defines everything about its kind of column: which columns of the table are
# read, which coordinates they fill, how cells are mapped to scaled values or codes, and
# the units of the coefficients. All of this is public. Encoding rounds the mapped
# values to a grid, predictions use them unrounded, and exporters map cells in the same
# way in other libraries.


#: Largest number of levels in the description of a column.
MOST_LEVELS = 12


class CodedCells(Protocol):
    """Categorical cells as a reader returns them. The cells are `values[codes]`.

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
    knots : int, sequence of float or "auto", optional
        Make the column a curve that is linear between its knots. An integer is the
        number of knots, which are equally spaced on the scaled range. A sequence lists
        the knots, which increase from `low` to `high`. With ``"auto"``, an estimator
        chooses the knots. Each knot has one coordinate, the height of the curve there.
    missing : float, optional
        The value used for a cell that is missing or is not a number. The default is the
        middle of the range. `missing` cannot be combined with `indicator`.
    indicator : bool
        Whether missing values have a separate coordinate instead of a default value.
    fill : (float, float), optional
        The part of the range that nearly all rows fill, for a straight line. Effects
        are shrunk and described on the scale of this part, the Gram matrix is computed
        from values clipped to it, and predictions clip values to it. A look at the
        table finds it (``skdp.privacy.look``). The default is the whole range.
    """

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    bins: int | None = None
    missing: float | None = None
    indicator: bool = False
    knots: int | Sequence[float] | Literal["auto"] | None = None
    fill: tuple[float, float] | None = None
    #: Number of knots, or None if there are no knots or `knots` is "auto".
    n_knots: int | None = fact()
    #: How a cell is stored: as values, as the number of a bin, or as a position.
    kind: Literal["dense", "code", "hats"] = fact()
    #: Number of coordinates.
    width: int = fact()
    #: The width of a curve's only axis, in a tuple. Other columns have ().
    axes: tuple[int, ...] = fact()
    #: The width and the number of knots of a curve (see `Group`), or ().
    sides: tuple[tuple[int, int], ...] = fact()
    #: The value used for a missing cell.
    default: float = fact()
    #: The length by which values above `low` are divided, on the column's scale.
    span: float = fact()
    #: The ends of `fill`, or of the range if there is none.
    ends: tuple[float, float] = fact()
    #: These ends on the scaled range [0, 1].
    inner: tuple[float, float] = fact()

    def __post_init__(self) -> None:
        ends = {name: getattr(self, name) for name in ("low", "high", "missing")}
        check_numbers("A numeric column", **ends)
        for name, value in ends.items():
            object.__setattr__(self, name, as_number(value))
        low, high, bins = self.low, self.high, self.bins
        if isinstance(self.knots, (list, tuple, np.ndarray)):
            object.__setattr__(self, "knots", tuple(float(k) for k in self.knots))
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
        # These facts are set before the knots are checked, because that needs the span.
        n_knots = self.knots if isinstance(self.knots, int) else None
        if isinstance(self.knots, tuple):
            n_knots = len(self.knots)
        kind = "dense" if n_knots is None else "hats"
        kind = kind if self.bins is None else "code"
        width = (self.bins or n_knots or 1) + self.indicator
        span = self.high - self.low
        vars(self).update(
            n_knots=n_knots,
            kind=kind,
            width=width,
            axes=(width,) if kind == "hats" else (),
            sides=((width, n_knots or 0),) if kind == "hats" else (),
            default=(
                self.low / 2 + self.high / 2 if self.missing is None else self.missing
            ),
            span=math.log1p(span) if self.scale == "log" else span,
        )
        if isinstance(self.knots, tuple):
            check(
                2 <= len(self.knots) <= 1000
                and self.knots[0] == low
                and self.knots[-1] == high
                and bool(np.all(np.diff(self.place_knots()) > 0)),
                f"knots must increase from low to high, got {str(self.knots)[:99]}.",
            )
        else:
            check_knots(self.knots)
        check(
            bins is None or self.knots is None,
            f"bins and knots cannot be combined, got {bins} and {self.knots}.",
        )
        check(
            self.missing is None or low <= self.missing <= high,
            f"missing must be in [low, high] = [{low}, {high}], got {self.missing}.",
        )
        check(
            self.missing is None or not self.indicator,
            "missing cannot be combined with indicator=True, got "
            f"missing={self.missing}.",
        )
        vars(self).update(ends=(low, high), inner=(0.0, 1.0))
        if self.fill is not None:
            fill, inner = self._check_fill(self.fill)
            vars(self).update(fill=fill, ends=fill, inner=inner)

    def _check_fill(
        self, given: Sequence[float]
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the ends of the part that rows fill, in units and scaled to [0, 1]."""
        check(len(given) == 2, f"fill must be a pair (low, high), got {given!r}.")
        check_numbers("fill", low=given[0], high=given[1])
        fill = (float(given[0]), float(given[1]))
        check(
            self.low <= fill[0] < fill[1] <= self.high,
            f"fill must be a part of [low, high] = [{self.low}, {self.high}], got "
            f"{fill}.",
        )
        check(
            self.knots is None and self.bins is None and not self.indicator,
            "fill requires a straight line, without knots, bins or indicator.",
        )
        check(
            fill[0] <= self.default <= fill[1],
            f"missing must be in fill = {fill}, got {self.default}.",
        )
        ends = self.rescale(np.array(fill))[0].tolist()
        check(ends[0] < ends[1], f"fill is too short, got {fill}.")
        return fill, (ends[0], ends[1])

    signed = False
    title: ClassVar[str] = "numeric"

    def describe(self) -> str:
        """Describe the range and how cells are encoded, without the title."""
        words = [f"{self.low:g} to {self.high:g}"]
        if self.fill is not None:
            words += [f"filled from {self.fill[0]:.4g} to {self.fill[1]:.4g}"]
        words += ["log scale"] if self.scale == "log" else []
        words += [f"{self.bins} bins"] if self.bins is not None else []
        knots = self.knots if isinstance(self.knots, str) else self.n_knots
        words += [f"{knots} knots"] if knots is not None else []
        words += [] if self.missing is None else [f"missing = {self.missing:g}"]
        return ", ".join(words + ["missing indicator"] * self.indicator)

    def place_knots(self) -> FloatArray:
        """Return the knots on the scaled range [0, 1], or 0 and 1 if there are none."""
        if isinstance(self.knots, tuple):
            return self.rescale(np.array(self.knots))[0]
        return np.linspace(0.0, 1.0, self.n_knots or 2)

    def narrow(self) -> Numeric:
        """Return the column with the part that rows fill as its range.

        A logarithmic scale keeps its lower end, which determines its shape.
        """
        if self.fill is None:
            return self
        low = self.low if self.scale == "log" else self.fill[0]
        return replace(self, low=low, high=self.fill[1], fill=None)

    def choose_knots(self, n_knots: int) -> Numeric:
        """Return the column with `n_knots` knots.

        If the column has a list of knots, the new knots are at equally spaced ranks of
        that list, and their number is limited to the length of the list. Otherwise the
        new knots are equally spaced on the scaled range.
        """
        if not isinstance(self.knots, tuple):
            return replace(self.narrow(), knots=n_knots)
        n_knots = min(n_knots, len(self.knots))
        ranks = np.linspace(0.0, len(self.knots) - 1.0, n_knots)[1:-1]
        inner = np.interp(ranks, np.arange(len(self.knots)), self.place_knots())
        values = self.unscale(inner).tolist()
        return replace(self, knots=(float(self.low), *values, float(self.high)))

    def unscale(self, scaled: FloatArray) -> FloatArray:
        """Return the numbers, in the user's units, that `rescale` maps to `scaled`."""
        above = np.asarray(scaled, np.float64) * self.span
        return self.low + (np.expm1(above) if self.scale == "log" else above)

    def _write_knots(self) -> list[str]:
        """Format the knots in the user's units, so that no two texts are equal."""
        values = self.unscale(self.place_knots()).tolist()
        for digits in (4, 6, 9, 17):
            texts = [f"{value:.{digits}g}" for value in values]
            if len(set(texts)) == len(texts):
                break
        return texts

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of the table's columns that are read."""
        return (name,)

    def list_labels(self, name: str) -> tuple[str, ...]:
        """Return the names of the coordinates."""
        labels: tuple[str, ...] = (name,)
        if self.bins is not None:
            labels = tuple(f"{name}#{bin}" for bin in range(self.bins))
        elif self.n_knots is not None:
            labels = tuple(f"{name}@{value}" for value in self._write_knots())
        return (*labels, f"{name}?") if self.indicator else labels

    def rescale(self, values: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return the values mapped to [0, 1], and a mask of the missing ones (nan)."""
        missing = np.isnan(values)
        above: FloatArray = np.clip(values, self.low, self.high)  # nan stays nan
        np.copyto(above, self.default, where=missing)
        above -= self.low  # rounds like high - low, so it is at most that
        if self.scale == "log":
            np.minimum(np.log1p(above, out=above), self.span, out=above)
        above /= self.span
        return above, missing

    def compute_features(self, cells: Any) -> npt.NDArray[Any]:
        """Map floats (n,) to values (n, width), bins (n,) or positions (n, 1).

        Values are in [0, 1]. With an indicator, a missing number has a value of zero
        and an indicator of one. So the norm of each row of values is at most one. A
        position counts knots from zero, so 2.25 lies a quarter of the way from knot 2
        to knot 3. If there is an indicator, a missing number has the position after the
        last knot.
        """
        scaled, missing = self.rescale(np.asarray(cells, dtype=np.float64))
        if self.bins is not None:
            bins = np.minimum(np.floor(scaled * self.bins), self.bins - 1).astype(int)
            return np.where(missing & self.indicator, self.bins, bins)
        if self.n_knots is not None:
            positions = scaled * (self.n_knots - 1)
            if isinstance(self.knots, tuple):
                knots = self.place_knots()
                at = np.searchsorted(knots[1:-1], scaled, side="right")
                positions = at + (scaled - knots[at]) / (knots[at + 1] - knots[at])
            return np.where(missing & self.indicator, self.n_knots, positions)[:, None]
        if self.indicator:
            return np.column_stack([np.where(missing, 0.0, scaled), missing])
        return scaled[:, None]

    def find_units(self) -> tuple[FloatArray, FloatArray]:
        """Return offsets and divisors such that a coordinate is x / divisor - offset.

        Here x is the number in the user's units or, on a log scale, the logarithm
        log(1 + number - low).
        """
        offsets, divisors = np.zeros(self.width), np.ones(self.width)
        if self.kind == "dense":
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
        all coordinates of the column at zero. A record whose target is such a value
        then adds nothing to any gradient.
    reference : optional
        The level with which effects are compared, as in treatment coding. Linear models
        with an intercept then report the effect of each other level relative to this
        one. By default effects are relative to the mean over the levels. This does not
        change what is fitted, released or predicted.
    """

    levels: Sequence[object]
    other: object = None
    reference: object = None
    #: Number of coordinates.
    width: int = fact()
    #: The code of missing and unknown values. If `other` is None, it is the number of
    #: levels, and a row with this code is zero in all coordinates of the column.
    default_code: int = fact()
    #: The code of `reference`, or None.
    reference_code: int | None = fact()

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
        check(same, "levels must not contain nan, because a missing cell has no level.")
        check(
            self.other is None or level_key(self.other) in keys,
            f"other must be one of the levels, got {self.other!r}.",
        )
        check(
            self.reference is None or level_key(self.reference) in keys,
            f"reference must be one of the levels, got {self.reference!r}.",
        )
        other, reference = (
            None if level is None else keys.index(level_key(level))
            for level in (self.other, self.reference)
        )
        vars(self).update(
            width=len(keys),
            default_code=len(keys) if other is None else other,
            reference_code=reference,
        )

    signed = False
    title: ClassVar[str] = "categorical"
    axes: ClassVar[tuple[int, ...]] = ()
    sides: ClassVar[tuple[tuple[int, int], ...]] = ()
    kind: ClassVar[Literal["dense", "code", "hats"]] = "code"

    def describe(self) -> str:
        """List the first levels, without the title."""
        shown = ", ".join(map(str, self.levels[:MOST_LEVELS]))
        more = len(self.levels) - MOST_LEVELS
        shown += f" and {more:,} more" if more > 0 else ""
        shown += "" if self.other is None else f"; others count as {self.other}"
        none = self.reference is None
        return shown + ("" if none else f"; compared with {self.reference}")

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each level, by the level's key (see `level_key`).

        This is made on first use, because it takes more memory than the levels.
        """
        return {level_key(level): code for code, level in enumerate(self.levels)}

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of the table's columns that are read."""
        return (name,)

    def list_labels(self, name: str) -> tuple[str, ...]:
        """Return the names of the coordinates."""
        return tuple(f"{name}={level}" for level in self.levels)

    def compute_features(self, cells: CodedCells) -> npt.NDArray[Any]:
        """Map cells to the codes (n,) of their levels, in [0, len(levels)].

        If the reader's values are these levels, the reader's codes are kept. Otherwise
        each of the reader's values is looked up by its key. A code that is not an index
        of the values means that the cell is missing.
        """
        default, values = self.default_code, cells.values
        places = limit_codes(cells.codes, len(values))
        if values is self.levels and default == len(values):
            return places
        known: Sequence[int] = range(len(values))
        if values is not self.levels:
            known = [self.codes.get(level_key(value), default) for value in values]
        return np.array([*known, default], np.uint16).take(places)

    def find_units(self) -> tuple[FloatArray, FloatArray]:
        """Return offsets of zero and divisors of one, because levels have no unit."""
        return np.zeros(self.width), np.ones(self.width)


Target = Numeric | Categorical


def clip_to_fill(column: Column, cells: Any) -> Any:
    """Clip floats (n,) to the part of a range that rows fill, before a prediction.

    Beyond it, a line is not supported by rows. Cells of other columns are returned
    unchanged.
    """
    fill = column.fill if isinstance(column, Numeric) else None
    return cells if fill is None else np.clip(np.asarray(cells, np.float64), *fill)


def check_knots(knots: object) -> None:
    """Raise ValueError unless `knots` is None, "auto" or an integer from 2 to 1000."""
    whole = (
        isinstance(knots, int) and not isinstance(knots, bool) and 2 <= knots <= 1000
    )
    check(
        knots is None or knots == "auto" or whole,
        f"knots must be 'auto' or an integer from 2 to 1000, got {knots!r}.",
    )


def level_key(value: object) -> str:
    """Return the string by which a category is compared with others.

    The string is the same for 1, 1.0 and "1", so they are the same level. For True it
    is "true".
    """
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, int) and value.bit_length() > 10_000:
        return hex(value)  # Python refuses to write so many decimal digits
    return str(value)


# ---- Define vectors: several numeric columns with a bound on their joint norm


@dataclass(frozen=True)
class Vector:
    """Several numeric columns (text, embeddings) with a bound on their joint norm.

    Parameters
    ----------
    names : sequence of str
        The names of the table's columns.
    norm : float
        The bound on the joint norm. Rows with a larger Euclidean norm are scaled down
        to it.
    """

    names: Sequence[str]
    norm: float = 1.0
    #: Number of coordinates.
    width: int = fact()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", list_values(self.names, "names"))
        check(
            0 < len(self.names) == len(set(self.names)),
            "A vector must have at least one column name, and no name may repeat.",
        )
        check(
            0 < self.norm < math.inf,
            f"norm must be positive and finite, got {self.norm}.",
        )
        vars(self).update(width=len(self.names))

    signed = True
    title: ClassVar[str] = "vector"
    axes: ClassVar[tuple[int, ...]] = ()
    sides: ClassVar[tuple[tuple[int, int], ...]] = ()
    kind: ClassVar[Literal["dense", "code", "hats"]] = "dense"

    def describe(self) -> str:
        """Describe the bound and the number of columns, without the title."""
        return f"joint norm ≤ {self.norm:g}, columns: {len(self.names):,}"

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
        """Return offsets and divisors: a coordinate is x / divisor - offset."""
        return np.zeros(self.width), np.full(self.width, float(self.norm))


def divide_by_norm(values: Any, norm: float) -> FloatArray:
    """Divide each row by `norm`, or by the row's own norm if that is larger."""
    finite = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)
    largest = np.abs(finite).max(axis=1, keepdims=True, initial=0.0)
    direction = finite / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        scale = np.minimum(largest / norm, 1.0 / np.where(length > 0, length, 1.0))
    return np.asarray(direction * scale)


# ---- Define pairs of columns, and the hat functions of curves and surfaces
#
# The hat function of a knot is 1 at the knot, 0 at all other knots, and linear in
# between. At every position, at most two hats are nonzero. No hat is negative, and
# their sum is one. Products of the hats of two columns have the same properties, but up
# to four of them are nonzero. In a pair, the categories of a categorical column are
# treated like knots, and its cells lie on them.


#: The largest number of coordinates of a pair.
MOST_CELLS = 65_000


@dataclass(frozen=True)
class Pair:
    """A surface over two columns of the schema, in addition to their own effects.

    Along a numeric column, the surface is made of hat functions on equally spaced
    knots. Along a column of categories or bins, it is constant within each category or
    bin. The pair has one coordinate for each combination of knots or levels.

    Parameters
    ----------
    first, second : str
        The names of two columns of the schema, each Numeric or Categorical.
    knots : int or "auto"
        The number of knots along each numeric column. With ``"auto"``, an estimator
        chooses it from public facts.
    scale : float
        The factor, in (0, 1], by which a matrix geometry multiplies the coordinates. A
        smaller factor shrinks the surface more, and adds less noise to other columns.
    """

    first: str
    second: str
    knots: int | Literal["auto"] = "auto"
    scale: float = 0.5
    #: Descriptions of the two columns, which the schema fills in.
    columns: tuple[Numeric | Categorical, ...] = field(default=(), repr=False)
    #: The descriptions of both columns. Numbers without bins become curves.
    parts: tuple[Numeric | Categorical, ...] = fact()
    #: How a cell is stored: as positions or, if no column has knots, as a code.
    kind: Literal["dense", "code", "hats"] = fact()
    #: The widths of the two axes, or () if cells are stored as codes.
    axes: tuple[int, ...] = fact()
    #: The width of each axis and its number of knots (see `Group`).
    sides: tuple[tuple[int, int], ...] = fact()
    #: Number of coordinates.
    width: int = fact()

    def __post_init__(self) -> None:
        check(
            self.first != self.second,
            f"A pair must have two different columns, got {self.first!r} twice.",
        )
        check(self.knots is not None, "knots must be 'auto' or an integer, got None.")
        check_knots(self.knots)
        check(0 < self.scale <= 1, f"scale must be in (0, 1], got {self.scale}.")
        knots = 2 if isinstance(self.knots, str) else self.knots
        parts = tuple(
            column.choose_knots(knots)
            if isinstance(column, Numeric) and column.bins is None
            else column
            for column in self.columns
        )
        widths = tuple(part.width for part in parts)
        hats = any(part.kind == "hats" for part in parts)
        knots_of = [(isinstance(p, Numeric) and p.n_knots) or 0 for p in parts]
        vars(self).update(
            parts=parts,
            kind="hats" if hats else "code",
            axes=widths if hats else (),
            sides=tuple(zip(widths, knots_of, strict=True)),
            width=math.prod(widths),
        )

    signed = False
    title: ClassVar[str] = "pair"

    def describe(self) -> str:
        """Name the two columns and, if they are known, the numbers of knots."""
        chosen = bool(self.columns) and not isinstance(self.knots, str)
        sizes = " × ".join(f"{part.width:,}" for part in self.parts)
        return f"{self.first} and {self.second}" + (
            f", {sizes} knots or levels" if chosen else ""
        )

    def join(self, name: str, columns: Mapping[str, Column]) -> Pair:
        """Return this pair, with the descriptions of its two columns filled in."""
        found: list[Numeric | Categorical] = []
        for other in (self.first, self.second):
            column = columns.get(other)
            if not isinstance(column, (Numeric, Categorical)):
                raise InputError(
                    f"Pair {name!r} must join two numeric or categorical columns of "
                    f"the schema, got {other!r}."
                )
            found.append(column)
        joined = replace(self, columns=tuple(found))
        check(
            joined.width <= MOST_CELLS,
            f"Pair {name!r} may have at most {MOST_CELLS} combinations, got "
            f"{joined.width}.",
        )
        return joined

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return no names, because the two columns already list the inputs."""
        return ()

    def list_labels(self, name: str) -> tuple[str, ...]:
        """Return the names of the coordinates."""
        names = zip((self.first, self.second), self.parts, strict=True)
        first, second = (part.list_labels(one) for one, part in names)
        return tuple(f"{a}:{b}" for a in first for b in second)

    def compute_features(self, cells: Any) -> npt.NDArray[Any]:
        """Map the cells of both columns to codes (n,) or positions (n, 2).

        If one of the cells has no level, the row has the code `width`, or the positions
        (width of the first axis, 0). Both mean that all coordinates are zero.
        """
        a, b = (part.width for part in self.parts)
        found = [p.compute_features(c) for p, c in zip(self.parts, cells, strict=True)]
        first, second = (np.reshape(values, len(values)) for values in found)
        null = (first >= a) | (second >= b)
        if self.kind == "code":  # the codes of a part may have a single byte
            return np.where(null, a * b, first.astype(np.int64) * b + second)
        none = np.array([a, 0.0])
        return np.where(null[:, None], none, np.stack([first, second], axis=1))

    def find_units(self) -> tuple[FloatArray, FloatArray]:
        """Return offsets of zero and divisors of one, because a surface has no unit."""
        return np.zeros(self.width), np.ones(self.width)


Column = Numeric | Categorical | Vector | Pair


def split_hats(
    positions: npt.NDArray[Any], axes: tuple[int, ...], one: int = 1
) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return the coordinates that are not zero, and their values.

    Parameters
    ----------
    positions : array (n, len(axes))
        The position on each axis, in units of 1 / `one`. Positions are at most the
        width of the axis.
    axes : tuple of int
        The widths of the axes.
    one : int
        If `one` is 1, positions and values are floats. Otherwise they are integers in
        units of 1 / `one`, and products are rounded down.

    Returns
    -------
    places : (n, 2 or 4)
        Indices of coordinates. The index ``prod(axes)`` means no coordinate.
    values : (n, 2 or 4)
        The values of these coordinates.

    Notes
    -----
    **Guarantee.** For all positions in range, the values v of a row are not negative
    and Σ v ≤ one, so Σ v² ≤ (Σ v)² ≤ one². On one axis the values are one - f and f,
    where f in [0, one) is the fraction of the position, so their sum is exactly one. On
    two axes they are ⌊a c / one⌋, where a is one - f or f, and c is one - g or g. Their
    sum is at most Σ a c / one = one.
    """
    places = np.zeros((len(positions), 1), np.intp)
    values: npt.NDArray[Any] = np.full((len(positions), 1), one, positions.dtype)
    for axis, width in enumerate(axes):
        below = np.floor_divide(positions[:, axis], one).astype(np.intp)
        fraction = positions[:, axis] - (below * one).astype(positions.dtype)
        above = below + (fraction > 0)
        shares = np.stack([one - fraction, fraction], axis=1)
        products = values[:, :, None] * shares[:, None, :]
        values = products if one == 1 else products // one
        values = values.reshape(len(positions), -1)
        steps = np.stack([below, above], axis=1)
        places = (places[:, :, None] * width + steps[:, None, :]).reshape(values.shape)
    return np.minimum(places, math.prod(axes)), values
