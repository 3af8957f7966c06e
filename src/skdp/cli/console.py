"""What all commands share: common options, how they print, where they may write."""

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

#: `as_json: AsJson = False`: one object on stdout and nothing else.
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, null for infinity.")
]
#: `quiet: Quiet = False`: errors only.
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing unless something fails.")
]
#: The same for a command whose result is a text: it is printed if no file takes it.
QuietButResult = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print nothing but a result that has no --out."),
]
#: `force: Force = False`: an output that exists is replaced.
Force = Annotated[bool, typer.Option("--force", help="Replace what --out names.")]

#: Longest name of a file: systems allow 255 bytes, and what is written beside it first
#: has a longer one.
LONGEST = 200


def screen(as_json: bool = False, quiet: bool = False) -> Console:
    """Where people read: stdout, silent if a script reads it."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for `main`, which knows the exit code

    return Screen(highlight=False, quiet=as_json or quiet, soft_wrap=False)


def watched(as_json: bool = False, quiet: bool = False) -> bool:
    """Whether somebody looks at stderr, so that progress is worth showing there."""
    return sys.stderr.isatty() and not quiet and not as_json


def hushed(as_json: bool = False, quiet: bool = False) -> None:
    """Let nothing be said of compiled kernels where a script reads, or nobody."""
    from skdp.engines.compilation import suppress_message

    suppress_message(as_json or quiet)


def shown(text: str) -> str:
    """A text as a terminal may get it: what would move its cursor is written out.

    Models and schemas may be a stranger's.
    """
    return "".join(
        letter if letter == "\n" or letter.isprintable() else ascii(letter)[1:-1]
        for letter in text
    )


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; null stands for what JSON has no word for."""
    typer.echo(json_text(value))


def json_text(value: dict[str, Any]) -> str:
    """One JSON object as a terminal may get it: see `shown`."""
    text = json.dumps(_plain(value), indent=2, ensure_ascii=False)
    return "".join(
        letter if letter == "\n" or letter.isprintable() else json.dumps(letter)[1:-1]
        for letter in text
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_out(out: Path, force: bool) -> None:
    """Refuse a place that cannot be written to, before anything is spent."""
    from skdp.schema import check

    there = os.path.lexists(out)
    check(
        force or not there,
        f"{str(out)!r} exists: choose another place, or replace it by --force.",
    )
    long = [part for part in out.parts if len(os.fsencode(part)) > LONGEST]
    check(
        not long,
        f"--out needs names of at most {LONGEST} bytes. Got {str(long)[2:30]}…: choose "
        "a shorter one.",
    )
    above = out.parent
    while not os.path.lexists(above):
        above = above.parent
    try:
        tempfile.TemporaryFile(dir=above).close()
        writable = True
    except OSError:
        writable = False
    check(writable, f"Nothing can be written in {str(above)!r}: choose another place.")


def write_out(out: Path, text: str) -> None:
    """Write a file that appears when it is complete, in place of a link too."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        path = Path(folder) / out.name
        path.write_text(text, encoding="utf-8", newline="\n")
        os.replace(path, out)
