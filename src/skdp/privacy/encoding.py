"""Encode the rows of a table as integers on a public grid.

Every encoded row is bounded, whatever the cells of the table contain.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from skdp.privacy import grid
from skdp.schema import Categorical, Column, Layout, Numeric, Schema, Vector, check
from skdp.schema.validation import fact

AnyArray = npt.NDArray[Any]
#: Groups with at least this many columns are stored as sparse matrices.
SPARSE_WIDTH = 256


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """A categorical column as it was read, whose cells are `values[codes]`.

    A code that is not an index of `values` means that the cell is missing.
    """

    codes: AnyArray
    values: Sequence[object]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """Rows as a reader returns them, before they are encoded.

    Attributes
    ----------
    columns : mapping
        The cells of each column, by the column's key in the schema. They are numbers
        (n,) for Numeric, Coded for Categorical, and numbers (n, m) for Vector.
    target : numbers (n,) or Coded
        The target.
    weight : floats (n,), optional
        The weights of the records, before they are clipped.
    divisor : integers (n,), optional
        For each row, the number m such that the row counts as 1/m of a record, from
        `RowCounts.find_divisors`. Divisors are required if the schema has a unit.
    """

    columns: Mapping[str, Any]
    target: Any
    weight: AnyArray | None = None
    divisor: AnyArray | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Chunk:
    """Encoded rows.

    Attributes
    ----------
    parts : tuple of arrays, one per group
        A dense group is stored as int16 (n, width) in units of 2⁻¹⁴, or as a compressed
        sparse row matrix if it has at least `SPARSE_WIDTH` columns. A group of codes is
        stored as unsigned integers (n,); a code equal to the group's width means a row
        of zeros. A group of hats is stored as positions uint32 (n, axes) in units of
        2⁻¹⁴, which `skdp.schema.split_hats` turns into coordinates. The intercept is
        stored as an empty array (n, 0).
    target : array (n,)
        Class codes, or integers 0..2¹⁴ for a numeric target scaled to [0, 1].
    weight : float32 (n,)
        The factor, in [0, max_weight], that multiplies each row's slope. A row of
        weight 0 is called null and adds nothing to a gradient.
    divisor : int
        The number m such that every row of the chunk counts as 1/m of a record. Each
        row belongs to a person with at most m rows.
    """

    parts: tuple[Any, ...]
    target: AnyArray
    weight: npt.NDArray[np.float32]
    divisor: int = 1


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """The encoded table. Queries read nothing else.

    If `elsewhere` is true, the rows are in other processes. Those processes divide
    slopes and caps by the divisors of their own chunks, as `skdp.privacy.persons` does.
    """

    elsewhere: ClassVar[bool] = False
    layout: Layout
    chunks: tuple[Chunk, ...]
    max_weight: float = 1.0
    #: The integer that stands for one whole record in counts. It is 1, or 2²⁰ if there
    #: is a unit, because a person's rows then count as fractions of a record.
    one: int = fact()

    def __post_init__(self) -> None:
        one = 1 if self.layout.unit is None else 1 << grid.UNIT_BITS
        vars(self).update(one=one)

    def find_share(self, chunk: Chunk) -> int:
        """Return the number of parts that each row of a chunk counts as.

        Notes
        -----
        **Guarantee.** For every person, the parts of all rows add up to at most `one`,
        because m ⌊one/m⌋ ≤ one.
        """
        return self.one // chunk.divisor

    def count(self) -> int:
        """Return the number of rows, or of persons if there is a unit.

        Call this only if `neighbours` makes the number public.
        """
        rows: dict[int, int] = self.add_up(_count_by_divisor)
        return sum(total // divisor for divisor, total in rows.items())

    def add_up(self, work: Callable[["Records"], Any]) -> Any:
        """Return the sum of `work` over the parts of the table.

        A table in this process has a single part. If the rows are in other processes,
        the work on each part is done there.
        """
        return work(self)


def _count_by_divisor(records: Records) -> Counter[int]:
    """Count the rows with each divisor."""
    rows: Counter[int] = Counter()
    for chunk in records.chunks:
        rows[chunk.divisor] += len(chunk.target)
    return rows


@np.errstate(all="ignore")  # no setting of the caller may turn a cell into an error
def encode(
    batches: Iterable[Batch],
    schema: Schema,
    *,
    intercept: bool = True,
    max_weight: float = 1.0,
) -> Records:
    """Encode the rows of a table on the grid.

    Parameters
    ----------
    batches : iterable of Batch
        The table.
    schema : Schema
        The public description of the table.
    intercept : bool
        Whether to append a coordinate that is always one.
    max_weight : float
        The public bound that weights are clipped to. A missing weight counts as zero.
        In a table without weights, each row has weight one, or `max_weight` if that is
        less than one.

    Notes
    -----
    **Guarantee.** For every table of numbers and codes, each encoded row depends on its
    own cells alone. It has norm at most one in every group, norm at most
    ``schema.row_norm`` over all groups except the intercept, and a weight in
    [0, max_weight]. If the schema has a unit, the row is in a chunk with the row's own
    divisor.
    """
    check(0 < max_weight < 1e30, f"max_weight must be in (0, 1e30), got {max_weight}.")
    check(
        not schema.unresolved,
        f"knots of {[*schema.unresolved[:1]]} must be an integer, got 'auto'. Only "
        "estimators and skdp.plan replace 'auto' by a number.",
    )
    most = np.float32(max_weight)  # lowered below if rounding put it above the bound
    most = most if float(most) <= max_weight else np.nextafter(most, np.float32(0))
    chunks = []
    for batch in batches:
        given_cells = {
            key: schema.pick_cells(batch.columns, key) for key in schema.columns
        }
        for key, cells in given_cells.items():
            _check_type(cells, schema.columns[key], f"Column {key!r}")
        _check_type(batch.target, schema.target_column, "The target")
        parts = [
            _encode_column(given_cells[key], c) for key, c in schema.columns.items()
        ]
        if schema.row_norm is not None:
            parts = _shorten(parts, schema.row_norm)
        target, weight = _encode_target(batch.target, schema.target_column)
        if batch.weight is not None or most < 1:
            given = 1.0 if batch.weight is None else np.nan_to_num(batch.weight)
            weight *= np.clip(given, 0.0, float(most))
        if intercept:
            parts.append(np.empty((len(target), 0), np.int16))
        check(len(target) <= grid.CHUNK_ROWS, "A batch must have at most 2²² rows.")
        kept = (csr_array(p) if p.shape[1:] >= (SPARSE_WIDTH,) else p for p in parts)
        chunk = Chunk(tuple(kept), target, weight)
        chunks += _split(chunk, batch.divisor) if schema.unit else [chunk]
    return Records(schema.layout(intercept), tuple(chunks), max_weight)


def _split(chunk: Chunk, divisor: AnyArray | None) -> list[Chunk]:
    """Return a chunk for each divisor. Rows with divisor 0 are left out."""
    if divisor is None:
        raise ValueError("Batches of a schema with a unit must have divisors.")
    check(len(divisor) == len(chunk.target), "divisor must have one entry per row.")
    # Rows with equal divisors share a chunk, so engines read one divisor per chunk and
    # not one per row.
    order = np.argsort(divisor, kind="stable")
    found, starts = np.unique(divisor[order], return_index=True)
    chunks = []
    edges = [*starts.tolist(), len(order)]
    for m, (start, stop) in zip(found.tolist(), pairwise(edges), strict=True):
        if m > 0:
            at = order[start:stop]
            parts = tuple(part[at] for part in chunk.parts)
            chunks.append(Chunk(parts, chunk.target[at], chunk.weight[at], m))
    return chunks


def _check_type(cells: Any, column: Column, name: str) -> None:
    """Raise an error if `cells` has the wrong type for a batch. No cell is read."""
    if isinstance(column, Categorical):
        check(
            hasattr(cells, "codes"),
            f"{name} is categorical, so it must be skdp.Coded(codes, values), got "
            f"{type(cells).__name__}.",
        )
    elif isinstance(cells, np.ndarray):
        check(
            cells.dtype.kind in "fiub",
            f"{name} is numeric, so it must be an array of floats, got one of type "
            f"{cells.dtype}.",
        )


def _encode_column(cells: Any, column: Column) -> AnyArray:
    """Encode one column's cells on the grid. Each row gets norm at most one."""
    if isinstance(column, Vector):
        return grid.bound_rows(cells, column.norm).astype(np.int16)
    features: AnyArray = column.compute_features(cells)
    if column.kind == "code":
        codes: AnyArray = np.clip(features, 0, column.width, out=features)
        kind: Any = np.uint8 if column.width < 256 else np.uint16
        if codes.dtype == np.int8 and kind == np.uint8:
            return codes.view(kind)  # no code is negative, so the bits are the same
        return codes.astype(kind)
    if column.kind == "hats":
        return grid.bound_positions(features, column.axes)
    if features.shape[1] == 1:
        return grid.truncate_column(features, -1.0 if column.signed else 0.0)
    units = grid.truncate(features, out=features)  # a new array of its own
    return grid.shrink_rows(units, float(grid.FEATURE_ONE**2)).astype(np.int16)


def _shorten(parts: list[AnyArray], row_norm: float) -> list[AnyArray]:
    """Shrink the dense parts of rows whose norm over all parts exceeds `row_norm`.

    Codes and curves are not shrunk, and each of them counts as norm one.
    """
    fixed = sum(part.dtype != np.int16 for part in parts)
    # Rounded down, so that the integer norm is within the bound and not merely near it.
    room = float(np.floor((row_norm**2 - fixed) * grid.FEATURE_ONE**2))
    dense = [part for part in parts if part.dtype == np.int16]
    joined = np.hstack([np.empty((len(parts[0]), 0)), *dense])
    edges = np.cumsum([part.shape[1] for part in dense])
    short = iter(
        np.split(grid.shrink_rows(joined, room).astype(np.int16, "F"), edges, 1)
    )
    return [next(short) if part.dtype == np.int16 else part for part in parts]


def _encode_target(
    cells: Any, column: Numeric | Categorical
) -> tuple[AnyArray, AnyArray]:
    """Return the encoded targets and the weights of the rows.

    A row's weight is zero if its class is not in the schema, and one otherwise.
    """
    if isinstance(column, Numeric):
        scaled, _ = column.rescale(np.asarray(cells, dtype=np.float64))
        units = np.rint(scaled * grid.FEATURE_ONE).astype(np.int16)
        np.clip(units, 0, grid.FEATURE_ONE, out=units)  # whatever the column computes
        return units, np.ones(len(units), np.float32)
    # The code of an unknown class is one past the last level. Such a row must have some
    # class, and gets the first with weight zero: dropping it would change the number of
    # rows, which may be public.
    codes = _encode_column(cells, column)
    known = codes < len(column.levels)
    return codes * known, known.astype(np.float32)
