"""Read a table in batches, in which rows stay together with what belongs to them.

A batch has the cells of some rows, their targets and weights, and the divisors of
the persons they belong to. All of them come from one read of the table. Rows are never
matched by their position in two reads.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skdp.privacy.encoding import AnyArray, Batch, Coded
from skdp.privacy.persons import RowCounts
from skdp.schema import (
    Categorical,
    FloatArray,
    InputError,
    IntArray,
    Pair,
    Schema,
    Vector,
    check,
    level_key,
    limit_codes,
)
from skdp.schema.products import Product
from skdp.schema.validation import fact
from skdp.tables import readers
from skdp.tables.cells import Levels, codes, numbers, stored_numbers
from skdp.tables.ids import Ids, find_ids
from skdp.tables.in_order import count_threads, map_in_order
from skdp.tables.readers import Cells, Source, find_positions

# ---- Define exposures, which are sample weights that counts are divided by


#: Offsets (logarithms of exposures) are clipped to plus or minus this number.
FARTHEST = 300.0


@dataclass(frozen=True, eq=False, repr=False)
class Exposure:
    """Sample weights that the target is divided by, such as years under observation.

    A count y over an exposure e has the same Poisson likelihood, up to a constant, as
    the rate y/e with weight e. A row whose exposure is not a positive number has weight
    zero.

    Attributes
    ----------
    weights : column or str
        The exposures, or the name of their column.
    logarithms : bool
        Whether `weights` holds offsets, which are logarithms of exposures.
    """

    weights: Any
    logarithms: bool = False
    #: The word for the column in messages, "offset" or "exposure".
    role: str = fact()

    def __post_init__(self) -> None:
        vars(self).update(role="offset" if self.logarithms else "exposure")


def divide_counts(
    counts: FloatArray, given: FloatArray, role: str
) -> tuple[FloatArray, FloatArray]:
    """Return counts divided by their exposures, and the exposures as weights.

    `given` holds the exposures, or their logarithms if `role` is "offset".
    """
    if role == "offset":  # no real offset reaches the limits, which avoid overflow
        given = np.exp(np.clip(given, -FARTHEST, FARTHEST))
    positive = np.isfinite(given) & (given > 0)
    weights = np.where(positive, given, 0.0)
    rates = np.where(positive, counts / np.where(positive, given, 1.0), np.nan)
    return rates, weights


# ---- Read a table in batches, for `skdp.privacy.encoding.encode`


UNIT = "unit"
"""The role of the ids that identify persons."""

#: A slice of a table: the position of its first row, the cells of each input, and the
#: cells of each role (target, weights, ids).
Cut = tuple[int, list[Cells], dict[str, Cells]]

#: Largest numbers of rows and of cells of a batch, and of cells of a Vector, for tables
#: in memory, for those of which each batch is a copy, and for files. In long batches,
#: threads wait for each other less often. Files get shorter batches, because their
#: tables may be too large for the memory.
_MOST_IN_MEMORY = 1 << 21, 1 << 24, 1 << 22
_MOST_OF_COPY = 1 << 20, 1 << 22, 1 << 22
_MOST_OF_FILE = 1 << 18, 1 << 21, 1 << 21
#: A table in memory is cut into batches of equal size, so that each thread gets the
#: same number of batches, unless they would have fewer rows and cells than these.
_LEAST_ROWS, _LEAST_CELLS = 1 << 18, 1 << 21


def batches(
    table: Any,
    schema: Schema,
    *,
    target: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[Any, float] | None = None,
    unit: Any = None,
    row_counts: RowCounts | None = None,
    batch_rows: int | None = None,
    n_threads: int | None = None,
    keep: AnyArray | None = None,
    finish: Callable[[Batch], Any] | None = None,
) -> Iterator[Any]:
    """Read a table in batches.

    Parameters
    ----------
    table : frame, table, mapping, array, sparse matrix or path
        A pandas or polars DataFrame, a polars LazyFrame, a pyarrow Table, RecordBatch,
        Dataset or RecordBatchReader (or anything else that exports an Arrow stream), a
        dict of columns, a numpy or scipy sparse matrix whose columns are
        ``schema.inputs`` in this order, or the path of CSV, Parquet or Feather files.
    schema : Schema
        Public facts about the table. If it has no target, the batches have none.
    target : array, series, list or str, optional
        The target if it is separate from the table, or the name of its column. The
        default is the column that the schema names.
    sample_weight : array, series, list, str or Exposure, optional
        Weight of each row, or the name of the column that holds it.
    class_weight : mapping of level to float, optional
        Factor by which the weights of a class are multiplied. Classes that are not
        listed have factor 1.
    unit : array, series, str, list of str or Ids, optional
        The ids of the persons, or the names of the columns that hold them. The default
        is the unit of the schema.
    row_counts : RowCounts, optional
        The number of rows of each person. By default the rows are counted first, which
        reads the columns of the unit once more.
    batch_rows : int
        Largest number of rows of a batch. By default it is 2¹⁸, or 2²¹ if the table is
        in memory. Batches of wide tables have fewer rows.
    n_threads : int, optional
        The number of threads that convert cells. By default it is the number of cores.
    keep : bool array, optional
        Whether to keep each row of the table. By default all rows are kept.
    finish : callable, optional
        Called with each batch, by the thread that made the batch.

    Returns
    -------
    iterator of Batch, or of the results of `finish`
        The batches, with rows in the order of the table. Mistakes that can be found
        without reading a row raise an error at once.

    Notes
    -----
    The numbers and categories of each row of a batch depend only on the same row of the
    table. Cells never affect errors or warnings. `skdp.tables.cells` defines the
    meaning of a cell, and `skdp.tables.csv` defines what a record of a CSV file is. The
    library that made a table may already have changed cells. For example, a single cell
    may have changed the type of a whole column. Such changes are undone where possible.
    To avoid them, pass the path of a file.
    """
    # The sizes of batches change memory and time, but no result, because sums are exact
    # in every order.
    in_memory = readers.is_in_memory(table)
    limits = _MOST_OF_FILE
    if in_memory:
        limits = _MOST_OF_COPY if readers.is_copied(table) else _MOST_IN_MEMORY
    most_rows, most_cells, most_wide = limits
    batch_rows = most_rows if batch_rows is None else batch_rows
    check(batch_rows >= 1, f"batch_rows must be at least 1, got {batch_rows}.")
    levels = _find_levels(schema)
    named, apart = _find_roles(schema, target, sample_weight)
    ids = None if schema.unit is None else Ids.of(schema.unit if unit is None else unit)
    check(unit is None or ids is not None, "unit= requires a unit in the schema.")
    if ids is not None and ids.given is not None:
        apart[UNIT] = ids.given
    elif ids is not None:
        named |= {f"{UNIT} {name}": name for name in ids.columns}
    wanted = [*schema.inputs, *named.values()]
    source = readers.open_source(table, wanted)
    at = _find_positions(source, schema, named)
    check_columns(source, apart)
    factors = None if class_weight is None else _read_factors(class_weight, schema)
    if ids is not None and row_counts is None:
        # All rows of a person must be counted before the first one is divided by the
        # count, which takes a pass of its own over the ids.
        row_counts = ids.count(source)
    vectors = [c for c in schema.columns.values() if isinstance(c, Vector)]
    widest = max((len(vector.names) for vector in vectors), default=1)
    most_rows = min(most_cells // max(1, len(at)), most_wide // widest)
    rows = max(1, min(batch_rows, most_rows))
    if in_memory and source.n_rows is not None:
        least = min(_LEAST_ROWS, _LEAST_CELLS // max(1, len(at)))
        rows = _balance(source.n_rows, least, rows, count_threads(n_threads))
        n_threads = 1 if source.n_rows <= rows else n_threads
    convert = partial(
        _make_batch,
        schema=schema,
        levels=levels,
        factors=factors,
        row_counts=row_counts,
    )

    def work(cut: Cut) -> Any:
        start, inputs, roles = cut
        batch = convert(inputs, roles)
        if keep is not None:
            stop = start + readers.count_cells(inputs[0])
            batch = _keep_rows(batch, np.flatnonzero(keep[start:stop]))
        return batch if finish is None else finish(batch)

    n_inputs = len(schema.inputs)
    return map_in_order(work, _cut(source, at, n_inputs, named, apart, rows), n_threads)


def _balance(n_rows: int, least: int, most: int, n_threads: int) -> int:
    """Return how long batches are if all threads get the same number of them."""
    turns = max(1, -(-n_rows // (most * n_threads)))
    return min(most, max(least, -(-n_rows // (turns * n_threads))))


def _keep_rows(batch: Batch, at: AnyArray) -> Batch:
    return Batch(
        columns={name: readers.cut(c, at) for name, c in batch.columns.items()},
        target=None if batch.target is None else readers.cut(batch.target, at),
        weight=None if batch.weight is None else batch.weight[at],
        divisor=None if batch.divisor is None else batch.divisor[at],
    )


def _find_roles(
    schema: Schema, target: Any, sample_weight: Any
) -> tuple[dict[str, str], dict[str, Cells]]:
    """Find out where the target and the sample weights come from.

    Return the names of those that are columns of the table, and the cells of those that
    were passed separately.
    """
    check(
        target is None or schema.target is not None,
        "The schema does not describe a target. Add one: target=... in Python, "
        "[target] in a TOML file.",
    )
    if target is None:
        target = schema.target_name
        check(
            schema.target is None or target is not None,
            "The schema does not name the target's column. Pass the target, or name it "
            'in the schema: target=(name, description) in Python, name = "..." under '
            "[target] in a TOML file.",
        )
    named: dict[str, str] = {}
    apart: dict[str, Cells] = {}
    role, weights = _name_weights(sample_weight)
    if isinstance(target, str):
        named["target"] = target
    elif target is not None:
        apart["target"] = readers.read_column(target, "target")
    if isinstance(weights, str):
        named[role] = weights
    return named, apart | list_weights(sample_weight)


def list_weights(sample_weight: Any) -> dict[str, Cells]:
    """Return the cells of weights that were passed separately, by their role."""
    role, weights = _name_weights(sample_weight)
    if weights is None or isinstance(weights, str):
        return {}
    return {role: readers.read_column(weights, role)}


def _name_weights(sample_weight: Any) -> tuple[str, Any]:
    if isinstance(sample_weight, Exposure):
        return sample_weight.role, sample_weight.weights
    return "sample_weight", sample_weight


def _find_positions(
    source: Source, schema: Schema, named: Mapping[str, str]
) -> list[int]:
    """Return the positions of the schema's columns, and then of the columns `named`."""
    if source.names is not None:
        return find_positions(source.names, [*schema.inputs, *named.values()])
    for what, name in named.items():
        check(
            False,
            f"The table is an array without column names, so {what} must be an array "
            f"too, got {name!r}.",
        )
    width, needed = len(source.kinds), len(schema.inputs)
    check(
        width == needed,
        f"An array must have the columns of the schema, in the same order. The number "
        f"of columns is {needed} in the schema, but {width} in the array.",
    )
    return list(range(width))


def _read_factors(class_weight: Mapping[Any, Any], schema: Schema) -> FloatArray:
    """Return the factor of each class, followed by that for rows of unknown class.

    Unknown classes count as the level `other`. If there is none, their factor is 1.
    """
    column = schema.target_column
    if not isinstance(column, Categorical):
        raise InputError("class_weight requires a categorical target.")
    check(
        isinstance(class_weight, Mapping),
        f"class_weight must be a mapping of levels to weights, got {class_weight!r}.",
    )
    factors = np.ones(len(column.levels) + 1)
    for level, weight in class_weight.items():
        key = level_key(level)
        close = difflib.get_close_matches(key, column.codes, 1)
        remedy = f" Did you mean {close[0]!r}?" if close else ""
        check(
            key in column.codes,
            f"Keys of class_weight must be the target's levels, got {level!r}.{remedy}",
        )
        check(
            isinstance(weight, int | float | np.number)
            and bool(0 <= weight < math.inf),
            f"class_weight must be finite and ≥ 0, got {weight} for {level!r}.",
        )
        factors[column.codes[key]] = weight
    # The last place is for classes that the schema does not list. Each cell must find a
    # factor, or an unlisted class would raise an error and give itself away.
    factors[-1] = factors[column.default_code]
    return factors


def _cut(
    source: Source,
    at: Sequence[int],
    n_inputs: int,
    named: Mapping[str, str],
    apart: Mapping[str, Cells],
    rows: int,
) -> Iterator[Cut]:
    """Yield consecutive slices of the table, with their target, weights and ids.

    This is the only place where rows meet what belongs to them. The columns at the
    positions `at`, first `n_inputs` inputs and then those `named`, come from one read.
    Columns that the caller passed `apart` are cut at the same rows, which
    `check_columns` allows only if the table has a fixed order.
    """
    start = 0
    for columns in source.read(at, rows):
        stop = start + readers.count_cells(columns[0])
        inputs, others = columns[:n_inputs], columns[n_inputs:]
        roles = dict(zip(named, others, strict=True))
        for what, column in apart.items():
            check_rows(readers.count_cells(column) >= stop, what)
            roles[what] = readers.cut(column, slice(start, stop))
        yield start, inputs, roles
        start = stop
    for what, column in apart.items():
        check_rows(readers.count_cells(column) == start, what)


@np.errstate(all="ignore")  # a cell's overflow must not become a warning
def _make_batch(
    inputs: Sequence[Cells],
    roles: Mapping[str, Cells],
    schema: Schema,
    levels: Mapping[str | None, Levels],
    factors: FloatArray | None,
    row_counts: RowCounts | None,
) -> Batch:
    """Convert the cells of a slice to a batch."""
    read = iter(inputs)
    columns: dict[str, AnyArray | Coded] = {}
    for key, column in schema.columns.items():
        if isinstance(column, Vector):
            columns[key] = np.column_stack([numbers(next(read)) for _ in column.names])
        elif not isinstance(column, (Pair, Product)):
            columns[key] = _convert(next(read), levels.get(key))
    columns |= _multiply(dict(zip(schema.inputs, inputs, strict=True)), schema, levels)
    target = _convert(roles["target"], levels.get(None)) if "target" in roles else None
    weight = numbers(roles["sample_weight"]) if "sample_weight" in roles else None
    exposed = {"exposure", "offset"} & set(roles)
    if exposed and isinstance(target, np.ndarray):
        (role,) = exposed
        target, weight = divide_counts(target, numbers(roles[role]), role)
    if factors is not None and isinstance(target, Coded):
        factor = factors.take(limit_codes(target.codes, len(factors) - 1))
        weight = factor if weight is None else factor * weight
    divisor = _find_divisors(roles, row_counts)
    return Batch(columns=columns, target=target, weight=weight, divisor=divisor)


def _multiply(
    cells: Mapping[str, Cells],
    schema: Schema,
    levels: Mapping[str | None, Levels],
) -> dict[str, AnyArray]:
    """Return the cells of the products, given those of the columns of the table."""
    made: dict[str, AnyArray] = {}
    read: dict[str, Any] = {}
    for key, column in schema.columns.items():
        if not isinstance(column, Product):
            continue
        for factor in column.factors:
            if factor.name not in read:
                given, own = cells[factor.name], levels.get(factor.name)
                read[factor.name] = (
                    numbers(given) if own is None else _convert(given, own)
                )
        made[key] = column.multiply(read)
    return made


def _convert(column: Cells, levels: Levels | None) -> AnyArray | Coded:
    """Convert a column to numbers, or to codes if the column has levels."""
    if levels is None:  # `encode` makes floats, of one column at a time
        return stored_numbers(column)
    return Coded(codes=codes(column, levels), values=levels.values)


def _find_divisors(
    roles: Mapping[str, Cells], row_counts: RowCounts | None
) -> IntArray | None:
    """Return the divisor of each row, by the ids in the same slice of the table."""
    if row_counts is None:
        return None
    own = [cells for what, cells in roles.items() if what.startswith(UNIT)]
    return row_counts.find_divisors(find_ids(own))


def read_cells(
    table: Any,
    y: Any,
    row_counts: RowCounts | None,
    *,
    names: Sequence[str] | None,
    typed: Callable[[Cells], Any],
    every: Sequence[str],
    ids: Ids | None,
    rows: int,
) -> Iterator[tuple[dict[str, Any], IntArray | None]]:
    """Read only the requested columns of a table, and convert them by `typed`.

    Parameters
    ----------
    table, y : table and column
        The table, and the target if it is separate from the table or has been named.
    row_counts : RowCounts, optional
        The number of rows of each person, if rows belong to persons.
    names : sequence of str, optional
        The columns to read. If it is None, read `y`, under the name "target".
    typed : callable
        A function that converts the cells of a column.
    every : sequence of str
        The names of all columns, for a table whose columns have no names.
    ids : Ids, optional
        The ids of the persons.
    rows : int
        The number of rows to read at a time.

    Returns
    -------
    iterator of (dict, array or None)
        The cells of each column, and the divisor of each row, some rows at a time.
    """
    wanted, named, apart = list(names or ()), {}, {}
    if names is None and isinstance(y, str):
        named["target"] = y
    elif names is None:
        apart["target"] = readers.read_column(y, "target")
    if ids is not None and ids.given is not None:
        apart[UNIT] = ids.given
    elif ids is not None:
        named |= {f"{UNIT} {name}": name for name in ids.columns}
    source = readers.open_source(table)
    known = every if source.names is None else source.names
    check_columns(source, apart)
    at = find_positions(known, [*wanted, *named.values()])
    anything = [] if at else [0]  # a slice needs a column, which says how long it is
    n_inputs = len(wanted) + len(anything)
    for _, inputs, roles in _cut(source, anything + at, n_inputs, named, apart, rows):
        cells_of = {"target": typed(roles["target"])} if names is None else {}
        cells_of |= {n: typed(c) for n, c in zip(wanted, inputs, strict=False)}
        yield cells_of, _find_divisors(roles, row_counts)


def _find_levels(schema: Schema) -> dict[str | None, Levels]:
    """Return the levels of categorical columns, by name. The target's key is None."""
    target = None if schema.target is None else schema.target_column
    products = [c for c in schema.columns.values() if isinstance(c, Product)]
    factors = [(f.name, f.column) for one in products for f in one.factors]
    return {
        key: Levels(column)
        for key, column in [*factors, *schema.columns.items(), (None, target)]
        if isinstance(column, Categorical)
    }


def check_columns(source: Source, apart: Mapping[str, Cells]) -> None:
    """Refuse columns that cannot be joined with the rows of a table."""
    for what, column in apart.items():
        check(
            source.ordered,
            f"{what} must name a column of the table, because the rows of a query or a "
            "stream have no fixed order. Add it to the table as a column, or read the "
            "table into memory first.",
        )
        check_rows(source.n_rows in (None, readers.count_cells(column)), what)


def check_rows(holds: bool, what: str) -> None:
    """Raise an error, unless the column `what` has as many rows as the table."""
    check(
        holds,
        f"{what} must have as many rows as the table. Select the same rows of both, "
        "for example table[kept] and y[kept].",
    )
