"""A table and its schema become batches that `skdp.privacy.encoding.encode` takes."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from skdp.privacy.encoding import AnyArray, Batch, Coded
from skdp.schema import Categorical, FloatArray, Schema, Vector, check, level_key
from skdp.tables import arrays, cells, readers
from skdp.tables.cells import Levels
from skdp.tables.source import Cells, Source, positions

_TILE_CELLS = 1 << 22  # of a batch, so that wide tables take few rows at a time


def batches(
    table: Any,
    schema: Schema,
    *,
    target: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[Any, float] | None = None,
    batch_rows: int = 65_536,
    progress: Callable[[float], None] | None = None,
) -> Iterator[Batch]:
    """Read a table in batches.

    Parameters
    ----------
    table : frame, table, mapping, array, sparse matrix or path
        A pandas or polars DataFrame, a polars LazyFrame, a pyarrow Table, RecordBatch
        or RecordBatchReader (or anything else that exports an Arrow stream), a dict of
        columns, a numpy or scipy sparse matrix whose columns are ``schema.inputs`` in
        this order, or the path of a CSV or Parquet file.
    schema : Schema
        What is public about it. Without a target the batches have none either.
    target : array, series, list or str, optional
        What is predicted if it comes apart, or the name of its column. If None it is
        the column that the schema names.
    sample_weight : array, series, list or str, optional
        What each row counts for, or the name of a column that says so.
    class_weight : mapping of level to float, optional
        What the rows of a class count for, multiplied in; 1 for a level not listed.
    batch_rows : int
        Most rows of a batch; wide tables take fewer.
    progress : callable, optional
        Told, after each batch, the share of the table that was read.

    Returns
    -------
    iterator of Batch
        Rows in the order of the table. What is public and wrong has raised before.

    Notes
    -----
    A row of a batch depends on the same row of the table alone, and nothing but the
    batches depends on any cell. What a cell means is said in `skdp.tables.cells`,
    what a record of a file is in `skdp.tables.csv`. What a library did before, such
    as giving a column one type for the sake of one cell, is undone where it can be:
    read files by their path to have no such step.
    """
    check(
        batch_rows >= 1,
        f"batch_rows needs to be positive. Got {batch_rows}: leave it out.",
    )
    named, apart = _roles(schema, target, sample_weight)
    wanted = [*schema.inputs, *named.values()]
    source = readers.source(table, wanted)
    at = _positions(source, schema, named)
    for what, column in apart.items():
        check(
            source.n_rows in (None, arrays.length(column)),
            f"The {what} needs as many rows as the table: cut one of them.",
        )
    factors = None if class_weight is None else _factors(class_weight, schema)
    rows = max(1, min(batch_rows, _TILE_CELLS // max(1, len(at))))
    stream = _stream(source, schema, at, named, apart, factors, rows)
    return stream if progress is None else _watched(stream, source, progress)


def _watched(
    stream: Iterator[Batch], source: Source, progress: Callable[[float], None]
) -> Iterator[Batch]:
    read = 0
    for batch in stream:
        read += arrays.length(next(iter(batch.columns.values())))
        if source.share is not None:
            progress(source.share())
        elif source.n_rows is not None:
            progress(read / source.n_rows)
        yield batch
    progress(1.0)  # also if there are no rows, which may be private


def _roles(
    schema: Schema, target: Any, sample_weight: Any
) -> tuple[dict[str, str], dict[str, Cells]]:
    """Names of the columns of target and weight, and cells of those that come apart."""
    check(
        target is None or schema.target is not None,
        "A target needs a description: add target= to the schema.",
    )
    if target is None:
        target = schema.target_name
        check(
            schema.target is None or target is not None,
            "The schema describes a target but does not name its column: pass the "
            "target too, or write target=(name, description).",
        )
    named: dict[str, str] = {}
    apart: dict[str, Cells] = {}
    for what, given in (("target", target), ("sample_weight", sample_weight)):
        if isinstance(given, str):
            named[what] = given
        elif given is not None:
            apart[what] = readers.column(given, what)
    return named, apart


def _positions(source: Source, schema: Schema, named: Mapping[str, str]) -> list[int]:
    """Where the columns of the schema, of the target and of the weight are."""
    if source.names is not None:
        return positions(source.names, [*schema.inputs, *named.values()])
    for what, name in named.items():
        check(
            False,
            f"An array has no column names, so that the {what} {name!r} is not in it: "
            "pass it as an array too.",
        )
    width, needed = len(source.kinds), len(schema.inputs)
    check(
        width == needed,
        f"An array needs the {needed} columns of the schema, in its order. "
        f"Got {width}: choose the columns, or give a table with names.",
    )
    return list(range(width))


def _factors(class_weight: Mapping[Any, float], schema: Schema) -> FloatArray:
    """Weight of each class, and 1 for rows of none."""
    column = schema.target_column
    if not isinstance(column, Categorical):
        raise ValueError("class_weight needs a categorical target: leave it out.")
    check(
        isinstance(class_weight, Mapping),
        f"class_weight needs a mapping of levels to weights. Got {class_weight!r}: "
        "list what each class counts for.",
    )
    factors = np.ones(len(column.levels) + 1)
    for level, weight in class_weight.items():
        key = level_key(level)
        close = difflib.get_close_matches(key, column.codes, 1)
        remedy = f"Did you mean {close[0]!r}?" if close else "Leave it out."
        check(
            key in column.codes,
            f"class_weight needs levels of the target. Got {level!r}. {remedy}",
        )
        check(
            0 <= weight < math.inf,
            f"class_weight needs finite weights from zero on. Got {weight} for "
            f"{level!r}: change it.",
        )
        factors[column.codes[key]] = weight
    return factors


def _stream(
    source: Source,
    schema: Schema,
    at: Sequence[int],
    named: Mapping[str, str],
    apart: Mapping[str, Cells],
    factors: FloatArray | None,
    rows: int,
) -> Iterator[Batch]:
    levels = {
        key: Levels(column)
        for key, column in [*schema.columns.items(), (None, _described(schema))]
        if isinstance(column, Categorical)
    }
    start = 0
    for columns in source.read(at, rows):
        stop = start + arrays.length(columns[0])
        inputs, others = columns[: len(schema.inputs)], columns[len(schema.inputs) :]
        roles = dict(zip(named, others, strict=True))
        for what, column in apart.items():
            _check_rows(arrays.length(column) >= stop, what)
            roles[what] = arrays.cut(column, slice(start, stop))
        # A cell's overflow must not become a warning.
        with np.errstate(all="ignore"):
            batch = _batch(schema, levels, inputs, roles, factors)
        yield batch
        start = stop
    for what, column in apart.items():
        _check_rows(arrays.length(column) == start, what)


def _batch(
    schema: Schema,
    levels: Mapping[str | None, Levels],
    inputs: Sequence[Cells],
    roles: Mapping[str, Cells],
    factors: FloatArray | None,
) -> Batch:
    read = iter(inputs)
    columns: dict[str, FloatArray | Coded] = {}
    for key, column in schema.columns.items():
        if isinstance(column, Vector):
            columns[key] = np.column_stack([numbers(next(read)) for _ in column.names])
        else:
            columns[key] = _typed(next(read), levels.get(key))
    target = _typed(roles["target"], levels.get(None)) if "target" in roles else None
    weight = numbers(roles["sample_weight"]) if "sample_weight" in roles else None
    if factors is not None and isinstance(target, Coded):
        # Codes of no level are -1: the last factor, unless they fall on a level.
        column = schema.target_column
        assert isinstance(column, Categorical)
        classes = np.where(target.codes < 0, column.default_code, target.codes)
        weight = factors[classes] * (1.0 if weight is None else weight)
    return Batch(columns=columns, target=target, weight=weight)


def _typed(column: Cells, levels: Levels | None) -> FloatArray | Coded:
    """Floats, or the codes of the schema's own levels."""
    if levels is None:
        return numbers(column)
    return Coded(codes=_codes(column, levels), values=levels.values)


def numbers(column: Cells) -> FloatArray:
    """Cells of any source as numbers, nan where they are none."""
    if isinstance(column, (np.ndarray, Coded)):
        with np.errstate(all="ignore"):  # a cell's overflow must not become a warning
            return cells.numbers(column)
    from skdp.tables import arrow

    return arrow.numbers(column)


def _codes(column: Cells, levels: Levels) -> AnyArray:
    if isinstance(column, (np.ndarray, Coded)):
        return cells.codes(column, levels)
    from skdp.tables import arrow

    return arrow.codes(column, levels)


def _described(schema: Schema) -> Any:
    return None if schema.target is None else schema.target_column


def _check_rows(holds: bool, what: str) -> None:
    check(holds, f"The {what} needs as many rows as the table: cut one of them.")
