"""Read untrusted files into typed values, or refuse them with a one-sentence error.

The content of each kind of file is described by a `Form`. This is a class whose
annotations say which keys, types and ranges are accepted. There are forms for saved
models, records, plans, ledger entries and schemas. Each is defined next to the code
that turns it into an object.

Whatever the input is, reading it raises nothing but ValueError. The following are
refused: nan, infinity, numbers too large for floats, deep nesting, missing and unknown
keys, booleans in place of numbers, encodings other than UTF-8, and files above a given
size. Nothing is executed.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

F = TypeVar("F")

#: How messages of msgspec begin, and the words that replace these beginnings.
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
#: The name of each type in messages, in the words of people who write such files.
_TYPES = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "null": "nothing",
}
#: Errors that wrong content raises. Some are raised only by old versions of msgspec.
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
#: Integers of this size or larger are refused, because floats cannot hold them.
LARGEST_INTEGER = 10**300
#: Largest number of characters that a message may quote from a file.
_LONGEST = 200

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
#: JSON has no infinity, so the string "inf" stands for it. ``float`` accepts numbers
#: and this string.
Epsilon = Annotated[float, Meta(ge=0)] | Literal["inf"]
Scalar = bool | int | float | str | None
Value = bool | int | float | str | list[Scalar | list[Scalar]] | None


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of forms. A form accepts only its own keys and their types."""


def read_file(path: str | os.PathLike[str], largest: int) -> bytes:
    """Return the bytes of a file, which must exist and have at most `largest` bytes."""
    shown = repr(os.fsdecode(path))
    if os.path.isdir(path):
        raise ValueError(f"{shown} is a directory, not a file.")
    if not os.path.isfile(path):
        raise ValueError(f"There is no file {shown}.")
    if os.path.getsize(path) > largest:
        raise ValueError(f"{shown} is larger than {largest >> 20} MiB.")
    return Path(path).read_bytes()


def parse_json(text: bytes | str, form: type[F], what: str) -> F:
    """Parse JSON text as an instance of `form`. Error messages begin with `what`."""
    try:
        found = msgspec.json.decode(text, type=form)
        if isinstance(found, msgspec.Struct):
            check_integers(msgspec.structs.asdict(found))
        return found
    except _REFUSED as error:
        refuse(what, error)


def convert(value: Any, form: type[F], what: str) -> F:
    """Convert a value to an instance of `form`. Error messages begin with `what`."""
    try:
        check_integers(value)
        return msgspec.convert(value, form)
    except _REFUSED as error:
        refuse(what, error)


def refuse(what: str, error: Exception) -> NoReturn:
    """Raise a ValueError that says in one sentence what is wrong and where."""
    problem, _, place = str(error).partition(" - at `$")
    if isinstance(error, RecursionError):
        problem = "values are nested too deeply"
    for theirs, ours in _WORDS.items():
        if problem.startswith(theirs):
            problem = ours + problem.removeprefix(theirs)
    if problem.startswith("expected"):
        problem = re.sub(r"`([a-z| ]+)`", _name_type, problem)
    place = place.removesuffix("`").removeprefix(".")
    sentence = problem.removesuffix(".") + (f" at {place}" if place else "")
    letters = (c if c.isprintable() else f"\\x{ord(c):02x}" for c in sentence)
    raise ValueError(f"{what}: {''.join(letters)[:_LONGEST]}.") from None


def _name_type(found: re.Match[str]) -> str:
    """Return the name of a type in plain words, without "or null"."""
    names = found[1].replace("int | float", "float").split(" | ")
    kept = [name for name in names if name != "null"] or names
    return " or ".join(_TYPES.get(name, name) for name in kept)


def check_integers(value: Any) -> None:
    """Refuse integers that floats cannot hold, including those in lists and dicts."""
    kind = type(value)
    if kind is int and not -LARGEST_INTEGER < value < LARGEST_INTEGER:
        raise ValueError("an integer has too many digits")
    if kind is dict or kind is list:
        for part in value.values() if kind is dict else value:
            if type(part) is not float:  # most values are floats
                check_integers(part)


def write_json(form: msgspec.Struct, what: str) -> str:
    """Return a `Form` as indented JSON. Refuse values that cannot be read back."""
    try:
        values = msgspec.to_builtins(form, enc_hook=to_python)
        text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        refuse(what, error)
    parse_json(text, type(form), what)
    return text


def to_json(value: Any) -> Any:
    """Convert numpy scalars to Python's types, and infinity to a string, for JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def to_python(value: Any) -> Any:
    """Convert numpy scalars for msgspec, which does not know them."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a value of type {type(value).__name__} cannot be saved")
