"""Schemas as TOML files, for people to write, review and keep beside the data.

.. code-block:: toml

    row_norm = 3.0

    [columns.age]
    kind = "numeric"
    low = 17
    high = 90

    [columns.job]
    kind = "categorical"
    levels = ["admin", "tech"]

    [columns.words]
    kind = "vector"
    names = ["w0", "w1"]
    norm = 1.0

    [target]
    name = "income"
    kind = "categorical"
    levels = ["<=50K", ">50K"]

The keys of a column are the parameters of `Numeric`, `Categorical` and `Vector`. A
target without a name comes apart from the table.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skdp.schema.columns import Categorical, Column, Numeric, Vector
from skdp.schema.schema import Schema
from skdp.schema.validation import check

LARGEST = 1 << 24
"""Most bytes of a file that are read."""

BLANK = "?"
"""What a template holds where a person has to decide."""

_FILLED = {
    "kind": "a kind (then low and high, or levels)",
    "low": "low",
    "high": "high",
    "levels": "levels",
}
_CLASSES: Mapping[str, type[Column]] = {
    "numeric": Numeric,
    "categorical": Categorical,
    "vector": Vector,
}
_WIDTH = 88
_LARGEST = 10**300  # an integer that is still a float
# What `tomllib` takes minutes for: a key of a hundred parts, in quotes or not.
_DEEP = re.compile(
    r"""(?:^|[\[{,])[ \t]*+(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){99}""",
    re.ASCII | re.MULTILINE,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MOST_BINS = 1 << 20  # of all columns, each with a name and a weight


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and -_LARGEST < value < _LARGEST
    return isinstance(value, float)


def _is_level(value: object) -> bool:
    return isinstance(value, (str, bool)) or (
        _is_number(value) and math.isfinite(value)  # type: ignore[arg-type]
    )


def _is_list(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_TYPES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "low": (_is_number, "a number"),
    "high": (_is_number, "a number"),
    "scale": (_is_text, "a text"),
    "bins": (lambda value: _is_number(value) and isinstance(value, int), "an integer"),
    "missing": (_is_number, "a number"),
    "indicator": (lambda value: isinstance(value, bool), "true or false"),
    "levels": (_is_list(_is_level), "a list of texts, finite numbers or booleans"),
    "other": (_is_level, "a text, a finite number or a boolean"),
    "names": (_is_list(_is_text), "a list of texts"),
    "norm": (_is_number, "a number"),
    "row_norm": (_is_number, "a number"),
    "name": (_is_text, "a text"),
    "kind": (lambda value: value in _CLASSES, " or ".join(map(repr, _CLASSES))),
    "columns": (lambda value: isinstance(value, dict), "a table of columns"),
    "target": (lambda value: isinstance(value, dict), "a table"),
}
"""What the value of each key has to be."""


def read(path: str | PathLike[str]) -> Schema:
    """Read a schema from a TOML file."""
    check(
        not os.path.isdir(path),
        f"{str(path)!r} is a directory: name a schema's TOML file.",
    )
    check(Path(path).is_file(), f"There is no file {str(path)!r}: correct its path.")
    check(
        Path(path).stat().st_size <= LARGEST,
        f"A schema file has at most {LARGEST >> 20} MiB: shorten {str(path)!r}.",
    )
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"A schema file is UTF-8 text. Save {str(path)!r} as such."
        ) from None
    return _loaded(text, f"The schema {str(path)!r}")


def given(schema: Schema | str | PathLike[str] | None) -> Schema | None:
    """Return a schema as a parameter gives it: itself, or the path of its file."""
    if isinstance(schema, (str, PathLike)):
        return read(schema)
    check(
        schema is None or isinstance(schema, Schema),
        "schema must be a Schema or the path of its TOML file. Got "
        f"{type(schema).__name__}: skdp.schema.toml_files.read(path) reads one.",
    )
    return schema


def write(schema: Schema, path: str | PathLike[str]) -> None:
    """Write a schema to a TOML file."""
    Path(path).write_bytes(dumps(schema).encode())


def loads(text: str) -> Schema:
    """Make a schema from TOML text.

    Raises
    ------
    ValueError
        In one sentence that names the column: an unknown key, a value of the wrong
        type, a missing one, or what the schema itself refuses.
    """
    return _loaded(text, "The schema")


def _loaded(text: str, what: str) -> Schema:
    """A schema; `what` names it where it is no TOML, but perhaps another file."""
    try:
        if _DEEP.search(text):
            raise RecursionError
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{what} is not TOML: {error}. Correct it.") from None
    except (RecursionError, ValueError):  # of a number of thousands of digits
        raise ValueError(
            "The schema has a list or table nested too deeply, or a number of too many "
            "digits: correct it."
        ) from None
    _check_keys(tables, ("row_norm", "columns", "target"), "The schema")
    check("columns" in tables, "The schema needs columns: add [columns.NAME].")
    described = {_column(name): body for name, body in tables["columns"].items()}
    for name, body in described.items():
        check(isinstance(body, dict), f"{name} needs a table: write [columns.NAME].")
    if "target" in tables:
        described["The target"] = tables["target"]
    _check_complete(described)
    columns = {
        name: _made(body, _column(name)) for name, body in tables["columns"].items()
    }
    target: Any = None
    if "target" in tables:
        body = dict(tables["target"])
        name = body.pop("name", None)
        check(
            name is None or isinstance(name, str),
            f"The target needs a text as name. Got {_shown(name)}: put it in quotes.",
        )
        described_as = _made(body, "The target", ("numeric", "categorical"))
        target = described_as if name is None else (name, described_as)
    bins = sum(c.bins or 0 for c in columns.values() if isinstance(c, Numeric))
    check(
        bins <= _MOST_BINS,
        f"The schema needs at most {_MOST_BINS} bins in all. Got {bins}: take fewer.",
    )
    return Schema(columns, target=target, row_norm=tables.get("row_norm"))


def dumps(schema: Schema) -> str:
    """Write a schema as TOML text; `loads` gives an equal schema back."""
    head = {} if schema.row_norm is None else {"row_norm": schema.row_norm}
    parts = [_lines(head)] if head else []
    for name, column in schema.columns.items():
        parts.append(f"[columns.{toml_key(name)}]\n{_lines(_body(column))}")
    if schema.target is not None:
        body = _body(schema.target_column)
        if schema.target_name is not None:
            body = {"name": schema.target_name} | body
        parts.append(f"[target]\n{_lines(body)}")
    return "\n".join(parts)


def _column(name: str) -> str:
    return f"Column {name!r}"


def _check_complete(described: Mapping[str, Mapping[str, Any]]) -> None:
    """Say at once what all the columns of a template still need."""
    open_: dict[str, list[str]] = {}
    for where, body in described.items():
        keys = [text for key, text in _FILLED.items() if body.get(key) == BLANK]
        if keys:
            open_.setdefault(" and ".join(keys), []).append(where)
    listed = "; ".join(
        f"{_few(wheres)} need{'s' if len(wheres) == 1 else ''} {needed}"
        for needed, wheres in open_.items()
    )
    check(not listed, f'The schema is not complete: {listed}. Replace each "{BLANK}".')


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _check_keys(body: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key, value in body.items():
        close = difflib.get_close_matches(key, known, 1)
        remedy = f"Did you mean {close[0]!r}?" if close else f"Use {', '.join(known)}."
        check(key in known, f"{where} has no key {key!r}. {remedy}")
        holds, rule = _TYPES[key]
        check(
            holds(value),
            f"{where} needs {rule} as {key}. Got {_shown(value)}: change it.",
        )


def _shown(value: object) -> str:
    """A value in a message, which nobody wants to be long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of thousands of digits
        text = "an integer of many digits"
    return text if len(text) <= 200 else f"{text[:200]}…"


def _made(
    body: Mapping[str, Any], where: str, allowed: Sequence[str] = tuple(_CLASSES)
) -> Any:
    """A column from the keys of its table."""
    choices = " or ".join(map(repr, allowed))
    kind = body.get("kind")
    check(
        kind in allowed,
        f"{where} needs a kind, {choices}. "
        + ("Add it." if kind is None else f"Got {_shown(kind)}: change it."),
    )
    made = _CLASSES[str(kind)]
    fields = dataclasses.fields(made)
    _check_keys(body, ["kind", *(field.name for field in fields)], where)
    for field in fields:
        check(
            field.default is not dataclasses.MISSING or field.name in body,
            f"{where} needs {field.name}: add it.",
        )
    try:
        return made(**{key: value for key, value in body.items() if key != "kind"})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _body(column: Column) -> dict[str, Any]:
    """The keys of a column's table: what is not at its default."""
    kind = next(name for name, made in _CLASSES.items() if isinstance(column, made))
    values = {
        field.name: getattr(column, field.name)
        for field in dataclasses.fields(column)
        if field.default is dataclasses.MISSING
        or getattr(column, field.name) != field.default
    }
    return {"kind": kind} | values


def _lines(body: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_value(value, key)}\n" for key, value in body.items())


def _value(value: Any, key: str) -> str:
    if not isinstance(value, tuple):
        return _scalar(value, key)
    items = [_scalar(item, key) for item in value]
    line = f"[{', '.join(items)}]"
    if len(key) + 3 + len(line) <= _WIDTH:
        return line
    return "[\n" + "".join(f"    {item},\n" for item in items) + "]"


def _scalar(value: Any, key: str) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    check(
        _is_level(value),
        f"A schema file holds texts, finite numbers and booleans. Got {value!r} as "
        f"{key}: change it.",
    )
    if isinstance(value, bool):
        return str(value).lower()
    return toml_string(value) if isinstance(value, str) else repr(value)


def toml_key(name: str) -> str:
    """A name as a key: bare if it may be."""
    return name if _BARE.fullmatch(name) else toml_string(name)


def toml_string(text: str) -> str:
    """A basic string of TOML."""
    check(
        not any("\ud800" <= letter <= "\udfff" for letter in text),
        f"A schema file is UTF-8 text, which cannot hold {text!r}: change it.",
    )
    # What no terminal shows as it is: TOML would take most of it, and move its cursor.
    escaped = (
        _ESCAPES.get(letter)
        or (letter if letter.isprintable() else f"\\U{ord(letter):08x}")
        for letter in text
    )
    return f'"{"".join(escaped)}"'
