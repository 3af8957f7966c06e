"""Read whatever exports an Arrow stream, and data sets of pyarrow, batch by batch.

Nothing is copied whole. A query is computed again for each read, so it must return the
same rows each time, in any order. It may fail at a cell, for example if a database has
guessed types from cells. Reading then fails too, so a query is only as safe as its
types are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakSet

from skdp.schema import InputError, check
from skdp.tables import frames
from skdp.tables.readers import Cells, Source, hide_errors, import_library

#: Names of the types of streams that can be read only once, in several libraries.
_STREAMS = {
    "ArrayStream",
    "ArrowArrayStreamHandle",
    "CArrayStream",
    "RecordBatchReader",
    "RecordBatchStream",
}
#: Methods with which cursors of ADBC and connections to DuckDB return their result.
_FETCH = ("fetch_record_batch", "to_arrow_reader")
#: Streams that have been read.
_READ: WeakSet[Any] = WeakSet()


def accept_stream(given: Any) -> Any:
    """Return a result of a database that can be read once as a RecordBatchReader.

    Everything else is returned unchanged.
    """
    name = type(given).__name__
    if hasattr(given, "__arrow_c_stream__"):
        if name in _STREAMS - {"RecordBatchReader"} or (
            name == "RecordBatchReader" and not hasattr(given, "read_next_batch")
        ):
            return import_library("pyarrow").RecordBatchReader.from_stream(given)
        return given
    for method in _FETCH:
        if hasattr(given, method):
            return getattr(given, method)()
    return given


def open_stream(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a RecordBatchReader or anything else that exports an Arrow stream."""
    once = type(given).__name__ == "RecordBatchReader"
    schema = given.schema if once else _find_schema(given)
    _refuse_second(given, once)

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        _refuse_second(given, once)
        names = [schema.names[position] for position in at]
        reader, own = given, at
        if once:
            _READ.add(given)
        else:
            chosen = _choose_columns(given, names)
            reader = _start(given if chosen is None else chosen)
            own = at if chosen is None else range(len(at))
        try:
            yield from frames.read_batches(iter(reader), own, rows)
        finally:  # the connection of a query is not free before that
            reader.close()

    kinds = [frames.find_arrow_kind(field.type) for field in schema]
    names = schema.names
    return Source(names=names, kinds=kinds, read=read, ordered=False, once=once)


def _refuse_second(given: Any, once: bool) -> None:
    check(
        not once or given not in _READ,
        "This stream has been read already. Export a new one, or pass "
        "reader.read_all().",
    )


def _start(given: Any) -> Any:
    """Start a stream. Messages of the library may quote cells, so they are hidden."""
    start = import_library("pyarrow").RecordBatchReader.from_stream
    failed = False
    try:
        reader = start(given)
    except Exception:
        failed = True
    if failed:
        raise InputError(
            f"{type(given).__name__} did not export its Arrow stream. If it can be "
            "read only once, pass pyarrow.RecordBatchReader.from_stream(...) of it."
        )
    return reader


def _find_schema(given: Any) -> Any:
    """Return the schema of a table or query, and leave no stream open.

    DuckDB, for example, allows one stream per connection.
    """
    if hasattr(given, "limit"):  # no row has to be computed
        reader = _start(given.limit(0))
        reader.close()
        return reader.schema
    # Start twice, because an object that cannot be read twice is otherwise found out
    # when the budget is spent.
    for _ in range(2):
        reader = _start(given)
        reader.close()
    return reader.schema


def _choose_columns(given: Any, names: list[str]) -> Any:
    """Return a query of only some columns, or None if it cannot be made."""
    if type(given).__name__ != "DuckDBPyRelation" or len(set(names)) < len(names):
        return None
    quoted = ('"' + name.replace('"', '""') + '"' for name in names)
    chosen = given.project(", ".join(quoted))
    return chosen if list(chosen.columns) == names else None


def open_dataset(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a ``pyarrow.dataset.Dataset``; only the required columns are read."""
    schema = given.schema

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        compute = import_library("pyarrow.compute")
        # By position, because the names of two columns may be the same.
        names = [schema.names[position] for position in at]
        columns = {str(i): compute.field(name) for i, name in enumerate(names)}
        scan = given.scanner(
            columns=columns, batch_size=rows, batch_readahead=2, fragment_readahead=1
        )
        batches = scan.to_batches()
        yield from frames.read_batches(batches, range(len(at)), rows)
        import_library("pyarrow").default_memory_pool().release_unused()

    kinds = [frames.find_arrow_kind(field.type) for field in schema]
    return Source(
        names=schema.names,
        kinds=kinds,
        read=read,
        count=lambda: next(hide_errors(iter([given.count_rows()]), "The data set")),
        ordered=False,
    )
