"""Describe numbers that are computed from other columns: interactions and logarithms.

A product has one coordinate, and so one coefficient. Its range follows from the public
descriptions of its factors. Nothing here reads a record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as combine
from typing import Any, ClassVar, Literal

import numpy as np

from skdp.schema.columns import Categorical, Column, Numeric, level_key
from skdp.schema.validation import FloatArray, check, check_numbers


@dataclass(frozen=True)
class Factor:
    """A factor of a product: a number, its logarithm, or whether a column has a level.

    Parameters
    ----------
    name : str
        The name of the table's column.
    column : Numeric or Categorical
        The public description of that column.
    level : optional
        The level of a Categorical. The factor is 1 in rows of this level, and 0 in
        others.
    transform : {"linear", "log", "log1p"}
        What is computed from a number x: x itself, log(x) or log(1 + x).
    centre : float
        The public number that is subtracted from the result.

    Notes
    -----
    A number is clipped to its range first, and a missing one is replaced by the default
    of its column, as it is where the column itself is a coordinate. A number on a log
    scale enters as log(1 + x - low), the unit of its own coefficient.
    """

    name: str
    column: Numeric | Categorical
    level: object = None
    transform: Literal["linear", "log", "log1p"] = "linear"
    centre: float = 0.0

    def __post_init__(self) -> None:
        check(
            self.transform in ("linear", "log", "log1p"),
            f"transform must be 'linear', 'log' or 'log1p', got {self.transform!r}.",
        )
        check_numbers("A factor", centre=self.centre)
        if isinstance(self.column, Categorical):
            check(
                self.transform == "linear" and level_key(self.level) in self._keys(),
                f"A factor of {self.name!r} must name one of its levels, got "
                f"{self.level!r}.",
            )
            return
        check(
            isinstance(self.column, Numeric) and not isinstance(self.column, Product),
            f"A factor must be a Numeric or a Categorical column, got {self.name!r}.",
        )
        plain = self.column.kind == "dense" and not self.column.indicator
        check(
            plain and self.column.knots is None,
            f"Column {self.name!r} has bins, knots or an indicator, so it cannot be a "
            "factor of a product.",
        )
        check(self.level is None, f"Only a category has a level, got {self.name!r}.")
        check(
            self.transform == "linear" or self.column.scale == "linear",
            f"Column {self.name!r} is on a log scale already.",
        )
        least = {"linear": -math.inf, "log": 0.0, "log1p": -1.0}[self.transform]
        check(
            self.column.low > least,
            f"{self.transform}({self.name}) requires a range above {least:g}, got "
            f"{self.column.low:g} to {self.column.high:g}.",
        )

    def _keys(self) -> list[str]:
        assert isinstance(self.column, Categorical)
        return [level_key(level) for level in self.column.levels]

    def find_range(self) -> tuple[float, float]:
        """Return the smallest and the largest value that the factor can have."""
        if isinstance(self.column, Categorical):
            return 0.0 - self.centre, 1.0 - self.centre
        low, high = self.convert([self.column.low, self.column.high])
        return float(low), float(high)

    def convert(self, values: Any) -> FloatArray:
        """Return what the factor is for numbers inside of its column's range."""
        return self._transform(np.asarray(values, dtype=np.float64)) - self.centre

    def compute(self, cells: Any) -> FloatArray:
        """Return the values (n,) of the factor, given the cells of its column."""
        if isinstance(self.column, Categorical):
            at = self._keys().index(level_key(self.level))
            codes = self.column.compute_features(cells)
            return np.asarray(codes == at, dtype=np.float64) - self.centre
        given = np.asarray(cells, dtype=np.float64)
        clipped = np.clip(given, self.column.low, self.column.high)
        return self.convert(np.where(np.isnan(given), self.column.default, clipped))

    def _transform(self, values: FloatArray) -> FloatArray:
        assert isinstance(self.column, Numeric)
        if self.transform == "log":
            return np.log(values)
        if self.transform == "log1p":
            return np.log1p(values)
        if self.column.scale == "log":
            return np.log1p(values - self.column.low)
        return values

    def __str__(self) -> str:
        if isinstance(self.column, Categorical):
            return f"({self.name} = {self.level})"
        name = f"{self.transform}({self.name})"
        if self.transform == "linear":
            on_log = self.column.scale == "log"
            shifted = f"log(1 + {self.name} - {self.column.low:g})"
            name = shifted if on_log else self.name
        return name if self.centre == 0 else f"({name} - {self.centre:.4g})"


def _multiply_ranges(ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the range of the product of numbers in the given ranges."""
    corners = [math.prod(corner) for corner in combine(*ends)]
    return min(corners), max(corners)


@dataclass(frozen=True)
class Product(Numeric):
    """A number that is the product of other columns of the table.

    It is an interaction with a single coefficient, or the logarithm of a column. Make
    it with `Product.of`, which finds the range, or with a formula (`skdp.fit`). Its
    columns need not have coefficients of their own.

    Parameters
    ----------
    low, high, scale, missing, fill
        As for `Numeric`.
    factors : sequence of Factor
        The factors.
    centred : bool
        Whether both factors are measured from their middle, which a look finds. Far
        from zero a product would hardly differ from a multiple of one of its columns,
        so noise would hide its effect. Both columns must have coefficients, and the
        model an intercept. Coefficients are reported as if nothing was subtracted.
    """

    factors: Sequence[Factor] = ()
    centred: bool = False

    title: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        factors = tuple(self.factors)
        check(
            0 < len(factors) <= 8 and all(isinstance(f, Factor) for f in factors),
            "A product must have 1 to 8 factors.",
        )
        object.__setattr__(self, "factors", factors)
        check(
            len(factors) == 2 if self.centred else all(f.centre == 0 for f in factors),
            "Only products of two columns can be centred, with centred=True.",
        )
        super().__post_init__()

    @classmethod
    def of(cls, *factors: Factor, centred: bool = False) -> Product:
        """Return the product of the factors, with the range that it can have.

        If `centred`, numbers are measured from the defaults of their columns, and
        categories as if all were equally frequent.
        """
        if centred:
            factors = tuple(
                replace(one, centre=float(one.convert(one.column.default)))
                if isinstance(one.column, Numeric)
                else replace(one, centre=1.0 / one.column.width)
                for one in factors
            )
        low, high = _multiply_ranges([one.find_range() for one in factors])
        return cls(low, high, factors=factors, centred=centred)

    def recentre(
        self, columns: Mapping[str, Column], shares: Mapping[str, FloatArray]
    ) -> Product:
        """Return the product for `columns` whose filled parts a look has found.

        Numbers are then measured from the middle of the rows, and categories from their
        `shares` of the rows. A product that is not centred stays as it is.
        """
        if not self.centred:
            return self
        factors, fills = [], []
        for factor in self.factors:
            main = self.find_main(factor, columns)
            if isinstance(factor.column, Categorical):
                own = shares.get(factor.name)
                if own is not None:
                    share = float(own[factor.column.codes[level_key(factor.level)]])
                    factor = replace(factor, centre=min(max(share, 0.0), 1.0))
                factors.append(factor)
                fills.append(factor.find_range())
                continue
            assert isinstance(main, Numeric)
            plain = replace(factor, centre=0.0)
            values = np.array([*main.ends, main.default])
            if not isinstance(main, Product):
                plain = replace(plain, column=replace(main, fill=None))
                values = plain.convert(values)
            low, high, middle = values.tolist()
            factors.append(replace(plain, centre=middle))
            fills.append((low - middle, high - middle))
        ends = _multiply_ranges([one.find_range() for one in factors])
        low, high = _multiply_ranges(fills)
        fill = (max(low, ends[0]), min(high, ends[1]))
        return replace(
            self, low=ends[0], high=ends[1], factors=factors, missing=0.0, fill=fill
        )

    def find_main(self, factor: Factor, columns: Mapping[str, Column]) -> Column | None:
        """Return the column that has the coefficient of a factor alone, if any."""
        if factor.transform == "linear":
            return columns.get(factor.name)
        alone = replace(factor, centre=0.0)
        same = (c for c in columns.values() if isinstance(c, Product))
        return next((c for c in same if c.factors == (alone,)), None)

    def is_line_of(self, curve: object) -> bool:
        """Return whether this is the number of a curve, in the same range."""
        first = self.factors[0]
        if (
            len(self.factors) > 1
            or first.transform != "linear"
            or self.fill is not None
        ):
            return False
        if not isinstance(curve, Numeric) or not curve.n_knots or curve.indicator:
            return False
        return first.column == replace(curve, knots=None)

    def describe(self) -> str:
        """Write the product, and its range."""
        range_ = super().describe().partition(", missing")[0]  # it never is
        return f"{' × '.join(map(str, self.factors))}, {range_}"

    def list_inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of the table's columns that are read."""
        return tuple(dict.fromkeys(factor.name for factor in self.factors))

    def multiply(self, cells: Mapping[str, Any]) -> FloatArray:
        """Return the products (n,), given the cells of each of the columns."""
        values = [factor.compute(cells[factor.name]) for factor in self.factors]
        return np.asarray(math.prod(values[1:], start=values[0]))
