"""`skdp schema`: write a schema template for a person to complete."""

from __future__ import annotations

import typer

from skdp.cli.options import (
    AsJson,
    Encoding,
    Force,
    OutFile,
    QuietButResult,
    Table,
    Target,
    check_out,
    choose_reader,
    escape,
    print_json,
    write_out,
)

EXAMPLES = [
    "skdp schema stays.csv --target readmitted --out stays.toml",
    "skdp schema stays.parquet",
]


def schema_command(
    file: Table,
    target: Target = None,
    encoding: Encoding = "utf-8",
    out: OutFile = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: QuietButResult = False,
) -> None:
    """Write a schema template with the table's column names and types.

    No record is read. Fill in ranges and categories from what you know without looking
    at the data. The first line of a CSV file must hold the column names.
    """
    from skdp.tables import readers
    from skdp.tables.template import schema_template

    check_out(out, force)
    table = choose_reader(file, multiline=False, encoding=encoding)
    source = readers.open_source(table)
    text = schema_template(table, target)
    if out is not None:
        write_out(out, text)
    if as_json:
        shown = {"float": "number", "float category": "category"}
        columns = zip(source.names or (), source.kinds, strict=True)
        print_json(
            {
                "columns": [
                    {"name": name, "type": shown.get(kind, kind)}
                    for name, kind in columns
                ],
                "template": text,
                "out": None if out is None else str(out),
            }
        )
    elif out is None:
        typer.echo(text, nl=False)
    elif not quiet:
        name = escape(str(out))
        typer.echo(f'Replace each "?" in {name}, then run')
        typer.echo(f"  skdp plan --schema {name} --rows N")
