"""Keep the rows of a table on a GPU, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from skdp.engines.combined_codes import combine_codes
from skdp.engines.cuda_kernels import MOST_COLUMNS
from skdp.privacy.encoding import SPARSE_WIDTH, Chunk
from skdp.schema import FloatArray, IntArray, Layout
from skdp.schema.schema import Group

#: Chunks are joined until they have this many rows, so each sweep has enough work.
SLAB_ROWS = 1 << 26
#: Rows of a slab are a multiple of this number.
ALIGNMENT = 64


class Places:
    """Where coordinates are stored, and their slots in the kernels' arrays.

    Numbers and codes are stored by column. Several columns of codes may be combined
    into a further column. Steps over all columns read the combined column instead. The
    slots of each group end with a spare slot. If a row has none of the group's levels,
    its code refers to the spare slot. The slots of combined columns come after all
    others.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        groups = list(enumerate(layout.groups))
        self.sparse = [g for g, group in groups if _is_sparse(group)]
        dense = [
            group.coordinates
            for _, group in groups
            if group.kind == "dense" and not _is_sparse(group)
        ]
        self.numbers = np.concatenate([np.zeros(0, np.intp), *dense])
        coded = [g for g, group in groups if group.kind == "code"]
        self.bytes = [g for g in coded if layout.groups[g].width < 256]
        self.shorts = [g for g in coded if layout.groups[g].width >= 256]
        self.hats = [g for g, group in groups if group.kind == "hats"]
        self.ones = [group.start for _, group in groups if group.kind == "ones"]
        self.slot_of = np.arange(layout.n_features) + layout.group_of
        n_slots = layout.n_features + len(groups)
        self.combined = combine_codes(layout, n_slots)
        self.n_slots = n_slots + sum(combined.size for combined in self.combined)
        #: Whether each coordinate belongs to a group of codes.
        self.is_code = np.isin(layout.group_of, coded)
        most = max(len(self.numbers), len(self.bytes), len(self.shorts))
        #: Whether one kernel can read all columns of a row.
        self.may_sweep = not (self.sparse or self.hats) and most <= MOST_COLUMNS

    def choose_bytes(self, needed: Any) -> list[tuple[int, int]]:
        """Choose the columns of one-byte codes that a sweep reads.

        For each of these columns, return its row in the array `Slab.bytes` and its
        first slot. `needed` says for each group whether the sweep needs it. A combined
        column is read if all of its groups are needed. Combined columns are stored
        last.
        """
        left = {g: self.layout.groups[g].start + g for g in self.bytes if needed[g]}
        found = []
        for row, combined in enumerate(self.combined, start=len(self.bytes)):
            if all(g in left for g in combined.groups):
                found.append((row, combined.start))
                for g in combined.groups:
                    del left[g]
        return found + [(self.bytes.index(g), slot) for g, slot in left.items()]

    def list_coordinates(self) -> npt.NDArray[np.int32]:
        """Return each coordinate's kind, row and level, for the kernel `expand`."""
        found = np.zeros((self.layout.n_features, 4), np.int32)
        found[:, 0] = 6
        found[self.numbers, 0] = 0
        found[self.numbers, 1] = np.arange(len(self.numbers))
        found[self.ones, 0] = 3
        for kind, coded in ((1, self.bytes), (2, self.shorts)):
            for row, g in enumerate(coded):
                group = self.layout.groups[g]
                found[group.coordinates, :2] = kind, row
                found[group.coordinates, 2] = np.arange(group.width)
        row = 0
        for g in self.hats:
            group = self.layout.groups[g]
            knots = np.indices(group.axes).reshape(len(group.axes), -1).T
            found[group.coordinates, :2] = 3 + len(group.axes), row
            found[group.coordinates, 2 : 2 + len(group.axes)] = knots
            row += len(group.axes)
        return found


def _is_sparse(group: Group) -> bool:
    return group.kind == "dense" and group.width >= SPARSE_WIDTH


@dataclass(eq=False, repr=False)
class Slab:
    """A part of the table on the GPU.

    Each kind of column has one array, which is stored transposed: line j of the array
    holds the values of column j. `chunks` are the lengths of the chunks that were
    joined. Padding at the end has weight 0. All chunks have the same `divisor`, which
    `Chunk` explains.
    """

    chunks: list[int]
    numbers: Any
    bytes: Any
    shorts: Any
    positions: Any
    sparse: list[Any]
    target: Any
    weight: Any
    divisor: int = 1

    @property
    def n_rows(self) -> int:
        """Number of rows, without the padding at the end."""
        return sum(self.chunks)

    def on_gpu(self) -> Slab:
        """Return the slab with all arrays on the GPU."""
        return Slab(
            self.chunks,
            cupy.asarray(self.numbers),
            cupy.asarray(self.bytes),
            cupy.asarray(self.shorts),
            cupy.asarray(self.positions),
            self.sparse,
            cupy.asarray(self.target),
            cupy.asarray(self.weight),
            self.divisor,
        )


def join_chunks(chunks: Sequence[Chunk], places: Places, xp: Any) -> Slab:
    """Join chunks into a slab. The module `xp` (numpy or cupy) makes its arrays."""
    lengths = [len(chunk.target) for chunk in chunks]
    rows = -(-max(1, sum(lengths)) // ALIGNMENT) * ALIGNMENT
    layout = places.layout
    slab = Slab(
        lengths,
        xp.zeros((len(places.numbers), rows), np.int16),
        xp.zeros((len(places.bytes) + len(places.combined), rows), np.uint8),
        xp.zeros((len(places.shorts), rows), np.uint16),
        xp.zeros(
            (sum(len(layout.groups[g].axes) for g in places.hats), rows), np.uint32
        ),
        [],
        xp.zeros(rows, np.uint16),
        xp.zeros(rows, np.float32),
        chunks[0].divisor,
    )
    start = 0
    for chunk, length in zip(chunks, lengths, strict=True):
        at = slice(start, start + length)
        row = 0
        for group, part in zip(layout.groups, chunk.parts, strict=True):
            if group.kind == "dense" and not _is_sparse(group):
                slab.numbers[row : row + group.width, at] = xp.asarray(part).T
                row += group.width
        for array, coded in ((slab.bytes, places.bytes), (slab.shorts, places.shorts)):
            for row, g in enumerate(coded):
                codes, width = xp.asarray(chunk.parts[g]), layout.groups[g].width
                inside = (codes >= 0) & (codes < width)
                array[row, at] = xp.where(inside, codes, array.dtype.type(width))
        for row, combined in enumerate(places.combined, start=len(places.bytes)):
            own = {g: slab.bytes[places.bytes.index(g), at] for g in combined.groups}
            slab.bytes[row, at] = combined.codes(own)
        row = 0
        for g in places.hats:
            axes = len(layout.groups[g].axes)
            slab.positions[row : row + axes, at] = xp.asarray(chunk.parts[g]).T
            row += axes
        target = xp.asarray(chunk.target)
        slab.target[at] = target.astype(np.uint16)
        slab.weight[at] = xp.asarray(chunk.weight)
        start += length
    for g in places.sparse:
        whole = [chunk.parts[g] for chunk in chunks]
        slab.sparse.append([w if issparse(w) else np.asarray(w) for w in whole])
    return slab


class Caps(Sequence[Any]):
    """The caps on the slopes of all rows, kept on the GPU.

    Reading entry i copies the caps of the i-th chunk to this process.
    """

    def __init__(self, slabs: list[Any], lengths: list[list[int]]) -> None:
        self.slabs = slabs
        self._places = [
            (s, sum(chunks[:i]), length)
            for s, chunks in enumerate(lengths)
            for i, length in enumerate(chunks)
        ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        slab, start, length = self._places[index]
        return cupy.asnumpy(self.slabs[slab][start : start + length])


def group_chunks(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """Yield lists of consecutive chunks. Each list will be joined into one slab.

    All chunks of a list have the same divisor.
    """
    joined: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        if joined and joined[0].divisor != chunk.divisor:
            yield joined
            joined, rows = [], 0
        joined.append(chunk)
        rows += len(chunk.target)
        if rows >= SLAB_ROWS:
            yield joined
            joined, rows = [], 0
    if joined:
        yield joined


def count_bytes(chunk: Chunk) -> int:
    """Return roughly how many bytes a chunk fills on the GPU."""
    parts = sum(part.nbytes for part in chunk.parts if not issparse(part))
    return int(parts) + 6 * len(chunk.target)


def slice_rows(parts: list[Any], lengths: list[int], rows: slice) -> FloatArray:
    """Stack parts, which are sparse or dense, and return some rows as dense floats."""
    found: list[Any] = []
    start = 0
    for part, length in zip(parts, lengths, strict=True):
        first, last = max(rows.start, start), min(rows.stop, start + length)
        if first < last:
            piece: Any = part[first - start : last - start]
            found.append(piece.toarray() if hasattr(piece, "toarray") else piece)
        start += length
    return np.concatenate(found).astype(np.float64)


def find_address(array: Any) -> int:
    """Return the address at which an array on the GPU begins."""
    return int(array.data.ptr)


def write_addresses(to: Any, matrix: Any, rows: Sequence[int] | IntArray) -> None:
    """Write to `to` the addresses of some rows of a matrix on the GPU."""
    start, step = find_address(matrix), matrix.strides[0]
    for place, row in enumerate(rows):
        to[place] = start + int(row) * step
