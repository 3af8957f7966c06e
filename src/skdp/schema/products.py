"""Describe numbers that are computed from other columns: interactions and logarithms.

A product has one coordinate, and so one coefficient. Its range follows from the public
descriptions of its factors. Nothing here reads a record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combine
from typing import Any, ClassVar, Literal

import numpy as np

from skdp.schema.columns import Categorical, Numeric, level_key
from skdp.schema.validation import FloatArray, check


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

    def __post_init__(self) -> None:
        check(
            self.transform in ("linear", "log", "log1p"),
            f"transform must be 'linear', 'log' or 'log1p', got {self.transform!r}.",
        )
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
            return 0.0, 1.0
        low, high = self._transform(np.array([self.column.low, self.column.high]))
        return float(low), float(high)

    def compute(self, cells: Any) -> FloatArray:
        """Return the values (n,) of the factor, given the cells of its column."""
        if isinstance(self.column, Categorical):
            at = self._keys().index(level_key(self.level))
            codes = self.column.compute_features(cells)
            return np.asarray(codes == at, dtype=np.float64)
        given = np.asarray(cells, dtype=np.float64)
        clipped = np.clip(given, self.column.low, self.column.high)
        return self._transform(np.where(np.isnan(given), self.column.default, clipped))

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
        if self.transform == "linear" and self.column.scale == "log":
            return f"log(1 + {self.name} - {self.column.low:g})"
        plain = self.transform == "linear"
        return self.name if plain else f"{self.transform}({self.name})"


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
    """

    factors: Sequence[Factor] = ()

    title: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        factors = tuple(self.factors)
        check(
            0 < len(factors) <= 8 and all(isinstance(f, Factor) for f in factors),
            "A product must have 1 to 8 factors.",
        )
        object.__setattr__(self, "factors", factors)
        super().__post_init__()

    @classmethod
    def of(cls, *factors: Factor) -> Product:
        """Return the product of the factors, with the range that it can have."""
        ends = [f.find_range() for f in factors]
        corners = [math.prod(corner) for corner in combine(*ends)]
        return cls(min(corners), max(corners), factors=factors)

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
