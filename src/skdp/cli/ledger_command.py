"""`skdp ledger`: a table's total budget, on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.console import (
    AsJson,
    Force,
    Quiet,
    QuietButResult,
    check_out,
    print_json,
    screen,
    shown,
    write_out,
)
from skdp.cli.options import Neighbours, NeighboursName, Purpose, User

if TYPE_CHECKING:
    from skdp.ledger import Entry, Ledger

ledger = typer.Typer(
    help="Make, show, check and export the total budget of a table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
File = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.")]

#: Below the entries: a fit's own δ may be another, and it has two lines.
READING = (
    "ε is at the ledger's δ; a commit replaces its reservation, and so does a stop."
)

#: Columns that a narrow screen does without, the first of them first.
LEFT_OUT = ("δ", "μ²", "time (UTC)", "user", "purpose")
#: Columns whose texts are broken between words.
BROKEN = ("what", "purpose")


def _example(line: str) -> str:
    return f"\b\nExamples:\n  {line}"


@ledger.command(
    epilog=_example(
        'skdp ledger make budget.db --table "hospital stays 2025" --epsilon 3 '
        "--delta 1e-6"
    )
)
def make(
    path: File,
    epsilon: Annotated[float, typer.Option(help="ε of all that is ever released.")],
    delta: Annotated[float, typer.Option(help="δ of all that is ever released.")],
    reserved_delta: Annotated[
        float,
        typer.Option(help="Part of δ for finding categories; 0 if a schema has all."),
    ] = 0.0,
    neighbours: NeighboursName = Neighbours.add_remove,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Public name of the table that it belongs to.  [default: the file's "
            "name]",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="Take no other schema than this one, until it is admitted.",
        ),
    ] = None,
    user: User = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make a ledger with a ceiling (ε, δ), which is fixed from then on.

    It belongs to one table. All models of that table may be charged to it, whatever
    their target and columns are.
    """
    import skdp
    from skdp.schema import toml_files

    _refuse_taken(path)
    check_out(path, force=False)
    made = skdp.Ledger(
        path,
        epsilon,
        delta,
        reserved_delta=reserved_delta,
        neighbours=neighbours.value,
        table=table,
        schema=None if schema is None else toml_files.read(schema),
        purpose="to make the ledger",
        user=user,
    )
    if as_json:
        print_json(_summary(made))
    elif not quiet:
        typer.echo(shown(f"{made}\nGive it to every fit: skdp fit ... --ledger {path}"))


@ledger.command(epilog=_example("skdp ledger show budget.db --last 20"))
def show(
    path: File,
    last: Annotated[int, typer.Option(min=0, help="Entries to show.")] = 10,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what was spent, what is left, and the last entries."""
    opened = _opened(path)
    entries = opened.entries()
    tail = entries[len(entries) - min(last, len(entries)) :]
    if as_json:
        print_json(_summary(opened) | {"entries": [_fields(entry) for entry in tail]})
    elif not quiet:
        typer.echo(shown(str(opened)))
        if tail:
            _print_table(tail)
            screen().print(READING)


@ledger.command(epilog=_example("skdp ledger admit budget.db --schema other.toml"))
def admit(
    path: File,
    schema: Annotated[
        Path,
        typer.Option(metavar="TOML", help="A further schema of the same table."),
    ],
    purpose: Purpose = None,
    user: User = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let a ledger that was made with a schema take a further one.

    Only do so if it describes the same records: the promise is about one table. A
    ledger that was made without a schema takes every schema of its table anyway.
    """
    from skdp.schema import toml_files

    described = toml_files.read(schema)
    opened = _opened(path, purpose, user)
    opened.admit(described)
    if as_json:
        print_json(_summary(opened))
    elif not quiet:
        typer.echo(shown(f"{opened.table}: {schema} is admitted"))


@ledger.command(epilog=_example("skdp ledger check budget.db --head 12:3f9c..."))
def check(
    path: File,
    head: Annotated[
        str | None,
        typer.Option(help="A head noted earlier, which the entries must lead to."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Recompute hashes and sums; exit with 1 if the file was changed.

    Somebody who rewrites all of the file can write any history: note the head that
    this prints elsewhere, and give it back as --head.
    """
    from skdp.ledger import Head, Ledger, LedgerError
    from skdp.schema import check as refuse_unless

    there = f"There is no file {str(path)!r}: correct the path."
    refuse_unless(path.exists(), there)
    noted = None if head is None else Head.of(head)
    try:
        found, why = str(Ledger(path).check(noted)), None
    except LedgerError as error:
        found, why = None, str(error)
    if as_json:
        print_json({"passed": why is None, "head": found, "why": why})
    elif why is not None or not quiet:
        typer.echo(f"WHOLE: head {found}" if why is None else f"FAILED: {why}")
    if why is not None:
        raise typer.Exit(1)


@ledger.command(epilog=_example("skdp ledger export budget.db --form csv --out b.csv"))
def export(
    path: File,
    form: Annotated[str, typer.Option(help="jsonl or csv.")] = "jsonl",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it here, not to stdout.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: QuietButResult = False,
) -> None:
    """Write all entries, each with its hash, as JSON lines or CSV."""
    if out is not None:
        check_out(out, force)
    text = _opened(path).export(form)
    if out is not None:
        write_out(out, text)
    if as_json:
        named = None if out is None else str(out)
        print_json({"form": form, "text": text, "out": named})
    elif out is None:
        typer.echo(text, nl=False)
    elif not quiet:
        typer.echo(shown(f"entries in {out}"))


def _opened(path: Path, purpose: str | None = None, user: str | None = None) -> Ledger:
    import skdp
    from skdp.schema import check as refuse_unless

    refuse_unless(
        os.path.exists(path),
        f"There is no ledger {str(path)!r}: correct the path, or make one by `skdp "
        "ledger make`.",
    )
    return skdp.Ledger(path, purpose=purpose, user=user)


def _refuse_taken(path: Path) -> None:
    from skdp.schema import check as refuse_unless

    name = str(path)
    refuse_unless(
        not os.path.lexists(path),
        f"{name!r} exists, and the ceiling of a ledger is fixed: look at it with `skdp "
        f"ledger show {name}`, or make another one for other data.",
    )


def _summary(opened: Ledger) -> dict[str, Any]:
    terms = opened.terms
    return {
        "path": opened.path,
        "table": opened.table,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "reserved_delta": terms.reserved_delta,
        "neighbours": terms.neighbours,
        "mu_squared": terms.mu_squared,
        "spent_epsilon": opened.spent_epsilon,
        "remaining": opened.remaining,
        "remaining_delta": opened.remaining_delta,
        "affordable_epsilon": opened.affordable(terms.delta),
        "head": str(opened.head),
    }


def _fields(entry: Entry) -> dict[str, Any]:
    return {"seq": entry.seq, **entry.values(), "hash": entry.hash}


def _print_table(entries: list[Entry]) -> None:
    """Print entries; where they do not fit, what is needed least is left out."""
    from rich.table import Table
    from rich.text import Text

    console = screen()
    columns = _columns(entries)
    left_out = iter(LEFT_OUT)
    while _width(columns) > console.width and (name := next(left_out, None)):
        del columns[name]
    table = Table(box=None, pad_edge=False)
    for name in columns:
        right = name in ("#", "ε", "μ²", "δ")
        table.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=name not in BROKEN,
            min_width=_widest(name, columns[name]),
            overflow="fold",
        )
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)


def _columns(entries: list[Entry]) -> dict[str, list[str]]:
    """Cells of all columns, by name."""
    columns = {
        "#": [str(entry.seq) for entry in entries],
        "time (UTC)": [entry.time[:19].replace("T", " ") for entry in entries],
        "kind": [e.kind if e.of is None else f"{e.kind} {e.of}" for e in entries],
        "what": [shown(entry.query) for entry in entries],
        "purpose": [shown(entry.purpose) for entry in entries],
        "user": [shown(entry.user) for entry in entries],
    }
    numbers = {"ε": "epsilon", "μ²": "mu_squared", "δ": "delta"}
    return columns | {
        name: [f"{getattr(entry, field):.4g}" for entry in entries]
        for name, field in numbers.items()
    }


def _width(columns: dict[str, list[str]]) -> int:
    """What a table takes whose texts are broken between words only."""
    widest = [_widest(name, cells) for name, cells in columns.items()]
    return sum(widest) + 2 * (len(widest) - 1)


def _widest(name: str, cells: list[str]) -> int:
    """What a column takes at least: its longest text, or word where it is broken."""
    from rich.cells import cell_len

    texts = [name, *cells]
    return max(map(cell_len, " ".join(texts).split() if name in BROKEN else texts))
