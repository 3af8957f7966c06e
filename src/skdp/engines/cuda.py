"""Compute the same sums as the reference engine, on a GPU.

Rows are copied to the GPU once, with their targets, weights, caps and margins. In a
step, only the model's weights go to the GPU, and only sums come back. If the table does
not fit into the GPU's memory, each step copies the rest of it in pieces.

If a table has only single numbers and categories, the loss has one output, and rows do
not belong to persons, one kernel of ``cuda_kernels.cu`` does all the work of a step.
Otherwise, or if there are too many columns or categories for this kernel, tiles of rows
are expanded to matrices of integers, whose products are exact in double precision. Gram
matrices and caps have kernels of their own (``cuda_matrices.py``), or use tiles too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import cupy
import numpy as np

from skdp.engines.cuda_kernels import (
    COLUMNS,
    NULL,
    compile_kernel,
    describe_formula,
    launch,
    limit_shared,
)
from skdp.engines.cuda_matrices import Products
from skdp.engines.cuda_rows import (
    Caps,
    Places,
    Slab,
    count_bytes,
    find_address,
    group_chunks,
    join_chunks,
    slice_rows,
    write_addresses,
)
from skdp.engines.formula import Formula
from skdp.privacy.encoding import Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, SLOPE_BITS, WeightGrid
from skdp.privacy.queries import BigInts, Metric, Slopes, big
from skdp.schema import FloatArray, IntArray

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
        if self._products.can_add_up():
            for _, slab in self._on_gpu():
                yield slab, self._products.add_up(slab)
            return
        for _, slab, rows in self._tiles(self._places.layout.n_features):
            block = self._block(slab, rows)
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
