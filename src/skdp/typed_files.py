"""Read what anybody may have written into typed values, or refuse it in a sentence.

Each kind of file is a `Form`: a class whose annotations are all that is checked about
types, ranges and keys. Saved models, records, plans, ledger entries and schemas each
have one next to the code that turns it into an object.

Whatever the input is, reading it raises nothing but ValueError. Not a number, infinity,
numbers beyond floats, deep nesting, missing and unknown keys, truth values in place of
numbers, other encodings and files beyond a size are refused. Nothing is executed.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

F = TypeVar("F")

#: How our sentences say what msgspec says.
_WORDS = {
    "Object missing required field": "missing key",
    "Object contains unknown field": "unknown key",
    "Expected": "expected",
    "Invalid": "invalid",
    "Input data was truncated": "the text ends too early",
    "JSON is malformed": "it is not JSON",
    "Number": "a number is",
    "Integer value": "an integer is",
}
#: Raised by content that is not the form's; old versions of msgspec have their own.
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
#: Integers from here on are no longer floats.
LARGEST_INTEGER = 10**300
#: Most letters of a message that come from a file.
_LONGEST = 200

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
#: JSON has no infinity; ``float`` reads both.
Epsilon = Annotated[float, Meta(ge=0)] | Literal["inf"]
Scalar = bool | int | float | str | None
Value = bool | int | float | str | list[Scalar | list[Scalar]] | None


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a kind of file: exactly these keys, of these types."""


def read_file(path: str | os.PathLike[str], largest: int) -> bytes:
    """Return the bytes of a file; refuse one that is missing or above a size."""
    shown = repr(os.fsdecode(path))
    if os.path.isdir(path):
        raise ValueError(f"{shown} is a directory, not a file.")
    if not os.path.isfile(path):
        raise ValueError(f"There is no file {shown}.")
    if os.path.getsize(path) > largest:
        raise ValueError(f"{shown} is larger than {largest >> 20} MiB.")
    return Path(path).read_bytes()


def parse_json(text: bytes | str, form: type[F], what: str) -> F:
    """Read JSON as a form; `what` names the text and the form in the error."""
    try:
        found = msgspec.json.decode(text, type=form)
        if isinstance(found, msgspec.Struct):
            check_integers(msgspec.structs.asdict(found))
        return found
    except _REFUSED as error:
        refuse(what, error)


def convert(value: Any, form: type[F], what: str) -> F:
    """Read a dict as a form."""
    try:
        check_integers(value)
        return msgspec.convert(value, form)
    except _REFUSED as error:
        refuse(what, error)


def refuse(what: str, error: Exception) -> NoReturn:
    """Raise the one sentence that says what is wrong, and where."""
    problem, _, place = str(error).partition(" - at `$")
    if isinstance(error, RecursionError):
        problem = "values are nested too deeply"
    for theirs, ours in _WORDS.items():
        if problem.startswith(theirs):
            problem = ours + problem.removeprefix(theirs)
    place = place.removesuffix("`").removeprefix(".")
    sentence = problem.removesuffix(".") + (f" at {place}" if place else "")
    letters = (c if c.isprintable() else f"\\x{ord(c):02x}" for c in sentence)
    raise ValueError(f"{what}: {''.join(letters)[:_LONGEST]}.") from None


def check_integers(value: Any) -> None:
    """Refuse integers that floats cannot hold, in lists and dicts too."""
    kind = type(value)
    if kind is int and not -LARGEST_INTEGER < value < LARGEST_INTEGER:
        raise ValueError("an integer has too many digits")
    if kind is dict or kind is list:
        for part in value.values() if kind is dict else value:
            if type(part) is not float:  # as most are
                check_integers(part)


def write_json(form: msgspec.Struct, what: str) -> str:
    """Write a form as JSON for people; refuse one that could not be read again."""
    try:
        values = msgspec.to_builtins(form, enc_hook=_to_python)
        text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        refuse(what, error)
    parse_json(text, type(form), what)
    return text


def to_json(value: Any) -> Any:
    """Return a number as JSON takes it, which has no infinity and no numpy types."""
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _to_python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a value of type {type(value).__name__} cannot be saved")
