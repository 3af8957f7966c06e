"""Multiply rows by each other and by a matrix, for Gram matrices and caps.

Row i is the vector z_i. It consists of numbers, followed by one-hot codes and by the
values of hat functions, in the order of `compiled_rows.NumbersFirst`. Rows are read in
tiles. A tile's numbers are in `dense` (rows, m) and its codes in `codes` (groups,
rows). The e-th hat value of row i is values[e, i], at the place places[e, i] of z_i.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]  # exported at run time

from skdp.engines.kernels import (
    ADDRESS,
    CODE8,
    CODE16,
    CURVE,
    HAT,
    HAT_BITS,
    KIND,
    ONES,
    SLOT,
    SPARSE,
    STRIDE,
    SURFACE,
    WIDTH,
    Codes,
    Floats,
    Program,
    _int16,
    _int32,
    _int64,
    _uint8,
    _uint16,
    _uint32,
    add_at,
    kernel,
)

#: Further fields of the lines that describe a group to `_read_tile`: the number of
#: bytes from one column to the next, and the first place of a group of hats.
STEP, FIRST = 5, 6
#: Largest number of rows for which float64 adds up products of features exactly.
GRAM_ROWS = 1 << 24


@kernel(integers=True)
def _read_tile(
    lines: Program,
    start: int,
    stop: int,
    dense: Floats,
    codes: Codes,
    places: npt.NDArray[np.int64],
    values: Floats,
) -> None:
    """Read the rows of a tile from the groups that `lines` (groups, 7) describes.

    The slot of a line is the group's first column in `dense`, or its first row in
    `codes` or in `places` and `values`. The line's other fields are those of a program.
    """
    n = stop - start
    for g in range(len(lines)):
        kind, slot = lines[g, KIND], lines[g, SLOT]
        width, stride = lines[g, WIDTH], lines[g, STRIDE]
        address = lines[g, ADDRESS]
        if kind == ONES:
            for i in range(n):
                dense[i, slot] = HAT
        elif kind == SPARSE:
            where = carray(_int64(address), 3)
            starts = carray(_int32(where[0]), stop + 1)[start:]
            columns = carray(_int32(where[1]), starts[n])
            entries = carray(_int16(where[2]), starts[n])
            dense[:n, slot : slot + width] = 0.0
            for i in range(n):
                for e in range(starts[i], starts[i + 1]):
                    dense[i, slot + columns[e]] += entries[e]
        elif kind == CODE8:
            narrow = carray(_uint8(address), stop)[start:]
            for i in range(n):
                codes[slot, i] = narrow[i]
        elif kind == CODE16:
            wide = carray(_uint16(address), stop)[start:]
            for i in range(n):
                codes[slot, i] = wide[i]
        elif kind == CURVE:
            line, first = carray(_uint32(address), stop)[start:], lines[g, FIRST]
            for i in range(n):
                below, part = np.int64(line[i] >> HAT_BITS), line[i] & (HAT - 1)
                places[slot, i], values[slot, i] = first + below, HAT - part
                places[slot + 1, i] = first + below + (part > 0)
                values[slot + 1, i] = part
        elif kind == SURFACE:
            plane, first = carray(_uint32(address), (stop, 2))[start:], lines[g, FIRST]
            for i in range(n):
                b, f = np.int64(plane[i, 0] >> HAT_BITS), plane[i, 0] & (HAT - 1)
                c, h = np.int64(plane[i, 1] >> HAT_BITS), plane[i, 1] & (HAT - 1)
                place, down, right = b * stride + c, (f > 0) * stride, np.int64(h > 0)
                places[slot, i] = first + place
                places[slot + 1, i] = first + place + right
                places[slot + 2, i] = first + place + down
                places[slot + 3, i] = first + place + down + right
                values[slot, i] = ((HAT - f) * (HAT - h)) >> HAT_BITS
                values[slot + 1, i] = ((HAT - f) * h) >> HAT_BITS
                values[slot + 2, i] = (f * (HAT - h)) >> HAT_BITS
                values[slot + 3, i] = (f * h) >> HAT_BITS
        else:
            for j in range(width):
                where_ = address + j * lines[g, STEP]
                column = carray(_int16(where_), stop * stride)[start * stride :]
                for i in range(n):
                    dense[i, slot + j] = column[i * stride]


@kernel(integers=True)
def add_up_pairs(
    ranges: npt.NDArray[np.int64],
    taken: int,
    lines: npt.NDArray[np.int64],
    sizes: tuple[int, int, int, int],
    slots: npt.NDArray[np.int64],
    total: npt.NDArray[np.int64],
) -> None:
    """Add the lower triangle of Σ_i z_i z_iᵀ over some rows to `total`.

    Parameters
    ----------
    ranges, taken
        As in `kernels.sweep`.
    lines : int64 (chunks, groups, 7)
        The lines of each chunk, as in `_read_tile`.
    sizes : four int
        The number of rows in a tile. Then, for each row, how many numbers, codes and
        hat values it has.
    slots : int64 (groups of codes,)
        The first place of each group of codes.
    total : int64 (places, places)
        The output, to which this function adds.
    """
    tile, numbers, groups, entries = sizes
    dense, codes = np.empty((tile, numbers)), np.empty((groups, tile), np.uint16)
    places, values = np.empty((entries, tile), np.int64), np.empty((entries, tile))
    matrix, added = np.zeros(total.shape), 0
    next_ = add_at(taken, 1)
    while next_ < len(ranges):
        rows, start, stop = lines[ranges[next_, 0]], ranges[next_, 1], ranges[next_, 2]
        if added + stop - start > GRAM_ROWS:
            _flush(matrix, total)
            added = 0
        added += stop - start
        for first in range(start, stop, tile):
            last = min(first + tile, stop)
            n = last - first
            _read_tile(rows, first, last, dense, codes, places, values)
            add_pairs(slots, dense[:n], codes[:, :n], matrix)
            if entries:
                hats = places[:, :n], values[:, :n]
                add_hat_pairs(slots, dense[:n], codes[:, :n], hats[0], hats[1], matrix)
        next_ = add_at(taken, 1)
    _flush(matrix, total)


@kernel(integers=True)
def _flush(matrix: Floats, total: npt.NDArray[np.int64]) -> None:
    for j in range(len(total)):
        for h in range(total.shape[1]):
            total[j, h] += np.int64(matrix[j, h])
            matrix[j, h] = 0.0


@kernel()
def cap_all(
    ranges: npt.NDArray[np.int64],
    taken: int,
    lines: npt.NDArray[np.int64],
    sizes: tuple[int, int, int, int],
    slots: npt.NDArray[np.int64],
    columns: Floats,
    limits: tuple[float, float, float],
    caps: npt.NDArray[np.int64],
) -> None:
    """Compute the caps on the slopes of some rows, from the products B z_i.

    The first arguments are those of `add_up_pairs`. The array `columns` holds the
    columns of B, and `limits` is `Metric.limits`. The output is written to the
    addresses in `caps`, one array (int32) per chunk.
    """
    tile, numbers, groups, entries = sizes
    dense, codes = np.empty((tile, numbers)), np.empty((groups, tile), np.uint16)
    places, values = np.empty((entries, tile), np.int64), np.empty((entries, tile))
    images = np.empty((tile, columns.shape[1]))
    next_ = add_at(taken, 1)
    while next_ < len(ranges):
        chunk, start, stop = ranges[next_, 0], ranges[next_, 1], ranges[next_, 2]
        for first in range(start, stop, tile):
            last = min(first + tile, stop)
            n = last - first
            _read_tile(lines[chunk], first, last, dense, codes, places, values)
            images[:n] = 0.0
            add_images(slots, dense[:n], codes[:, :n], columns, images[:n])
            if entries:
                add_hat_images(places[:, :n], values[:, :n], columns, images[:n])
            own = carray(_int32(caps[chunk]), last)[first:]
            cap_rows(images[:n], limits[0], limits[1], limits[2], own)
        next_ = add_at(taken, 1)


@kernel()
def cap_rows(
    images: Floats,
    reach: float,
    shortest: float,
    cap: float,
    caps: npt.NDArray[np.int32],
) -> None:
    """Compute exactly the same caps as `Metric.caps`, from the images B x (n, r).

    The squares of a row are added in a fixed order, so each addition waits for the one
    before. Four rows at a time wait together.
    """
    n, squares = len(images), np.zeros(4)
    for first in range(0, n, 4):
        last = n - 1
        a, b = images[first], images[min(first + 1, last)]
        c, d = images[min(first + 2, last)], images[min(first + 3, last)]
        t, u, v, w = 0.0, 0.0, 0.0, 0.0
        for r in range(images.shape[1]):
            t += a[r] * a[r]
            u += b[r] * b[r]
            v += c[r] * c[r]
            w += d[r] * d[r]
        squares[0], squares[1], squares[2], squares[3] = t, u, v, w
        for i in range(first, min(first + 4, n)):
            norm = np.sqrt(squares[i - first]) * (1.0 + 2.0**-40)
            caps[i] = np.int32(min(np.floor(reach / max(norm, shortest)), cap))


@kernel(integers=True)
def add_pairs(
    slots: npt.NDArray[np.int64], dense: Floats, codes: Codes, matrix: Floats
) -> None:
    """Add to `matrix` the lower triangle of Σ_i z_i z_iᵀ, except the rows of hats.

    The one-hot codes of group g start at place `slots[g]`.
    """
    width, whole = dense.shape[1], len(dense) // 4 * 4
    for i in range(0, whole, 4):
        a, b, c, d = dense[i], dense[i + 1], dense[i + 2], dense[i + 3]
        for j in range(width):
            out = matrix[j]
            for h in range(j + 1):
                out[h] += (a[j] * a[h] + b[j] * b[h]) + (c[j] * c[h] + d[j] * d[h])
    for i in range(whole, len(dense)):
        for j in range(width):
            for h in range(j + 1):
                matrix[j, h] += dense[i, j] * dense[i, h]
    for g in range(len(slots)):
        left, block = codes[g], matrix[slots[g] :]
        for i in range(len(dense)):
            out, row = block[left[i]], dense[i]
            for j in range(width):
                out[j] += row[j]
        for h in range(g + 1):
            right, first = codes[h], slots[h]
            for i in range(len(dense)):
                block[left[i], first + right[i]] += 1.0


@kernel(integers=True)
def add_images(
    slots: npt.NDArray[np.int64],
    dense: Floats,
    codes: Codes,
    columns: Floats,
    images: Floats,
) -> None:
    """Add B z_i, without hats, to images[i] for each row i.

    The array `columns` holds the columns of B.
    """
    width = dense.shape[1]
    whole, fours = width // 4 * 4, len(slots) // 4 * 4
    for i in range(len(images)):
        out, row = images[i], dense[i]
        for j in range(0, whole, 4):
            t, u, v, w = row[j], row[j + 1], row[j + 2], row[j + 3]
            a, b, c, d = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
            for r in range(len(out)):
                out[r] += (t * a[r] + u * b[r]) + (v * c[r] + w * d[r])
        for j in range(whole, width):
            a = columns[j]
            for r in range(len(out)):
                out[r] += row[j] * a[r]
        for g in range(0, fours, 4):
            a = columns[slots[g] + codes[g, i]]
            b = columns[slots[g + 1] + codes[g + 1, i]]
            c = columns[slots[g + 2] + codes[g + 2, i]]
            d = columns[slots[g + 3] + codes[g + 3, i]]
            for r in range(len(out)):
                out[r] += (a[r] + b[r]) + (c[r] + d[r])
        for g in range(fours, len(slots)):
            a = columns[slots[g] + codes[g, i]]
            for r in range(len(out)):
                out[r] += a[r]


@kernel(integers=True)
def add_hat_pairs(
    slots: npt.NDArray[np.int64],
    dense: Floats,
    codes: Codes,
    places: npt.NDArray[np.int64],
    values: Floats,
    matrix: Floats,
) -> None:
    """Add to `matrix` the rows of hats in the lower triangle of Σ_i z_i z_iᵀ.

    The hats of each z_i must be sorted by place.
    """
    width = dense.shape[1]
    for e in range(len(places)):
        at, value = places[e], values[e]
        for i in range(len(dense)):
            out, row = matrix[at[i]], dense[i]
            for j in range(width):
                out[j] += value[i] * row[j]
        for g in range(len(slots)):
            right, first = codes[g], slots[g]
            for i in range(len(dense)):
                matrix[at[i], first + right[i]] += value[i]
        for f in range(e + 1):
            other, times = places[f], values[f]
            for i in range(len(dense)):
                matrix[at[i], other[i]] += value[i] * times[i]


@kernel(integers=True)
def add_hat_images(
    places: npt.NDArray[np.int64], values: Floats, columns: Floats, images: Floats
) -> None:
    """Add the part of B z_i that belongs to hats to images[i], for each row i."""
    for i in range(len(images)):
        out = images[i]
        for e in range(len(places)):
            a, t = columns[places[e, i]], values[e, i]
            for r in range(len(out)):
                out[r] += t * a[r]
