"""`skdp predict`: a saved model's predictions for the rows of a file, in a stream."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.console import (
    AsJson,
    Force,
    Quiet,
    check_out,
    print_json,
    shown,
    watched,
)
from skdp.cli.options import Multiline, Table, table_of

if TYPE_CHECKING:
    from skdp.estimators.base import PrivateLinearModel

#: Rows that are predicted at a time.
ROWS = 65_536

EXAMPLES = [
    "skdp predict model new.csv --out predictions.csv",
    "skdp predict model new.parquet --probabilities --out predictions.parquet",
]


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `skdp fit` saved the model in.")
    ],
    file: Table,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="CSV or Parquet file to write.")
    ],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of each class.")
    ] = False,
    multiline: Multiline = False,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a saved model's predictions for the rows of a file.

    The file needs the columns that the model was fitted to, not its target. It is read
    once, may be larger than memory, and its rows keep their order.
    """
    import skdp
    from skdp.estimators.display import show_reading
    from skdp.schema import check
    from skdp.tables import readers

    check_out(out, force)
    check(out.suffix in WRITERS, f"--out ends in {' or '.join(WRITERS)}. Got {out}.")
    check(not out.is_dir(), f"{str(out)!r} is a directory: choose another --out.")
    check(model.is_dir(), f"There is no saved model {str(model)!r}: correct its path.")
    loaded = skdp.load(model)
    check(
        not probabilities or hasattr(loaded, "predict_proba"),
        f"{type(loaded).__name__} gives no probabilities: leave --probabilities out.",
    )
    table = table_of(file, multiline)
    readers.source(table, loaded.schema_.inputs)  # refused before a bar is shown
    with show_reading(watched(as_json, quiet)) as progress:
        names = _written(_predictions(loaded, table, probabilities, progress), out)
    if as_json:
        print_json({"out": str(out), "columns": names, "model": str(model)})
    elif not quiet:
        typer.echo(shown(f"predictions in {out}: {', '.join(names)}"))


def _predictions(
    model: PrivateLinearModel,
    file: os.PathLike[str],
    probabilities: bool,
    progress: Callable[[float], None] | None,
) -> Iterator[Any]:
    """Arrow tables of predictions; an empty one comes first, for its columns."""
    from skdp.tables import readers
    from skdp.tables.arrays import length
    from skdp.tables.source import library, positions

    pa, inputs = library("pyarrow"), model.schema_.inputs
    source = readers.source(file, inputs)
    at = positions(source.names or (), inputs)

    def predicted(cells: dict[str, Any]) -> Any:
        rows = pa.table(cells)
        columns = {"prediction": model.predict(rows)}
        if probabilities:
            each = model.predict_proba(rows).T
            for level, chance in zip(model.classes_, each, strict=True):
                columns[f"probability of {level}"] = chance
        return pa.table(columns)

    yield predicted({name: pa.array([], pa.binary()) for name in inputs})
    read = 0
    for cells in source.read(at, ROWS):
        yield predicted(dict(zip(inputs, cells, strict=True)))
        read += length(cells[0])
        if progress is not None:
            share = source.share() if source.share else read / (source.n_rows or read)
            progress(share)


def _csv(path: Path, columns: Any) -> Any:
    from skdp.tables.source import library

    csv = library("pyarrow.csv")
    return csv.CSVWriter(path, columns, write_options=csv.WriteOptions())


def _parquet(path: Path, columns: Any) -> Any:
    from skdp.tables.source import library

    return library("pyarrow.parquet").ParquetWriter(path, columns)


#: What writes a file, by its extension.
WRITERS: dict[str, Callable[[Path, Any], Any]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".pq": _parquet,
}


def _written(tables: Iterator[Any], out: Path) -> list[str]:
    """Write tables to a file that appears when it is complete; return its columns."""
    first = next(tables)
    with _beside(out) as path, WRITERS[out.suffix](path, first.schema) as writer:
        for table in tables:
            writer.write_table(table)
    return list(first.column_names)


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A file to write to, renamed to `out` at the end and removed if there is none."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        path = Path(folder) / out.name
        yield path
        os.replace(path, out)
