"""The command line. It shows public and released values only.

To add a command `skdp NAME`: write `cli/NAME.py`, put NAME on the list COMMANDS below.
The file defines NAME, either a function (its parameters are the options, its docstring
is the help) or, for sub-commands, a `typer.Typer(help=..., no_args_is_help=True)`.

- Import what computes inside the function, not at the top: `skdp --help` imports every
  file of a command, and must stay fast.
- Raise ValueError, or call `skdp.schema.check`, for what is wrong: `main` prints the
  sentence and exits with code 2. A check that fails exits with 1: `typer.Exit(1)`.
- Take the options that all commands share (`--json` ...) from `cli/console.py`.
- No sentence and no exit code may depend on a record unless it was released.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, NoReturn

import skdp

try:
    import rich  # noqa: F401 (asked for here, so that its absence is said once)
    import typer
except ModuleNotFoundError:
    sys.stderr.write("The skdp command needs an extra: pip install 'skdp[cli]'.\n")
    raise SystemExit(2) from None

#: Every command, in the order of the help.
COMMANDS = ["demo"]

app = typer.Typer(
    name="skdp",
    help="Differentially private linear models.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
#: What typer raises for bad usage; its own name for it differs between versions.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> NoReturn:
    """Run the command: exit code 0, or 2 and one sentence for what is wrong."""
    try:
        sys.exit(app(prog_name="skdp", standalone_mode=False) or 0)
    except _USAGE_ERROR as error:
        sentence = getattr(error, "format_message", error.__str__)()
    except ValueError as error:
        sentence = str(error)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    # Without a command the "sentence" is the help.
    prefix = "" if sentence.startswith("Usage:") else "skdp: "
    sys.stderr.write(f"{prefix}{sentence}\n")
    sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skdp {skdp.__version__}")
        raise typer.Exit


@app.callback()
def _skdp(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Differentially private linear models."""


def _add(name: str) -> None:
    command = getattr(import_module(f"skdp.cli.{name}"), name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


for _name in COMMANDS:
    _add(_name)
