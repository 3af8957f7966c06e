"""Describe a table, and the coordinates of its rows after encoding.

A `Schema` has the descriptions of the columns. Its `Layout` says which coordinates
each column has, and bounds their norms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from html import escape
from os import PathLike
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from skdp.schema.columns import Categorical, Column, Numeric, Pair, Target
from skdp.schema.products import Product
from skdp.schema.validation import (
    FloatArray,
    InputError,
    IntArray,
    check,
    count_in_words,
    fact,
)

Scalar = TypeVar("Scalar", bound=np.generic)
#: The number 1 in units of 2⁻¹⁴, in which rows are encoded.
GRID_ONE = 1 << 14

# ---- Describe which coordinates each column fills in an encoded row, and their norms


@dataclass(frozen=True, kw_only=True)
class Group:
    """The consecutive coordinates that one column fills.

    Their joint norm is at most one. `kind` says how a row's coordinates are stored:

    - ``"ones"``: the intercept, which is not stored.
    - ``"dense"``: one integer per coordinate.
    - ``"code"``: the index of the coordinate that is one.
    - ``"hats"``: a position on each of the `axes`. From these positions,
      `skdp.schema.columns.split_hats` computes the few coordinates that are not zero.

    The coordinates of codes and hats are not negative, and their sum is at most one.
    `scale` is the factor by which a matrix geometry multiplies the coordinates. `inner`
    is the part of [0, 1] to which it clips a single number for its Gram matrix. `sides`
    has one entry for a curve, two for a pair, and none for other columns. Each entry
    has two numbers: how many coordinates the side has, and how many of these are knots.
    The knots come first and are in order. A line beside a curve (`Schema.lines`) equals
    a sum of the curve's coordinates. `heights` are the factors, from the coordinate
    `along` on.
    """

    name: str
    kind: Literal["ones", "dense", "code", "hats"]
    start: int
    labels: tuple[str, ...]
    signed: bool = False
    axes: tuple[int, ...] = ()
    scale: float = 1.0
    sides: tuple[tuple[int, int], ...] = ()
    inner: tuple[float, float] = (0.0, 1.0)
    along: int = 0
    heights: tuple[float, ...] = ()
    #: Number of coordinates.
    width: int = fact()
    #: The largest number of coordinates of a row that are not zero.
    n_entries: int = fact()
    #: The indices of the group's coordinates in a row, read-only.
    coordinates: IntArray = fact()

    def __post_init__(self) -> None:
        width = len(self.labels)
        single = self.kind == "dense" and width == 1 and not self.signed
        inner = (float(self.inner[0]), float(self.inner[1]))
        wide = (inner[1] - inner[0]) * GRID_ONE >= 2
        check(
            0 <= inner[0] < inner[1] <= 1 and wide and (single or inner == (0.0, 1.0)),
            "Only a single number has an inner part, which must be a part of [0, 1] "
            f"and not shorter than the grid, got {inner}.",
        )
        vars(self).update(
            inner=inner,
            heights=tuple(float(one) for one in self.heights),
            width=width,
            n_entries=width if self.kind == "dense" else 1 << len(self.axes),
            coordinates=_lock(np.arange(self.start, self.start + width)),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_again(self)


def _lock(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Make a new array read-only, and return it."""
    array.setflags(write=False)
    return array


def _make_again(made: Group | Layout) -> tuple[Any, ...]:
    """Return how to copy or unpickle a description, from its arguments alone.

    Its other fields are set again, so copies of their arrays are read-only too.
    """
    given = {one.name: getattr(made, one.name) for one in fields(made) if one.init}
    return partial(type(made), **given), ()


def _find_clips(groups: Sequence[Group]) -> IntArray | None:
    """Return `Layout.clips`. The ends are rounded to the grid, towards the middle."""
    if all(group.inner == (0.0, 1.0) for group in groups):
        return None
    ends = np.full((2, sum(group.width for group in groups)), 0, np.int64)
    ends[0], ends[1] = -GRID_ONE, GRID_ONE  # whatever the coordinate can be
    for group in groups:
        if group.inner != (0.0, 1.0):
            low, high = (end * GRID_ONE for end in group.inner)
            ends[:, group.start] = math.ceil(low), math.floor(high)
    return _lock(ends)


def name_record(unit: Any) -> str:
    """Return the noun for a record: "person" if there is a unit, else "row"."""
    return "row" if unit is None else "person"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The coordinates of an encoded row, and an optional bound on the row's norm.

    If `unit` is not None, it names the columns that identify a person, and all rows of
    a person together count as one record.
    """

    groups: tuple[Group, ...]
    row_norm: float | None = None
    unit: str | None = None
    #: The plural noun for records: "persons" if there is a unit, else "rows".
    counted: str = fact()
    #: Number of coordinates, including the intercept.
    n_features: int = fact()
    #: Index of the group of each coordinate, shape (n_features,), read-only.
    group_of: IntArray = fact()
    #: The coordinates of each group, for steps that update one group at a time.
    blocks: tuple[IntArray, ...] = fact()
    #: The scale of each coordinate's group, shape (n_features,), read-only.
    scales: FloatArray = fact()
    #: The ends of each coordinate's `inner` part in units of 2⁻¹⁴, shape (2,
    #: n_features), read-only, or None if no group has such a part.
    clips: IntArray | None = fact()
    #: One for each penalised coordinate, and zero for the intercept, read-only.
    penalised: FloatArray = fact()
    #: A bound on Σ_j abs(x_j) that holds for all encoded rows x.
    absolute_sum: float = fact()

    def __post_init__(self) -> None:
        groups = self.groups
        group_of = np.repeat(np.arange(len(groups)), [group.width for group in groups])
        scales = np.array([group.scale for group in groups], np.float64)
        penalised = np.array([group.kind != "ones" for group in groups], np.float64)
        n_features = len(group_of)
        check(
            all(0 <= g.along <= n_features - len(g.heights) for g in groups),
            "A line must lie along coordinates of the row.",
        )
        reach = (math.sqrt(g.width) if g.kind == "dense" else 1.0 for g in groups)
        vars(self).update(
            counted=f"{name_record(self.unit)}s",
            n_features=n_features,
            group_of=_lock(group_of),
            blocks=tuple(group.coordinates for group in groups),
            scales=_lock(scales[group_of]),
            clips=_find_clips(groups),
            penalised=_lock(penalised[group_of]),
            absolute_sum=sum(reach),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_again(self)

    @property
    def labels(self) -> list[str]:
        """Name of each coordinate."""
        return [label for group in self.groups for label in group.labels]

    def squared_norm(self, at: IntArray, weights: FloatArray | None = None) -> float:
        """Return a bound on sup_x Σ_{j in at} weights_j x_j² over all encoded rows x.

        By default all weights are 1. The coordinates of a group lie in a ball of radius
        one, so the group's part of the sum is at most the group's largest weight.
        `row_norm` bounds the norm of all groups together, except the intercept.
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

    def list_columns(
        self, names: Sequence[str] | None = None, *, ordered: bool = False
    ) -> list[list[int]]:
        """Return the coordinates of each column, for the `parts` of a penalty.

        Parameters
        ----------
        names : sequence of str, optional
            The columns, by default all of them. The intercept is never included.
        ordered : bool
            If True, return only coordinates that have an order: categories in the order
            of the schema, bins, and knots of curves, but not the indicator of missing
            cells. A column with fewer than two of them is left out, or refused if
            `names` lists it.
        """
        groups = {group.name: group for group in self.groups if group.kind != "ones"}
        unknown = sorted(set(names or ()) - set(groups))
        check(not unknown, f"names must be columns of the schema, got {unknown}.")
        found = []
        for name in groups if names is None else names:
            group = groups[name]
            at = group.coordinates.tolist()
            if ordered:
                at = at[:-1] if group.labels[-1] == f"{name}?" else at
                pair = max(len(group.axes), len(group.sides)) > 1
                in_order = group.kind in ("code", "hats") and not pair
                if not in_order or len(at) < 2:
                    check(names is None, f"Column {name!r} has no ordered coordinates.")
                    continue
            found.append(at)
        return found


# ---- Define the public description of a table: its columns, ranges and categories
#
# A person writes a schema without looking at the records. The schema determines the
# layout of an encoded row, which has one *group* of coordinates per column. The norm of
# each group is at most one.


#: Largest number of bins, knots and cells of pairs of a schema.
MOST_MADE = 1 << 22
#: Largest length of all labels together, apart from 200 characters for each bin, knot
#: and cell of a pair.
MOST_LETTERS = 1 << 25
#: Number of characters that a label has besides the name of its column, at most.
LABEL_END = 26


@dataclass(frozen=True, repr=False)
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
    unit : str or sequence of str, optional
        The column or columns that identify a person, such as ``"patient_id"``. All
        rows of a person then count as one record, and privacy protects persons. The
        column is not a feature. A row without an id is not used. By default each row
        counts as a separate person.
    """

    columns: Mapping[str, Column]
    target: tuple[str, Target] | Target | None = None
    row_norm: float | None = None
    unit: str | Sequence[str] | None = None
    #: Number of coordinates of an encoded row, without the intercept.
    width: int = fact()
    #: Names of the table's columns that are read, in encoding order.
    inputs: tuple[str, ...] = fact()
    #: For each curve of a number that also has a coordinate of its own, the name of the
    #: product that is this coordinate. The curve then only bends the straight line.
    lines: Mapping[str, str] = fact()
    #: Names of the columns whose number of knots is still "auto".
    unresolved: tuple[str, ...] = fact()
    #: Name of the target's column, or None if the target is not in the table.
    target_name: str | None = fact()
    #: Names of the columns that identify a person, or () without a unit.
    unit_columns: tuple[str, ...] = fact()
    #: The names of the unit's columns in one string, or None without a unit.
    unit_name: str | None = fact()

    def __post_init__(self) -> None:
        _check_described(self.columns, self.target)
        columns = dict(self.columns)
        # Count coordinates before any is made: a short text can describe very many.
        made = 0
        for name, column in columns.items():
            if isinstance(column, Pair):
                columns[name] = column = column.join(name, columns)
            if isinstance(column, (Numeric, Pair)):
                made += column.width
            if made > MOST_MADE:
                raise InputError(
                    f"A schema may have at most {MOST_MADE:,} bins, knots and cells of "
                    f"pairs in all columns, got {made:,} up to column {name!r}."
                )
        target = self.target[1] if isinstance(self.target, tuple) else self.target
        check(
            getattr(target, "reference", None) is None,
            "The target cannot have a reference, because only columns have effects.",
        )
        products = {k: c for k, c in columns.items() if isinstance(c, Product)}
        inputs = [
            name
            for key, one in columns.items()
            if key not in products
            for name in one.list_inputs(key)
        ]
        lines = {
            product.factors[0].name: key
            for key, product in products.items()
            if product.is_line_of(columns.get(product.factors[0].name))
            and self.row_norm is None  # or the lines of long rows are shortened
        }
        # Products share columns with others. Those that nothing else reads come last.
        for key, product in products.items():
            inputs += [n for n in product.list_inputs(key) if n not in inputs]
        _check_factors(columns, products.values())
        check(bool(inputs), "A schema must have at least one column.")
        unit = self.unit
        if unit is not None and not isinstance(unit, str):
            unit = tuple(unit)
        unit_columns = (unit,) if isinstance(unit, str) else unit or ()
        auto = (n for n, one in columns.items() if getattr(one, "knots", 0) == "auto")
        vars(self).update(
            columns=columns,
            unit=unit,
            width=sum(column.width for column in columns.values()),
            inputs=tuple(inputs),
            lines=lines,
            unresolved=tuple(auto),
            target_name=self.target[0] if isinstance(self.target, tuple) else None,
            unit_columns=unit_columns,
        )
        check(
            self.unit is None or (bool(self.unit) and all(self.unit_columns)),
            f"unit must name at least one column, got {self.unit!r}.",
        )
        vars(self).update(unit_name=", ".join(unit_columns) or None)
        used = [*self.inputs, *([self.target_name] if self.target_name else [])]
        used += self.unit_columns
        twice = [name for name, times in Counter(used).items() if times > 1][:1]
        check(
            not twice,
            f"Each column may appear only once in a schema, got {twice} twice.",
        )
        check(
            self._count_letters() <= MOST_LETTERS + 200 * made,
            "The names of the coordinates are too long in all. Shorten the names of "
            "columns, or the levels of the columns of pairs.",
        )
        fixed = sum(column.kind != "dense" for column in self.columns.values())
        filled = [
            name
            for name, column in self.columns.items()
            if isinstance(column, Numeric) and column.fill is not None
        ]
        # Clipping a number to its filled part could make a shortened row longer.
        check(
            self.row_norm is None or not filled,
            f"row_norm requires numbers without a fill, got {filled[:1]} with one.",
        )
        check(
            self.row_norm is None or math.sqrt(fixed) < self.row_norm < 1e100,
            f"row_norm must be finite and above √{fixed}, the norm of categories, bins "
            f"and curves alone, got {self.row_norm}.",
        )

    def _count_letters(self) -> int:
        """Return a bound on the length of all labels that `layout` makes."""
        total = 0
        for name, column in self.columns.items():
            if isinstance(column, Pair):
                widths = [part.width for part in column.parts]
                ends = zip((column.first, column.second), column.parts, strict=True)
                first, second = (_count_letters(*end) for end in ends)
                total += first * widths[1] + second * widths[0] + column.width
            else:
                total += _count_letters(name, column)
        return total

    def pick_cells(self, cells: Mapping[str, Any], name: str) -> Any:
        """Return the cells of a column, or of both columns of a pair."""
        column = self.columns[name]
        if isinstance(column, Pair):
            return cells[column.first], cells[column.second]
        return cells[name]

    @property
    def target_column(self) -> Target:
        """Description of the target."""
        column = self.target[1] if isinstance(self.target, tuple) else self.target
        if column is None:
            raise InputError(
                "The schema has no target. Add one: target=(name, column) in Python, "
                "[target] in a TOML file."
            )
        return column

    @staticmethod
    def discover(table: Any, *, epsilon: float, **options: Any) -> Schema:
        """Find the schema of a table within a privacy budget.

        The parameters are those of `skdp.discover`, which also returns the privacy
        record. To add up the budgets of several calls, pass a ledger.
        """
        import skdp

        found: Any = skdp.discover(table, epsilon=epsilon, **options)
        schema: Schema = found.schema
        return schema

    def __repr__(self) -> str:
        name = self.target_name
        parts = [count_in_words(len(self.columns), "column")]
        parts += [] if self.target is None else [f"target {name}" if name else "target"]
        parts += [] if self.unit is None else [f"unit {self.unit_name}"]
        return f"<Schema: {', '.join(parts)}>"

    def __str__(self) -> str:
        rows = [("column", "kind", "values"), *self._list_rows()]
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        lines = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows
        ]
        lines += self._list_facts()
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("column", "kind", "values"))
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in self._list_rows()
        )
        facts = "".join(f"<p>{escape(fact)}</p>" for fact in self._list_facts())
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{facts}"
        )

    def _list_facts(self) -> list[str]:
        """Return sentences about the whole table."""
        facts = []
        if self.unit_name is not None:
            facts.append(f"all rows with the same {self.unit_name} are one person")
        if self.row_norm is not None:
            facts.append(f"norm of a row: at most {self.row_norm:g}")
        return facts

    def _list_rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name, kind and values of each column, and then of the target."""
        for name, column in self.columns.items():
            yield str(name), column.title, column.describe()
        if self.target is not None:
            own = self.target_name
            name = "target" if own is None else f"{own} (target)"
            yield name, self.target_column.title, self.target_column.describe()

    def to_toml(self) -> str:
        """Return the schema as TOML text, which a person can edit."""
        from skdp.schema.toml_files import dumps

        return dumps(self)

    @staticmethod
    def from_toml(text: str | PathLike[str]) -> Schema:
        """Make a schema from TOML text, or read it from the path of a TOML file.

        A path is a `pathlib.Path`, or one line of text that ends in ``.toml``.
        """
        from skdp.schema.toml_files import loads, read_toml

        one_line = isinstance(text, str) and "\n" not in text.strip()
        path = not isinstance(text, str) or (one_line and text.endswith(".toml"))
        return read_toml(text) if path else loads(str(text))

    def layout(self, intercept: bool = True) -> Layout:
        """Return the layout of a row: a group per column, and the intercept last."""
        groups: list[Group] = []
        curves = {line: name for name, line in self.lines.items()}
        ends = np.cumsum([0, *(column.width for column in self.columns.values())])
        starts = dict(zip(self.columns, ends.tolist(), strict=False))
        for key, column in self.columns.items():
            labels = column.list_labels(key)
            curve = self.columns.get(curves.get(key, ""))
            heights = curve.place_knots() if isinstance(curve, Numeric) else ()
            groups.append(
                Group(
                    name=key,
                    kind=column.kind,
                    start=starts[key],
                    labels=labels,
                    signed=column.signed,
                    axes=column.axes,
                    scale=_find_scale(column),
                    sides=column.sides,
                    inner=column.inner if isinstance(column, Numeric) else (0.0, 1.0),
                    along=starts.get(curves.get(key, ""), 0),
                    heights=tuple(heights),
                )
            )
        if intercept:
            label = ("intercept",)
            groups.append(
                Group(name="intercept", kind="ones", start=self.width, labels=label)
            )
        return Layout(groups=tuple(groups), row_norm=self.row_norm, unit=self.unit_name)


def _find_scale(column: Column) -> float:
    """Return a pair's scale, or the scale on which the rows of a number have length 1.

    Of all numbers, only those with a `fill` have a scale other than 1.
    """
    if isinstance(column, Numeric):
        return 1.0 / (column.inner[1] - column.inner[0])
    return column.scale if isinstance(column, Pair) else 1.0


def _count_letters(name: object, column: Column) -> int:
    """Return a bound on the length of all labels of a column, except a pair's."""
    if isinstance(column, Categorical):
        texts = sum(len(one) for one in column.levels if isinstance(one, str))
        return texts + column.width * (len(str(name)) + LABEL_END)
    if isinstance(column, Numeric):
        return column.width * (len(str(name)) + LABEL_END)
    return 0  # a vector's labels are the names of its columns


def _check_factors(columns: Mapping[str, Column], products: Iterable[Product]) -> None:
    """Refuse factors that contradict other columns, or lack those they need."""
    kinds: dict[str, bool] = {
        key: isinstance(column, Categorical)
        for key, column in columns.items()
        if isinstance(column, (Numeric, Categorical))
    }
    for product, factor in ((p, one) for p in products for one in p.factors):
        check(
            not product.centred or product.find_main(factor, columns) is not None,
            f"A centred product requires its columns in the schema, such as "
            f"{factor.name!r}.",
        )
        own = isinstance(factor.column, Categorical)
        check(
            kinds.setdefault(factor.name, own) == own,
            f"Column {factor.name!r} is a number in one place of the schema, and a "
            "category in another.",
        )


def _check_described(columns: object, target: object) -> None:
    """Raise an error with an example if columns or target are not descriptions."""
    check(
        isinstance(columns, Mapping),
        "columns must map names to descriptions, as in {'age': Numeric(0, 100)}, got "
        f"{type(columns).__name__}.",
    )
    assert isinstance(columns, Mapping)
    described = dict(columns)
    if target is not None:
        pair = isinstance(target, tuple) and len(target) == 2
        check(
            not isinstance(target, (str, tuple, list)) or pair,
            f"target must be (name, description), got {target!r}. Write for example "
            "target=('income', Categorical(['low', 'high'])).",
        )
        described["target"] = target[1] if isinstance(target, tuple) else target
    for name, column in described.items():
        if not hasattr(column, "list_inputs"):
            raise InputError(
                f"Column {name!r} must be Numeric(low, high), Categorical([...]) or "
                f"Vector([...]), got {column!r}."
            )
