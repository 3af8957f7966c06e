"""Options that describe a problem: which schema, target, model and neighbours."""

from __future__ import annotations

from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from skdp.schema import Schema


class Model(StrEnum):
    """Models by the names that `skdp.plan` knows."""

    logistic = "logistic"
    linear = "linear"
    huber = "huber"
    svc = "svc"
    poisson = "poisson"


class Neighbours(StrEnum):
    """Which tables must be hard to tell apart."""

    add_remove = "add-remove"
    zero_out = "zero-out"
    replace_one = "replace-one"


Table = Annotated[Path, typer.Argument(metavar="FILE", help="CSV or Parquet file.")]
Multiline = Annotated[
    bool,
    typer.Option(
        "--multiline",
        help="Let quoted fields of a CSV file hold line ends. A quote that is never "
        "closed then takes in the lines of other people, which no ε covers.",
    ),
]
SchemaFile = Annotated[
    Path,
    typer.Option(
        "--schema",
        metavar="TOML",
        help="What is public about the table; `skdp schema` makes a form of it.",
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="COLUMN", help="What to predict, unless the schema says so."
    ),
]
Epsilon = Annotated[float, typer.Option(help="Privacy budget ε; 1 is a usual choice.")]
Delta = Annotated[
    float | None,
    typer.Option(
        help="δ, below 1/rows.  [default: 1e-9 if the number of rows is private, else "
        "1e-6 or 1/(10 rows), the smaller]"
    ),
]
ModelName = Annotated[
    Model | None,
    typer.Option(
        "--model",
        help="Which model.  [default: logistic for categories, linear for numbers]",
    ),
]
NeighboursName = Annotated[
    Neighbours,
    typer.Option(
        help="Which tables must be hard to tell apart: a row added or removed, left "
        "out of every sum, or replaced."
    ),
]
Ledger = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="LEDGER",
        help="The table's total budget, which is charged before a record is read.",
    ),
]
Purpose = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="What it is for, in public words: it is entered into the ledger.",
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Who asks, for the ledger.  [default: the system's name of the user]",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Repeatable noise, for tests: no privacy is claimed then."),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads to add up records.  [default: all]")
]


def table_of(file: Path, multiline: bool) -> PathLike[str]:
    """Return the file as readers take it."""
    from skdp.tables import CSV

    return CSV(file, multiline=True) if multiline else file


def paid_by(path: Path | None, purpose: str | None, user: str | None) -> Any:
    """Return the ledger that is charged, if there is one."""
    from skdp.ledger import Ledger as Book
    from skdp.schema import check

    check(
        path is not None or (purpose is None and user is None),
        "--purpose and --user are entered into a ledger: add --ledger.",
    )
    if path is None:
        return None
    check(
        path.is_file(),
        f"There is no ledger {str(path)!r}: make it by `skdp ledger make`.",
    )
    return Book(path, purpose=purpose, user=user)


def read_schema(path: Path, target: str | None) -> Schema:
    """Read a schema, and let `target` be what is predicted."""
    from skdp.schema import toml_files

    return with_target(toml_files.read(path), target)


def with_target(schema: Schema, name: str | None) -> Schema:
    """The schema whose target is the column `name`, described where it stands."""
    from skdp.schema import Schema, Vector, check

    if name is None:
        check(
            schema.target_name is not None,
            "What is to be predicted? Say --target COLUMN, or add [target] with its "
            "name to the schema.",
        )
        return schema
    if schema.target is not None:
        check(
            schema.target_name in (None, name),
            f"The schema's target is {schema.target_name!r}. Got --target {name!r}: "
            "change one of them.",
        )
        target = (name, schema.target_column)
        return Schema(schema.columns, target=target, row_norm=schema.row_norm)
    described = schema.columns.get(name)
    if described is None or isinstance(described, Vector):
        raise ValueError(
            f"The schema describes no target {name!r}: add [target] with its name."
        )
    others = {key: column for key, column in schema.columns.items() if key != name}
    return Schema(others, target=(name, described), row_norm=schema.row_norm)


def model_name(chosen: Model | None, schema: Schema) -> str:
    """The model asked for, or the usual one for such a target."""
    from skdp.schema import Categorical

    if chosen is not None:
        return chosen.value
    return "logistic" if isinstance(schema.target_column, Categorical) else "linear"
