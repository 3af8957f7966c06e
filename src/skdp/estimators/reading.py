"""The records of a fit, read from its table."""

from __future__ import annotations

from typing import Any

from skdp.estimators.preparation import Opening
from skdp.estimators.progress import reading
from skdp.privacy.encoding import Records
from skdp.schema import Schema
from skdp.tables import batches
from skdp.tables.load import encode_all


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
) -> Records:
    """Read and encode a table; records that outgrow memory are kept in a file."""
    with reading(verbose) as progress:
        read = batches(
            table,
            schema,
            target=target,
            sample_weight=sample_weight,
            class_weight=class_weight,
            progress=progress,
        )
        return encode_all(read, schema, intercept=intercept, max_weight=max_weight)


def known_schema(about: Opening) -> Schema | None:
    """Return the schema if nothing of it is to be found and rows are still to count.

    Then the records are read first, and counted as they lie: a text file is long to
    read, and need not be read twice.
    """
    if about.unknown or about.source.n_rows is not None:
        return None
    return about.whole()


def count(records: Records) -> int:
    """Return the number of rows, for relations under which it is public."""
    return sum(len(chunk.target) for chunk in records.chunks)
