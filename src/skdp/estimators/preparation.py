"""Open a fit's table, infer missing schema entries privately, and read the records.

Column names are taken as public. Types, ranges, categories, labels and (under
add-remove) the number of rows are not. A type is not public because a library that
reads a file guesses it from the cells, so a single cell may decide it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from skdp.estimators.balanced import scale_class_weights
from skdp.estimators.display import show_work
from skdp.estimators.inputs import (
    accept_column,
    accept_table,
    has_names,
    list_ranges,
    name_target,
    refuse_dates,
    warn_of_floats,
)
from skdp.estimators.labels import sort_target, type_labels
from skdp.privacy import discovery
from skdp.privacy.budget import PrivacyRecord
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
    toml_files,
)
from skdp.tables import readers
from skdp.tables.batches import check_columns, list_weights, read_cells
from skdp.tables.cells import numbers
from skdp.tables.encoder import read_rows
from skdp.tables.ids import Ids, refuse_floats
from skdp.tables.keys import keys, magnitudes
from skdp.tables.placed import PlacedCells, PlacedColumn, PlacedTable
from skdp.tables.readers import Source, count_rows, find_positions

ROWS = 65_536
TEXT_FILES = (".csv", ".tsv")
SCHEMA_IS_PUBLIC = "Everything in the schema is public."
#: Placeholders for entries to infer. A column of KIND may turn out to be numeric, with
#: a range, or categorical, with levels.
KIND, RANGE, LEVELS = "kind", "range", "levels"
#: Stand-ins for a target that is not inferred yet, so that its loss can be checked.
TYPICAL: dict[str, Target] = {RANGE: Numeric(0, 1), LEVELS: Categorical([0, 1])}
#: The only level of a column whose categories were all too rare to be released.
NOTHING_FOUND = "(nothing found)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
        The table, as `skdp.estimators.inputs.accept_table` returns it.
    y : column or str, optional
        The target as it was passed to ``fit``, if it was.
    source : Source
        The reader of the table.
    apart : cells, optional
        The cells of `y`.
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
    apart: Any

    @property
    def stages(self) -> list[tuple[str, list[str] | None]]:
        """The stages of inference. Each says what is inferred and for which columns.

        None in place of column names means the target. A column of unknown kind is also
        part of the stage LEVELS, because it may turn out to have levels.
        """
        kinds = [name for name, c in self.columns.items() if _is(c, KIND)]
        levels = [name for name, c in self.columns.items() if _is(c, LEVELS)]
        stages: list[tuple[str, list[str] | None]] = [(KIND, kinds)] if kinds else []
        stages += [(RANGE, None)] if _is(self.target, RANGE) else []
        stages += [(LEVELS, kinds + levels)] if kinds + levels else []
        return stages + ([(LEVELS, None)] if _is(self.target, LEVELS) else [])

    @property
    def infers_levels(self) -> bool:
        """Whether levels may have to be inferred, which spends a part of δ."""
        return any(what == LEVELS for what, _ in self.stages)

    @property
    def infers_target(self) -> bool:
        """Whether the target's range or labels are to be inferred."""
        return isinstance(self.target, str)

    @property
    def schema(self) -> Schema | None:
        """The schema, or None if any entry must be inferred."""
        if self.stages:
            return None
        return self._make_schema(self.columns, self.target)

    @property
    def unit(self) -> Any:
        """The unit, as in `Schema`, or None if privacy protects rows."""
        return None if self.ids is None else self.ids.unit

    @property
    def unit_name(self) -> str | None:
        """The unit's columns in one text, or None if privacy protects rows."""
        return None if self.ids is None else self.ids.name

    def _make_schema(self, columns: Any, target: Any) -> Schema:
        return Schema(columns, target=target, row_norm=self.row_norm, unit=self.unit)

    @property
    def typical_target(self) -> Target:
        """The target's description, or a stand-in if it must be inferred."""
        target = self.target[1] if isinstance(self.target, tuple) else self.target
        known: Target = TYPICAL[target] if isinstance(target, str) else target
        return known

    def count_rows(self, verbose: int = 0) -> int:
        """Count the rows. Use this only if `neighbours` makes their number public."""
        shown = verbose if self.source.n_rows is None else 0
        with show_work("counting rows", shown):
            return count_rows(self.source)

    def infer_schema(
        self,
        record: PrivacyRecord,
        share: float,
        noise: Randomness,
        counts: RowCounts | None = None,
        part: float = 1.0,
    ) -> Schema:
        """Infer missing schema entries within a share of the privacy budget.

        This costs at most `share` of the budget (of μ²). If categories or labels are
        inferred, it also costs at most `share` · `part` of δ.
        """
        check(
            (counts is None) == (self.ids is None),
            "counts must be given if, and only if, there is a unit.",
        )
        stages = self.stages
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

    def count_rows_per_unit(self, max_rows_per_unit: int) -> RowCounts | None:
        """Count the rows of each person, or return None if there is no unit."""
        least = RowCounts(max_rows_per_unit).least
        if self.ids is None:
            return None
        if isinstance(self.table, PlacedTable):
            return self.table.count_rows_per_unit(self.ids, least)
        return self.ids.count(self.source, least)

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
    bounds: Any,
    target: Any,
    unit: Any = None,
    sample_weight: Any = None,
    empty: bool = True,
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
        The weights. They are only checked.
    empty : bool
        Whether the table may have no rows.
    """
    X, y, named = accept_table(X, empty=empty), accept_column(y), has_names(X)
    check(
        type(X).__name__ != "RecordBatchReader",
        "A RecordBatchReader can be read only once, but a fit may read its table more "
        "than once. Pass reader.read_all() or a Parquet file.",
    )
    schema = toml_files.accept_schema(schema)
    if isinstance(y, str):
        schema, y = name_target(schema, y, target), None
    apart = None if y is None else readers.read_column(y, "target")
    if unit is None and schema is not None:
        unit = schema.unit
    ids = None if unit is None else Ids.of(unit)
    columns_of_ids = [] if ids is None else ids.columns
    opened = partial(OpenedTable, table=X, y=y, apart=apart, ids=ids)
    separate = {"y": apart, "unit": None if ids is None else ids.given}
    separate |= list_weights(sample_weight)
    # Columns that stay with rows in other processes have been joined with them there.
    here = {what: cells for what, cells in separate.items() if _is_read_here(cells)}
    if schema is not None:
        source = readers.open_table(X, [*schema.inputs, *columns_of_ids])
        check_columns(source, here)
        refuse_floats(source, ids)
        warn_of_floats(source, schema)
        refuse_dates(X, source, [*schema.inputs, schema.target_name])
        own = [schema.target_name] if y is None and schema.target_name else []
        if source.names is not None:  # refuse names that the table does not have
            find_positions(source.names, [*schema.inputs, *columns_of_ids, *own])
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
        return opened(
            columns=dict(schema.columns),
            target=sort_target(target if described is None else described),
            row_norm=schema.row_norm,
            named=source.names is not None and named,
            assumptions=(SCHEMA_IS_PUBLIC,),
            source=source,
        )
    check(
        y is not None,
        "fit requires y to be passed, but the target y is None and no schema names "
        "its column.",
    )
    check(
        not isinstance(X, (str, PathLike)) or Path(X).suffix.lower() not in TEXT_FILES,
        "A text file does not state the types of its columns. Pass a schema. "
        "skdp.schema_template writes a template, and skdp.discover finds a schema.",
    )
    source = readers.open_table(X)
    check_columns(source, here)
    names = source.names or [f"x{i}" for i in range(len(source.kinds))]
    find_positions(names, columns_of_ids)  # refuses names that the table does not have
    refuse_floats(source, ids)
    refuse_dates(X, source, names)
    columns: dict[str, Any] = {}
    if hasattr(X, "tocsr"):
        columns["x"] = Vector(names, norm=1.0 if bounds is None else float(bounds[1]))
    else:
        pairs = list_ranges(bounds, len(names))
        for name, kind, pair in zip(names, source.kinds, pairs, strict=True):
            if name in columns_of_ids:
                continue
            known: Any = KIND if pair is None else Numeric(*pair)
            columns[name] = LEVELS if kind == "category" else known
    public = describe_public("category" in source.kinds, bounds is not None)
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
