"""Compute every sum over records in plain numpy.

This engine defines the results. All other engines must return the same integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np
from scipy.sparse import issparse

from skdp.privacy.encoding import Chunk, Records
from skdp.privacy.grid import FEATURE_BITS, FEATURE_ONE, WeightGrid
from skdp.privacy.persons import divide_slopes
from skdp.privacy.queries import BigInts, Metric, Slopes, big
from skdp.schema import FloatArray, IntArray, Layout, split_hats

#: Number of rows that are expanded to a dense matrix at a time.
ROWS = 1 << 14
#: Largest number of entries of a table that is kept as a dense matrix.
KEPT_ENTRIES = 1 << 22


def to_dense(chunk: Chunk, rows: slice, at: IntArray, layout: Layout) -> FloatArray:
    """Return the coordinates `at` of some rows, (n, len(at)), in units of 2⁻¹⁴."""
    block = np.empty((len(chunk.target[rows]), len(at)))
    for g in np.unique(layout.group_of[at]).tolist():
        group, part = layout.groups[g], chunk.parts[g][rows]
        where = np.flatnonzero(layout.group_of[at] == g)
        local = at[where] - group.start
        if group.kind == "ones":
            block[:, where] = FEATURE_ONE
        elif group.kind == "code":
            block[:, where] = (part[:, None] == local) * FEATURE_ONE
        elif group.kind == "hats":
            places, units = split_hats(part, group.axes, FEATURE_ONE)
            whole = np.zeros((len(block), group.width + 1))
            for place, values in zip(places.T, units.T, strict=True):
                whole[np.arange(len(block)), place] += values
            block[:, where] = whole[:, local]
        else:
            numbers = part[:, local]
            block[:, where] = numbers.toarray() if issparse(part) else numbers
    return block


def _compute_gradient(
    units: FloatArray, at: IntArray, slopes: Slopes, records: Records
) -> BigInts:
    """Return the gradient of one part of a table, in the process that has its rows."""
    slopes = divide_slopes(records, slopes)
    return ReferenceEngine(records).gradient(units, at, slopes)


def _count_classes(n_classes: int, records: Records) -> BigInts:
    """Count the classes of one part of a table, in the process that has its rows."""
    return ReferenceEngine(records).counts(n_classes)


class ReferenceEngine:
    """Computes exact sums over records.

    Margins are kept between calls and updated by the change of the weights. They are
    exact integers, so this gives the same result as computing them from scratch.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self._layout = records.layout
        bits = WeightGrid.of(records.layout).bits + FEATURE_BITS
        self._unit = math.ldexp(1.0, -bits)
        self._weights: FloatArray = np.zeros((self._layout.n_features, 0))
        self._margins: list[FloatArray] = []
        self._kept: dict[tuple[int, int], FloatArray] = {}

    @cached_property
    def _keeps(self) -> bool:
        n_rows = sum(len(chunk.target) for chunk in self.records.chunks)
        return n_rows * self._layout.n_features <= KEPT_ENTRIES

    def _expand(self, index: int, rows: slice, at: IntArray) -> FloatArray:
        """Return `to_dense` of some rows. It is computed once if the table is small."""
        chunk, layout = self.records.chunks[index], self._layout
        if not self._keeps:
            return to_dense(chunk, rows, at, layout)
        key, everything = (index, rows.start), np.arange(layout.n_features)
        if key not in self._kept:
            self._kept[key] = to_dense(chunk, rows, everything, layout)
        whole = self._kept[key]
        return whole if np.array_equal(at, everything) else whole[:, at]

    def _pieces(self) -> Iterator[tuple[int, Chunk, slice]]:
        for index, chunk in enumerate(self.records.chunks):
            for start in range(0, len(chunk.target), ROWS):
                yield index, chunk, slice(start, start + ROWS)

    def _move_margins(self, units: FloatArray) -> None:
        """Update the margins of all rows to match the new weights `units` (d, k)."""
        if self._weights.shape != units.shape:
            self._weights = np.zeros_like(units)
            k = units.shape[1]
            self._margins = [np.zeros((len(c.target), k)) for c in self.records.chunks]
        move = units - self._weights
        at = np.flatnonzero(move.any(axis=1))
        if len(at):
            for index, _, rows in self._pieces():
                block = self._expand(index, rows, at)
                self._margins[index][rows] += block @ move[at]
        self._weights = units.copy()

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        """Return the gradient Σ_i x_i s_iᵀ at coordinates `at`, shape (len(at), k).

        Row i has features x_i and, at the weights `units`, slopes s_i: one per output
        of the loss. The result is in units of one feature unit times one slope unit.
        """
        if self.records.elsewhere:
            total = self.records.add_up(partial(_compute_gradient, units, at, slopes))
            return big(total)
        self._move_margins(units)
        total = big(np.zeros((len(at), units.shape[1])))
        for index, chunk, rows in self._pieces():
            margin = self._margins[index][rows] * self._unit
            slope = slopes.units(margin, index, chunk, rows)
            total = total + big(self._expand(index, rows, at).T @ slope)
        return total

    def gram(self) -> BigInts:
        """Return Σ_i share_i x_i x_iᵀ, shape (d, d), in units of 2⁻²⁸.

        Row i has features x_i and counts as share_i parts (`Records.find_share`). If
        the layout has `clips`, features are clipped to them.
        """
        at = np.arange(self._layout.n_features)
        total = big(np.zeros((len(at), len(at))))
        for index, chunk, rows in self._pieces():
            block = self._expand(index, rows, at)
            if self._layout.clips is not None:
                block = np.clip(block, *self._layout.clips)
            total = total + big(block.T @ block) * self.records.find_share(chunk)
        return total

    def counts(self, n_classes: int) -> BigInts:
        """Count the rows of each class. A row counts as `Records.find_share` parts.

        Rows of weight zero are left out, unless n_classes = 1. If the code of a row's
        target is beyond the last class, the row counts for the last class.
        """
        if self.records.elsewhere:
            return big(self.records.add_up(partial(_count_classes, n_classes)))
        total = big(np.zeros(n_classes))
        for _, chunk, rows in self._pieces():
            if n_classes == 1:
                total = total + len(chunk.target[rows]) * self.records.find_share(chunk)
                continue
            classes = np.minimum(chunk.target[rows].astype(np.intp), n_classes - 1)
            counts = big(np.bincount(classes, chunk.weight[rows] > 0, n_classes))
            total = total + counts * self.records.find_share(chunk)
        return total

    def caps(self, metric: Metric, slopes: Slopes) -> list[FloatArray]:
        """Return the cap on each row's slopes, as `Metric.caps` defines it."""
        at = np.arange(self._layout.n_features)
        caps = [np.zeros(len(chunk.target)) for chunk in self.records.chunks]
        for index, _, rows in self._pieces():
            images = self._expand(index, rows, at) @ metric.units.T
            caps[index][rows] = metric.caps(images, slopes)
        return caps
