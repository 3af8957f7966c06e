"""Options that describe a problem: which schema, target, model and neighbours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

    replace_one = "replace-one"
    zero_out = "zero-out"
    add_remove = "add-remove"


Table = Annotated[Path, typer.Argument(metavar="FILE", help="CSV or Parquet file.")]
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
    typer.Option(help="δ, below 1/rows.  [default: 1e-6 or 1/(10 rows), the smaller]"),
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
        help="Which tables must be hard to tell apart: a row replaced, left "
        "out of every sum, or added or removed."
    ),
]
Ledger = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="LEDGER",
        help="The data set's total budget, which is charged before a record is read.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Repeatable noise, for tests: no privacy is claimed then."),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads to add up records.  [default: all]")
]


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
