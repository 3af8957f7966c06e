"""Read and write schemas as TOML files, which people can edit and review.

.. code-block:: toml

    row_norm = 3.0
    unit = "patient_id"

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

    [columns.age-job]
    kind = "pair"
    first = "age"
    second = "job"

    [columns."age:job[T.tech]"]
    kind = "product"
    low = 0
    high = 90

    [[columns."age:job[T.tech]".factors]]
    name = "age"
    column = { kind = "numeric", low = 17, high = 90 }

    [[columns."age:job[T.tech]".factors]]
    name = "job"
    column = { kind = "categorical", levels = ["admin", "tech"] }
    level = "tech"

    [target]
    name = "income"
    kind = "categorical"
    levels = ["<=50K", ">50K"]

The keys of a column are the parameters of `Numeric`, `Categorical`, `Vector`, `Pair`
and `Product`. A target without a name is passed separately from the table.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from msgspec import structs

from skdp.schema.columns import Categorical, Column, Numeric, Pair, Vector
from skdp.schema.products import Factor, Product
from skdp.schema.schema import Schema
from skdp.schema.validation import check
from skdp.typed_files import Form, check_integers, convert, read_file

LARGEST = 1 << 24
"""Largest size of a file, in bytes."""

BLANK = "?"
"""The mark in a template that a person has to replace."""

_FILLED = {
    "kind": "a kind (then low and high, or levels)",
    "low": "low",
    "high": "high",
    "levels": "levels",
}
# Matches keys of a hundred parts, quoted or not. `tomllib` takes minutes to read them.
_DEEP = re.compile(
    r"""(?:^|[\[{,])[ \t]*+(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){99}""",
    re.ASCII | re.MULTILINE,
)


class SchemaForm(Form, frozen=True, kw_only=True):
    """The keys of a schema file. A value may be a table with further keys."""

    columns: dict[str, Any]
    target: dict[str, Any] | None = None
    row_norm: int | float | None = None
    unit: str | list[str] | None = None


class NumericForm(Form, frozen=True, kw_only=True, tag_field="kind", tag="numeric"):
    """The TOML table of a numeric column."""

    low: int | float
    high: int | float
    scale: str = "linear"
    bins: int | None = None
    missing: int | float | None = None
    indicator: bool = False
    knots: int | str | list[float] | None = None
    fill: list[float] | None = None


class CategoricalForm(
    Form, frozen=True, kw_only=True, tag_field="kind", tag="categorical"
):
    """The TOML table of a categorical column."""

    levels: list[str | bool | int | float]
    other: str | bool | int | float | None = None
    reference: str | bool | int | float | None = None

    def __post_init__(self) -> None:
        numbers = [
            v
            for v in (*self.levels, self.other, self.reference)
            if isinstance(v, float)
        ]
        check(all(map(math.isfinite, numbers)), "levels must be finite numbers")


class VectorForm(Form, frozen=True, kw_only=True, tag_field="kind", tag="vector"):
    """The TOML table of a vector, which is several numeric columns."""

    names: list[str]
    norm: int | float = 1.0


class PairForm(Form, frozen=True, kw_only=True, tag_field="kind", tag="pair"):
    """The TOML table of a pair of columns."""

    first: str
    second: str
    knots: int | str = "auto"
    scale: int | float = 0.5


class FactorForm(Form, frozen=True, kw_only=True):
    """The TOML table of a factor of a product."""

    name: str
    column: dict[str, Any]
    level: str | bool | int | float | None = None
    transform: str = "linear"
    centre: int | float = 0.0


class ProductForm(Form, frozen=True, kw_only=True, tag_field="kind", tag="product"):
    """The TOML table of a product, which is computed from other columns."""

    low: int | float
    high: int | float
    scale: str = "linear"
    missing: int | float | None = None
    fill: list[float] | None = None
    factors: list[dict[str, Any]]
    centred: bool = False


_COLUMNS: Mapping[str, tuple[type[Form], type[Column]]] = {
    "numeric": (NumericForm, Numeric),
    "categorical": (CategoricalForm, Categorical),
    "vector": (VectorForm, Vector),
    "pair": (PairForm, Pair),
    "product": (ProductForm, Product),
}


def read_toml(path: str | PathLike[str]) -> Schema:
    """Read a schema from a TOML file."""
    what = f"The schema {str(path)!r}"
    try:
        text = read_file(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8 text.") from None
    return _parse(text, what)


def accept_schema(schema: Schema | str | PathLike[str] | None) -> Schema | None:
    """Return the schema, or read it if its path is given."""
    if isinstance(schema, (str, PathLike)):
        return read_toml(schema)
    check(
        schema is None or isinstance(schema, Schema),
        "schema must be a Schema or the path of its TOML file, got "
        f"{type(schema).__name__}.",
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
        If a key is unknown or missing, if a value has the wrong type, or if `Schema` or
        a column refuses a value. The message is one sentence that names the column.
    """
    return _parse(text, "The schema")


def _parse(text: str, what: str) -> Schema:
    """Make a schema from TOML text; `what` names the text in error messages."""
    try:
        if _DEEP.search(text):
            raise RecursionError
        tables = tomllib.loads(text)
        check_integers(tables)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{what} is not TOML: {error}.") from None
    except (RecursionError, ValueError):  # ValueError: too many digits
        raise ValueError(
            f"{what} has a list or table nested too deeply, or a number with too many "
            "digits."
        ) from None
    _check_keys(tables, SchemaForm, "The schema")
    form = convert(tables, SchemaForm, "The schema")
    target = dict(form.target or {})
    name = target.pop("name", None)
    check(
        name is None or isinstance(name, str),
        "The name of the target must be a string.",
    )
    tables = {f"Column {key!r}": body for key, body in form.columns.items()}
    for where, body in tables.items():
        check(isinstance(body, dict), f"{where} must be a table.")
    _check_complete(tables if form.target is None else tables | {"The target": target})
    columns = {
        key: _read_column(body, where)
        for key, (where, body) in zip(form.columns, tables.items(), strict=True)
    }
    described: Any = None
    if form.target is not None:
        check(
            target.get("kind") not in ("vector", "pair"),
            "The target must have kind 'numeric' or 'categorical', got "
            f"{target.get('kind')!r}.",
        )
        described = _read_column(target, "The target")
        described = described if name is None else (name, described)
    return Schema(columns, target=described, row_norm=form.row_norm, unit=form.unit)


def dumps(schema: Schema) -> str:
    """Return a schema as TOML text, from which `loads` makes an equal schema."""
    tables: dict[str, Any] = {}
    if schema.row_norm is not None:
        tables["row_norm"] = _to_python(schema.row_norm)
    if schema.unit is not None:
        tables["unit"] = _to_python(schema.unit)
    tables["columns"] = {
        name: _write_column(column) for name, column in schema.columns.items()
    }
    if schema.target is not None:
        name = {} if schema.target_name is None else {"name": schema.target_name}
        tables["target"] = name | _write_column(schema.target_column)
    return write_toml(tables)


def write_toml(tables: Mapping[str, Any]) -> str:
    """Return tables as TOML text, with unprintable characters escaped."""
    text = tomli_w.dumps(tables)
    check(
        not any("\ud800" <= letter <= "\udfff" for letter in text),
        "A schema file is UTF-8 text, which cannot hold lone surrogates.",
    )
    # Unprintable characters are only in quoted strings and keys, which allow escapes.
    return "".join(
        c if c == "\n" or c.isprintable() else f"\\U{ord(c):08x}" for c in text
    )


def _check_complete(described: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise an error that lists all blanks of a template, if it has any."""
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


def _check_keys(body: Mapping[str, Any], form: type[Form], where: str) -> None:
    """Raise an error for an unknown key, and suggest the most similar known key."""
    tag = form.__struct_config__.tag_field
    known = [*([tag] if tag else []), *(f.name for f in structs.fields(form))]
    for key in body:
        if key in known:
            continue
        close = difflib.get_close_matches(key, known, 1)
        remedy = f"Did you mean {close[0]!r}?" if close else f"Use {', '.join(known)}."
        check(False, f"{where} has no key {key!r}. {remedy}")


def _read_column(body: Mapping[str, Any], where: str) -> Column:
    """Make a column from its TOML table; `where` names it in error messages."""
    kind = body.get("kind")
    check(
        isinstance(kind, str) and kind in _COLUMNS,
        f"{where} must have a kind, {' or '.join(map(repr, _COLUMNS))}"
        + ("." if kind is None else f", got {str(kind)[:99]!r}."),
    )
    form, made = _COLUMNS[str(kind)]
    _check_keys(body, form, where)
    values = structs.asdict(convert(dict(body), form, where))
    if made is Product:
        values["factors"] = [_read_factor(one, where) for one in values["factors"]]
    try:
        return made(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _read_factor(body: Mapping[str, Any], where: str) -> Factor:
    """Make a factor of a product from its TOML table."""
    where = f"A factor of {where}"
    _check_keys(body, FactorForm, where)
    values = structs.asdict(convert(dict(body), FactorForm, where))
    check(
        values["column"].get("kind") in ("numeric", "categorical"),
        f"{where} must have a numeric or categorical column.",
    )
    values["column"] = _read_column(values["column"], where)
    try:
        return Factor(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _write_factor(factor: Factor) -> dict[str, Any]:
    """Return the TOML table of a factor."""
    values: dict[str, Any] = {
        "name": factor.name,
        "column": _write_column(factor.column),
    }
    values |= {} if factor.level is None else {"level": _to_python(factor.level)}
    values |= {"centre": factor.centre} if factor.centre else {}
    plain = factor.transform == "linear"
    return values | ({} if plain else {"transform": factor.transform})


def _write_column(column: Column) -> dict[str, Any]:
    """Return a column's TOML table: its kind, and settings that are not the default."""
    kind = next(k for k, (_, made) in _COLUMNS.items() if type(column) is made)
    form = _COLUMNS[kind][0]
    values = {
        field.name: _to_python(getattr(column, field.name))
        for field in structs.fields(form)
        if getattr(column, field.name) != field.default
    }
    if isinstance(column, Product):
        values["factors"] = [_write_factor(one) for one in column.factors]
    convert({"kind": kind} | values, form, f"A schema file cannot hold {kind}")
    return {"kind": kind} | values


def _to_python(value: Any) -> Any:
    """Convert numpy scalars to Python's own types, and tuples to lists."""
    if isinstance(value, tuple):
        return [_to_python(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value
