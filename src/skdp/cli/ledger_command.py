"""`skdp ledger`: manage the ledger file that keeps a table's total budget."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.options import (
    AsJson,
    Force,
    Neighbours,
    NeighboursName,
    Purpose,
    Quiet,
    QuietButResult,
    Unit,
    User,
    check_out,
    escape,
    open_console,
    print_json,
    write_out,
)

if TYPE_CHECKING:
    from skdp.ledger import Entry, Ledger

ledger_command = typer.Typer(
    help="Create, show, check and export the ledger of a table's total budget.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
File = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.")]

#: Printed below the entries.
READING = (
    "Each ε is at the ledger's δ. A fit first reserves its budget. When the fit ends, "
    "a commit replaces the reservation, or a stop if there was an error."
)

#: Smallest width of the column that describes entries. On a narrower terminal, the
#: description of an entry is printed below its numbers.
LEAST = 30


def _show_example(line: str) -> str:
    return f"\b\nExamples:\n  {line}"


@ledger_command.command(
    epilog=_show_example(
        'skdp ledger make budget.db --table "hospital stays 2025" --epsilon 3 '
        "--delta 1e-6"
    )
)
def make(
    path: File,
    epsilon: Annotated[float, typer.Option(help="Largest ε of all releases together.")],
    delta: Annotated[float, typer.Option(help="Largest δ of all releases together.")],
    reserved_delta: Annotated[
        float,
        typer.Option(
            help="Part of δ for discovering categories (0 if all are public)."
        ),
    ] = 0.0,
    neighbours: NeighboursName = Neighbours.add_remove,
    unit: Unit = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Public name of the table.  [default: the ledger's file name]",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="Accept only this schema; `skdp ledger admit` adds others.",
        ),
    ] = None,
    user: User = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Create a ledger with a ceiling (ε, δ) that can never be changed.

    A ledger belongs to one table. Charge all models of that table to it, whatever their
    target and columns are.
    """
    import skdp
    from skdp.schema import toml_files

    _refuse_existing(path)
    check_out(path, force=False)
    made = skdp.Ledger(
        path,
        epsilon,
        delta,
        reserved_delta=reserved_delta,
        neighbours=neighbours.value,
        unit=", ".join(unit) if unit else None,
        table=table,
        schema=None if schema is None else toml_files.read_toml(schema),
        purpose="create the ledger",
        user=user,
    )
    if as_json:
        print_json(_summarise(made))
    elif not quiet:
        typer.echo(
            escape(f"{made}\nUse it for every fit: skdp fit ... --ledger {path}")
        )


@ledger_command.command(epilog=_show_example("skdp ledger show budget.db --last 20"))
def show(
    path: File,
    last: Annotated[int, typer.Option(min=0, help="Number of entries to show.")] = 10,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show the spent and the remaining budget, and the last entries."""
    opened = _open_existing(path)
    entries = opened.entries()
    tail = entries[len(entries) - min(last, len(entries)) :]
    if as_json:
        fields = [_list_fields(entry) for entry in tail]
        print_json(_summarise(opened) | {"entries": fields})
    elif not quiet:
        typer.echo(escape(str(opened)))
        if tail:
            _print_table(tail)
            open_console().print(READING)


@ledger_command.command(
    epilog=_show_example("skdp ledger admit budget.db --schema other.toml")
)
def admit(
    path: File,
    schema: Annotated[
        Path,
        typer.Option(metavar="TOML", help="Another schema of the same table."),
    ],
    purpose: Purpose = None,
    user: User = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Accept another schema in a ledger that was created with a schema.

    Do this only if both schemas describe the same records, because the guarantee covers
    one table. A ledger that was created without a schema accepts every schema.
    """
    from skdp.schema import toml_files

    described = toml_files.read_toml(schema)
    opened = _open_existing(path, purpose, user)
    opened.admit(described)
    if as_json:
        print_json(_summarise(opened))
    elif not quiet:
        typer.echo(escape(f"{opened.table}: admitted {schema}"))


@ledger_command.command(
    "check", epilog=_show_example("skdp ledger check budget.db --head 12:3f9c...")
)
def check_ledger(
    path: File,
    head: Annotated[
        str | None,
        typer.Option(
            help="A head (number:hash) that this command printed earlier. The ledger "
            "must still contain that entry."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Recompute all hashes and sums; exit with 1 if the file was changed.

    Someone who rewrites the whole file can forge any history. To detect this, keep the
    head that this command prints (the number of entries and the last hash) in another
    place, and pass it as --head next time.
    """
    from skdp.ledger import Head, Ledger, LedgerError
    from skdp.schema import check

    check(path.exists(), f"There is no file {str(path)!r}.")
    noted = None if head is None else Head.of(head)
    try:
        found, why = str(Ledger(path).check(noted)), None
    except LedgerError as error:
        found, why = None, str(error)
    if as_json:
        print_json({"passed": why is None, "head": found, "why": why})
    elif why is not None or not quiet:
        typer.echo(f"INTACT: head {found}" if why is None else f"FAILED: {why}")
    if why is not None:
        raise typer.Exit(1)


@ledger_command.command(
    epilog=_show_example("skdp ledger export budget.db --form csv --out b.csv")
)
def export(
    path: File,
    form: Annotated[str, typer.Option(help="jsonl or csv.")] = "jsonl",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to this file.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: QuietButResult = False,
) -> None:
    """Write all entries with their hashes, as JSON lines or CSV."""
    check_out(out, force)
    text = _open_existing(path).export(form)
    if out is not None:
        write_out(out, text)
    if as_json:
        named = None if out is None else str(out)
        print_json({"form": form, "text": text, "out": named})
    elif out is None:
        typer.echo(text, nl=False)
    elif not quiet:
        typer.echo(escape(f"entries written to {out}"))


def _open_existing(
    path: Path, purpose: str | None = None, user: str | None = None
) -> Ledger:
    import skdp
    from skdp.schema import check

    check(
        os.path.exists(path),
        f"There is no ledger {str(path)!r}. Create one with `skdp ledger make`.",
    )
    check(not path.is_dir(), f"{str(path)!r} is a directory, not a ledger.")
    return skdp.Ledger(path, purpose=purpose, user=user)


def _refuse_existing(path: Path) -> None:
    from skdp.schema import check

    name = str(path)
    check(
        not os.path.lexists(path),
        f"{name!r} already exists, and a ledger's ceiling cannot change. See it with "
        f"`skdp ledger show {name}`.",
    )


def _summarise(opened: Ledger) -> dict[str, Any]:
    terms = opened.terms
    return {
        "path": opened.path,
        "table": opened.table,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "reserved_delta": terms.reserved_delta,
        "neighbours": terms.neighbours,
        "unit": terms.unit,
        "mu_squared": terms.mu_squared,
        "spent_epsilon": opened.spent_epsilon,
        "remaining": opened.remaining,
        "remaining_delta": opened.remaining_delta,
        "affordable_epsilon": opened.affordable(terms.delta),
        "head": str(opened.head),
    }


def _list_fields(entry: Entry) -> dict[str, Any]:
    return {"seq": entry.seq, **entry.values(), "hash": entry.hash}


def _print_table(entries: list[Entry]) -> None:
    """Print the numbers of each entry, and its description beside or below them.

    Descriptions are wrapped if the terminal is narrow. No number is wrapped or cut off.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = open_console()
    heading, *numbers = _align_numbers(entries)
    words = [Text(_describe(entry), overflow="fold") for entry in entries]
    if console.width < len(heading) + 2 + LEAST:
        console.print(Text(heading))
        for line, text in zip(numbers, words, strict=True):
            console.print(Text(line), Padding(text, (0, 0, 0, 3)))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=len(heading), no_wrap=True)
    table.add_column(overflow="fold")
    for line, text in zip((heading, *numbers), (Text("what"), *words), strict=True):
        table.add_row(Text(line), text)
    console.print(table)


def _align_numbers(entries: list[Entry]) -> list[str]:
    """Return one heading, and for each entry a line with its number, kind and cost."""
    rows = [["#", "kind", "ε", "μ²", "δ"]]
    for entry in entries:
        of = "" if entry.of is None else f" {entry.of}"
        costs = (entry.epsilon, entry.mu_squared, entry.delta)
        rows.append([str(entry.seq), f"{entry.kind}{of}", *(f"{c:.4g}" for c in costs)])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    sides = "><>>>"
    return [
        "  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True))
        for row in rows
    ]


def _describe(entry: Entry) -> str:
    """Describe an entry: what was computed, and when, by whom and why."""
    time = entry.time[:16].replace("T", " ")
    asked = f"{time} UTC by {entry.user}, purpose: {entry.purpose}"
    return escape(f"{entry.query}\n{asked}")
