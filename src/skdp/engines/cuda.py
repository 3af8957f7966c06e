"""Add up records on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from skdp.engines.combined_codes import combine_codes
from skdp.engines.formula import Formula
from skdp.privacy.encoding import SPARSE_WIDTH, Chunk, Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, SLOPE_BITS, WeightGrid
from skdp.privacy.queries import BigInts, Metric, Slopes, big
from skdp.schema import FloatArray, IntArray, Layout
from skdp.schema.schema import Group

# ---- Compile the kernels of ``cuda_kernels.cu`` and call them


#: Number of threads per block, and number of blocks per processor of the GPU.
THREADS, BLOCKS = 256, 2
#: Largest number of columns of each kind in one sweep, as the kernels define it.
MOST_COLUMNS = 48
#: Largest number of bytes of shared memory of a block, if the GPU has that many.
MOST_SHARED = 96 << 10

FORMULA = np.dtype(
    [
        (name, "f8")
        for name in ("unit", "low", "steps", "bound", "one", "scale", "cap", "last")
    ]
)
COLUMNS = np.dtype(
    [
        ("number", "u8", MOST_COLUMNS),
        ("byte", "u8", MOST_COLUMNS),
        ("two", "u8", MOST_COLUMNS),
        ("change", "f8", MOST_COLUMNS),
        ("byte_slot", "i4", MOST_COLUMNS),
        ("short_slot", "i4", MOST_COLUMNS),
        ("slot_moves", "u8"),
        ("intercept_move", "f8"),
        ("slots", "i8"),
    ]
)
NULL = np.uint64(0)


@lru_cache(maxsize=64)
def compile_kernel(name: str, **constants: int) -> Any:
    """Compile a kernel for the given constants."""
    source = files("skdp.engines").joinpath("cuda_kernels.cu").read_text("utf-8")
    shape = {
        "FORMULA": 0,
        "NUMBERS": 0,
        "BYTES": 0,
        "SHORTS": 0,
        "KEPT": 0,
        "COPIES": 1,
    }
    defines = [f"-D{key}={value}" for key, value in (shape | constants).items()]
    defines += [f"-DTHREADS={THREADS}", f"-DRESIDENT={BLOCKS}"]
    options = ("--std=c++17", "--fmad=false", *defines)
    return cupy.RawModule(code=source, options=options).get_function(name)


def launch(kernel: Any, n: int, *arguments: Any, shared: int = 0) -> None:
    """Run a kernel with enough threads for `n` items, and `shared` bytes per block."""
    if shared:
        kernel.max_dynamic_shared_size_bytes = shared
    processors = _find_attribute("MultiProcessorCount")
    blocks = max(1, min(BLOCKS * processors, -(-n // THREADS)))
    kernel((blocks,), (THREADS,), arguments, shared_mem=shared)


def limit_shared() -> int:
    """Return how many bytes of shared memory a block may use on this GPU."""
    return min(MOST_SHARED, _find_attribute("MaxSharedMemoryPerBlockOptin"))


def _find_attribute(name: str) -> int:
    return int(_list_attributes(cupy.cuda.Device().id)[name])


@cache
def _list_attributes(device: int) -> dict[str, int]:
    """Return the properties of a GPU. Asking for them takes longer than a launch."""
    found: dict[str, int] = cupy.cuda.Device(device).attributes
    return found


def describe_formula(formula: Formula, divisor: int = 1) -> Any:
    """Return the formula as a struct for kernels, with slopes divided by `divisor`."""
    described = np.zeros(1, FORMULA)
    described[0] = (*formula.parameters, len(formula.table) - 1)
    described["scale"] /= divisor
    return described


# ---- Keep the rows of a table on a GPU, column by column


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


def _clip_lines(lines: Any, clips: IntArray | None, at: Any) -> Any:
    """Clip each line of an array, which belongs to coordinates `at`, as `gram` does."""
    if clips is None:
        return lines
    low, high = cupy.asarray(clips[:, at, None], lines.dtype)
    return cupy.clip(lines, low, high)


def find_address(array: Any) -> int:
    """Return the address at which an array on the GPU begins."""
    return int(array.data.ptr)


def write_addresses(to: Any, matrix: Any, rows: Sequence[int] | IntArray) -> None:
    """Write to `to` the addresses of some rows of a matrix on the GPU."""
    start, step = find_address(matrix), matrix.strides[0]
    for place, row in enumerate(rows):
        to[place] = start + int(row) * step


# ---- Gram matrices and caps of rows on a GPU, for tables of numbers and categories
#
# The kernels read each row's numbers and codes as they are stored. They are much faster
# than a product of expanded matrices, since most entries of those are zero.


#: Largest number of numbers per row. The sums of their products are kept in registers.
MOST_NUMBERS = 10


class Products:
    """Multiplies rows by each other and by a matrix.

    The kernels read a row as its numbers, followed by the intercept and by the slots of
    each column of codes. The last slot of a column is for codes that are none of its
    levels. Numbers are in units of 2⁻¹⁴, and all other entries are 0 or 1.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._numbers = len(places.numbers)
        groups = places.layout.groups
        coded = [*places.bytes, *places.shorts]
        self._starts = np.cumsum([0, *(groups[g].width + 1 for g in coded)])
        self._slots = int(self._starts[-1])
        # The place of each coordinate in such a row, and the unit of its entry there.
        self._at: IntArray = np.full(places.layout.n_features, self._numbers, np.intp)
        self._at[places.numbers] = np.arange(self._numbers)
        for start, g in zip(self._starts[:-1], coded, strict=True):
            own = groups[g].coordinates
            self._at[own] = self._numbers + 1 + start + np.arange(groups[g].width)
        self._scale: IntArray = np.full(len(self._at), FEATURE_ONE, np.int64)
        self._scale[places.numbers] = 1

    def can_add_up(self) -> bool:
        """Whether `add_up` can read these rows."""
        entries = 4 * self._slots * (self._numbers + self._slots)
        few = self._numbers <= MOST_NUMBERS
        return self._places.may_sweep and few and entries <= limit_shared()

    def can_cap(self, height: int) -> bool:
        """Whether `cap` can read these rows and a matrix with `height` lines."""
        entries = 8 * height * (self._numbers + 1 + self._slots)
        return self._places.may_sweep and entries <= limit_shared()

    def add_up(self, slab: Slab) -> IntArray:
        """Return the Gram matrix of a slab's rows, in units of 2⁻²⁸."""
        m, slots = self._numbers, self._slots
        shared, copies = 4 * slots * (m + slots), 1
        while copies < 32 and 2 * shared <= limit_shared():
            shared, copies = 2 * shared, 2 * copies
        corner = (m + 1) * (m + 2) // 2
        sums = cupy.zeros(corner + slots * (m + slots), np.uint64)
        launch(
            self._compile("add_up_pairs", COPIES=copies),
            slab.n_rows,
            self._describe(slab),
            np.int64(slab.n_rows),
            sums,
            shared=shared,
        )
        found = cupy.asnumpy(sums).view(np.int64)
        gram = np.zeros((m + 1 + slots, m + 1 + slots), np.int64)
        gram[np.tril_indices(m + 1)] = found[:corner]
        lines = found[corner:].reshape(slots, m + slots)
        gram[m + 1 :, :m] = lines[:, :m]
        gram[m + 1 :, m + 1 :] = lines[:, m:]
        gram[m + 1 :, m] = np.diagonal(lines[:, m:])  # each of these rows has a 1
        gram += np.tril(gram, -1).T
        total: IntArray = gram[np.ix_(self._at, self._at)]
        return total * np.outer(self._scale, self._scale)

    def cap(self, slab: Slab, units: FloatArray, limits: Any, caps: Any) -> None:
        """Write to `caps` the cap of each row, where `units` is B in units."""
        height, width = len(units), self._numbers + 1 + self._slots
        lines = np.zeros((height, width))
        for place, column in zip(self._at, (units * self._scale).T, strict=True):
            lines[:, place] += column
        shared = 8 * lines.size
        launch(
            self._compile("cap_rows"),
            slab.n_rows,
            self._describe(slab),
            np.int64(slab.n_rows),
            cupy.asarray(lines),
            np.int32(height),
            *limits,
            caps,
            shared=shared,
        )

    def _compile(self, name: str, **constants: int) -> Any:
        codes = {"BYTES": len(self._places.bytes), "SHORTS": len(self._places.shorts)}
        return compile_kernel(name, NUMBERS=self._numbers, **codes, **constants)

    def _describe(self, slab: Slab) -> Any:
        columns, split = np.zeros(1, COLUMNS), len(self._places.bytes)
        write_addresses(columns["number"][0], slab.numbers, range(self._numbers))
        write_addresses(columns["byte"][0], slab.bytes, range(split))
        write_addresses(columns["two"][0], slab.shorts, range(len(slab.shorts)))
        starts = self._starts[:-1]
        columns["byte_slot"][0, :split] = starts[:split]
        columns["short_slot"][0, : len(slab.shorts)] = starts[split:]
        columns["slots"] = self._slots
        return columns


# ---- Compute the same sums as the reference engine, on a GPU
#
# Rows are copied to the GPU once, with their targets, weights, caps and margins. In a
# step, only the model's weights go to the GPU, and only sums come back. If the table
# does not fit into the GPU's memory, each step copies the rest of it in pieces.
#
# If a table has only single numbers and categories, the loss has one output, and rows
# do not belong to persons, one kernel of ``cuda_kernels.cu`` does all the work of a
# step. Otherwise, or if there are too many columns or categories for this kernel, tiles
# of rows are expanded to matrices of integers, whose products are exact in double
# precision. Gram matrices and caps have kernels of their own (``cuda.py``), or use
# tiles too.


#: Share of the free memory that rows may fill. The rest is for tiles, caps and margins.
MEMORY_SHARE = 0.6
#: Largest number of doubles in an expanded tile.
TILE_ENTRIES = 1 << 27
#: Largest number of rows of a tile. Sums over its rows stay below 2⁵³.
TILE_ROWS = 1 << 22
#: Largest number of rows of a tile if rows belong to persons. The grid of slopes is
#: finer then, so sums have more units.
UNIT_TILE_ROWS = 1 << 18
#: Largest number of rows whose sums fit in 64 bits. Each row adds at most 2³¹.
MOST_ROWS = 1 << 31
#: Largest number of bytes of shared memory for the copies of sums over codes.
COPIES_SHARED = 32 << 10


class CudaEngine:
    """Computes the same sums over records as `ReferenceEngine`, on a GPU.

    Parameters
    ----------
    records : Records
        The encoded table. Its arrays may already be on the GPU.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self._places = Places(records.layout)
        self._products = Products(self._places)
        bits = WeightGrid.of(records.layout).bits + FEATURE_BITS
        self._unit = math.ldexp(1.0, -bits)
        free = MEMORY_SHARE * cupy.cuda.Device().mem_info[0]
        self._slabs, filled = [], 0
        for chunks in group_chunks(records.chunks):
            size = sum(count_bytes(chunk) for chunk in chunks)
            xp = cupy if filled + size <= free else np
            self._slabs.append(join_chunks(chunks, self._places, xp))
            filled += size
        self._resident = filled <= free
        self._weights: FloatArray | None = None
        self._margins: list[Any] = []
        self._known_table: tuple[Any, Any] = (None, None)

    def _on_gpu(self) -> Iterator[tuple[int, Slab]]:
        for index, slab in enumerate(self._slabs):
            yield index, slab.on_gpu()

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return the same gradient as `ReferenceEngine.gradient`."""
        formula = Formula.of(slopes, self._unit)
        caps = self._caps_on_gpu(slopes)
        if units.shape[1] == 1 and self._places.may_sweep and slopes.bits <= SLOPE_BITS:
            shared = self._shared_bytes(formula)
            if shared <= limit_shared():
                return self._sweep(units, at, formula, caps, shared)
        return self._expand(units, at, formula, caps)

    def _caps_on_gpu(self, slopes: Slopes) -> list[Any]:
        """Return the caps of each slab's rows, on the GPU.

        If there are no caps, the entry for each slab is None.
        """
        if slopes.caps is None:
            return [None] * len(self._slabs)
        if isinstance(slopes.caps, Caps):
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

    def _table(self, formula: Formula) -> Any:
        """Return the formula's table on the GPU. It is copied there only once."""
        known, table = self._known_table
        if known is not formula.table:
            table = cupy.asarray(formula.table)
            self._known_table = formula.table, table
        return table

    def _shared_bytes(self, formula: Formula) -> int:
        slots = self._places.n_slots
        return 8 * (len(formula.table) + slots) + 4 * slots * self._copies

    @cached_property
    def _copies(self) -> int:
        """Number of copies of sums over codes per thread block: 1, 2, 4, … or 32."""
        room = COPIES_SHARED // (4 * max(1, self._places.n_slots))
        return min(32, 1 << max(0, room.bit_length() - 1))

    def _sweep(
        self,
        units: FloatArray,
        at: IntArray,
        formula: Formula,
        caps: list[Any],
        shared: int,
    ) -> BigInts:
        """Return the gradient from one kernel, which reads only the columns it needs.

        Margins are kept on the GPU if a step changes the weights of only some columns.
        """
        places, d = self._places, len(units)
        kept = len(set(at.tolist())) < d and self._resident
        if not kept or self._weights is None or not self._margins:
            self._weights = np.zeros((d, 1))
            self._margins = [cupy.zeros(len(s.target)) for s in self._slabs if kept]
        move = (units - self._weights)[:, 0]
        needed = move != 0
        needed[at] = True
        numbers = np.flatnonzero(needed[places.numbers])
        layout = places.layout
        read = [needed[group.coordinates].any() for group in layout.groups]
        narrow = places.choose_bytes(read)
        wide = [g for g in places.shorts if read[g]]
        moves = np.zeros((1, places.n_slots))
        moves[0, places.slot_of] = np.where(places.is_code, move * FEATURE_ONE, 0.0)
        for combined in places.combined:
            combined.spread(moves)
        slot_moves = cupy.asarray(moves)
        columns = np.zeros(1, COLUMNS)
        columns["change"][0, : len(numbers)] = move[places.numbers[numbers]]
        columns["byte_slot"][0, : len(narrow)] = [slot for _, slot in narrow]
        columns["short_slot"][0, : len(wide)] = [
            layout.groups[g].start + g for g in wide
        ]
        columns["slot_moves"] = find_address(slot_moves)
        columns["intercept_move"] = sum(move[j] * FEATURE_ONE for j in places.ones)
        columns["slots"] = places.n_slots
        kernel = compile_kernel(
            "sweep",
            FORMULA=formula.code,
            NUMBERS=len(numbers),
            BYTES=len(narrow),
            SHORTS=len(wide),
            KEPT=int(kept),
            COPIES=self._copies,
        )
        table, described = self._table(formula), describe_formula(formula)
        sums = cupy.zeros(len(numbers) + 1 + places.n_slots, np.uint64)
        found, n_rows = big(np.zeros(len(sums))), 0
        for index, slab in self._on_gpu():
            n_rows += len(slab.target)
            if n_rows > MOST_ROWS:
                found = found + big(cupy.asnumpy(sums).view(np.int64))
                sums.fill(0)
                n_rows = len(slab.target)
            write_addresses(columns["number"][0], slab.numbers, numbers)
            write_addresses(columns["byte"][0], slab.bytes, [row for row, _ in narrow])
            write_addresses(
                columns["two"][0], slab.shorts, [places.shorts.index(g) for g in wide]
            )
            launch(
                kernel,
                len(slab.target) // 4,
                columns.copy(),
                np.int64(len(slab.target) // 4),
                slab.target,
                slab.weight,
                NULL if caps[index] is None else caps[index],
                self._margins[index] if kept else NULL,
                table,
                described,
                sums,
                shared=shared,
            )
        self._weights = units.copy() if kept else None
        found = found + big(cupy.asnumpy(sums).view(np.int64))
        by_slot = found[None, len(numbers) + 1 :].copy()
        for combined in places.combined:
            combined.gather(by_slot)
        total = by_slot[0, places.slot_of] * FEATURE_ONE
        total[places.numbers[numbers]] = found[: len(numbers)]
        total[places.ones] = found[len(numbers)] * FEATURE_ONE
        result: BigInts = total[at][:, None]
        return result

    def _expand(
        self, units: FloatArray, at: IntArray, formula: Formula, caps: list[Any]
    ) -> BigInts:
        """Return the gradient from tiles of rows that are expanded to matrices."""
        k = units.shape[1]
        weights, table = cupy.asarray(units), self._table(formula)
        kernel = compile_kernel("slopes", FORMULA=formula.code)
        total = big(np.zeros((len(units), k)))
        most = TILE_ROWS if self.records.layout.unit is None else UNIT_TILE_ROWS
        for index, slab, rows in self._tiles(len(units) + 2 * k, most):
            block = self._block(slab, rows)
            margins = cupy.ascontiguousarray(block.T @ weights)
            slope = cupy.empty_like(margins)
            n = rows.stop - rows.start
            own = None if caps[index] is None else caps[index][rows]
            launch(
                kernel,
                n,
                margins,
                slope,
                np.int64(n),
                np.int32(k),
                slab.target[rows],
                slab.weight[rows],
                NULL if own is None else own,
                table,
                describe_formula(formula, slab.divisor),
            )
            total = total + big(cupy.asnumpy(block @ slope))
        return total[at]

    def _tiles(
        self, width: int, most: int = TILE_ROWS
    ) -> Iterator[tuple[int, Slab, slice]]:
        """Yield tiles of at most `most` rows, where a row has `width` doubles."""
        length = max(1, min(most, TILE_ENTRIES // width))
        for index, slab in self._on_gpu():
            for start in range(0, slab.n_rows, length):
                yield index, slab, slice(start, min(start + length, slab.n_rows))

    def _block(self, slab: Slab, rows: slice) -> Any:
        """Return rows as a matrix (d, n) of integers in units of 2⁻¹⁴."""
        places, n = self._places, rows.stop - rows.start
        block = cupy.empty((places.layout.n_features, n))
        launch(
            compile_kernel("expand"),
            n,
            slab.numbers,
            slab.bytes,
            slab.shorts,
            slab.positions,
            np.int64(len(slab.target)),
            np.int64(rows.start),
            np.int64(n),
            self._coordinates,
            np.int32(len(block)),
            block,
        )
        for parts, g in zip(slab.sparse, places.sparse, strict=True):
            piece = slice_rows(parts, slab.chunks, rows)
            block[places.layout.groups[g].coordinates] = cupy.asarray(piece.T)
        return block

    @cached_property
    def _coordinates(self) -> Any:
        return cupy.asarray(self._places.list_coordinates())

    def gram(self) -> BigInts:
        """Return the same Gram matrix as `ReferenceEngine.gram`."""
        d = self._places.layout.n_features
        total = big(np.zeros((d, d)))
        for slab, own in self._list_grams():
            total = total + big(own) * (self.records.one // slab.divisor)
        return total

    def _list_grams(self) -> Iterator[tuple[Slab, Any]]:
        """Yield Gram matrices of parts of slabs, and the slab of each part."""
        clips = self._places.layout.clips
        if self._products.can_add_up():
            for _, slab in self._on_gpu():
                numbers = _clip_lines(slab.numbers, clips, self._places.numbers)
                yield slab, self._products.add_up(replace(slab, numbers=numbers))
            return
        for _, slab, rows in self._tiles(self._places.layout.n_features):
            block = self._block(slab, rows)
            block = _clip_lines(block, clips, slice(None))
            yield slab, cupy.asnumpy(block @ block.T)

    def caps(self, metric: Metric, slopes: Slopes) -> Sequence[Any]:
        """Return the cap on each row's slopes, as `Metric.caps` defines it."""
        height, d = metric.units.shape
        limits = [np.float64(limit) for limit in metric.limits(slopes)]
        found = [cupy.zeros(len(slab.target), np.int32) for slab in self._slabs]
        if self._products.can_cap(height):
            for index, slab in self._on_gpu():
                self._products.cap(slab, metric.units, limits, found[index])
        else:
            units, kernel = cupy.asarray(metric.units), compile_kernel("cap_images")
            for index, slab, rows in self._tiles(d + height):
                images = cupy.ascontiguousarray(units @ self._block(slab, rows))
                n, own = rows.stop - rows.start, found[index][rows]
                launch(kernel, n, images, np.int64(n), np.int32(height), *limits, own)
        return Caps(found, [slab.chunks for slab in self._slabs])

    def counts(self, n_classes: int) -> BigInts:
        """Return the same class counts as `ReferenceEngine.counts`."""
        total = np.zeros(n_classes, np.int64)
        for _, slab in self._on_gpu():
            n, share = slab.n_rows, self.records.one // slab.divisor
            if n_classes == 1:
                total[0] += n * share
                continue
            classes = cupy.minimum(slab.target[:n], np.uint16(n_classes - 1))
            counted = classes[slab.weight[:n] > 0]
            found = cupy.bincount(counted, minlength=n_classes)
            total += cupy.asnumpy(found)[:n_classes].astype(np.int64) * share
        return big(total)
