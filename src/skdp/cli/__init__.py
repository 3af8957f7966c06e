"""The command line. It shows public and released values only.

To add a command `skdp NAME`: write `cli/NAME.py`, put NAME on the list COMMANDS below.
The file defines NAME, either a function (its parameters are the options, its docstring
is the help) and a list EXAMPLES of command lines, which the help shows; or, for
sub-commands, a `typer.Typer(help=..., no_args_is_help=True)`.

- Import what computes inside the function, not at the top: `skdp --help` imports every
  file of a command, and must stay fast.
- Raise ValueError, or call `skdp.schema.check`, for what is wrong: `main` prints the
  sentence, or an object with it after --json, and exits with code 2. A check that
  fails exits with 1: `typer.Exit(1)`.
- Take the options that all commands share (`--json` ...) from `cli/console.py`.
- No sentence and no exit code may depend on a record unless it was released.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, NoReturn

import skdp

try:
    import rich  # noqa: F401 (asked for here, so that its absence is said once)
    import typer
except ModuleNotFoundError:
    sys.stderr.write("The skdp command needs an extra: pip install 'skdp[cli]'.\n")
    raise SystemExit(2) from None

from skdp.cli.console import json_text, shown

#: Every command, in the order of the help.
COMMANDS = [
    "demo",
    "schema",
    "plan",
    "fit",
    "predict",
    "compare",
    "verify",
    "report",
    "ledger",
    "audit",
]

#: For whoever sees it for the first time.
FIRST = """\b
Start in an empty directory:
  skdp demo --save .
  skdp plan --schema stays.toml --rows 50000
  skdp fit stays.csv --schema stays.toml --epsilon 1 --out model
Options and examples of a command:
  skdp fit --help
"""

app = typer.Typer(
    name="skdp",
    help="Differentially private linear models.",
    epilog=FIRST,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
#: What typer raises for bad usage; its own name for it differs between versions.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


#: Exit codes beside 0, and 1 for a check that failed.
REFUSED, INTERNAL, INTERRUPTED, CLOSED = 2, 70, 130, 141
IMPORTS = (ImportError, ModuleNotFoundError)


def main() -> NoReturn:
    """Run the command: exit code 0, or another and one sentence for what is wrong."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that it lacks is no error
            stream.reconfigure(errors="backslashreplace")
    # A library's warning may depend on a record.
    warnings.showwarning = _say_nothing
    try:
        code = app(prog_name="skdp", standalone_mode=False) or 0
        sys.stdout.flush()  # here, so that a pipe that was closed is noticed
        sys.exit(code)
    except _USAGE_ERROR as error:
        _stop(_usage(error), REFUSED)
    except (ValueError, ImportError) as error:
        _stop(_sentence(error), REFUSED, error)
    except (Closed, BrokenPipeError):  # whoever read stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(CLOSED)
    except OSError as error:
        named = f": {error.filename!r}" if error.filename else ""
        _stop(f"{error.strerror or 'Failed'}{named}.", REFUSED, error)
    except (Interrupted, KeyboardInterrupt, typer.Abort) as error:
        _stop("Interrupted.", INTERRUPTED, error)
    except Exception as error:
        # Neither its message nor a traceback is shown: they may quote a record.
        if os.environ.get("SKDP_DEBUG"):
            raise
        _stop(
            f"Something is wrong inside skdp ({type(error).__name__}). Set "
            "SKDP_DEBUG=1 to see where; what it shows may quote records.",
            INTERNAL,
        )


def _say_nothing(*_: Any, **__: Any) -> None:
    pass


def _usage(error: Any) -> str:
    """What is wrong with the usage, and where the right one is said."""
    sentence = str(getattr(error, "format_message", error.__str__)())
    for words in (" Value error,", " (env var: 'None')"):  # of typer's parser
        sentence = sentence.replace(words, "")
    command = getattr(getattr(error, "ctx", None), "command_path", None)
    if command is None or sentence.startswith("Usage:"):
        return sentence
    stop = "" if sentence.endswith((".", "?")) else "."
    return f"{sentence}{stop} See {command} --help."


class Interrupted(Exception):
    """A KeyboardInterrupt with its notes, which typer would drop."""


class Closed(Exception):
    """A BrokenPipeError, for which typer has an exit code of its own."""


def _heard(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def heard(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as stop:
            told = Interrupted()
            for note in getattr(stop, "__notes__", []):
                told.add_note(note)
            raise told from None
        except BrokenPipeError:
            raise Closed from None

    return heard


def _sentence(error: Exception) -> str:
    """What an error says, if it is no other library's: those may quote a record."""
    kind = type(error)
    # Not those that Python derives from ValueError: a UnicodeError quotes bytes.
    if kind.__module__.startswith("skdp.") or kind in (ValueError, *IMPORTS):
        return str(error)
    return f"A file could not be read ({type(error).__name__}). Check it."


def _stop(sentence: str, code: int, error: BaseException | None = None) -> NoReturn:
    """Say on stderr what is wrong and what a fit that stopped half-way has spent."""
    notes = list(getattr(error, "__notes__", []))
    # Usage that is wrong was not parsed, so that the words themselves are asked.
    if "--json" in sys.argv[1:]:
        said = json_text({"error": sentence, "notes": notes, "exit_code": code})
    else:
        # Without a command the "sentence" is the help.
        prefix = "" if sentence.startswith("Usage:") else "skdp: "
        said = _wrapped(shown("\n".join([prefix + sentence, *notes])))
    sys.stderr.write(f"{said}\n")
    sys.exit(code)


def _wrapped(text: str) -> str:
    """Lines that a terminal need not break inside a word; others get long ones."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    fill = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(
        line if line.startswith(" ") else fill.fill(line) for line in text.split("\n")
    )


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
    module = import_module(f"skdp.cli.{name}_command")
    command = getattr(module, name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
        return
    lines = "\n".join(f"  {example}" for example in module.EXAMPLES)
    # The backspace keeps the lines as they are.
    app.command(name, epilog=f"\b\nExamples:\n{lines}")(_heard(command))


for _name in COMMANDS:
    _add(_name)
