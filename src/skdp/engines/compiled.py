"""Compute the same sums as the reference engine, in compiled code on all cores.

This is the default engine.
"""

from __future__ import annotations

import math
from functools import cached_property, partial
from itertools import groupby
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from skdp.engines import kernels, matrix_kernels
from skdp.engines.compilation import compile_sweep
from skdp.engines.compiled_rows import (
    KernelRows,
    NumbersFirst,
    Slots,
    make_aligned,
    store,
)
from skdp.engines.row_threads import Ranges, Threads
from skdp.models import formulas
from skdp.models.losses import Loss
from skdp.privacy.encoding import Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, WeightGrid
from skdp.privacy.queries import BigInts, Metric, Slopes, big
from skdp.schema import FloatArray, IntArray, check

#: Number of sets of coordinates whose kernel programs are kept for later steps.
KNOWN_PROGRAMS = 64

_NO_TABLE = np.zeros(2)
_NO_TABLE.setflags(write=False)

#: The kernel's code of each formula, by the formula's kind and whether it has a table.
FORMULAS = {
    ("mean", True): kernels.MEAN,
    ("residual", False): kernels.RESIDUAL,
    ("residual", True): kernels.BENT_RESIDUAL,
    ("ramp", False): kernels.RAMP,
    ("softmax", True): kernels.SOFTMAX,
}


class Formula(NamedTuple):
    """The formula for the slope of a loss.

    The fields belong to a `kernels.SweepJob`.
    """

    code: int
    parameters: FloatArray
    table: FloatArray

    @classmethod
    def of(cls, slopes: Slopes, margin_unit: float) -> Formula:
        """Return the formula for the loss and the grid of `slopes`."""
        loss: Any = slopes.loss
        check(
            getattr(type(loss), "slope", None) is Loss.slope,
            f"The compiled engine has no formula for {type(loss).__name__}. "
            "Use the reference engine.",
        )
        formula = loss.formula
        code = FORMULAS[formula.kind, formula.table is not None]
        grid = slopes.grid
        scale = 1.0 / grid.unit  # exact: both are powers of two
        check(
            math.isfinite(scale),
            f"The slope unit {grid.unit} is too small for the compiled engine. "
            "Use the reference engine.",
        )
        parameters = np.zeros(7)
        parameters[kernels.UNIT] = margin_unit
        parameters[kernels.LOW] = formulas.TABLE_LOW
        parameters[kernels.STEPS] = formulas.TABLE_STEPS
        parameters[kernels.BOUND] = formula.bound
        parameters[kernels.TARGET] = formula.target_unit
        parameters[kernels.SCALE] = scale
        parameters[kernels.CAP] = grid.cap
        table = _NO_TABLE if formula.table is None else formula.table
        return cls(code, parameters, table)


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
        self._weights: FloatArray | None = None
        self._margins: list[FloatArray] = []
        self._asked: FloatArray | None = None
        self._known_programs: dict[tuple[bytes, bytes], tuple[Any, Any]] = {}
        self._known_caps: tuple[Any, Any, Any] = (None, None, None)
        default = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # dynamic
        self._threads = Threads(n_threads or int(default), sizes, rests)
        compile_sweep()
        make = partial(KernelRows.of, slots=self._slots)
        self._rows = self._threads.map(make, records.chunks)

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return Σ_i x_i,at s_i, shape (len(at), k), at the weights `units`.

        One unit of the result is a step of the features' grid times one of the slopes'.
        """
        formula, slots = Formula.of(slopes, self._unit), self._slots
        n_outputs = units.shape[1]
        loss: Any = slopes.loss  # Formula.of checked that it has a formula
        expected = self.records.layout.n_features, loss.n_outputs
        check(
            units.shape == expected,
            f"The weights must have shape {expected} (features, outputs of the loss), "
            f"got {units.shape}.",
        )
        before, kept_margins = self._choose_start(units)
        move = units - before
        changed = np.flatnonzero(move.any(axis=1))
        moves = np.zeros((n_outputs, slots.wide))
        moves[:, slots.of[changed]] = (move[changed] * slots.worth[changed, None]).T
        for combined in slots.combined:
            combined.spread(moves)
        lanes = 4 if slots.wide * n_outputs <= 1 << 14 else 1
        programs, bounds = self._make_programs(changed, at)
        chunks = self._described.copy()
        chunks[:, [2, 11]] = self._find_caps(slopes)
        chunks[:, 3] = [array.ctypes.data for array in self._margins] or 0
        chunks[:, 5:9] = bounds

        def make_job(ranges: Ranges, totals: npt.NDArray[np.int64]) -> kernels.SweepJob:
            return kernels.SweepJob(
                *(ranges.array.ctypes.data, len(ranges.array)),
                ranges.taken.ctypes.data,
                *(chunks.ctypes.data, len(chunks)),
                *(programs.ctypes.data, len(programs)),
                *(moves.ctypes.data, *moves.shape),
                *(slots.lines.ctypes.data, len(slots.lines)),
                *(totals.ctypes.data, slots.count),
                lanes,
                formula.code,
                formula.parameters.ctypes.data,
                *(formula.table.ctypes.data, len(formula.table)),
            )

        entries = n_outputs * (16 + len(changed) + len(at))
        self._weights = None  # invalid until all margins have been moved
        shape = 2, n_outputs, slots.count
        total = self._threads.sweep(make_job, shape, entries)
        self._asked = units.copy()
        if kept_margins:
            self._weights = self._asked
        high, low = big(total[:, :, slots.of[at]])
        result: BigInts = (high * (1 << 32) + low).T * slots.worth[at, None]
        return result

    @cached_property
    def _described(self) -> npt.NDArray[np.int64]:
        """The chunks as the kernel `sweep` reads them, without caps and margins."""
        chunks = np.zeros((len(self._rows), 12), np.int64)
        for index, rows in enumerate(self._rows):
            chunks[index, :2] = rows.addresses
            chunks[index, 4] = rows.n_rows
            chunks[index, 9] = self.records.chunks[index].divisor
            chunks[index, 10] = len(rows.weight) == rows.n_rows
        return chunks

    def _find_caps(self, slopes: Slopes) -> npt.NDArray[np.int64] | int:
        """Return the address of each chunk's caps, and whether each row has its own.

        Without caps, return 0. Most steps have the same caps, so the caps of the last
        call are reused.
        """
        if slopes.caps is None:
            return 0
        if self._known_caps[0] is not slopes.caps:
            arrays = [
                _chunk_caps(slopes, i, rows.n_rows) for i, rows in enumerate(self._rows)
            ]
            found = [
                (array.ctypes.data, len(array) == rows.n_rows)
                for array, rows in zip(arrays, self._rows, strict=True)
            ]
            where = np.array(found, np.int64).reshape(-1, 2)
            self._known_caps = slopes.caps, arrays, where
        addresses: npt.NDArray[np.int64] = self._known_caps[2]
        return addresses

    def _choose_start(self, units: FloatArray) -> tuple[FloatArray, bool]:
        """Return the weights from which to update margins, and whether to keep margins.

        If a step changes all weights, computing the margins from scratch (from weights
        of zero) takes as long as updating them, and no margins need to be stored. Once
        a step changes fewer weights than are nonzero, margins are kept from then on.
        """
        nothing = np.zeros_like(units)
        if self._weights is not None and self._weights.shape == units.shape:
            return self._weights, True
        asked = self._asked
        if asked is None or asked.shape != units.shape:
            asked = nothing
        n_changed, n_active = ((units - w).any(axis=1).sum() for w in (asked, nothing))
        self._margins = []
        if n_changed >= n_active:
            return nothing, False
        self._margins = [np.zeros((len(units.T), r.n_rows)) for r in self._rows]
        return nothing, True

    def _make_programs(
        self, changed: IntArray, at: IntArray
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the kernel programs of all chunks, from a cache if possible.

        Each chunk has two programs: one that updates margins by the coordinates
        `changed`, and one that adds up the coordinates `at`. The first array has the
        lines of all programs. The second array (chunks, 4) has the first line and the
        end of both programs of each chunk.
        """
        at = at.astype(np.intp, copy=False)  # so equal sets have equal bytes
        key = changed.tobytes(), at.tobytes()
        if key not in self._known_programs:
            if len(at) == self.records.layout.n_features:
                combine = partial(KernelRows.combine_all, slots=self._slots)
                self._threads.map(combine, self._rows)
            found = [
                r.program(self._slots, c) for r in self._rows for c in (changed, at)
            ]
            ends = np.cumsum([len(lines) for lines in found], dtype=np.int64)
            starts = ends - [len(lines) for lines in found]
            programs = np.concatenate([np.zeros((0, 5), np.int64), *found])
            bounds = np.stack([starts, ends], axis=1).reshape(-1, 4)
            if len(self._known_programs) >= KNOWN_PROGRAMS:
                self._known_programs.clear()
            self._known_programs[key] = programs, bounds
        return self._known_programs[key]

    def gram(self) -> BigInts:
        """Return Σ_i share_i x_i x_iᵀ, shape (d, d), in units of 2⁻²⁸."""
        order = NumbersFirst(self._slots)

        lines = self._describe(order)
        sizes = order.choose_sizes()

        def work(share: Ranges) -> npt.NDArray[np.int64]:
            total = np.zeros((order.count, order.count), np.int64)
            ranges = share.array, share.taken.ctypes.data
            matrix_kernels.add_up_pairs(*ranges, lines, sizes, order.slots, total)
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
        limits = metric.limits(slopes)
        lines, sizes = self._describe(order), order.choose_sizes(width)

        def work(share: Ranges) -> None:
            ranges = share.array, share.taken.ctypes.data
            rows = *ranges, lines, sizes, order.slots
            matrix_kernels.cap_all(*rows, columns, limits, where)

        self._threads.run(work, width * len(order.dense) + order.count)
        return caps

    def _describe(self, order: NumbersFirst) -> npt.NDArray[np.int64]:
        """Return numbers (chunks, groups, 7) that tell kernels how to read the rows."""
        lines = [order.describe(rows) for rows in self._rows]
        none = np.zeros((0, len(self.records.layout.groups), 7), np.int64)
        return np.stack(lines) if lines else none

    def counts(self, n_classes: int) -> BigInts:
        """Add up the shares (`Records.find_share`) of the rows of each class.

        Rows of weight zero are left out, unless n_classes = 1. Codes beyond the last
        class count as the last class.
        """

        def count(rows: KernelRows) -> npt.NDArray[np.int64]:
            if n_classes == 1:
                return np.array([rows.n_rows], np.int64)
            found = np.zeros(n_classes, np.int64)
            kernels.count_classes(rows.target, rows.weight, found)
            return found

        counts = self._threads.map(count, self._rows)
        total = np.zeros(n_classes, np.int64)
        for own, chunk in zip(counts, self.records.chunks, strict=True):
            total += own * self.records.find_share(chunk)
        return big(total)


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
