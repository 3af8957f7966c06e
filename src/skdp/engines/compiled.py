"""Add up records with compiled loops, on all cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import groupby
from typing import Any, NamedTuple

import numba
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
from skdp.engines.compilation import compile_sweep
from skdp.engines.formula import Formula
from skdp.engines.reference import ReferenceEngine
from skdp.engines.threads import Ranges, Threads
from skdp.privacy.encoding import AnyArray, Chunk, Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, WeightGrid
from skdp.privacy.queries import BigInts, Metric, Slopes, big
from skdp.schema import FloatArray, Group, IntArray, Layout, check, limit_codes

# ---- Describe rows to the compiled kernels by the addresses of the rows' arrays


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


# ---- Compute the same sums as the reference engine, in compiled code on all cores
#
# This is the default engine.


#: Number of sets of coordinates whose kernel programs are kept for later steps.
KNOWN_PROGRAMS = 64


class KnownSlopes(NamedTuple):
    """What kernels need to know about slopes, which most steps share.

    `fits` says whether every gradient fits into int64. The fields `chunks` to
    `rounding` of a `kernels.SweepJob` are in `words`. Some of them are addresses of
    `arrays`.
    """

    slopes: Slopes | None
    shape: tuple[int, int]
    fits: bool
    arrays: tuple[Any, ...]
    words: tuple[int, ...]


class Programs(NamedTuple):
    """The kernel programs of all chunks, which add up some coordinates.

    `slots` and `worth` are those of the coordinates, as in `Slots`. The fields
    `columns` to `bounds` of a `kernels.SweepJob` are in `words`. A row has about
    `entries` entries in the columns that both programs read.
    """

    slots: IntArray
    worth: IntArray
    arrays: tuple[Any, ...]
    words: tuple[int, ...]
    entries: int


class Workspace(NamedTuple):
    """Arrays that all sweeps use, one after another.

    `asked` has the weights of the last gradient, and `changed` has room for the indices
    of those that change. The fields `moves` to `lanes` of a `kernels.SweepJob` are in
    `words`.
    """

    asked: FloatArray
    changed: npt.NDArray[np.int64]
    moves: FloatArray
    totals: npt.NDArray[np.int64]
    words: tuple[int, ...]

    @classmethod
    def of(cls, slots: Slots, n_outputs: int) -> Workspace:
        """Return the arrays for a loss with this number of outputs."""
        asked = np.zeros((slots.layout.n_features, n_outputs))
        changed = np.zeros(len(asked), np.int64)
        moves = np.zeros((n_outputs, slots.wide))
        totals = np.zeros((2, n_outputs, slots.count), np.int64)
        lanes = 4 if moves.size <= 1 << 14 else 1
        addresses = moves.ctypes.data, totals.ctypes.data
        words = addresses[0], *moves.shape, addresses[1], slots.count, lanes
        return cls(asked, changed, moves, totals, words)


class CompiledEngine:
    """Computes the same sums over records as `ReferenceEngine`, for every table.

    One sweep over the rows updates the margins by the change of the weights and adds up
    the requested columns. It reads only those columns and the columns whose weights
    changed. Only one thread at a time may call an engine.

    Parameters
    ----------
    records : Records
        The encoded table, whose arrays are read in place.
    n_threads : int, optional
        The number of threads. The default is ``NUMBA_NUM_THREADS`` if it is set, and
        otherwise the number of cores. Sums are exact integers, so the number of threads
        does not change them.
    """

    def __init__(self, records: Records, n_threads: int | None = None) -> None:
        check(
            n_threads is None or n_threads >= 1,
            f"n_threads must be at least 1, got {n_threads}.",
        )
        self.records = records
        sizes = [len(chunk.target) for chunk in records.chunks]
        self._slots = Slots(records.layout, sum(sizes))
        bits = WeightGrid.of(records.layout).bits + FEATURE_BITS
        self._unit = math.ldexp(1.0, -bits)
        # A chunk that is stored in a file has a method `rest`, which releases its
        # memory after each read.
        rests = [getattr(chunk, "rest", None) for chunk in records.chunks]
        # The weights of the kept margins, or None if no margins are valid.
        self._weights: FloatArray | None = None
        self._margins: list[FloatArray] = []
        self._margin_addresses = np.zeros(0, np.int64)
        self._known_programs: dict[tuple[bytes, bytes], Programs] = {}
        self._workspace = cache(partial(Workspace.of, self._slots))
        self._known_slopes = KnownSlopes(None, (0, 0), False, (), ())
        default = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # dynamic
        self._threads = Threads(n_threads or int(default), sizes, rests)
        compile_sweep()
        make = partial(KernelRows.of, slots=self._slots)
        self._rows = self._threads.map(make, records.chunks)

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return Σ_i x_i,at s_i, shape (len(at), k), at the weights `units`.

        One unit of the result is a step of the features' grid times one of the slopes'.
        """
        # A sweep takes little time if there are many threads. But it removes the
        # interpreter's code from the caches, so Python's part takes longer than usual.
        # It consists of few calls for this reason.
        slots, known = self._slots, self._look_up(slopes)
        if units.shape != known.shape:
            raise ValueError(
                f"The weights must have shape {known.shape} (features, outputs of the "
                f"loss), got {units.shape}."
            )
        units = np.ascontiguousarray(units, np.float64)
        asked, places, moves, totals, words = self._workspace(units.shape[1])
        valid = self._weights is asked
        self._weights = None  # invalid until all margins have been moved
        n_changed, fewer = kernels.find_moves(
            units, asked, valid, slots.of, slots.worth, moves, places
        )
        for combined in slots.combined:
            combined.spread(moves)
        changed = places[:n_changed]
        # If a step changes all weights, computing the margins from scratch (from
        # weights of zero) takes as long as updating them, and no margins need to be
        # stored. Once a step changes fewer weights than are nonzero, margins are kept
        # from then on.
        kept_margins = valid or fewer
        if not valid:
            self._margins = self._make_margins(units.shape[1]) if kept_margins else []
        programs = self._make_programs(changed, at)
        job = (
            *known.words,
            *programs.words,
            self._margin_addresses.ctypes.data if kept_margins else 0,
            *slots.words,
            *words,
        )
        totals[:] = 0
        self._threads.sweep(job, units.shape[1] * (16 + programs.entries))
        if kept_margins:
            self._weights = asked
        found = totals[:, :, programs.slots]
        high, low = found if known.fits else big(found)
        sums = ((high << 32) + low).T * programs.worth[:, None]
        return np.asarray(sums.astype(object))

    def _look_up(self, slopes: Slopes) -> KnownSlopes:
        """Describe slopes to kernels. Most steps have the same slopes as the last."""
        if self._known_slopes.slopes is slopes:
            return self._known_slopes
        formula = Formula.of(slopes, self._unit)
        chunks = np.zeros((len(self._rows), 7), np.int64)
        caps = []
        for index, rows in enumerate(self._rows):
            chunks[index, :2] = rows.addresses
            if slopes.caps is not None:
                caps.append(_chunk_caps(slopes, index, rows.n_rows))
                chunks[index, 2] = caps[-1].ctypes.data
                chunks[index, 6] = len(caps[-1]) == rows.n_rows
            chunks[index, 3] = rows.n_rows
            chunks[index, 4] = self.records.chunks[index].divisor
            chunks[index, 5] = len(rows.weight) == rows.n_rows
        loss: Any = slopes.loss  # Formula.of checked that it has a formula
        self._known_slopes = KnownSlopes(
            slopes,
            shape=(self.records.layout.n_features, loss.n_outputs),
            fits=self._threads.n_rows * slopes.grid.cap * FEATURE_ONE < 1 << 63,
            arrays=(formula, caps, chunks),
            words=(
                *(chunks.ctypes.data, len(chunks)),
                kernels.SLOPES[formula.code].address,
                formula.parameters.ctypes.data,
                *(formula.table.ctypes.data, len(formula.table)),
                kernels.round_slopes.address,
            ),
        )
        return self._known_slopes

    def _make_margins(self, n_outputs: int) -> list[FloatArray]:
        """Return the margins of weights of zero, and tell kernels where they are."""
        margins = [np.zeros((n_outputs, rows.n_rows)) for rows in self._rows]
        addresses = [own.ctypes.data for own in margins]
        self._margin_addresses = np.array(addresses, np.int64)
        return margins

    def _make_programs(self, changed: IntArray, at: IntArray) -> Programs:
        """Return the kernel programs of all chunks, from a cache if possible.

        Each chunk has two programs: one that updates margins by the coordinates
        `changed`, and one that adds up the coordinates `at`.
        """
        at = at.astype(np.intp, copy=False)  # so equal sets have equal bytes
        key = changed.tobytes(), at.tobytes()
        known = self._known_programs.get(key)
        if known is not None:
            return known
        if len(at) == self.records.layout.n_features:
            combine = partial(KernelRows.combine_all, slots=self._slots)
            self._threads.map(combine, self._rows)
        adding = [rows.program(self._slots, at) for rows in self._rows]
        moving = adding
        if key[0] != key[1]:
            moving = [rows.program(self._slots, changed) for rows in self._rows]
        found = [one for both in zip(moving, adding, strict=True) for one in both]
        ends = np.cumsum([len(lines) for lines in found], dtype=np.int64)
        starts = ends - [len(lines) for lines in found]
        programs = np.concatenate([np.zeros((0, 5), np.int64), *found])
        kernels.compile_columns(programs[:, kernels.KIND].tolist())
        # A row has one entry in a category, however many levels that has. Counting the
        # levels would wake threads for sweeps that take less time than waking them.
        many = np.isin(programs[:, kernels.KIND], (kernels.MATRIX, kernels.SPARSE))
        entries = np.where(many, programs[:, kernels.WIDTH], 1).sum()
        bounds = np.stack([starts, ends], axis=1).reshape(-1, 4)
        if len(self._known_programs) >= KNOWN_PROGRAMS:
            self._known_programs.clear()
        self._known_programs[key] = Programs(
            slots=self._slots.of[at],
            worth=self._slots.worth[at],
            arrays=(programs, bounds),
            words=(
                kernels.ADDRESSES.ctypes.data,
                programs.ctypes.data,
                bounds.ctypes.data,
            ),
            entries=int(entries) // max(1, len(self._rows)),
        )
        return self._known_programs[key]

    def gram(self) -> BigInts:
        """Return the same Gram matrix as `ReferenceEngine.gram`."""
        order, clips = NumbersFirst(self._slots), self.records.layout.clips
        steps = [] if clips is None else [matrix_kernels.clip_numbers]
        steps += [matrix_kernels.add_pairs]
        steps += [matrix_kernels.add_hat_pairs] if order.hats else []
        walk = self._make_walk(order, order.choose_sizes(), steps)
        flush = matrix_kernels.flush_pairs.address
        ends = np.zeros(0)
        if clips is not None:
            ends = np.ascontiguousarray(clips[:, order.dense], np.float64)

        def work(share: Ranges) -> npt.NDArray[np.int64]:
            total = np.zeros((order.count, order.count), np.int64)
            sums = np.zeros(total.shape)
            addresses = {"result": sums.ctypes.data, "total": total.ctypes.data}
            addresses["clips"] = ends.ctypes.data
            walk(share, flush, width=order.count, **addresses)
            return total

        def find_share(index: int) -> int:
            return self.records.find_share(self.records.chunks[index])

        entries = len(order.dense) ** 2 + order.count
        result = big(np.zeros((len(order.of), len(order.of))))
        indices = sorted(range(len(self._rows)), key=find_share)
        for one, own in groupby(indices, find_share):
            total = np.zeros((order.count, order.count), np.int64)
            for part in self._threads.run(work, entries, frozenset(own)):
                total += part
            total = np.tril(total) + np.tril(total, -1).T
            exact = total[np.ix_(order.of, order.of)]
            exact = exact * np.multiply.outer(order.worth, order.worth)
            result = result + big(exact) * one
        return result

    def caps(self, metric: Metric, slopes: Slopes) -> list[npt.NDArray[np.int32]]:
        """Return the cap on each row's slopes, as `Metric.caps` defines it."""
        rest = metric.units.copy()
        if self.records.layout.groups[-1].kind == "ones":
            rest[:, -1] = 0.0
        if not rest.any():  # rows differ only in coordinates that B ignores
            image = metric.units[:, -1:].T * FEATURE_ONE
            cap = metric.caps(image, slopes).astype(np.int32)
            return [np.broadcast_to(cap, rows.n_rows) for rows in self._rows]
        order = NumbersFirst(self._slots)
        # Kernels are faster if the number of rows of B is a multiple of 8. Further rows
        # of zeros change no norm.
        width = -(-len(metric.units) // 8) * 8
        columns = make_aligned(order.count, width)
        columns[order.of, : len(metric.units)] = (metric.units * order.worth).T
        caps = [np.zeros(rows.n_rows, np.int32) for rows in self._rows]
        where = np.array([own.ctypes.data for own in caps], np.int64)
        limits = np.array(metric.limits(slopes))
        steps = [matrix_kernels.add_images]
        steps += [matrix_kernels.add_hat_images] if order.hats else []
        sizes = order.choose_sizes(width)
        walk = self._make_walk(order, sizes, [*steps, matrix_kernels.cap_rows])

        def work(share: Ranges) -> None:
            images = make_aligned(sizes[0], width)
            walk(
                share,
                width=width,
                result=images.ctypes.data,
                columns=columns.ctypes.data,
                limits=limits.ctypes.data,
                caps=where.ctypes.data,
            )

        self._threads.run(work, width * len(order.dense) + order.count)
        return caps

    def _make_walk(
        self,
        order: NumbersFirst,
        sizes: tuple[int, int, int, int],
        operations: Sequence[kernels.Operation],
    ) -> Callable[..., None]:
        """Return a function that calls operations on tiles of some rows.

        Its arguments are the ranges of rows, the address of `flush_pairs` if needed,
        and further fields of a `matrix_kernels.Tile`. `sizes` is the result of
        `NumbersFirst.choose_sizes`.
        """
        lines = np.zeros(
            (len(self._rows), len(self.records.layout.groups), 7), np.int64
        )
        for own, rows in zip(lines, self._rows, strict=True):
            own[:] = order.describe(rows)
        kinds = lines[:, :, kernels.KIND].ravel().tolist()
        readers = matrix_kernels.compile_readers(kinds)
        calls = np.array([one.address for one in operations], np.int64)
        n_rows, n_numbers, n_codes, n_hats = sizes

        def walk(share: Ranges, flush: int = 0, **fields: int) -> None:
            dense = np.empty((n_rows, n_numbers))
            codes = np.empty((n_codes, n_rows), np.uint16)
            places = np.empty((n_hats, n_rows), np.int64)
            values = np.empty((n_hats, n_rows))
            tile = matrix_kernels.Tile(
                dense=dense.ctypes.data,
                n_numbers=n_numbers,
                codes=codes.ctypes.data,
                n_codes=n_codes,
                places=places.ctypes.data,
                values=values.ctypes.data,
                n_hats=n_hats,
                n_rows=n_rows,
                slots=order.slots.ctypes.data,
                **fields,
            )
            ranges = share.array, share.taken.ctypes.data
            matrix_kernels.walk(*ranges, lines, readers, np.array(tile), calls, flush)

        return walk

    def counts(self, n_classes: int) -> BigInts:
        """Add up the shares (`Records.find_share`) of the rows of each class.

        Rows of weight zero are left out, unless n_classes = 1. Codes beyond the last
        class count as the last class.
        """

        def count(chunk: Chunk) -> BigInts:
            alone = replace(self.records, chunks=(chunk,))
            return ReferenceEngine(alone).counts(n_classes)

        total = big(np.zeros(n_classes))
        return sum(self._threads.map(count, self.records.chunks), start=total)


def _chunk_caps(slopes: Slopes, index: int, n_rows: int) -> npt.NDArray[np.int32]:
    """Return the caps of a chunk's rows as int32, limited to the cap of the grid."""
    assert slopes.caps is not None
    caps = slopes.caps[index]
    check(
        len(caps) == n_rows,
        f"There must be one cap per row ({n_rows}), got {len(caps)}.",
    )
    if caps.dtype != np.int32:
        caps = np.minimum(caps, slopes.grid.cap)
    return store(caps, np.int32)
