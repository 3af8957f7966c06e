"""Compute the same sums as the reference engine, on a GPU.

Rows are copied to the GPU once, together with what belongs to rows: targets, weights,
caps and margins. Only weights go to the GPU in a step, and only sums come back. If the
table does not fit into the GPU's memory, the rest of it is copied in pieces, in each
step.

A table of single numbers and categories, with a loss of one output, is swept by one
kernel of ``cuda_kernels.cu``. For all other tables, tiles of rows are expanded to
matrices of integers, whose products are exact in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import cupy
import numpy as np
from scipy.sparse import issparse

from skdp.engines.compiled import FORMULAS, Formula
from skdp.privacy.encoding import Chunk, Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, WeightGrid
from skdp.privacy.queries import BigInts, Metric, Slopes, big
from skdp.schema import FloatArray, IntArray, Layout

#: Share of the free memory that rows may fill. The rest is for tiles, caps and margins.
MEMORY_SHARE = 0.6
#: Chunks are joined until they have this many rows, so that each sweep is long.
SLAB_ROWS = 1 << 26
#: Number of entries of an expanded tile, which are doubles.
TILE_ENTRIES = 1 << 27
#: Largest number of rows of a tile. Sums over its rows stay below 2⁵³.
TILE_ROWS = 1 << 22
#: Rows of a slab are a multiple of this number.
ALIGNMENT = 64
#: Threads of a block, and blocks per processor of the GPU.
THREADS, BLOCKS = 256, 4
#: Most columns of numbers, and bytes of shared memory, of a sweep by one kernel.
MOST_NUMBERS, MOST_SHARED = 48, 96 << 10
#: Most bytes of shared memory for the copies of sums over codes.
COPIES_SHARED = 32 << 10

_FORMULA = np.dtype(
    [(n, "f8") for n in "unit low steps bound one scale cap last".split()], align=True
)
_COLUMNS = np.dtype(
    [
        *((name, "u8") for name in ("numbers", "bytes", "shorts")),
        ("stride", "i8"),
        *((f"{name}_at", "u8") for name in ("number", "byte", "short")),
        *((f"{name}_slots", "u8") for name in ("byte", "short")),
        *((f"{name}_moves", "u8") for name in ("number", "slot")),
        ("intercept_move", "f8"),
        ("slots", "i4"),
    ],
    align=True,
)
_NULL = np.uint64(0)


@lru_cache(maxsize=64)
def _compile(name: str, **constants: int) -> Any:
    """Compile a kernel for the given constants."""
    source = files("skdp.engines").joinpath("cuda_kernels.cu").read_text("utf-8")
    shape = {"FORMULA": 0, "NUMBERS": 0, "BYTES": 0, "SHORTS": 0, "KEPT": 0, "COPIES": 1}
    defines = [f"-D{key}={value}" for key, value in (shape | constants).items()]
    options = ("--std=c++17", "--fmad=false", *defines)
    return cupy.RawModule(code=source, options=options).get_function(name)


def _address(array: Any) -> int:
    return int(array.data.ptr)


def _launch(kernel: Any, n: int, *arguments: Any, shared: int = 0) -> None:
    """Run a kernel with enough threads for `n` items."""
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = max(1, min(BLOCKS * processors, -(-n // THREADS)))
    kernel((blocks,), (THREADS,), arguments, shared_mem=shared)


class _Places:
    """Where coordinates are stored: numbers, one-byte codes and two-byte codes.

    The slots of a group of codes end with a spare slot, which the code of a row without
    any of the group's levels refers to.
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
        self.ones = [group.start for _, group in groups if group.kind == "ones"]
        self.slots: dict[int, int] = {}
        self.n_slots = 0
        for g in (*self.bytes, *self.shorts):
            self.slots[g] = self.n_slots
            self.n_slots += layout.groups[g].width + 1
        self.slot_of = np.full(layout.n_features, -1)
        for g, slot in self.slots.items():
            self.slot_of[layout.groups[g].coordinates] = slot + np.arange(
                layout.groups[g].width
            )


def _is_sparse(group: Any) -> bool:
    return group.kind == "dense" and group.width >= 256


@dataclass(eq=False, repr=False)
class _Slab:
    """Rows on the GPU, one array per kind of column, with one row per column.

    `chunks` are the lengths of the chunks that were joined. Rows after the last one
    have weight 0.
    """

    chunks: list[int]
    numbers: Any
    bytes: Any
    shorts: Any
    sparse: list[Any]
    target: Any
    weight: Any

    @property
    def n_rows(self) -> int:
        return sum(self.chunks)

    @property
    def n_bytes(self) -> int:
        arrays = (self.numbers, self.bytes, self.shorts, self.target, self.weight)
        return sum(array.nbytes for array in arrays)

    def on_gpu(self) -> _Slab:
        """Return the slab with all arrays on the GPU."""
        return _Slab(
            self.chunks,
            cupy.asarray(self.numbers),
            cupy.asarray(self.bytes),
            cupy.asarray(self.shorts),
            self.sparse,
            cupy.asarray(self.target),
            cupy.asarray(self.weight),
        )


def _join(chunks: Sequence[Chunk], places: _Places, xp: Any) -> _Slab:
    """Join chunks to a slab whose arrays are made by `xp`, numpy or cupy."""
    lengths = [len(chunk.target) for chunk in chunks]
    rows = -(-max(1, sum(lengths)) // ALIGNMENT) * ALIGNMENT
    layout = places.layout
    slab = _Slab(
        lengths,
        xp.zeros((len(places.numbers), rows), np.int16),
        xp.zeros((len(places.bytes), rows), np.uint8),
        xp.zeros((len(places.shorts), rows), np.uint16),
        [],
        xp.zeros(rows, np.uint16),
        xp.zeros(rows, np.float32),
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
                array[row, at] = xp.where(inside, codes, width)
        target = xp.asarray(chunk.target)
        slab.target[at] = target.astype(np.uint16)
        slab.weight[at] = xp.asarray(chunk.weight)
        start += length
    for g in places.sparse:
        whole = [chunk.parts[g] for chunk in chunks]
        slab.sparse.append([w if issparse(w) else np.asarray(w) for w in whole])
    return slab


class _Caps(Sequence[Any]):
    """The caps of all rows, which stay on the GPU. An entry is one chunk's caps."""

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


class CudaEngine:
    """Computes sums over records on a GPU. They equal those of `ReferenceEngine`.

    Parameters
    ----------
    records : Records
        The encoded table. Its arrays may already be on the GPU.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self._places = _Places(records.layout)
        bits = WeightGrid.of(records.layout).bits + FEATURE_BITS
        self._unit = math.ldexp(1.0, -bits)
        free = MEMORY_SHARE * cupy.cuda.Device().mem_info[0]
        self._slabs, filled = [], 0
        for chunks in _group(records.chunks):
            size = sum(_count_bytes(chunk) for chunk in chunks)
            xp = cupy if filled + size <= free else np
            self._slabs.append(_join(chunks, self._places, xp))
            filled += size
        self._resident = filled <= free
        self._weights: FloatArray | None = None
        self._margins: list[Any] = []

    def _on_gpu(self) -> Iterator[tuple[int, _Slab]]:
        for index, slab in enumerate(self._slabs):
            yield index, slab.on_gpu()

    @cached_property
    def _may_sweep(self) -> bool:
        """Whether one kernel can sweep this table."""
        places = self._places
        return not places.sparse and len(places.numbers) <= MOST_NUMBERS

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return Σ_i x_i,at s_i, shape (len(at), k), in feature times slope units."""
        formula = Formula.of(slopes, self._unit)
        caps = self._caps_on_gpu(slopes)
        if units.shape[1] == 1 and self._may_sweep:
            shared = self._shared_bytes(formula)
            if shared <= MOST_SHARED:
                return self._sweep(units, at, formula, caps, shared)
        return self._expand(units, at, formula, caps)

    def _caps_on_gpu(self, slopes: Slopes) -> list[Any]:
        """Return the caps of each slab's rows on the GPU, or None for each."""
        if slopes.caps is None:
            return [None] * len(self._slabs)
        if isinstance(slopes.caps, _Caps):
            return slopes.caps.slabs
        found, first = [], 0
        for slab in self._slabs:
            caps = np.zeros(len(slab.target), np.int32)
            chunks = slopes.caps[first : first + len(slab.chunks)]
            first += len(slab.chunks)
            joined = np.concatenate([np.zeros(0), *chunks])
            caps[: slab.n_rows] = np.minimum(joined, slopes.grid.cap)
            found.append(cupy.asarray(caps))
        return found

    def _shared_bytes(self, formula: Formula) -> int:
        slots = self._places.n_slots
        return 8 * (len(formula.table) + slots) + 4 * slots * self._copies

    @cached_property
    def _copies(self) -> int:
        """Copies of the sums over codes per block: 1 to 32, a power of two."""
        room = COPIES_SHARED // (4 * max(1, self._places.n_slots))
        return min(32, 1 << max(0, room.bit_length() - 1))

    def _sweep(
        self, units: FloatArray, at: IntArray, formula: Formula, caps: list[Any], shared: int
    ) -> BigInts:
        """Return the sums of one kernel that reads only the columns it needs.

        Margins are kept on the GPU if a step is about some columns only.
        """
        places, d = self._places, len(units)
        kept = len(set(at.tolist())) < d and self._resident
        if not kept or self._weights is None or not self._margins:
            self._weights = np.zeros((d, 1))
            self._margins = [
                cupy.zeros(len(s.target)) for s in self._slabs if kept
            ]
        move = (units - self._weights)[:, 0]
        needed = move != 0
        needed[at] = True
        numbers = np.flatnonzero(needed[places.numbers])
        layout = places.layout
        read = [needed[layout.groups[g].coordinates].any() for g in range(len(layout.groups))]
        bytes_ = [row for row, g in enumerate(places.bytes) if read[g]]
        shorts = [row for row, g in enumerate(places.shorts) if read[g]]
        slot_moves = np.zeros(places.n_slots)
        coded = places.slot_of >= 0
        slot_moves[places.slot_of[coded]] = move[coded] * FEATURE_ONE
        lists = {
            "number_at": np.asarray(numbers, np.int32),
            "byte_at": np.asarray(bytes_, np.int32),
            "short_at": np.asarray(shorts, np.int32),
            "byte_slots": np.array([places.slots[places.bytes[r]] for r in bytes_], np.int32),
            "short_slots": np.array(
                [places.slots[places.shorts[r]] for r in shorts], np.int32
            ),
            "number_moves": move[places.numbers[numbers]],
            "slot_moves": slot_moves,
        }
        on_gpu = {name: cupy.asarray(array) for name, array in lists.items()}
        columns = np.zeros(1, _COLUMNS)
        for name, array in on_gpu.items():
            columns[name] = _address(array)
        columns["intercept_move"] = sum(move[j] * FEATURE_ONE for j in places.ones)
        columns["slots"] = places.n_slots
        kernel = _compile(
            "sweep",
            FORMULA=formula.code,
            NUMBERS=len(numbers),
            BYTES=len(bytes_),
            SHORTS=len(shorts),
            KEPT=int(kept),
            COPIES=self._copies,
        )
        kernel.max_dynamic_shared_size_bytes = shared
        table, described = cupy.asarray(formula.table), _describe(formula)
        sums = cupy.zeros(len(numbers) + 1 + places.n_slots, np.uint64)
        for index, slab in self._on_gpu():
            columns["numbers"] = _address(slab.numbers)
            columns["bytes"] = _address(slab.bytes)
            columns["shorts"] = _address(slab.shorts)
            columns["stride"] = len(slab.target)
            _launch(
                kernel,
                len(slab.target) // 4,
                columns.copy(),
                np.int64(len(slab.target) // 4),
                slab.target,
                slab.weight,
                _NULL if caps[index] is None else caps[index],
                self._margins[index] if kept else _NULL,
                table,
                described,
                sums,
                shared=shared,
            )
        self._weights = units.copy() if kept else None
        found = cupy.asnumpy(sums).view(np.int64)
        total = np.zeros(d, np.int64)
        total[places.numbers[numbers]] = found[: len(numbers)]
        total[places.ones] = found[len(numbers)] * FEATURE_ONE
        total[coded] = found[len(numbers) + 1 :][places.slot_of[coded]] * FEATURE_ONE
        return big(total[at][:, None])

    def _expand(
        self, units: FloatArray, at: IntArray, formula: Formula, caps: list[Any]
    ) -> BigInts:
        """Return the sums from tiles of rows that are expanded to matrices."""
        k = units.shape[1]
        weights, table = cupy.asarray(units), cupy.asarray(formula.table)
        kernel = _compile("slopes", FORMULA=formula.code)
        total = np.zeros((len(units), k), np.int64)
        for index, slab, rows in self._tiles(len(units) + 2 * k):
            block = self._block(slab, rows)
            margins = cupy.ascontiguousarray(block.T @ weights)
            slope = cupy.empty_like(margins)
            n = rows.stop - rows.start
            own = None if caps[index] is None else caps[index][rows]
            _launch(
                kernel,
                n,
                margins,
                slope,
                np.int64(n),
                np.int32(k),
                slab.target[rows],
                slab.weight[rows],
                _NULL if own is None else own,
                table,
                _describe(formula),
            )
            total += cupy.asnumpy(block @ slope).astype(np.int64)
        return big(total[at])

    def _tiles(self, width: int) -> Iterator[tuple[int, _Slab, slice]]:
        """Yield tiles of rows, for which `width` doubles per row are needed."""
        length = max(1, min(TILE_ROWS, TILE_ENTRIES // width))
        for index, slab in self._on_gpu():
            for start in range(0, slab.n_rows, length):
                yield index, slab, slice(start, min(start + length, slab.n_rows))

    def _block(self, slab: _Slab, rows: slice) -> Any:
        """Return rows as a matrix (d, n) of integers in units of 2⁻¹⁴."""
        places, n = self._places, rows.stop - rows.start
        layout = places.layout
        block = cupy.empty((layout.n_features, n))
        row = 0
        for g, group in enumerate(layout.groups):
            out = block[group.start : group.start + group.width]
            if group.kind == "ones":
                out[...] = FEATURE_ONE
            elif group.kind == "code":
                narrow = g in places.bytes
                coded = places.bytes if narrow else places.shorts
                codes = (slab.bytes if narrow else slab.shorts)[coded.index(g), rows]
                levels = cupy.arange(group.width, dtype=codes.dtype)
                cupy.equal(levels[:, None], codes[None, :], out=out)
                out *= FEATURE_ONE
            elif g in places.sparse:
                parts = slab.sparse[places.sparse.index(g)]
                out[...] = cupy.asarray(_slice_rows(parts, slab.chunks, rows).T)
            else:
                out[...] = slab.numbers[row : row + group.width, rows]
                row += group.width
        return block

    def gram(self) -> BigInts:
        """Return Σ_i x_i x_iᵀ, shape (d, d), in units of 2⁻²⁸."""
        d = self._places.layout.n_features
        total = np.zeros((d, d), np.int64)
        for _, slab, rows in self._tiles(d):
            block = self._block(slab, rows)
            total += cupy.asnumpy(block @ block.T).astype(np.int64)
        return big(total)

    def caps(self, metric: Metric, slopes: Slopes) -> Sequence[Any]:
        """Return the cap of each row, from the row's exact product with the metric."""
        units = cupy.asarray(metric.units)
        height, d = metric.units.shape
        kernel = _compile("caps")
        unit = math.ldexp(slopes.grid.unit, -FEATURE_BITS - metric.bits)
        reach, cap = metric.radius / unit, float(slopes.grid.cap)
        found = [cupy.zeros(len(slab.target), np.int32) for slab in self._slabs]
        for index, slab, rows in self._tiles(d + height):
            images = cupy.ascontiguousarray(units @ self._block(slab, rows))
            n = rows.stop - rows.start
            _launch(
                kernel,
                n,
                images,
                np.int64(n),
                np.int32(height),
                np.float64(reach),
                np.float64(reach / cap),
                np.float64(cap),
                found[index][rows],
            )
        return _Caps(found, [slab.chunks for slab in self._slabs])

    def counts(self, n_classes: int) -> BigInts:
        """Count the rows of each class, leaving out null rows (rows of weight zero).

        If n_classes = 1, count all rows. Codes beyond the last class count as the last
        class.
        """
        total = np.zeros(n_classes, np.int64)
        for _, slab in self._on_gpu():
            n = slab.n_rows
            if n_classes == 1:
                total[0] += n
                continue
            classes = cupy.minimum(slab.target[:n], np.uint16(n_classes - 1))
            counted = classes[slab.weight[:n] > 0]
            found = cupy.bincount(counted, minlength=n_classes)
            total += cupy.asnumpy(found)[:n_classes].astype(np.int64)
        return big(total)


def _describe(formula: Formula) -> Any:
    """Return the struct that the kernels read a formula from."""
    described = np.zeros(1, _FORMULA)
    described[0] = (*formula.parameters, len(formula.table) - 1)
    return described


def _group(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """Yield lists of consecutive chunks that are joined to slabs."""
    joined: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        joined.append(chunk)
        rows += len(chunk.target)
        if rows >= SLAB_ROWS:
            yield joined
            joined, rows = [], 0
    if joined:
        yield joined


def _count_bytes(chunk: Chunk) -> int:
    """Return roughly how many bytes a chunk fills on the GPU."""
    parts = sum(part.nbytes for part in chunk.parts if not issparse(part))
    return int(parts) + 6 * len(chunk.target)


def _slice_rows(parts: list[Any], lengths: list[int], rows: slice) -> FloatArray:
    """Return some rows of sparse or dense parts that are stacked, as floats."""
    found, start = [], 0
    for part, length in zip(parts, lengths, strict=True):
        first, last = max(rows.start, start), min(rows.stop, start + length)
        if first < last:
            piece = part[first - start : last - start]
            found.append(piece.toarray() if issparse(piece) else piece)
        start += length
    return np.concatenate(found).astype(np.float64)
