"""Define the `skdp` command, which prints only public and released values.

To add a command `skdp NAME`, write `cli/NAME_command.py` and add NAME to COMMANDS
below. The file must define an object called NAME_command, in one of two ways:

- For a single command, it is a function. Its parameters become the options, and its
  docstring becomes the help. A list EXAMPLES holds command lines to show in the help.
- For a command with sub-commands, it is a
  `typer.Typer(help=..., no_args_is_help=True)`.

These rules hold for every command:

- Import numpy and the rest of skdp inside the function, not at the top. `skdp --help`
  imports every command's file and must stay fast.
- Raise ValueError, or call `skdp.schema.check`, for bad input. `main` prints the
  message (as a JSON object with --json) and exits with code 2.
- Raise `typer.Exit(1)` if the command ran but a check that it makes has failed, as in
  `skdp verify`.
- Take the options that all commands share (`--json` ...) from `cli/options.py`.
- Messages and exit codes may depend on public and released values, but never on a
  record.
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
    import rich  # noqa: F401 (imported here to report once that it is missing)
    import typer
    from typer.core import TyperCommand
except ModuleNotFoundError:
    sys.stderr.write("The skdp command needs an extra: pip install 'skdp[cli]'.\n")
    raise SystemExit(2) from None

from skdp.cli.options import escape, format_json

#: All commands, in the order in which the help lists them.
COMMANDS = [
    "demo",
    "schema",
    "discover",
    "plan",
    "fit",
    "summary",
    "predict",
    "evaluate",
    "compare",
    "export",
    "verify",
    "report",
    "ledger",
    "audit",
]

#: Shown below the help of `skdp` itself.
FIRST_STEPS = """\b
Start in an empty directory:
  skdp demo --save .
  skdp plan --schema stays.toml --rows 50000
  skdp fit stays.csv --schema stays.toml --epsilon 1 --out model
Options and examples of a command:
  skdp fit --help
"""

app = typer.Typer(
    name="skdp",
    help="Differentially private linear and additive models.",
    epilog=FIRST_STEPS,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
#: typer's exception for bad usage, whose name differs between versions of typer.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


#: Unhelpful phrases in the messages of typer's parser, and their replacements.
PARSER_WORDS = {
    " Value error,": "",
    " (env var: 'None')": "",
    "Input should be a valid integer, unable to parse string as an integer": "Write a "
    "whole number, such as 20000",
}
#: Exit codes other than 0 (success) and 1 (a check failed).
REFUSED, INTERNAL, INTERRUPTED, CLOSED = 2, 70, 130, 141
IMPORTS = (ImportError, ModuleNotFoundError)


def main() -> NoReturn:
    """Run the command. On failure, print one sentence and exit with a nonzero code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # escape characters that cannot be encoded
            stream.reconfigure(errors="backslashreplace")
    # Hide all warnings, because a warning of another library may depend on a record.
    warnings.showwarning = _ignore
    try:
        code = app(prog_name="skdp", standalone_mode=False) or 0
        sys.stdout.flush()  # raises BrokenPipeError here if the reader is gone
        sys.exit(code)
    except _USAGE_ERROR as error:
        _stop(_describe_usage(error), REFUSED)
    except (ValueError, ImportError) as error:
        _stop(_describe_error(error), REFUSED, error)
    except (Closed, BrokenPipeError):  # the reader of stdout closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(CLOSED)
    except OSError as error:
        named = f": {error.filename!r}" if error.filename else ""
        _stop(f"{error.strerror or 'Failed'}{named}.", REFUSED, error)
    except (Interrupted, KeyboardInterrupt, typer.Abort) as error:
        _stop("Interrupted.", INTERRUPTED, error)
    except Exception as error:
        if type(error).__module__.startswith("skdp."):
            _stop(str(error), REFUSED, error)
        # Print neither the message nor a traceback, because they may quote a record.
        if os.environ.get("SKDP_DEBUG"):
            raise
        _stop(
            f"Internal error in skdp ({type(error).__name__}). Set SKDP_DEBUG=1 to see "
            "the traceback, which may quote records.",
            INTERNAL,
        )


def _ignore(*_: Any, **__: Any) -> None:
    pass


def _describe_usage(error: Any) -> str:
    """Return typer's message about bad usage, with a pointer to the command's help."""
    sentence = str(getattr(error, "format_message", error.__str__)())
    for words, plain in PARSER_WORDS.items():
        sentence = sentence.replace(words, plain)
    command = getattr(getattr(error, "ctx", None), "command_path", None)
    if command is None or sentence.startswith("Usage:"):
        return sentence
    stop = "" if sentence.endswith((".", "?")) else "."
    return f"{sentence}{stop} See {command} --help."


class Interrupted(Exception):
    """Raised in place of KeyboardInterrupt, whose notes typer would drop."""


class Closed(Exception):
    """Raised in place of BrokenPipeError, which typer would handle itself."""


def _translate_interrupts(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that interrupts and broken pipes pass through typer to `main`.

    KeyboardInterrupt becomes `Interrupted`, and BrokenPipeError becomes `Closed`.
    """

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as stop:
            interrupted = Interrupted()
            for note in getattr(stop, "__notes__", []):
                interrupted.add_note(note)
            raise interrupted from None
        except BrokenPipeError:
            raise Closed from None

    return run


def _describe_error(error: Exception) -> str:
    """Return the message of skdp's own errors, or a general one for other errors.

    Messages of other libraries are not shown, because they may quote a record.
    """
    kind = type(error)
    # Accept these classes but not their subclasses. UnicodeError, for example, is a
    # ValueError that quotes bytes of the file.
    if kind.__module__.startswith("skdp.") or kind in (ValueError, *IMPORTS):
        return str(error)
    return f"A file could not be read ({type(error).__name__})."


def _stop(sentence: str, code: int, error: BaseException | None = None) -> NoReturn:
    """Print the error and its notes to stderr, and exit with the code.

    The notes state the budget that an interrupted fit has spent.
    """
    notes = list(getattr(error, "__notes__", []))
    # Look at the raw arguments, because after bad usage there are no parsed options.
    if "--json" in sys.argv[1:]:
        text = format_json({"error": sentence, "notes": notes, "exit_code": code})
    else:
        # If no command was given, the "sentence" is the help text.
        prefix = "" if sentence.startswith("Usage:") else "skdp: "
        text = _wrap(escape("\n".join([prefix + sentence, *notes])))
    sys.stderr.write(f"{text}\n")
    sys.exit(code)


def _wrap(text: str) -> str:
    """Wrap long lines between words, but only if stderr is a terminal."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    fill = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(
        line if line.startswith(" ") else fill.fill(line) for line in text.split("\n")
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        from skdp.engines.choice import name_engine

        typer.echo(f"skdp {skdp.__version__}, engine {name_engine()}")
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
    """Differentially private linear and additive models."""


class _Command(TyperCommand):
    """A command that refuses a repeated option, such as a second budget.

    Only flags and options that take a list of values may be repeated.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left after the options are parsed."""
        *_, given = self.make_parser(ctx).parse_args(args=list(args))
        for param in given:
            listed = getattr(param, "multiple", True) or getattr(param, "is_flag", True)
            if not listed and given.count(param) > 1:
                ctx.fail(f"{param.opts[0]} may be given only once")
        return super().parse_args(ctx, args)


def _add_command(name: str) -> None:
    module = import_module(f"skdp.cli.{name}_command")
    command = getattr(module, f"{name}_command")
    if isinstance(command, typer.Typer):
        for one in command.registered_commands:
            one.cls = _Command
        app.add_typer(command, name=name)
        return
    lines = "\n".join(f"  {example}" for example in module.EXAMPLES)
    # The \b stops typer from joining the lines.
    add = app.command(name, cls=_Command, epilog=f"\b\nExamples:\n{lines}")
    add(_translate_interrupts(command))


for _name in COMMANDS:
    _add_command(_name)
