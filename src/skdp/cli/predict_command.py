"""`skdp predict`: write a saved model's predictions for the rows of a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.options import (
    AsJson,
    Encoding,
    Force,
    Multiline,
    Quiet,
    Table,
    check_out,
    choose_reader,
    escape,
    print_json,
    shows_progress,
)

if TYPE_CHECKING:
    from skdp.estimators.fit import PrivateLinearModel

#: Number of rows that are read and predicted at a time.
ROWS = 65_536

EXAMPLES = [
    "skdp predict model new.csv --out predictions.csv",
    "skdp predict model new.parquet --probabilities --out predictions.parquet",
]


def predict_command(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of the saved model.")
    ],
    file: Table,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="CSV or Parquet file to write.")
    ],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of each class.")
    ] = False,
    multiline: Multiline = False,
    encoding: Encoding = "utf-8",
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a saved model's predictions for the rows of a file.

    The file must have the columns that the model was fitted to, except the target. It
    is read once and may be larger than memory. Rows keep their order.
    """
    import skdp
    from skdp.estimators.progress import show_reading
    from skdp.schema import check
    from skdp.tables import readers

    check_out(out, force)
    endings = " or ".join(WRITERS)
    check(out.suffix in WRITERS, f"--out must end in {endings}, got {out}.")
    check(not out.is_dir(), f"--out must be a file, but {str(out)!r} is a directory.")
    check(model.is_dir(), f"There is no saved model {str(model)!r}.")
    table = choose_reader(file, multiline, encoding)
    loaded = skdp.load(model)
    check(
        not probabilities or hasattr(loaded, "predict_proba"),
        f"{type(loaded).__name__} has no probabilities. Omit --probabilities.",
    )
    readers.open_source(table, loaded.schema_.inputs)  # reports errors before the bar
    shown = shows_progress(as_json, quiet)
    with show_reading() if shown else nullcontext() as progress:
        names = _write_tables(
            _predict_batches(loaded, table, probabilities, progress), out
        )
    if as_json:
        print_json({"out": str(out), "columns": names, "model": str(model)})
    elif not quiet:
        typer.echo(
            escape(
                f"The predictions are in {out}, one per row of {file}, in the same "
                f"order.\ncolumns  {', '.join(names)}"
            )
        )


def _predict_batches(
    model: PrivateLinearModel,
    file: os.PathLike[str],
    probabilities: bool,
    progress: Callable[[float], None] | None,
) -> Iterator[Any]:
    """Yield Arrow tables with the predictions for each batch of rows.

    The first table has no rows. It defines the columns of the output.
    """
    from skdp.tables import readers

    pa, inputs = readers.import_library("pyarrow"), model.schema_.inputs
    source = readers.open_source(file, inputs)
    at = readers.find_positions(source.names or (), inputs)

    def convert(cells: Any) -> Any:
        if not hasattr(cells, "codes"):
            return cells
        missing = (cells.codes < 0) | (cells.codes >= len(cells.values))
        codes = pa.array(cells.codes, mask=missing)
        return pa.DictionaryArray.from_arrays(codes, pa.array(cells.values, pa.utf8()))

    def predict_rows(cells: dict[str, Any]) -> Any:
        rows = pa.table({name: convert(own) for name, own in cells.items()})
        columns = {"prediction": model.predict(rows)}
        if probabilities:
            each = model.predict_proba(rows).T
            for level, chance in zip(model.classes_, each, strict=True):
                columns[f"probability of {level}"] = chance
        return pa.table(columns)

    yield predict_rows({name: pa.array([], pa.binary()) for name in inputs})
    read = 0
    for cells in source.read(at, ROWS):
        yield predict_rows(dict(zip(inputs, cells, strict=True)))
        read += readers.count_cells(cells[0])
        if progress is not None:
            share = source.share() if source.share else read / (source.n_rows or read)
            progress(share)


def _open_csv(path: Path, columns: Any) -> Any:
    from skdp.tables.readers import import_library

    csv = import_library("pyarrow.csv")
    return csv.CSVWriter(path, columns, write_options=csv.WriteOptions())


def _open_parquet(path: Path, columns: Any) -> Any:
    from skdp.tables.readers import import_library

    return import_library("pyarrow.parquet").ParquetWriter(path, columns)


#: Functions that open a file for writing, by the file's extension.
WRITERS: dict[str, Callable[[Path, Any], Any]] = {
    ".csv": _open_csv,
    ".parquet": _open_parquet,
    ".pq": _open_parquet,
}


def _write_tables(tables: Iterator[Any], out: Path) -> list[str]:
    """Write all tables to `out` and return the names of the columns."""
    first = next(tables)
    with _replace_file(out) as path, WRITERS[out.suffix](path, first.schema) as writer:
        for table in tables:
            writer.write_table(table)
    return list(first.column_names)


@contextmanager
def _replace_file(out: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename that file to `out` on success."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        path = Path(folder) / out.name
        yield path
        os.replace(path, out)
