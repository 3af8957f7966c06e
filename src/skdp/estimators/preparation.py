"""Infer missing schema entries privately.

Column names are taken as public. Types, ranges, categories, labels and (under
add-remove) the number of rows never are: a library that reads a file guesses the type
of a column from its cells, so one cell decides it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skdp.estimators.labels import sorted_target
from skdp.estimators.progress import reading
from skdp.privacy import discovery
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema, Vector, check, toml_files
from skdp.tables import arrays, readers
from skdp.tables.batches import numbers
from skdp.tables.cells import text_number
from skdp.tables.keys import keys, magnitudes
from skdp.tables.source import Source

ROWS = 65_536
TEXT_FILES = (".csv", ".tsv")
SCHEMA_IS_PUBLIC = "What the schema says is public."
#: Descriptions that are still to be found; KIND is a range or levels.
KIND, RANGE, LEVELS = "kind", "range", "levels"
#: Stands for a column none of whose categories were frequent enough to be shown.
NOTHING_FOUND = "(nothing found)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Opening:
    """A table whose public face is known, and what is still to be found.

    Attributes
    ----------
    columns : dict
        Description of each column, KIND or LEVELS where it is to be found.
    target : Numeric, Categorical, (name, description), RANGE or LEVELS
        The same of the target.
    row_norm : float, optional
        As in `Schema`.
    named : bool
        Whether the columns have names of their own.
    assumptions : tuple of str
        What is taken as public.
    source : Source
        The table.
    apart : cells, optional
        The target, if it comes apart.
    """

    columns: dict[str, Any]
    target: Any
    row_norm: float | None
    named: bool
    assumptions: tuple[str, ...]
    source: Source
    apart: Any

    @property
    def unknown(self) -> list[tuple[str, list[str] | None]]:
        """Stages of finding: what, and names of columns, None for the target.

        A column whose kind is to be found may have levels that are to be found then.
        """
        kinds = [name for name, c in self.columns.items() if _is(c, KIND)]
        levels = [name for name, c in self.columns.items() if _is(c, LEVELS)]
        stages: list[tuple[str, list[str] | None]] = [(KIND, kinds)] if kinds else []
        stages += [(RANGE, None)] if _is(self.target, RANGE) else []
        stages += [(LEVELS, kinds + levels)] if kinds + levels else []
        return stages + ([(LEVELS, None)] if _is(self.target, LEVELS) else [])

    @property
    def needs_levels(self) -> bool:
        """Whether categories may have to be found, which costs a part of δ."""
        return any(what == LEVELS for what, _ in self.unknown)

    @property
    def finds_target(self) -> bool:
        """Whether the target's range or labels are to be found."""
        return isinstance(self.target, str)

    def whole(self) -> Schema:
        """Return the schema, of which nothing is to be found."""
        return Schema(self.columns, target=self.target, row_norm=self.row_norm)

    def count_rows(self, verbose: int = 0) -> int:
        """Count the rows: for relations under which their number is public."""
        if self.source.n_rows is not None:
            return self.source.n_rows
        if self.source.count is not None:
            with reading(verbose, "counting rows") as told:
                return self.source.count(told)
        return sum(arrays.length(cells[0]) for cells in self.source.read([0], ROWS))

    def schema_by(
        self, record: PrivacyRecord, share: float, noise: Randomness
    ) -> Schema:
        """Return the schema, what is unknown found for `share` of the budget."""
        stages = self.unknown
        each = record.budget * share / max(len(stages), 1)
        z = 0.0 if each == math.inf else 1.0 / math.sqrt(each)
        n_levels = sum(what == LEVELS for what, _ in stages)
        known, target = dict(self.columns), self.target
        for what, names in stages:
            found: dict[str, Any]
            if what == LEVELS and names is not None:
                names = [name for name in names if _is(known[name], LEVELS)]
                if not names:
                    continue
            some = ["target"] if names is None else names
            if what == KIND:
                parts = self._read(names, magnitudes)
                bounds, worded = discovery.release_ranges_and_texts(
                    parts, some, z, noise, record
                )
                found = {
                    name: LEVELS if name in worded else Numeric(*pair)
                    for name, pair in bounds.items()
                }
            elif what == RANGE:
                cells = self._read(names, numbers)
                bounds = discovery.release_ranges(cells, some, z, noise, record)
                found = {name: Numeric(*pair) for name, pair in bounds.items()}
            else:
                delta = record.delta * share / n_levels
                texts = discovery.release_levels(
                    self._read(names, keys), some, z, delta, noise, record
                )
                found = {n: Categorical(t or [NOTHING_FOUND]) for n, t in texts.items()}
            if names is not None:
                known |= found
            elif what == RANGE:
                target = found["target"]
            else:
                target = _labels(found["target"])
        return Schema(known, target=target, row_norm=self.row_norm)

    def _read(
        self, names: list[str] | None, typed: Callable[[Any], Any]
    ) -> Iterator[dict[str, Any]]:
        """Read the named columns, or the target, once."""
        if names is None:
            yield {"target": typed(self.apart)}
            return
        places = {name: place for place, name in enumerate(self.columns)}
        for cells in self.source.read([places[name] for name in names], ROWS):
            yield {n: typed(column) for n, column in zip(names, cells, strict=True)}


def _is(column: Any, what: str) -> bool:
    return isinstance(column, str) and column == what


def _labels(column: Categorical) -> Categorical:
    """Labels of a type that follows from what was found alone, in order.

    Truths if they are true and false, integers if all are integers, else texts: a
    column of integers may be kept as integers, as floats (where one is missing) or as
    texts (where one is not a number).
    """
    check(
        len(column.levels) >= 2,
        "A classifier needs more than one class, and the labels could not be found "
        "within the budget: pass classes=[...], all labels there can be, or a larger "
        "epsilon, or take a regressor if the target is continuous.",
    )
    texts = sorted(str(level) for level in column.levels)
    if set(texts) <= {"false", "true"}:
        return Categorical([False, True])
    values = [_number(text) for text in texts]
    if any(math.isnan(value) for value in values):
        return Categorical(texts)
    check(
        all(math.isinf(v) or v == int(v) for v in values),
        "Unknown label type: continuous. A classifier needs classes: pass "
        "classes=[...] if numbers with decimals are meant to be labels.",
    )
    return Categorical(sorted(values))


def _number(text: str) -> float:
    """A label as a number: an integer, exactly, if it is one."""
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(text) if plain else text_number(text)


def opened(
    X: Any,
    y: Any,
    *,
    schema: Schema | str | PathLike[str] | None,
    bounds: Any,
    target: Any,
) -> Opening:
    """Gather what is said about a table.

    Parameters
    ----------
    X, y : table and column
        As given to ``fit``.
    schema : Schema or path, optional
        All of it, or all but the target.
    bounds : pair of floats or of arrays, optional
        Ranges of the columns of an array; for a sparse matrix the second is the bound
        on a row's norm.
    target : Numeric, Categorical, RANGE or LEVELS
        The target, where the schema does not describe it.
    """
    check(
        type(X).__name__ != "RecordBatchReader",
        "A RecordBatchReader can be read once, and a fit reads a table more often: "
        "pass reader.read_all(), or a Parquet file.",
    )
    apart = None if y is None else readers.column(y, "target")
    schema = toml_files.given(schema)
    if schema is not None:
        source = readers.source(X, schema.inputs)
        _refuse_dates(source, [*schema.inputs, schema.target_name], apart)
        described = schema.target
        if isinstance(described, tuple) and y is not None:
            described = described[1]
        check(
            y is not None or isinstance(described, tuple),
            "fit needs the target: pass y, or name its column in the schema.",
        )
        return Opening(
            columns=dict(schema.columns),
            target=sorted_target(target if described is None else described),
            row_norm=schema.row_norm,
            named=source.names is not None,
            assumptions=(SCHEMA_IS_PUBLIC,),
            source=source,
            apart=apart,
        )
    check(
        y is not None,
        "fit requires y to be passed, but the target y is None: pass it, or a schema "
        "that names its column.",
    )
    check(
        not isinstance(X, (str, PathLike)) or Path(X).suffix.lower() not in TEXT_FILES,
        "A text file does not say what its columns are: pass a schema "
        "(skdp.schema_template writes a form to complete).",
    )
    source = readers.source(X)
    names = source.names or [f"x{i}" for i in range(len(source.kinds))]
    _refuse_dates(source, names, apart)
    columns: dict[str, Any] = {}
    if hasattr(X, "tocsr"):
        columns["x"] = Vector(names, norm=1.0 if bounds is None else float(bounds[1]))
    else:
        pairs = _pairs(bounds, len(names))
        for name, kind, pair in zip(names, source.kinds, pairs, strict=True):
            known: Any = KIND if pair is None else Numeric(*pair)
            columns[name] = LEVELS if kind == "category" else known
    public = ["Column names"]
    public += ["which columns are categories"] if "category" in source.kinds else []
    public += [] if bounds is None else ["the bounds given"]
    given = " and ".join([", ".join(public[:-1]), public[-1]] if public[1:] else public)
    given += " are public."
    return Opening(
        columns=columns,
        target=sorted_target(target),
        row_norm=None,
        named=source.names is not None,
        assumptions=(given,),
        source=source,
        apart=apart,
    )


def _refuse_dates(source: Source, names: Sequence[str | None], apart: Any) -> None:
    """Refuse types that hold neither numbers nor texts: all cells would be missing.

    Nobody's single cell makes a column of such a type; texts and numbers are another
    matter, and are never refused for their type.
    """
    types = dict(zip(source.names or names, source.kinds, strict=False))
    other = [name for name in names if types.get(name) == "other"][:1]
    if apart is not None and arrays.kind_of(apart) == "other":
        other = ["y"]
    for name in other:
        check(
            False,
            f"Column {name!r} holds dates, times or nested values, which are neither "
            "numbers nor categories: convert it, or leave it out.",
        )


def _pairs(bounds: Any, n_columns: int) -> list[tuple[float, float] | None]:
    """Range of each column, from one pair or a pair of arrays."""
    if bounds is None:
        return [None] * n_columns
    check(len(bounds) == 2, "bounds must be a pair (low, high), of numbers or arrays.")
    shaped = [np.broadcast_to(np.asarray(b, float), (n_columns,)) for b in bounds]
    return [(float(low), float(high)) for low, high in zip(*shaped, strict=True)]
