"""Gram matrices and caps of rows on a GPU, for tables of numbers and categories.

The kernels read each row's numbers and codes as they are stored. They are much faster
than a product of expanded matrices, since most entries of those are zero.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from skdp.engines.cuda_kernels import COLUMNS, compile_kernel, launch, limit_shared
from skdp.engines.cuda_rows import Places, Slab, write_addresses
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import FloatArray, IntArray

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
