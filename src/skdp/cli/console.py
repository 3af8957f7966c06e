"""Options and output that all commands share."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

#: `as_json: AsJson = False`: print one object to stdout and nothing else.
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object; infinity becomes null."),
]
#: `quiet: Quiet = False`: print errors only.
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
#: The same for a command whose result is a text, printed unless --out is given.
QuietButResult = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print errors only, and the result if no --out."
    ),
]
#: `force: Force = False`: replace an existing output.
Force = Annotated[bool, typer.Option("--force", help="Replace an existing --out.")]

#: Longest file name, in bytes. Systems allow 255, and the temporary file that is
#: written first has a longer name.
LONGEST = 200


def open_console(as_json: bool = False, quiet: bool = False) -> Console:
    """Return a console on stdout that prints nothing with --json or --quiet."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for `main`, which knows the exit code

    return Screen(highlight=False, quiet=as_json or quiet, soft_wrap=False)


def shows_progress(as_json: bool = False, quiet: bool = False) -> bool:
    """Whether to show progress: stderr is a terminal, and neither option is set."""
    return sys.stderr.isatty() and not quiet and not as_json


def silence_compiler(as_json: bool = False, quiet: bool = False) -> None:
    """Suppress the message about compiling kernels with --json or --quiet."""
    from skdp.engines.compilation import suppress_message

    suppress_message(as_json or quiet)


def escape(text: str) -> str:
    """Return the text with control characters escaped.

    Models and schemas may come from strangers, who could move a terminal's cursor.
    """
    return "".join(
        letter if letter == "\n" or letter.isprintable() else ascii(letter)[1:-1]
        for letter in text
    )


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; infinities and NaN become null."""
    typer.echo(format_json(value))


def format_json(value: dict[str, Any]) -> str:
    """Return one JSON object with control characters escaped, as in `escape`."""
    text = json.dumps(_replace_infinities(value), indent=2, ensure_ascii=False)
    return "".join(
        letter if letter == "\n" or letter.isprintable() else json.dumps(letter)[1:-1]
        for letter in text
    )


def _replace_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_infinities(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_out(out: Path, force: bool) -> None:
    """Refuse an output path that cannot be written, before any budget is spent."""
    from skdp.schema import check

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
    """Write to a temporary file and rename it to `out`, replacing a link too."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        path = Path(folder) / out.name
        path.write_text(text, encoding="utf-8", newline="\n")
        os.replace(path, out)
