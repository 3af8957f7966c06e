"""What is public about a table: its columns, their ranges and their categories.

A schema is written by a person, never read from the records. It decides the layout
of an encoded row: one *group* of coordinates a column, each of norm at most one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


def check(holds: bool, sentence: str) -> None:
    """Refuse what is public and wrong; never called on a record's value.

    The sentence names the rule, the value and the remedy.
    """
    if not holds:
        raise ValueError(sentence)


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
        check(bool(self.columns), "Schema needs a column: list what to learn from.")
        used = [*self.inputs, *([self.target_name] if self.target_name else [])]
        twice = [name for name, times in Counter(used).items() if times > 1][:1]
        check(not twice, f"Schema needs one role a column. Remove one use of {twice}.")
        fixed = sum(group.kind == "code" for group in self.layout(False).groups)
        check(
            self.row_norm is None or math.sqrt(fixed) < self.row_norm < 1e100,
            f"Schema needs row_norm above √{fixed}, which categories reach by "
            f"themselves. Got {self.row_norm}: raise it or leave it out.",
        )

    @property
    def inputs(self) -> list[str]:
        """Names of the table's columns that are read, in encoding order."""
        return [
            name
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
        column = self.target[1] if isinstance(self.target, tuple) else self.target
        if column is None:
            raise ValueError("Schema needs a target here: add target=(name, column).")
        return column

    def to_toml(self) -> str:
        """Write the schema as text, which a person may edit."""
        from skdp.schema_files import dumps

        return dumps(self)

    @staticmethod
    def from_toml(text: str) -> Schema:
        """Read a schema from text; `skdp.schema_files.read` reads a file."""
        from skdp.schema_files import loads

        return loads(text)

    @staticmethod
    def template(table: object) -> str:
        """Write a form with a table's column names and types, to be completed.

        No range and no category is read from the data.
        """
        from skdp.schema_files import template

        return template(table)

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
