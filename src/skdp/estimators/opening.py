"""Open a table: what happens before a fit, a discovery, an evaluation or a search.

Arguments are checked, the table is opened without reading a record, the unit of privacy
is found, the budget is reserved, and what a schema does not say is found privately.
`PrivacyRequest` has these steps in their order.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from skdp.descent.plan import check_calibration
from skdp.descent.plan_files import plan_digest
from skdp.engines.choice import MakeEngine, is_dask, place_table
from skdp.estimators.other_solvers import OWN
from skdp.estimators.progress import show_work
from skdp.estimators.weights import scale_class_weights
from skdp.ledger import Ledger, refuse_unpaid
from skdp.privacy import discovery
from skdp.privacy.budget import (
    PrivacyRecord,
    check_budget,
    check_budget_types,
    default_delta,
)
from skdp.privacy.encoding import Records
from skdp.privacy.persons import RowCounts
from skdp.privacy.randomness import Randomness
from skdp.schema import (
    Categorical,
    Numeric,
    Schema,
    Target,
    Vector,
    check,
    check_integer,
    level_key,
    name_record,
    toml_files,
)
from skdp.schema.validation import check_numbers
from skdp.tables import arrays, readers
from skdp.tables.batches import check_columns, list_weights, read_cells
from skdp.tables.cells import keys, magnitudes, numbers, text_number
from skdp.tables.encoder import read_rows
from skdp.tables.ids import Ids, refuse_floats
from skdp.tables.placed import PlacedCells, PlacedColumn, PlacedTable
from skdp.tables.readers import TABLES, Source, count_rows, find_positions
from skdp.tables.streams import accept_stream

# ---- Accept the tables, columns and bounds that users of scikit-learn pass
#
# Shapes, types and lengths are public, and wrong ones are refused. Nothing here reads a
# cell, because no error or warning may depend on a cell.


_LIBRARIES = {root for root, _ in TABLES} - {"builtins"}


def accept_table(X: Any, *, empty: bool = True) -> Any:
    """Return `X` as a table that skdp can read, or refuse it.

    A list of rows becomes an array of objects, because that type does not depend on any
    cell. The number of columns is the length of the first row, which is public. Shorter
    rows are filled up with missing cells, and longer rows are cut.

    Parameters
    ----------
    X : table
        As given to ``fit`` or ``predict``.
    empty : bool
        Whether the table may have no rows.
    """
    X = accept_stream(X)
    if isinstance(X, (list, tuple)):
        X = _stack_rows(X)
    elif not _has_reader(X) and hasattr(X, "__array__"):
        X = np.asarray(X)
    if hasattr(X, "dtype"):
        _refuse_complex([X.dtype])
    elif hasattr(X, "iloc"):  # only pandas has frames with complex columns
        _refuse_complex(list(X.dtypes))
    shape = getattr(X, "shape", None)
    if shape is None:
        return X
    check(
        len(shape) == 2,
        f"Expected 2D array, got {len(shape)}D array instead. Reshape your data: "
        "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row.",
    )
    for count, what in ((shape[1], "feature(s)"), (shape[0], "sample(s)")):
        check(
            count > 0 or (what == "sample(s)" and empty),
            f"Found array with {count} {what} (shape={tuple(shape)}) while a minimum "
            "of 1 is required.",
        )
    return X


def _stack_rows(rows: Any) -> Any:
    """Turn a list of rows into an array. The first row determines its width."""
    first = _list_cells(rows[0]) if rows else None
    check(
        not (rows and isinstance(rows[0], dict)),
        "A list of dicts does not say which columns there are. Pass "
        "pandas.DataFrame(rows), or a dict with one list per column.",
    )
    if first is None:
        return np.empty(len(rows), dtype=object)  # the caller refuses 1-D
    if first and isinstance(first[0], (list, tuple)):
        return np.empty((len(rows), len(first), 1), dtype=object)  # refused as 3-D
    table = np.empty((len(rows), len(first)), dtype=object)
    for i, row in enumerate(rows):
        for j, cell in zip(range(len(first)), _list_cells(row) or [], strict=False):
            table[i, j] = cell
    return table


def _list_cells(row: Any) -> list[Any] | None:
    """Return the cells of a list, tuple or 1-D array, or None for any other row.

    If the row's class is derived from list or tuple and overrides some of its methods,
    the overriding methods are not called.
    """
    try:
        if hasattr(row, "__array__") and len(getattr(row, "shape", ())) == 1:
            row = row.tolist() if hasattr(row, "tolist") else None
    except Exception:  # a row may raise anything
        return None
    if issubclass(type(row), list):
        return list.copy(row)
    return [*tuple.__iter__(row)] if issubclass(type(row), tuple) else None


def accept_column(y: Any, what: str = "y") -> Any:
    """Return `y` as a column that skdp can read, or refuse it.

    An (n, 1) array is flattened, with a warning.
    """
    if y is None or isinstance(y, str) or is_dask(y):  # workers read Dask's columns
        return y
    if not _has_reader(y) and hasattr(y, "__array__"):
        y = np.asarray(y)
    elif isinstance(y, (list, tuple)):  # a nested list stays a single cell
        y = arrays.read_objects(y)
    shape = getattr(y, "shape", None)
    _refuse_complex([y.dtype] if hasattr(y, "dtype") else [])
    if shape is None or len(shape) == 1:
        return y
    check(
        len(shape) == 2 and shape[1] == 1,
        f"{what} should be a 1d array, got an array of shape {tuple(shape)} instead.",
    )
    warnings.warn(
        f"A column-vector {what} was passed when a 1d array was expected. Use "
        f"{what}.ravel().",
        DataConversionWarning,
        stacklevel=3,
    )
    return y.iloc[:, 0] if hasattr(y, "iloc") else y.reshape(-1)


def warn_of_floats(source: Source, schema: Schema) -> None:
    """Warn of categories in a column that a library has read as floats.

    Whole numbers are not affected, because they are matched by their value. In a column
    of Python objects, the type of each cell is public. It is looked at only if the
    schema has categories such as "3.1".
    """
    kinds = dict(zip(source.names or (), source.kinds, strict=False))
    columns: list[tuple[str, Any]] = [*schema.columns.items()]
    for name, column in [*columns, (schema.target_name or "", schema.target)]:
        levels = getattr(column, "levels", ())
        written = [str(level).removesuffix(".0").lstrip("-") for level in levels]
        if name not in kinds or all(map(str.isdigit, written)):
            continue
        odd = [one for one in written if not one.isdigit() and one[-1:].isdigit()]
        mixed = kinds[name] == "unknown" and source.n_rows is not None
        mixed = mixed and any(math.isfinite(text_number(one)) for one in odd)
        floats = kinds[name] in ("float", "float category")
        if floats or (mixed and _has_floats(source, name)):
            warnings.warn(
                f"Column {name!r} holds floating-point numbers, but its categories are "
                'not whole numbers. Different texts such as "3.1" and "3.10" may have '
                "become one number. Read the column as text (dtype=str).",
                UserWarning,
                stacklevel=5,
            )


def _has_floats(source: Source, name: str) -> bool:
    """Return whether a column of Python objects has a float that is not nan."""
    at = find_positions(source.names or (), [name])
    return any(
        isinstance(cell, float) and cell == cell
        for (cells,) in source.read(at, ROWS)
        if isinstance(cells, np.ndarray) and cells.dtype == object
        for cell in cells.tolist()
    )


def check_pair(given: Any, what: str = "bounds") -> tuple[Any, Any]:
    """Return a public pair (low, high), or refuse anything else."""
    listed = isinstance(given, (tuple, list)) or np.ndim(given) > 0
    check(
        listed and len(given) == 2,
        f"{what} must be a pair (low, high), got {given!r}.",
    )
    return given[0], given[1]


def check_width(X: Any, n_features: int, name: str) -> None:
    """Refuse an array or sparse matrix that does not have `n_features` columns."""
    if isinstance(X, np.ndarray) or hasattr(X, "tocsr"):
        check(
            X.shape[1] == n_features,
            f"X has {X.shape[1]} features, but {name} is expecting {n_features} "
            "features as input.",
        )


def name_target(schema: Schema | None, name: str, target: Any) -> Schema:
    """Return the schema with column `name` as its target. `name` was passed as `y`."""
    check(
        schema is not None,
        f"y is the string {name!r}. To name a column of the table, describe it in a "
        f"schema: Schema({{...}}, target=({name!r}, ...)), or find a schema with "
        f"skdp.discover(df, target={name!r}, epsilon=...). Without a schema, pass the "
        f"column itself: fit(df.drop(columns=[{name!r}]), df[{name!r}]).",
    )
    assert schema is not None
    described = target if schema.target is None else schema.target
    if isinstance(described, tuple):
        check(
            described[0] == name,
            f"The schema's target is {described[0]!r}, but y is {name!r}. Leave y out, "
            "or change the schema.",
        )
        return schema
    check(
        not isinstance(described, str),
        f"The schema does not describe the target {name!r}. Add target=({name!r}, "
        "...) to it.",
    )
    return replace(schema, target=(name, described))


def refuse_encoded_labels(y: Any, target: Any) -> None:
    """Refuse an array of integers as labels if no class is a number.

    scikit-learn's ``VotingClassifier``, ``StackingClassifier`` and (for probabilities)
    ``cross_val_predict`` number the labels before they fit. Without this, a fit would
    spend its budget on labels that never match. The
    type of an array that is passed as `y` is taken as public. The types of columns are
    not, because a library may have guessed them from the cells.
    """
    column = target[1] if isinstance(target, tuple) else target
    if not (isinstance(y, np.ndarray) and isinstance(column, Categorical)):
        return
    numbers = [key for key in column.codes if not math.isnan(text_number(key))]
    levels = [str(level) for level in sort_target(column).levels]
    codes = [*range(len(levels))]
    shown = ", ".join(f"{i} is {one!r}" for i, one in enumerate(levels[:3]))
    check(
        y.dtype.kind not in "biu" or bool(numbers),
        "y is an array of integers, but no class is a number, so no label would match. "
        "scikit-learn's VotingClassifier, StackingClassifier and cross_val_predict "
        "number the labels before they fit. Within them, describe the target as "
        f"Categorical({codes}), where {shown}{', …' if levels[3:] else ''}.",
    )


def list_ranges(bounds: Any, n_columns: int) -> list[tuple[float, float] | None]:
    """Return each column's (low, high), from a pair of numbers or a pair of arrays."""
    if bounds is None:
        return [None] * n_columns
    lists = [np.ravel(list(end) if np.ndim(end) else end) for end in check_pair(bounds)]
    for ends in lists:
        check(
            len(ends) in (1, n_columns),
            "bounds must be two numbers, or two arrays with one number per column "
            f"({n_columns}), got an array of length {len(ends)}.",
        )
        check_numbers("bounds", **{f"end {i}": e for i, e in enumerate(ends.tolist())})
    shaped = [np.broadcast_to(np.asarray(b, float), (n_columns,)) for b in lists]
    return [(float(low), float(high)) for low, high in zip(*shaped, strict=True)]


def refuse_dates(table: Any, source: Source, names: Sequence[str | None]) -> None:
    """Refuse columns of a file whose type is a date, a time or a nested value.

    All cells of such a column would count as missing. The types in a file are public.
    The types of a table in memory may have been guessed from its cells, so its columns
    are not refused. Released sums will then cause a warning.
    """
    if not readers.is_path(table):
        return
    types = dict(zip(source.names or names, source.kinds, strict=False))
    for name in names:
        check(
            types.get(name) != "other",
            f"Column {name!r} holds dates, times or nested values, which are neither "
            "numbers nor categories. Convert it, or leave it out.",
        )


def check_name(name: Any, names: Sequence[str]) -> None:
    """Refuse a name that no column has."""
    check(
        name in names,
        f"The table has no column {name!r}. Its columns are {', '.join(names)}.",
    )


def has_names(X: Any) -> bool:
    """Return whether all column names are strings. In pandas they may be numbers."""
    columns = getattr(X, "columns", None) if hasattr(X, "iloc") else None
    return columns is None or all(isinstance(name, str) for name in columns)


def _has_reader(given: Any) -> bool:
    """Return whether there is a reader for the library that defines a table's type."""
    roots = {base.__module__.partition(".")[0] for base in type(given).__mro__}
    return bool(roots & _LIBRARIES) or hasattr(given, "__arrow_c_stream__")


def _refuse_complex(types: list[Any]) -> None:
    check(
        all(getattr(dtype, "kind", "") != "c" for dtype in types),
        "Complex data not supported.",
    )


def choose_seed(random_state: Any) -> int | None:
    """Return `random_state` as a seed, or None. A generator draws a seed."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    old = getattr(random_state, "randint", None)
    draw: Any = getattr(random_state, "integers", old)
    check(
        draw is not None,
        "random_state must be None, an integer or a generator of numpy, got "
        f"{random_state!r}.",
    )
    return int(draw(2**31 - 1))


# ---- Sort the labels of a target, and give inferred labels a type


#: Largest number of classes times the length of the longest. Each character takes four
#: bytes.
MOST_LETTERS = 1 << 22


def check_labels(column: Any) -> None:
    """Refuse labels that would take too much memory as an array.

    numpy takes as much memory for each label as for the longest.
    """
    levels = column.levels if isinstance(column, Categorical) else ()
    longest = max((len(one) for one in levels if isinstance(one, str)), default=0)
    check(
        len(levels) * longest <= MOST_LETTERS,
        f"The number of classes times the length of the longest must be at most "
        f"{MOST_LETTERS:,}, got {len(levels):,} × {longest:,}.",
    )


def sort_target(target: Any) -> Any:
    """Return a target's description with its levels sorted, if it has levels.

    Classes are sorted as scikit-learn sorts them, whatever their order in the schema.
    Scorers take ``classes_[1]`` as the positive class, and expect the columns of
    ``predict_proba`` in the order of sorted labels. Levels are ordered as by
    ``np.unique``: numbers by value, False before True, strings by code point. If levels
    have several types, numpy converts them to one type first, so numbers among strings
    become strings.
    """
    if isinstance(target, tuple):
        name, column = target
        return name, sort_target(column)
    if not isinstance(target, Categorical):
        return target
    check_labels(target)
    try:
        order = np.argsort(np.array(target.levels), kind="stable").tolist()
    except TypeError:  # objects that numpy cannot compare
        keys = [level_key(level) for level in target.levels]
        order = sorted(range(len(keys)), key=keys.__getitem__)
    return Categorical([target.levels[at] for at in order], target.other)


def type_labels(column: Categorical) -> Categorical:
    """Sort released labels, and give them a type that follows from the labels alone.

    The labels true and false become booleans. If all labels are integers, they become
    integers. Otherwise they are strings. The type of the table's column is ignored,
    because one cell can change it: integers become floats if one cell is missing, and
    strings if one cell is not a number.
    """
    check(
        len(column.levels) >= 2,
        "A classifier needs more than one class, but the labels could not be inferred "
        "within the budget. Pass classes=[...] with all possible labels, or use a "
        "regressor if the target is continuous.",
    )
    texts = sorted(str(level) for level in column.levels)
    if set(texts) <= {"false", "true"}:
        return Categorical([False, True])
    values = [_parse_number(text) for text in texts]
    if any(math.isnan(value) for value in values):
        return Categorical(texts)
    check(
        all(math.isinf(v) or v == int(v) for v in values),
        "Unknown label type: continuous. Pass classes=[...] if numbers with decimals "
        "are labels.",
    )
    return Categorical(sorted(values))


def _parse_number(text: str) -> float:
    """Return a label as a number (an exact int for an integer), or nan."""
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(text) if plain else text_number(text)


# ---- Check the options of a fit that protects persons, each of whom may have many rows


def assume_given_count(n_rows: Any, neighbours: str, unit: Any) -> tuple[str, ...]:
    """Return the assumption that the given number of rows or persons is public.

    It is made only under add-remove, and only if `n_rows` is given.
    """
    given = neighbours == "add-remove" and n_rows is not None
    return (f"The number of {name_record(unit)}s given is public.",) if given else ()


def check_unit(
    unit: Any, *, solver: str = OWN, max_rows_per_unit: int = 1, neighbours: str
) -> None:
    """Refuse options under which a person could count as more than one record."""
    if unit is None and max_rows_per_unit == 1:
        return
    RowCounts(max_rows_per_unit)  # refuses what is not an integer
    check(
        max_rows_per_unit == 1 or unit is not None,
        "max_rows_per_unit requires a unit. Name it in the schema, or pass unit=.",
    )
    check(
        max_rows_per_unit == 1 or neighbours == "add-remove",
        f"max_rows_per_unit > 1 requires neighbours='add-remove', got {neighbours!r}. "
        "The other relations need a public number of records, but max_rows_per_unit "
        "makes it depend on the number of rows of each person.",
    )
    if unit is None or solver == OWN:
        return
    from skdp.solvers import SOLVERS

    known = [OWN, *(name for name, entry in SOLVERS.items() if entry.persons)]
    check(
        solver in known or solver not in SOLVERS,
        f"solver={solver!r} bounds the influence of one row, not of one person. With a "
        f"unit, use one of {known}.",
    )


def count_given(n_rows: int | None, unit: Any, max_rows_per_unit: int) -> int | None:
    """Return the number of records that the parameter `n_rows` stands for.

    Without a unit, each row is a record. With a unit, `n_rows` is the number of
    persons, and each person is a record. But if `max_rows_per_unit` is above 1,
    `n_rows` is the number of rows, and each row is 1/max_rows_per_unit of a record.
    """
    if n_rows is None or unit is None:
        return n_rows
    return max(1, round(n_rows / max_rows_per_unit))


# ---- Open a fit's table, infer missing schema entries privately, and read the records
#
# Column names are taken as public. Types, ranges, categories, labels and (under
# add-remove) the number of rows are not. A type is not public because a library that
# reads a file guesses it from the cells, so a single cell may decide it.


ROWS = 65_536
SCHEMA_IS_PUBLIC = "Everything in the schema is public."
#: What is assumed of a query, which is computed again each time the table is read.
QUERY_IS_STABLE = "The query returns the same rows, in any order, each time it is read."
#: Placeholders for entries to infer. A column of KIND may turn out to be numeric, with
#: a range, or categorical, with levels.
KIND, RANGE, LEVELS = "kind", "range", "levels"
#: Stand-ins for a target that is not inferred yet, so that its loss can be checked.
TYPICAL: dict[str, Target] = {RANGE: Numeric(0, 1), LEVELS: Categorical([0, 1])}
#: The only level of a column whose categories were all too rare to be released.
NOTHING_FOUND = "(nothing found)"


@dataclass(kw_only=True, eq=False, repr=False)
class OpenedTable:
    """A table, the known part of its schema, and the entries that must be inferred.

    Attributes
    ----------
    columns : dict
        Description of each column, or KIND or LEVELS if it must be inferred.
    target : Numeric, Categorical, (name, description), RANGE or LEVELS
        Description of the target, or RANGE or LEVELS if it must be inferred.
    row_norm : float, optional
        As in `Schema`.
    ids : Ids, optional
        The ids that identify persons, if privacy protects persons.
    named : bool
        Whether the table itself names its columns.
    assumptions : tuple of str
        The facts that are taken as public.
    table : table
        The table, as `skdp.estimators.opening.accept_table` returns it.
    y : column or str, optional
        The target as it was passed to ``fit``, if it was.
    source : Source
        The reader of the table.
    weights : column, str or Exposure, optional
        The weights of rows, if they were passed to ``fit``.
    max_rows_per_unit : int
        As for estimators.
    stages : list of (str, list of str or None)
        The stages of inference. Each says what is inferred and for which columns. None
        in place of column names means the target. A column of unknown kind is also part
        of the stage LEVELS, because it may turn out to have levels.
    infers_levels : bool
        Whether levels may have to be inferred, which spends a part of δ.
    infers_target : bool
        Whether the target's range or labels are to be inferred.
    typical_target : Target
        The target's description, or a stand-in if it must be inferred.
    schema : Schema, optional
        The schema, or None if any entry must be inferred.
    unit, unit_name : optional
        The unit, as in `Schema`, and its columns in one text. None if privacy protects
        rows.
    """

    columns: dict[str, Any]
    target: Any
    row_norm: float | None
    ids: Ids | None
    named: bool
    assumptions: tuple[str, ...]
    table: Any
    y: Any
    source: Source
    weights: Any = None
    max_rows_per_unit: int = 1
    stages: list[tuple[str, list[str] | None]] = field(init=False)
    infers_levels: bool = field(init=False)
    infers_target: bool = field(init=False)
    typical_target: Any = field(init=False)
    schema: Schema | None = field(init=False, default=None)
    unit: Any = field(init=False)
    unit_name: str | None = field(init=False)

    def __post_init__(self) -> None:
        kinds = [name for name, c in self.columns.items() if _is(c, KIND)]
        levels = [name for name, c in self.columns.items() if _is(c, LEVELS)]
        self.stages = [(KIND, kinds)] if kinds else []
        self.stages += [(RANGE, None)] if _is(self.target, RANGE) else []
        self.stages += [(LEVELS, kinds + levels)] if kinds + levels else []
        self.stages += [(LEVELS, None)] if _is(self.target, LEVELS) else []
        self.infers_levels = any(what == LEVELS for what, _ in self.stages)
        self.infers_target = isinstance(self.target, str)
        target = self.target[1] if isinstance(self.target, tuple) else self.target
        self.typical_target = TYPICAL[target] if self.infers_target else target
        self.unit = None if self.ids is None else self.ids.unit
        self.unit_name = None if self.ids is None else self.ids.name
        if not self.stages:
            self.schema = self._make_schema(self.columns, self.target)

    def _make_schema(self, columns: Any, target: Any) -> Schema:
        return Schema(columns, target=target, row_norm=self.row_norm, unit=self.unit)

    @cached_property
    def row_counts(self) -> RowCounts | None:
        """The number of rows of each person, or None if there is no unit.

        It is counted when it is first needed, because that reads records. Unless their
        number is public, this must happen after the ledger is charged.
        """
        if self.ids is None:
            return None
        least = RowCounts(self.max_rows_per_unit).least
        if isinstance(self.table, PlacedTable):
            return self.table.count_rows_per_unit(self.ids, least)
        return self.ids.count(self.source, least)

    def check_once(self, *reads: str, counts: bool = False) -> None:
        """Refuse a table that can be read only once if it must be read again.

        Parameters
        ----------
        *reads : str
            What the caller reads the table for, apart from the schema's entries, which
            are inferred, and the ids of persons, which are counted.
        counts : bool
            Whether a pass counts the rows first.
        """
        listed = ["the rows of each person"] if self.ids is not None else []
        listed += ["the number of rows"] if counts and not listed else []
        listed += ["the schema" for _ in self.stages]
        listed += reads
        check(
            not self.source.once or len(listed) <= 1,
            "This stream can be read only once, but is needed for "
            f"{' and for '.join(dict.fromkeys(listed))}. Pass a query that can be "
            "computed again, the path of a file, or reader.read_all().",
        )

    def count_records(self, verbose: int = 0) -> int:
        """Count the rows, or the persons if there is a unit.

        Use this only if `neighbours` makes their number public.
        """
        if self.ids is not None:
            return len(self.row_counts or ())
        shown = verbose if self.source.n_rows is None else 0
        with show_work("counting rows", shown):
            return count_rows(self.source)

    def read(self, schema: Schema, **options: Any) -> Records:
        """Read and encode the records. The options are those of `read_records`."""
        return read_records(
            self.table,
            schema,
            target=self.y,
            sample_weight=self.weights,
            unit=self.ids,
            row_counts=self.row_counts,
            **options,
        )

    def infer_schema(
        self,
        record: PrivacyRecord,
        share: float,
        noise: Randomness,
        part: float = 1.0,
    ) -> Schema:
        """Infer missing schema entries within a share of the privacy budget.

        This costs at most `share` of the budget (of μ²). If categories or labels are
        inferred, it also costs at most `share` · `part` of δ.
        """
        counts, stages = self.row_counts, self.stages
        each = record.budget * share / max(len(stages), 1)
        z = 0.0 if each == math.inf else 1.0 / math.sqrt(each)
        n_levels = sum(what == LEVELS for what, _ in stages)
        known, target = dict(self.columns), self.target
        for what, names in stages:
            found: dict[str, Any]
            if what == LEVELS and names is not None:
                names = [name for name in names if _is(known[name], LEVELS)]
                if not names:
                    continue
            some = ["target"] if names is None else names
            paid = some, z, noise, record, counts is not None
            if what == KIND:
                cells = self._read(names, magnitudes, counts)
                bounds, worded = discovery.release_ranges_and_texts(cells, *paid)
                found = {
                    name: LEVELS if name in worded else Numeric(*pair)
                    for name, pair in bounds.items()
                }
            elif what == RANGE:
                cells = self._read(names, numbers, counts)
                bounds = discovery.release_ranges(cells, *paid)
                found = {name: Numeric(*pair) for name, pair in bounds.items()}
            else:
                delta = record.delta * share * part / n_levels
                cells = self._read(names, keys, counts)
                texts = discovery.release_levels(
                    cells, some, z, delta, noise, record, counts is not None
                )
                found = {n: Categorical(t or [NOTHING_FOUND]) for n, t in texts.items()}
            if names is not None:
                known |= found
            elif what == RANGE:
                target = found["target"]
            else:
                target = type_labels(found["target"])
        return self._make_schema(known, target)

    def _read(
        self,
        names: list[str] | None,
        typed: Callable[[Any], Any],
        counts: RowCounts | None,
    ) -> Any:
        """Read the named columns once, or the target if `names` is None.

        The divisors of rows come from the ids in the same batch.
        """
        read = partial(
            read_cells,
            names=names,
            typed=typed,
            every=list(self.columns),
            ids=self.ids,
            rows=ROWS,
        )
        if isinstance(self.table, PlacedTable):
            return PlacedCells(self.table, read, counts)
        return read(self.table, self.y, counts)


def _is(column: Any, what: str) -> bool:
    return isinstance(column, str) and column == what


def open_table(
    X: Any,
    y: Any,
    *,
    schema: Schema | str | PathLike[str] | None,
    bounds: Any = None,
    target: Any = None,
    unit: Any = None,
    sample_weight: Any = None,
    max_rows_per_unit: int = 1,
    empty: bool = True,
    categorical: Sequence[str] | None = None,
) -> OpenedTable:
    """Open a table and collect its public description, without reading a cell.

    Parameters
    ----------
    X, y : table and column
        As given to ``fit``.
    schema : Schema or path, optional
        The description of the columns, with or without the target.
    bounds : pair of floats or of arrays, optional
        Ranges of the columns. For a sparse matrix, the second number is the bound on
        the norm of a row.
    target : Numeric, Categorical, RANGE or LEVELS
        The target's description, used if the schema has none.
    unit : str, list of str or column, optional
        The columns that identify persons, or their ids. By default, the schema's unit.
    sample_weight : column, str or Exposure, optional
        The weights.
    max_rows_per_unit : int
        As for estimators.
    empty : bool
        Whether the table may have no rows.
    categorical : sequence of str, optional
        Columns whose cells are categories, if the whole schema is to be discovered. The
        target is then one of the columns of `X`.
    """
    sample_weight = accept_column(sample_weight, "sample_weight")
    X, y, named = accept_table(X, empty=empty), accept_column(y), has_names(X)
    schema = toml_files.accept_schema(schema)
    if isinstance(y, str):
        schema, y = name_target(schema, y, target), None
    target_cells = None if y is None else readers.read_column(y, "target")
    if unit is None and schema is not None:
        unit = schema.unit
    ids = None if unit is None else Ids.of(unit)
    columns_of_ids = [] if ids is None else ids.columns
    opened = partial(
        OpenedTable,
        table=X,
        y=y,
        ids=ids,
        weights=sample_weight,
        max_rows_per_unit=max_rows_per_unit,
    )
    separate = {"y": target_cells, "unit": None if ids is None else ids.given}
    separate |= list_weights(sample_weight)
    # Columns that stay with rows in other processes have been joined with them there.
    here = {what: cells for what, cells in separate.items() if _is_read_here(cells)}
    if schema is not None:
        source = readers.open_source(X, [*schema.inputs, *columns_of_ids])
        check_columns(source, here)
        own = [schema.target_name] if y is None and schema.target_name else []
        if source.names is not None:  # refuse names that the table does not have
            find_positions(source.names, [*schema.inputs, *columns_of_ids, *own])
        refuse_floats(source, ids)
        warn_of_floats(source, schema)
        refuse_dates(X, source, [*schema.inputs, schema.target_name])
        described = schema.target
        check(
            y is not None or schema.target_name is not None,
            "The target is missing. Pass y, or name its column in the schema.",
        )
        check(bounds is None, "Pass either a schema or bounds, not both.")
        ignored = described is not None and not isinstance(target, str | None)
        check(
            not ignored or sort_target(target) == sort_target(schema.target_column),
            "classes and target_bounds must be those of the schema's target. Leave "
            "them out, because the schema describes the target.",
        )
        refuse_encoded_labels(y, target if described is None else described)
        return opened(
            columns=dict(schema.columns),
            target=sort_target(target if described is None else described),
            row_norm=schema.row_norm,
            named=source.names is not None and named,
            assumptions=(SCHEMA_IS_PUBLIC,),
            source=source,
        )
    discovers = categorical is not None
    check(
        discovers or y is not None,
        "fit requires y to be passed, but the target y is None and no schema names "
        "its column.",
    )
    check(
        discovers or not readers.is_text_file(X),
        "A text file does not state the types of its columns. Pass a schema. "
        "skdp.schema_template writes a template, and skdp.discover finds a schema.",
    )
    source = readers.open_source(X)
    check(
        not discovers or source.names is not None,
        "A schema needs column names. Pass a frame, a dict of columns or a file.",
    )
    check_columns(source, here)
    names = source.names or [f"x{i}" for i in range(len(source.kinds))]
    for name in categorical or ():
        check_name(name, names)
    find_positions(names, columns_of_ids)  # refuses names that the table does not have
    refuse_floats(source, ids)
    refuse_encoded_labels(y, target)
    kinds = zip(names, source.kinds, strict=True)
    levels = {*(categorical or ()), *(n for n, kind in kinds if "category" in kind)}
    columns: dict[str, Any] = {}
    if hasattr(X, "tocsr"):
        columns["x"] = Vector(names, norm=1.0 if bounds is None else float(bounds[1]))
    else:
        ranges = zip(names, list_ranges(bounds, len(names)), strict=True)
        for name, pair in ranges:
            known: Any = KIND if pair is None else Numeric(*pair)
            columns[name] = LEVELS if name in levels else known
        columns = {n: known for n, known in columns.items() if n not in columns_of_ids}
        refuse_dates(X, source, [*columns])
    public = describe_public(bool(levels), bounds is not None)
    return opened(
        columns=columns,
        target=sort_target(target),
        row_norm=None,
        named=source.names is not None and named,
        assumptions=(public,),
        source=source,
    )


def describe_public(categories: bool, bounds: bool) -> str:
    """Return the assumption of a fit without a schema, in one sentence."""
    public = ["Column names"]
    public += ["the list of categorical columns"] if categories else []
    public += ["the bounds given"] if bounds else []
    given = " and ".join([", ".join(public[:-1]), public[-1]] if public[1:] else public)
    return f"{given} are public."


def _is_read_here(cells: Any) -> bool:
    return not (cells is None or isinstance(cells, PlacedColumn))


def read_records(
    table: Any,
    schema: Schema,
    *,
    target: Any,
    sample_weight: Any,
    class_weight: Any,
    intercept: bool,
    max_weight: float,
    verbose: int,
    unit: Any = None,
    row_counts: RowCounts | None = None,
    n_threads: int | None = None,
) -> Records:
    """Read and encode a table. Records that outgrow memory are kept in a file."""
    read = partial(
        read_rows,
        schema=schema,
        class_weight=scale_class_weights(class_weight, schema, max_weight),
        intercept=intercept,
        max_weight=max_weight,
        unit=unit,
    )
    if isinstance(table, PlacedTable):
        weighted, layout = sample_weight is not None, schema.layout(intercept)
        return table.encode(layout, max_weight, read, weighted, row_counts)
    with show_work("reading", verbose):
        return read(
            table, target, sample_weight, row_counts=row_counts, n_threads=n_threads
        )


# ---- Ask for a budget, charge it to a ledger, and say what an interrupted fit spent


#: Called with the model at the end of a fit, to record the model in the ledger.
EnterModel = Callable[[Any], None]


def open_ledger(ledger: Any, epsilon: float, random_state: Any) -> Ledger | None:
    """Return the ledger that a fit must charge, or None if `ledger` is None.

    A path must be absolute, because processes that fit at the same time may run in
    different folders.
    """
    if ledger is None:
        return None
    refuse_unpaid(epsilon, random_state is not None)
    if isinstance(ledger, Ledger):
        return ledger
    check(
        isinstance(ledger, (str, os.PathLike)) and os.path.isabs(ledger),
        f"ledger must be a Ledger or the absolute path of one, got {ledger!r}. "
        "skdp.Ledger(path) resolves a relative path.",
    )
    return Ledger(ledger)


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyRequest:
    """What a caller asks for and who pays: a budget, a relation and a ledger.

    Every function that reads private records makes a request first, and follows the
    same steps. It opens the table, counts the records if their number is public, opens
    a privacy record, reserves the budget, and only then reads the records. What is
    public and wrong is refused in the first of these steps that can tell.

    Attributes
    ----------
    epsilon, delta, neighbours, n_rows, max_rows_per_unit, solver, calibration : any
        As for estimators.
    ledger : Ledger, optional
        The ledger to charge. Its path may be given instead.
    random_state : any
        As for estimators. A ledger refuses seeded runs.
    """

    epsilon: float
    delta: float | None
    neighbours: str
    n_rows: int | None = None
    max_rows_per_unit: int = 1
    solver: str = OWN
    calibration: str = "exact"
    ledger: Any = None
    random_state: Any = None

    def __post_init__(self) -> None:
        check_budget_types(self.epsilon, self.delta)
        check(
            self.n_rows is None or isinstance(self.n_rows, Real),
            f"n_rows must be a number or None, got {self.n_rows!r}.",
        )
        book = open_ledger(self.ledger, self.epsilon, self.random_state)
        object.__setattr__(self, "ledger", book)

    def open(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        unit: Any,
        *,
        engine: str,
        n_threads: int | None,
        **described: Any,
    ) -> tuple[OpenedTable, MakeEngine]:
        """Open a table where it will be read, and return it with a maker of its engine.

        No cell is read. The other arguments are those of the function `open_table`.
        """
        if n_threads is not None:
            check_integer(n_threads, "n_threads")
        given = X, y, sample_weight, unit
        X, y, sample_weight, unit, make_engine = place_table(*given, engine, n_threads)
        opened = open_table(
            X,
            y,
            sample_weight=sample_weight,
            unit=unit,
            max_rows_per_unit=self.max_rows_per_unit,
            **described,
        )
        self.check_unit(opened.ids)
        if not (opened.source.ordered or opened.source.once):
            opened.assumptions += (QUERY_IS_STABLE,)
        return opened, make_engine

    def check_unit(self, unit: Any) -> None:
        """Refuse options under which a person could count as more than one record."""
        check_unit(
            unit,
            solver=self.solver,
            max_rows_per_unit=self.max_rows_per_unit,
            neighbours=self.neighbours,
        )

    def count_public(self, opened: OpenedTable, verbose: int = 0) -> int | None:
        """Return the number of rows or persons, or None if it is private.

        Under add-remove it is public only if it was given. It is counted under the
        other relations, where it is public.
        """
        if self.neighbours == "add-remove":
            return count_given(self.n_rows, opened.ids, self.max_rows_per_unit)
        return opened.count_records(verbose)

    def choose_delta(self, n_records: int | None) -> float:
        """Return δ for a public number of records, and refuse a meaningless budget."""
        delta = default_delta(n_records) if self.delta is None else self.delta
        check_budget(self.epsilon, delta, n_records or None)
        check_calibration(self.calibration, self.epsilon, delta)
        return delta

    def open_record(
        self,
        n_records: int | None,
        unit: str | None,
        assumptions: Sequence[str],
        delta_share: float = 0.0,
    ) -> PrivacyRecord:
        """Return a new privacy record, without charges.

        Parameters
        ----------
        n_records : int, optional
            The number of rows or persons, if it is public.
        unit : str, optional
            The name of the unit.
        assumptions : sequence of str
            What is assumed to be public, apart from the given number of records.
        delta_share : float
            The share of δ that is set aside for releases that are not Gaussian.
        """
        delta = self.choose_delta(n_records)
        count = assume_given_count(self.n_rows, self.neighbours, unit)
        return PrivacyRecord(
            epsilon=self.epsilon,
            delta=delta,
            neighbours=self.neighbours,  # type: ignore[arg-type]  # checked inside
            assumptions=(*assumptions, *count),
            reserved_delta=delta * delta_share,
            unit=unit,
        )


@contextmanager
def reserve_budget(
    record: PrivacyRecord, ledger: Ledger | None, *, query: str, described: Any
) -> Iterator[EnterModel]:
    """Reserve a fit's budget in the ledger, and settle the reservation afterwards.

    If the fit raises an error, a note in the error says what was spent. Releases are
    charged before noise is drawn, so neither the ledger nor the note understates what
    was spent. Both contain only public and released facts. Floating-point errors are
    ignored inside the ``with`` block. Otherwise the caller's ``np.seterr`` could turn
    the underflow of a cell into an error or a warning.
    """
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))
        reservation = None
        if ledger is not None:
            paid = ledger.spend(record, query=query, schema=described)
            reservation = stack.enter_context(paid)

        def enter_model(model: Any) -> None:
            from skdp.estimators.saving import model_digest  # which imports this file

            if reservation is not None:
                reservation.plan = plan_digest(model.plan_)
                looked = model.profile_
                reservation.schema = model.schema_ if looked is None else looked.limits
                reservation.released = model_digest(model, record)

        try:
            yield enter_model
        except BaseException as stop:
            if record.events:
                stop.add_note(f"Spent before the fit stopped:\n{record}")
            raise
