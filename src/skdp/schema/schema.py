"""The public description of a table: its columns, their ranges and their categories.

A person writes a schema without looking at the records. The schema determines the
layout of an encoded row, which has one *group* of coordinates per column. The norm of
each group is at most one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skdp.schema.columns import Numeric, Target
from skdp.schema.layout import Group, Layout
from skdp.schema.pairs import Column, Pair
from skdp.schema.validation import check


@dataclass(frozen=True)
class Schema:
    """The public description of a table.

    Parameters
    ----------
    columns : mapping of str to Numeric, Categorical, Vector or Pair
        The description of each column. Columns that are not listed are ignored. A Pair
        adds a surface over two of the columns.
    target : (str, Numeric or Categorical) or Numeric or Categorical
        The name and the description of the target's column. Leave out the name if the
        target is not a column of the table.
    row_norm : float, optional
        Bound on the norm of the encoded row, without the intercept. If a row is longer,
        its numeric parts are scaled down.
    """

    columns: Mapping[str, Column]
    target: tuple[str, Target] | Target | None = None
    row_norm: float | None = None

    def __post_init__(self) -> None:
        columns = dict(self.columns)
        for name, column in columns.items():
            if isinstance(column, Pair):
                columns[name] = column.join(name, columns)
        object.__setattr__(self, "columns", columns)
        check(bool(self.inputs), "A schema must have at least one column.")
        used = [*self.inputs, *([self.target_name] if self.target_name else [])]
        twice = [name for name, times in Counter(used).items() if times > 1][:1]
        check(
            not twice,
            f"Each column may appear only once in a schema, got {twice} more often.",
        )
        fixed = sum(group.kind != "dense" for group in self.layout(False).groups)
        check(
            self.row_norm is None or math.sqrt(fixed) < self.row_norm < 1e100,
            f"row_norm must be finite and above √{fixed}, which categories, bins and "
            f"curves reach by themselves, got {self.row_norm}.",
        )

    @property
    def inputs(self) -> list[str]:
        """Names of the table's columns that are read, in encoding order."""
        return [
            name
            for key, column in self.columns.items()
            for name in column.list_inputs(key)
        ]

    @property
    def unresolved(self) -> list[str]:
        """Names of the columns whose number of knots is still "auto"."""
        return [
            name
            for name, column in self.columns.items()
            if getattr(column, "knots", None) == "auto"
        ]

    def pick_cells(self, cells: Mapping[str, Any], name: str) -> Any:
        """Return the cells of a column, or those of both columns of a pair."""
        column = self.columns[name]
        if isinstance(column, Pair):
            return cells[column.first], cells[column.second]
        return cells[name]

    @property
    def target_name(self) -> str | None:
        """Name of the target's column, or None if the target is not in the table."""
        return self.target[0] if isinstance(self.target, tuple) else None

    @property
    def target_column(self) -> Target:
        """Description of the target."""
        column = self.target[1] if isinstance(self.target, tuple) else self.target
        if column is None:
            raise ValueError("The schema has no target. Add target=(name, column).")
        return column

    def to_toml(self) -> str:
        """Return the schema as TOML text, which a person can edit."""
        from skdp.schema.toml_files import dumps

        return dumps(self)

    @staticmethod
    def from_toml(text: str) -> Schema:
        """Make a schema from TOML text; `skdp.schema.toml_files.read` reads a file."""
        from skdp.schema.toml_files import loads

        return loads(text)

    def layout(self, intercept: bool = True) -> Layout:
        """Return the layout of a row: a group per column, and the intercept last."""
        groups: list[Group] = []
        start = 0
        for key, column in self.columns.items():
            labels = column.list_labels(key)
            groups.append(
                Group(
                    name=key,
                    kind=column.kind,
                    start=start,
                    labels=labels,
                    signed=column.signed,
                    axes=column.axes,
                    scale=column.scale if isinstance(column, Pair) else 1.0,
                    n_knots=(isinstance(column, Numeric) and column.n_knots) or 0,
                )
            )
            start += len(labels)
        if intercept:
            label = ("intercept",)
            groups.append(
                Group(name="intercept", kind="ones", start=start, labels=label)
            )
        return Layout(groups=tuple(groups), row_norm=self.row_norm)
