"""Read all files of a directory, or all that match a pattern, as one table.

The order and the types of columns may differ from file to file, because columns are
found by their names. The rows are in the order of the files' names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import glob, has_magic
from os import PathLike
from pathlib import Path

from skdp.schema import InputError, check
from skdp.tables import readers
from skdp.tables.csv import CSV
from skdp.tables.readers import Cells, Source, count_rows, find_positions


def list_files(given: str | PathLike[str]) -> list[PathLike[str]] | None:
    """Return the files of a directory or of a pattern such as ``data/*.parquet``.

    Return None if `given` is anything else. Files whose names begin with a dot or an
    underscore are left out. Programs that write directories of Parquet files use such
    names for metadata.
    """
    path = os.fspath(given)
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in os.listdir(path)]
    elif has_magic(path) and not os.path.lexists(path):
        found = glob(path)
    else:
        return None
    names = sorted(one for one in found if os.path.basename(one)[0] not in "._")
    check(bool(names), f"There are no files in {path!r}.")
    if isinstance(given, CSV):
        return [replace(given, path=name) for name in names]
    return [Path(name) for name in names]


def table(files: Sequence[PathLike[str]], wanted: Sequence[str] | None) -> Source:
    """Open files as one table."""
    first = readers.open_file(files[0], wanted)
    names, done = first.names or (), 0

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        nonlocal done
        needed = [names[position] for position in at]
        for done, file in enumerate(files):  # noqa: B007 (shown as progress)
            own = readers.open_file(file, needed)
            try:
                at = find_positions(own.names or (), needed)
            except InputError as error:
                raise InputError(f"In {Path(file).name!r}: {error}") from None
            yield from own.read(at, rows)

    def count() -> int:
        return sum(count_rows(readers.open_file(file, wanted)) for file in files)

    return Source(
        names=names,
        kinds=first.kinds,
        read=read,
        count=count,
        share=lambda: done / len(files),
        ordered=first.ordered,
    )
