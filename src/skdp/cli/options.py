"""Define the options of commands, and how they print."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.formatting import escape_unprintable, replace_infinities

if TYPE_CHECKING:
    from rich.console import Console

    from skdp.schema import Schema

# ---- Define the options that all commands share, and functions that print and write


#: Type of the parameter `as_json: AsJson = False`. The option prints one JSON object to
#: stdout and nothing else.
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object; infinity becomes null."),
]
#: Type of the parameter `quiet: Quiet = False`. The option prints errors only.
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
#: The same as `Quiet`, for a command that prints its result if --out is not given.
QuietButResult = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only errors, and the result if --out is not given."
    ),
]
#: Type of the parameter `force: Force = False`. The option replaces an existing output.
Force = Annotated[bool, typer.Option("--force", help="Replace an existing --out.")]

#: Longest file name that --out may have, in bytes. Systems allow 255 bytes, but the
#: temporary file that is written first has a longer name.
LONGEST = 200


def open_console(as_json: bool = False, quiet: bool = False) -> Console:
    """Return a console on stdout. With --json or --quiet it prints nothing."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `main` chooses the exit code

    return Screen(highlight=False, quiet=as_json or quiet, soft_wrap=False)


def shows_progress(as_json: bool = False, quiet: bool = False) -> bool:
    """Return whether to show progress.

    Progress is shown if stderr is a terminal and neither --json nor --quiet is given.
    """
    return sys.stderr.isatty() and not quiet and not as_json


def silence_compiler(as_json: bool = False, quiet: bool = False) -> None:
    """Suppress the message about compiling kernels if --json or --quiet is given."""
    from skdp.engines.choice import suppress_message

    suppress_message(as_json or quiet)


def escape(text: str) -> str:
    """Return the text with all unprintable characters except newlines escaped."""
    return str(escape_unprintable(text, keep="\n"))


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object, in which infinities and NaN become null."""
    typer.echo(format_json(value))


def format_json(value: dict[str, Any]) -> str:
    """Return one JSON object as text, escaping the same characters as `escape`."""
    text = json.dumps(replace_infinities(value), indent=2, ensure_ascii=False)
    return "".join(
        letter if letter == "\n" or letter.isprintable() else json.dumps(letter)[1:-1]
        for letter in text
    )


def check_out(out: Path | None, force: bool) -> None:
    """Raise ValueError if `out` is given but the output cannot be written there.

    Commands call this first, so a bad path is refused before any budget is spent.
    """
    from skdp.schema import check

    if out is None:
        return
    there = os.path.lexists(out)
    check(
        force or not there,
        f"{str(out)!r} already exists. Use --force to replace it.",
    )
    long = [part for part in out.parts if len(os.fsencode(part)) > LONGEST]
    check(
        not long,
        f"Each name in --out must have at most {LONGEST} bytes, got "
        f"{str(long)[2:30]}….",
    )
    above = out.parent
    while not os.path.lexists(above):
        above = above.parent
    try:
        tempfile.TemporaryFile(dir=above).close()
        writable = True
    except OSError:
        writable = False
    check(writable, f"The directory {str(above)!r} is not writable.")


def write_out(out: Path, text: str) -> None:
    """Write the text to a temporary file and rename that file to `out`.

    If `out` is a symbolic link, the link itself is replaced.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        path = Path(folder) / out.name
        path.write_text(text, encoding="utf-8", newline="\n")
        os.replace(path, out)


# ---- Define the options that describe a fit, such as schema, target, model and budget


class Model(StrEnum):
    """The names of the models, as `skdp.plan` accepts them."""

    logistic = "logistic"
    linear = "linear"
    huber = "huber"
    svc = "svc"
    poisson = "poisson"
    additive = "additive"
    additive_regressor = "additive-regressor"


class Neighbours(StrEnum):
    """The names of the neighbour relations."""

    add_remove = "add-remove"
    zero_out = "zero-out"
    replace_one = "replace-one"


def parse_path(text: str) -> PathLike[str]:
    """Return a path, or the address of a file in an object store."""
    from skdp.tables.locations import Address, is_address

    return Address(text) if is_address(text) else Path(text)


Table = Annotated[
    PathLike[str],
    typer.Argument(
        metavar="FILE",
        help="CSV, Parquet or Feather file, or a directory or quoted pattern of such "
        "files, or an address such as s3://bucket/file.parquet.",
        parser=parse_path,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Address of a Dask scheduler, such as host:8786. Its workers read the "
        "files and keep the rows.",
    ),
]
ModelDirectory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of the saved model.")
]
Multiline = Annotated[
    bool,
    typer.Option(
        "--multiline",
        help="Allow line breaks inside quoted CSV fields. An unclosed quote in one "
        "record can then hide other people's records, and ε does not cover that.",
    ),
]
Encoding = Annotated[
    str,
    typer.Option(help="Encoding of a CSV file, such as latin-1, cp1252 or utf-16."),
]
SchemaFile = Annotated[
    Path,
    typer.Option(
        "--schema",
        metavar="TOML",
        help="Public facts about the table; `skdp schema` writes a template.",
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="COLUMN", help="Column to predict, if not in the schema."
    ),
]
Epsilon = Annotated[float, typer.Option(help="Privacy budget ε; 1 is common.")]
Delta = Annotated[
    float | None,
    typer.Option(
        help="δ, below 1/rows.  [default: 1e-9 if the number of rows is private, else "
        "the smaller of 1e-6 and 1/(10 rows)]"
    ),
]
ModelName = Annotated[
    Model | None,
    typer.Option(
        "--model",
        help="The model.  [default: logistic for categories, linear for numbers]",
    ),
]
NeighboursName = Annotated[
    Neighbours,
    typer.Option(
        help="Neighbouring tables differ in one row, which is added or removed, left "
        "out of every sum, or replaced."
    ),
]
Unit = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="COLUMN",
        help="Column that identifies a person. If several columns are needed, repeat "
        "the option. All rows of a person count as one, and neighbouring tables differ "
        "in one person.",
    ),
]
MaxRowsPerUnit = Annotated[
    int,
    typer.Option(
        help="With 1, each person counts once. With m > 1, each row counts 1/m, but "
        "all rows of a person together count at most once.",
    ),
]
Ledger = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="LEDGER",
        help="Ledger of the table's total budget, charged before a record is read.",
    ),
]
Purpose = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Purpose to write to the ledger, in public words only.",
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="User name to write to the ledger.  [default: your login name]",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Make the noise repeatable, for tests. No privacy is claimed."),
]
Exposure = Annotated[
    str | None,
    typer.Option(
        "--exposure",
        metavar="COLUMN",
        help="Column with the time (or amount) under observation, for --model poisson. "
        "The model then predicts counts per unit of exposure.",
    ),
]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="COLUMN",
        help="Column with the logarithm of the exposure, instead of --exposure.",
    ),
]
MaxExposure = Annotated[
    float | None,
    typer.Option(
        help="Largest exposure; larger ones are clipped. It must be public.  "
        "[default: 1]"
    ),
]
OutFile = Annotated[
    Path | None, typer.Option("--out", metavar="TOML", help="Write to this file.")
]
Target = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column to predict.")
]
NoLook = Annotated[
    bool,
    typer.Option(
        "--no-look",
        help="Use the schema's ranges as they are. By default noisy histograms find "
        "the part of each range that the rows fill, for 5 % of the budget.",
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Number of threads.  [default: all cores]")
]


def load_model(path: Path) -> Any:
    """Load a saved model, or refuse a path that is not a directory."""
    import skdp
    from skdp.schema import check

    check(path.is_dir(), f"There is no saved model {str(path)!r}.")
    return skdp.load(path)


def choose_cluster(cluster: str | None) -> str:
    """Return the name of the engine for the option ``--cluster``."""
    return "auto" if cluster is None else f"dask://{cluster}"


def read_exposure(
    exposure: str | None, offset: str | None, most: float | None
) -> dict[str, Any]:
    """Return the arguments of a fit or an evaluation that describe the exposure."""
    from skdp.schema import check

    given = {"exposure": exposure, "offset": offset}
    check(
        most is None or exposure is not None or offset is not None,
        "--max-exposure requires --exposure or --offset.",
    )
    return {name: column for name, column in given.items() if column is not None}


def choose_reader(file: PathLike[str], multiline: bool, encoding: str) -> PathLike[str]:
    """Return the path or, if an option is set, a CSV reader of the file.

    A wrong path is refused here, before estimators and scikit-learn are imported, which
    takes longer.
    """
    from skdp.tables import CSV
    from skdp.tables.readers import check_path

    check_path(file)
    given = CSV(file, multiline=multiline, encoding=encoding)
    return file if given == CSV(file) else given


def open_ledger_file(
    path: Path | None, purpose: str | None, user: str | None, seed: int | None
) -> Any:
    """Open the ledger to charge, or return None if no path is given."""
    import skdp
    from skdp.schema import check

    check(
        path is None or seed is None,
        "With --seed no privacy is claimed, so nothing can be charged to a ledger. "
        "Omit --seed, or omit --ledger if the data is public.",
    )
    check(
        path is not None or (purpose is None and user is None),
        "--purpose and --user require --ledger.",
    )
    if path is None:
        return None
    check(
        path.is_file(),
        f"There is no ledger {str(path)!r}. Create one with `skdp ledger make`.",
    )
    return skdp.Ledger(path, purpose=purpose, user=user)


def read_schema(
    path: Path, target: str | None, unit: list[str] | None = None
) -> Schema:
    """Read a schema from a TOML file and set its target and its unit."""
    from skdp.schema import toml_files

    return set_unit(set_target(toml_files.read_toml(path), target), unit)


def set_unit(schema: Schema, unit: list[str] | None) -> Schema:
    """Return the schema with a unit, whose columns are no longer features.

    If `unit` is None or empty, the schema keeps its own unit.
    """
    if not unit:
        return schema
    others = {key: c for key, c in schema.columns.items() if key not in unit}
    names = unit[0] if len(unit) == 1 else tuple(unit)
    return replace(schema, columns=others, unit=names)


def set_target(schema: Schema, name: str | None) -> Schema:
    """Return the schema with column `name` as its target.

    If `name` is None, the schema must already have a named target.
    """
    from skdp.schema import Pair, Vector, check

    if name is None:
        check(
            schema.target_name is not None,
            "The schema has no named target. Use --target COLUMN, or add a name to "
            "[target] in the schema.",
        )
        return schema
    if schema.target is not None:
        check(
            schema.target_name in (None, name),
            f"--target must be the schema's target {schema.target_name!r}, got "
            f"{name!r}.",
        )
        target = (name, schema.target_column)
        return replace(schema, target=target)
    described = schema.columns.get(name)
    if described is None or isinstance(described, (Vector, Pair)):
        raise ValueError(
            f"The schema does not describe the target {name!r}. Add [target] with its "
            "name."
        )
    others = {key: column for key, column in schema.columns.items() if key != name}
    return replace(schema, columns=others, target=(name, described))


def choose_model(chosen: Model | None, schema: Schema) -> str:
    """Return the chosen model, or the default model for the target's type."""
    from skdp.schema import Categorical

    if chosen is not None:
        return chosen.value
    return "logistic" if isinstance(schema.target_column, Categorical) else "linear"
