"""Define the options that all commands share, and functions that print and write."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.reporting.formatting import escape_unprintable, replace_infinities

if TYPE_CHECKING:
    from rich.console import Console

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
