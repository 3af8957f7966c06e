"""What is public about a table: its columns, their ranges and their categories.

A schema is written by a person, never read from the records. It decides the layout
of an encoded row: one *group* of coordinates a column, each of norm at most one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


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
        if not (math.isfinite(self.low) and math.isfinite(self.high - self.low)):
            raise ValueError(
                f"The range of Numeric must be finite. Got ({self.low}, {self.high}) "
                "instead: give bounds that hold for every possible record."
            )
        if not self.low < self.high:
            raise ValueError(
                "The 'low' parameter of Numeric must be below 'high'. "
                f"Got low={self.low}, high={self.high} instead: swap or widen them."
            )
        if self.scale not in ("linear", "log"):
            raise ValueError(
                "The 'scale' parameter of Numeric must be 'linear' or 'log'. "
                f"Got {self.scale!r} instead: choose one of the two."
            )
        if self.bins is not None and not 2 <= self.bins <= 65000:
            raise ValueError(
                "The 'bins' parameter of Numeric must be between 2 and 65000 or None. "
                f"Got {self.bins} instead: choose a number of bins in that range."
            )
        if self.missing is not None and not self.low <= self.missing <= self.high:
            raise ValueError(
                "The 'missing' parameter of Numeric must lie in [low, high]. "
                f"Got {self.missing} instead: choose a value in the range."
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
        coordinate of the column (as a target: the record adds nothing to any sum).
    """

    levels: Sequence[object]
    other: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        keys = [level_key(level) for level in self.levels]
        if not 1 <= len(keys) <= 65000:
            raise ValueError(
                "The 'levels' parameter of Categorical must hold 1 to 65000 levels. "
                f"Got {len(keys)} instead: list every category the column may take."
            )
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(
                "The 'levels' parameter of Categorical must not repeat a level. "
                f"Got {twice!r} twice instead: remove one."
            )
        if self.other is not None and level_key(self.other) not in keys:
            raise ValueError(
                "The 'other' parameter of Categorical must be one of its levels. "
                f"Got {self.other!r} instead: add it to the levels."
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
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(
                "The 'names' parameter of Vector must be distinct column names. "
                f"Got {self.names!r} instead: list each column once."
            )
        if not (self.norm > 0 and math.isfinite(self.norm)):
            raise ValueError(
                "The 'norm' parameter of Vector must be positive and finite. "
                f"Got {self.norm} instead: give a bound on the rows' Euclidean norm."
            )


Column = Numeric | Categorical | Vector
Target = Numeric | Categorical


def level_key(value: object) -> str:
    """How a category is compared: 1, 1.0 and "1" are one level, True is "true"."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The consecutive coordinates that one column fills, of joint norm at most one.

    `kind` says how a row's part is stored: ``"ones"`` (the intercept, not stored),
    ``"dense"`` (integers, one a coordinate) or ``"code"`` (which coordinate is one).
    """

    name: str
    kind: Literal["ones", "dense", "code"]
    start: int
    labels: tuple[str, ...]
    signed: bool = False

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.labels)

    @property
    def coordinates(self) -> IntArray:
        """The group's coordinates."""
        return np.arange(self.start, self.start + self.width)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The coordinates of an encoded row and the norms they may reach."""

    groups: tuple[Group, ...]
    row_norm: float | None = None

    @property
    def n_features(self) -> int:
        """Number of coordinates, the intercept's included."""
        return sum(group.width for group in self.groups)

    @cached_property
    def group_of(self) -> IntArray:
        """Index of the group of each coordinate, shape (n_features,)."""
        widths = [group.width for group in self.groups]
        return np.repeat(np.arange(len(widths)), widths)

    @property
    def blocks(self) -> list[IntArray]:
        """One block a column: the partition that block sampling starts from."""
        return [group.coordinates for group in self.groups]

    @property
    def labels(self) -> list[str]:
        """Name of each coordinate."""
        return [label for group in self.groups for label in group.labels]

    @property
    def penalised(self) -> FloatArray:
        """One for each coordinate that a penalty acts on, zero for the intercept."""
        return np.array(
            [float(self.groups[g].kind != "ones") for g in self.group_of.tolist()]
        )

    @property
    def absolute_sum(self) -> float:
        """Bound on Σ_j |x_j| over all rows."""
        return sum(
            math.sqrt(group.width) if group.kind == "dense" else 1.0
            for group in self.groups
        )

    def squared_norm(self, at: IntArray, weights: FloatArray | None = None) -> float:
        """sup_x Σ_{j in at} weights_j x_j² over all encoded rows x (weights 1).

        A group is a ball of radius one or a corner of it, so its part of the sum is
        at most its largest weight; `row_norm` bounds all groups but the intercept.
        """
        weight = np.ones(len(at)) if weights is None else weights
        largest = np.zeros(len(self.groups))
        np.maximum.at(largest, self.group_of[at], weight)
        fixed = np.array([group.kind == "ones" for group in self.groups])
        inside, ones = largest[~fixed], float(largest[fixed].sum())
        total = float(inside.sum())
        if self.row_norm is not None and len(inside):
            total = min(total, self.row_norm**2 * float(inside.max()))
        return total + ones


@dataclass(frozen=True)
class Schema:
    """The public description of a table.

    Parameters
    ----------
    columns : mapping of str to Numeric, Categorical or Vector
        Columns that are not listed are ignored.
    target : (str, Numeric or Categorical) or Numeric or Categorical
        What is predicted; a bare description when the target comes apart.
    row_norm : float, optional
        Bound on the norm of the encoded row, the intercept left out: numeric parts
        of longer rows are scaled down.
    """

    columns: Mapping[str, Column]
    target: tuple[str, Target] | Target | None = None
    row_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(self.columns))
        if not self.columns:
            raise ValueError("A Schema must describe at least one column. Got none.")
        used = [name for name, _ in self.inputs]
        if self.target_name is not None:
            used.append(self.target_name)
        if len(set(used)) < len(used):
            twice = next(name for name in used if used.count(name) > 1)
            raise ValueError(
                "Each column of a Schema must have one role. "
                f"Got {twice!r} twice instead: remove one of its uses."
            )
        fixed = sum(group.kind == "code" for group in self.layout(False).groups)
        if self.row_norm is not None and not fixed < self.row_norm**2 < math.inf:
            raise ValueError(
                "The 'row_norm' parameter of Schema must exceed the root of the number "
                f"of categorical or binned columns, {math.sqrt(fixed):.6g}. "
                f"Got {self.row_norm} instead: raise it or leave it out."
            )

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """Pairs (column of the table, key in `columns`) in encoding order."""
        return [
            (name, key)
            for key, column in self.columns.items()
            for name in (column.names if isinstance(column, Vector) else (key,))
        ]

    @property
    def target_name(self) -> str | None:
        """Name of the target's column, if it is part of the table."""
        return self.target[0] if isinstance(self.target, tuple) else None

    @property
    def target_column(self) -> Target:
        """Description of the target."""
        if self.target is None:
            raise ValueError(
                "The 'target' parameter of Schema must describe the target. "
                "Got None instead: add target=(name, Numeric(...) or Categorical(...))."
            )
        return self.target[1] if isinstance(self.target, tuple) else self.target

    def layout(self, intercept: bool = True) -> Layout:
        """Coordinates of an encoded row, one group a column, the intercept last."""
        groups: list[Group] = []
        start = 0
        for key, column in self.columns.items():
            kind: Literal["dense", "code"] = "dense"
            if isinstance(column, Vector):
                labels = tuple(column.names)
            elif isinstance(column, Categorical):
                kind = "code"
                labels = tuple(f"{key}={level}" for level in column.levels)
            elif column.bins is not None:
                kind = "code"
                labels = tuple(f"{key}#{bin}" for bin in range(column.bins))
            else:
                labels = (key,)
            if isinstance(column, Numeric) and column.indicator:
                labels += (f"{key}?",)
            signed = isinstance(column, Vector)
            groups.append(
                Group(name=key, kind=kind, start=start, labels=labels, signed=signed)
            )
            start += len(labels)
        if intercept:
            label = ("intercept",)
            groups.append(
                Group(name="intercept", kind="ones", start=start, labels=label)
            )
        return Layout(groups=tuple(groups), row_norm=self.row_norm)
