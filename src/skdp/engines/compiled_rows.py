"""Describe rows to the compiled kernels by the addresses of the rows' arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from skdp.engines import kernels, matrix_kernels
from skdp.engines.combined_codes import (
    BYTE,
    CombinedCodes,
    combine_codes,
    list_lines,
)
from skdp.privacy.encoding import AnyArray, Chunk
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import FloatArray, Group, IntArray, Layout, check, limit_codes

#: A matrix is read row by row if at least this many of its columns are needed.
WIDE = 8
#: Largest number of combinations of codes in a column of a table with at least
#: `LONG_TABLE` rows. Other tables have at most `BYTE`, because each thread adds up
#: the combinations at the end of its sweep, which takes time.
MANY_COMBINATIONS = 4096
LONG_TABLE = 1 << 20
#: Number of bytes in a cache line.
CACHE_LINE = 64
#: Rough number of float64 numbers in a tile of rows, for matrix products.
PIECE = 1 << 15


class Slots:
    """The positions (slots) of coordinates in the kernels' arrays.

    A spare slot follows the coordinates of each group. If a row has none of the group's
    levels, the row's code points to the spare slot.
    """

    def __init__(self, layout: Layout, n_rows: int) -> None:
        self.layout = layout
        self.group_of = layout.group_of
        self.of = np.arange(layout.n_features) + self.group_of
        self.count = layout.n_features + len(layout.groups)
        #: For each coordinate, the value of a stored 1 in feature units. Numbers and
        #: hats are stored in feature units, so the value is 1. Codes and the intercept
        #: are added up as ones, and each of these stands for FEATURE_ONE units.
        self.worth = np.array(
            [
                1 if group.kind in ("dense", "hats") else FEATURE_ONE
                for group in layout.groups
            ]
        )[self.group_of]
        #: Groups of codes that are read together. Their slots come after all others.
        most = BYTE if n_rows < LONG_TABLE else MANY_COMBINATIONS
        self.combined = combine_codes(layout, self.count, most)
        self.wide = self.count + sum(combined.size for combined in self.combined)
        self.lines = list_lines(self.combined)
        #: The fields `combined` and `n_combined` of a `kernels.SweepJob`.
        self.words = self.lines.ctypes.data, len(self.lines)


@dataclass(frozen=True, eq=False, repr=False)
class KernelRows:
    """A chunk, described to the kernels by the addresses of its arrays.

    This object keeps the arrays alive. `lines` holds one program line (see `kernels`)
    per group, sorted by kind. Group g's line is ``lines[places[g]]``. For each line,
    `steps` has the distance in bytes between adjacent columns.
    """

    n_rows: int
    parts: tuple[Any, ...]
    target: npt.NDArray[np.uint16]
    weight: npt.NDArray[np.float32]
    lines: npt.NDArray[np.int64]
    places: IntArray
    steps: IntArray
    combined_codes: dict[int, AnyArray] = field(default_factory=dict)

    @classmethod
    def of(cls, chunk: Chunk, slots: Slots) -> KernelRows:
        """Describe a chunk to kernels. Copy only arrays that they cannot read."""
        arrays = (*chunk.parts, chunk.target, chunk.weight)
        lengths = {array.shape[0] for array in arrays}
        check(len(lengths) == 1, "All arrays of a chunk must have the same length.")
        parts: list[Any] = []
        lines = np.zeros((len(chunk.parts), 5), np.int64)
        steps = np.zeros(len(chunk.parts), np.intp)
        for g, group in enumerate(slots.layout.groups):
            part, stride = chunk.parts[g], 1
            if group.kind == "ones":
                kind = kernels.ONES
            elif group.kind == "code":
                narrow = part.dtype == np.uint8
                kind = kernels.CODE8 if narrow else kernels.CODE16
                negative = part.dtype.kind != "u" and part.min(initial=0) < 0
                if negative or part.max(initial=0) > group.width:
                    part = limit_codes(part, group.width)
                part = np.ascontiguousarray(part, np.uint8 if narrow else np.uint16)
            elif group.kind == "hats":
                part = _as_positions(part, group)
                kind = kernels.CURVE if len(group.axes) == 1 else kernels.SURFACE
                stride = group.axes[-1]
            elif issparse(part):
                kind, part = kernels.SPARSE, Sparse.of(part, group.width)
            else:
                part = _as_matrix(part)
                stride = part.strides[0] // 2 if len(part) else group.width
                kind = kernels.COLUMN if stride == 1 else kernels.STRIDED
                steps[g] = part.strides[1]
                if group.width > 1 and steps[g] == 2:
                    kind = kernels.MATRIX
            parts.append(part)
            slot = group.start + g
            lines[g] = kind, slot, group.width, stride, _address_of(part)
        target = chunk.target
        target = target.view(np.uint16) if target.dtype == np.int16 else target
        # Sort lines by kind, because adjacent columns are processed four at a time.
        order = np.argsort(lines[:, kernels.KIND], kind="stable")
        return cls(
            n_rows=len(chunk.target),
            parts=tuple(parts),
            target=np.ascontiguousarray(target, np.uint16),
            weight=store(chunk.weight, np.float32),
            lines=lines[order],
            places=np.argsort(order),
            steps=steps[order],
        )

    @cached_property
    def addresses(self) -> tuple[int, int]:
        """Addresses of targets and weights."""
        return self.target.ctypes.data, self.weight.ctypes.data

    def program(self, slots: Slots, at: IntArray) -> npt.NDArray[np.int64]:
        """Return a kernel program, as lines, that reads the coordinates `at`."""
        lines = self._columns(slots, at)
        for combined in slots.combined:
            own = np.isin(lines[:, kernels.SLOT], combined.slots)
            if own.sum() < len(combined.slots):
                continue
            codes = self._combine(combined)
            code = kernels.CODE8 if combined.kind == np.uint8 else kernels.CODE16
            line = [code, combined.start, combined.size - 1, 1, codes.ctypes.data]
            lines = np.concatenate([lines[~own], np.array([line], np.int64)])
        lines = lines[np.argsort(lines[:, kernels.KIND], kind="stable")]
        columns = np.flatnonzero(lines[:, kernels.KIND] == kernels.COLUMN)
        lines[columns[: len(columns) // 4 * 4 : 4], kernels.KIND] = kernels.FOUR
        return lines

    def _combine(self, combined: CombinedCodes) -> AnyArray:
        if combined.start not in self.combined_codes:
            parts = {g: self.parts[g] for g in combined.groups}
            self.combined_codes[combined.start] = combined.codes(parts)
        return self.combined_codes[combined.start]

    def combine_all(self, slots: Slots) -> None:
        """Compute all combined codes, so that `program` finds them."""
        for combined in slots.combined:
            self._combine(combined)

    def _columns(self, slots: Slots, at: IntArray) -> npt.NDArray[np.int64]:
        """Return the program lines for the coordinates `at`, before combining codes.

        Each line reads a whole group or a single column.
        """
        places = self.places[slots.group_of[at]]
        times = np.bincount(places, minlength=len(self.lines))
        lines, kind = self.lines, self.lines[:, kernels.KIND]
        # A matrix is read column by column if it is stored by columns or if few of its
        # columns are needed. Columns of the same kind are processed four at a time.
        matrix = (kind == kernels.MATRIX) & (times < WIDE)
        single = matrix | (kind == kernels.COLUMN) | (kind == kernels.STRIDED)
        single &= lines[:, kernels.WIDTH] > 1
        if not single[places].any():
            return lines[times > 0]
        at = np.unique(at[single[places]])
        places = self.places[slots.group_of[at]]
        columns = lines[places]
        local = slots.of[at] - columns[:, kernels.SLOT]
        apart = columns[:, kernels.KIND] == kernels.MATRIX
        columns[apart, kernels.KIND] = kernels.STRIDED
        columns[:, kernels.SLOT] += local
        columns[:, kernels.WIDTH] = 1
        columns[:, kernels.ADDRESS] += self.steps[places] * local
        return np.concatenate([lines[(times > 0) & ~single], columns])


@dataclass(frozen=True, eq=False, repr=False)
class Sparse:
    """A sparse part of a chunk and the addresses of its arrays."""

    matrix: Any
    addresses: npt.NDArray[np.int64]

    @classmethod
    def of(cls, part: Any, width: int) -> Sparse:
        """Describe a sparse part, which must have as many columns as its group."""
        check(
            part.shape[1] == width,
            f"A sparse part must have one column per coordinate ({width}), "
            f"got {part.shape[1]}.",
        )
        matrix = csr_array(
            (
                np.ascontiguousarray(part.data, np.int16),
                np.ascontiguousarray(part.indices, np.int32),
                np.ascontiguousarray(part.indptr, np.int32),
            ),
            shape=part.shape,
        )
        matrix.check_format(full_check=True)
        parts = (matrix.indptr, matrix.indices, matrix.data)
        where = [array.ctypes.data for array in parts]
        return cls(matrix, np.array(where, np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        rows, columns = self.matrix.shape
        return rows, columns

    def __getitem__(self, rows: slice) -> AnyArray:
        """Return some rows as a dense array."""
        return np.asarray(self.matrix[rows].toarray())


def _address_of(part: Any) -> int:
    return int((part.addresses if isinstance(part, Sparse) else part).ctypes.data)


def store(numbers: AnyArray, kind: Any) -> AnyArray:
    """Return an array with a number per row, as kernels read it.

    If all numbers are stored as one (`np.broadcast_to`), they fill a single tile of
    rows, which kernels read again for each tile.
    """
    if numbers.strides == (0,):
        numbers = numbers[: kernels.TILE]
    return np.ascontiguousarray(numbers, kind)


def make_aligned(n: int, width: int) -> FloatArray:
    """Return zeros (n, width) that begin at the start of a cache line.

    Reading takes longer if vectors lie across two cache lines. None does if `width` is
    a multiple of 8.
    """
    numbers = np.zeros(n * width + 7)
    first = -numbers.ctypes.data % CACHE_LINE // 8
    return numbers[first : first + n * width].reshape(n, width)


def _as_matrix(part: AnyArray) -> AnyArray:
    """Return a dense part as int16 (n, width).

    The part is not copied if its rows or columns are contiguous.
    """
    row, column = part.strides
    even = part.dtype == np.int16 and row > 0 and row % 2 == 0 and part.flags.aligned
    if even and (column == 2 or row == 2 or part.shape[1] == 1):
        return part
    return np.ascontiguousarray(part, np.int16)


def _as_positions(part: AnyArray, group: Group) -> AnyArray:
    """Return the positions of hat functions as contiguous uint32 (n, axes).

    A kernel reads the coordinates below and above each position. So a position beyond
    the last coordinate of an axis is replaced by the position of the spare slot.
    """
    check(
        len(group.axes) in (1, 2) and part.shape[1] == len(group.axes),
        f"Positions of {group.name!r} must have 1 or 2 axes and as many columns, got "
        f"axes: {len(group.axes)}, columns: {part.shape[1]}.",
    )
    part = np.ascontiguousarray(part, np.uint32)
    most = (np.array(group.axes, np.uint32) - 1) * FEATURE_ONE
    spare = np.zeros(len(group.axes), np.uint32)
    spare[0] = group.axes[0] * FEATURE_ONE
    outside: AnyArray = np.any(part > most, axis=1)
    if (part[outside] != spare).any():
        return np.where(outside[:, None], spare, part)
    return part


class NumbersFirst:
    """An order of coordinates with numbers first, for sums over pairs of columns.

    A place is a position in this order. A spare place follows each group of codes and
    each group of hats.

    Attributes
    ----------
    dense : int array
        The coordinates in groups of kind "dense" and "ones".
    slots : int array
        The first place of each group of codes.
    hats : list of (int, int, Group)
        For each group of hats: its index, its first place, and the group itself.
    of : int array
        The place of each coordinate.
    count : int
        The number of places.
    worth : int array
        For each coordinate, the value of a stored 1 in feature units.
    """

    def __init__(self, slots: Slots) -> None:
        groups = slots.layout.groups
        self.numbers = [
            g for g, group in enumerate(groups) if group.kind in ("dense", "ones")
        ]
        self.codes = [g for g, group in enumerate(groups) if group.kind == "code"]
        places = [groups[g].coordinates for g in self.numbers]
        self.dense = np.concatenate([np.zeros(0, np.intp), *places])
        self.of = np.empty(slots.layout.n_features, np.intp)
        self.of[self.dense] = np.arange(len(self.dense))
        self.count = len(self.dense)
        first = []
        for g in self.codes:
            first.append(self.count)
            self.of[groups[g].coordinates] = self.count + np.arange(groups[g].width)
            self.count += groups[g].width + 1
        self.slots = np.array(first, np.int64)
        self.hats: list[tuple[int, int, Group]] = []
        for g, group in enumerate(groups):
            if group.kind == "hats":
                self.hats.append((g, self.count, group))
                self.of[group.coordinates] = self.count + np.arange(group.width)
                self.count += group.width + 1
        self.worth = np.where(self.of < len(self.dense), 1, slots.worth)

    def describe(self, rows: KernelRows) -> npt.NDArray[np.int64]:
        """Return the lines (groups, 7) that tell kernels how to read a chunk's rows."""
        lines = np.zeros((len(rows.places), 7), np.int64)
        lines[:, :5] = rows.lines[rows.places]
        lines[:, matrix_kernels.STEP] = rows.steps[rows.places]
        column = entry = 0
        for g in self.numbers:
            lines[g, kernels.SLOT] = column
            column += max(1, int(lines[g, kernels.WIDTH]))
        lines[self.codes, kernels.SLOT] = np.arange(len(self.codes))
        for g, first, group in self.hats:
            lines[g, [kernels.SLOT, matrix_kernels.FIRST]] = entry, first
            entry += 1 << len(group.axes)
        return lines

    def choose_sizes(self, width: int = 0) -> tuple[int, int, int, int]:
        """Return the number of rows in a tile of `matrix_kernels.walk`.

        Then follows how many numbers, codes and hat values each row has.


        `width` is how many numbers a kernel computes for each row, in addition to those
        that it reads.
        """
        entries = sum(1 << len(group.axes) for *_, group in self.hats)
        numbers = max(1, len(self.dense) + width + 2 * entries)
        return max(16, PIECE // numbers), len(self.dense), len(self.codes), entries
