"""Define vectors: several numeric columns with a bound on their joint norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from skdp.schema.validation import FloatArray, check, list_values


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

    signed = True
    title: ClassVar[str] = "vector"
    axes: ClassVar[tuple[int, ...]] = ()
    sides: ClassVar[tuple[tuple[int, int], ...]] = ()
    kind: ClassVar[Literal["dense", "code", "hats"]] = "dense"

    def describe(self) -> str:
        """Describe the bound and the number of columns, without the title."""
        return f"joint norm ≤ {self.norm:g}, columns: {len(self.names):,}"

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.names)

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
