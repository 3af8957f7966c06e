"""Multiply rows by each other and by a matrix, for Gram matrices and caps.

Row i is the vector z_i. It consists of numbers, followed by one-hot codes and by the
values of hat functions, in the order of `compiled.NumbersFirst`. The kernel `walk`
reads rows in tiles, and calls operations (see `kernels`) on each tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]  # exported at run time

from skdp.engines.kernels import (
    ADDRESS,
    ANY,
    CODE8,
    CODE16,
    COLUMN,
    CURVE,
    HAT,
    HAT_BITS,
    KIND,
    MATRIX,
    ONES,
    SLOT,
    SPARSE,
    STRIDE,
    STRIDED,
    SURFACE,
    WIDTH,
    _float64,
    _int16,
    _int32,
    _int64,
    _uint8,
    _uint16,
    _uint32,
    add_at,
    call,
    kernel,
    operation,
)

#: Further fields of the lines that describe a group to `walk`: the number of bytes from
#: one column to the next, and the first place of a group of hats.
STEP, FIRST = 5, 6
#: Largest number of rows for which float64 adds up products of features exactly.
GRAM_ROWS = 1 << 24


class Tile(NamedTuple):
    """A tile of rows, as operations read it.

    Attributes
    ----------
    dense, n_numbers
        The address of the rows' numbers, float64 (rows, n_numbers), and their count.
    codes, n_codes
        The address of the rows' codes, uint16 (n_codes, rows), and their count.
    places, values, n_hats
        The addresses of the hats, int64 and float64 (n_hats, rows), and their count.
        The e-th hat value of row i is values[e, i], at the place places[e, i] of z_i.
    n_rows
        The number of rows that fit into the tile.
    slots
        The address of the first place of each group of codes, int64 (n_codes,).
    width, result
        For caps, the number of rows of B, and the address of the products of the rows
        and B, float64 (rows, width). For Gram matrices, the number of places, and the
        address of the lower triangle of the matrix, float64 (width, width).
    columns, limits, caps
        For caps, the address of the columns of B, float64 (places, width), that of
        `Metric.limits`, and that of the addresses of each chunk's caps (int32).
    total
        For Gram matrices, the address of the output, int64 (width, width).
    clips
        For Gram matrices of clipped numbers, the address of the smallest and the
        largest value of each number, float64 (2, n_numbers).
    """

    dense: int
    n_numbers: int
    codes: int
    n_codes: int
    places: int
    values: int
    n_hats: int
    n_rows: int
    slots: int
    width: int
    result: int
    columns: int = 0
    limits: int = 0
    caps: int = 0
    total: int = 0
    clips: int = 0


N_WORDS = len(Tile._fields)
(
    DENSE,
    N_NUMBERS,
    CODES,
    N_CODES,
    PLACES,
    VALUES,
    N_HATS,
    N_ROWS,
    SLOTS,
    N_PRODUCTS,
    RESULT,
    COLUMNS,
    LIMITS,
    CAPS,
    TOTAL,
    CLIPS,
) = range(N_WORDS)

# The operations that read write n rows of a group into a tile, starting with row
# `start` of the chunk. `line` is the address of the group's line. The slot of a line is
# the group's first column in `dense`, or its first row in `codes` or in `places` and
# `values`. The line's other fields are those of a program line. These operations ignore
# the last two arguments.


@operation(integers=True)
def _read_ones(line: int, start: int, n: int, tile: int, _: int, __: int) -> None:
    own, slot = carray(_int64(tile), N_WORDS), carray(_int64(line), 7)[SLOT]
    dense = carray(_float64(own[DENSE]), (n, own[N_NUMBERS]))
    for i in range(n):
        dense[i, slot] = HAT


@operation(integers=True)
def _read_numbers(line: int, start: int, n: int, tile: int, _: int, __: int) -> None:
    own, group = carray(_int64(tile), N_WORDS), carray(_int64(line), 7)
    dense = carray(_float64(own[DENSE]), (n, own[N_NUMBERS]))
    slot, stride = group[SLOT], group[STRIDE]
    for j in range(group[WIDTH]):
        address = group[ADDRESS] + j * group[STEP] + 2 * start * stride
        column = carray(_int16(address), n * stride)
        for i in range(n):
            dense[i, slot + j] = column[i * stride]


@operation(integers=True)
def _read_sparse(line: int, start: int, n: int, tile: int, _: int, __: int) -> None:
    own, group = carray(_int64(tile), N_WORDS), carray(_int64(line), 7)
    dense = carray(_float64(own[DENSE]), (n, own[N_NUMBERS]))
    slot, where = group[SLOT], carray(_int64(group[ADDRESS]), 3)
    starts = carray(_int32(where[0] + 4 * start), n + 1)
    columns = carray(_int32(where[1]), starts[n])
    entries = carray(_int16(where[2]), starts[n])
    for i in range(n):
        for j in range(group[WIDTH]):
            dense[i, slot + j] = 0.0
        for e in range(starts[i], starts[i + 1]):
            dense[i, slot + columns[e]] += entries[e]


@operation(integers=True)
def _read_codes8(line: int, start: int, n: int, tile: int, _: int, __: int) -> None:
    own, group = carray(_int64(tile), N_WORDS), carray(_int64(line), 7)
    codes = carray(_uint16(own[CODES] + 2 * group[SLOT] * own[N_ROWS]), n)
    narrow = carray(_uint8(group[ADDRESS] + start), n)
    for i in range(n):
        codes[i] = narrow[i]


@operation(integers=True)
def _read_codes16(line: int, start: int, n: int, tile: int, _: int, __: int) -> None:
    own, group = carray(_int64(tile), N_WORDS), carray(_int64(line), 7)
    codes = carray(_uint16(own[CODES] + 2 * group[SLOT] * own[N_ROWS]), n)
    wide = carray(_uint16(group[ADDRESS] + 2 * start), n)
    for i in range(n):
        codes[i] = wide[i]


@operation(integers=True)
def _read_curve(line: int, start: int, n: int, tile: int, _: int, __: int) -> None:
    own, group = carray(_int64(tile), N_WORDS), carray(_int64(line), 7)
    places = carray(_int64(own[PLACES]), (own[N_HATS], own[N_ROWS]))
    values = carray(_float64(own[VALUES]), (own[N_HATS], own[N_ROWS]))
    slot, first = group[SLOT], group[FIRST]
    positions = carray(_uint32(group[ADDRESS] + 4 * start), n)
    for i in range(n):
        below, part = np.int64(positions[i] >> HAT_BITS), positions[i] & (HAT - 1)
        places[slot, i], values[slot, i] = first + below, HAT - part
        places[slot + 1, i] = first + below + (part > 0)
        values[slot + 1, i] = part


@operation(integers=True)
def _read_surface(line: int, start: int, n: int, tile: int, _: int, __: int) -> None:
    own, group = carray(_int64(tile), N_WORDS), carray(_int64(line), 7)
    places = carray(_int64(own[PLACES]), (own[N_HATS], own[N_ROWS]))
    values = carray(_float64(own[VALUES]), (own[N_HATS], own[N_ROWS]))
    slot, first, stride = group[SLOT], group[FIRST], group[STRIDE]
    plane = carray(_uint32(group[ADDRESS] + 8 * start), (n, 2))
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


#: For each kind of line, the operation that reads the group.
READERS = {
    ONES: _read_ones,
    COLUMN: _read_numbers,
    STRIDED: _read_numbers,
    MATRIX: _read_numbers,
    SPARSE: _read_sparse,
    CODE8: _read_codes8,
    CODE16: _read_codes16,
    CURVE: _read_curve,
    SURFACE: _read_surface,
}


def compile_readers(kinds: Iterable[int]) -> npt.NDArray[np.int64]:
    """Compile the operations for some kinds of lines, and return their addresses.

    The address for other kinds is 0.
    """
    addresses = np.zeros(len(READERS), np.int64)
    for kind in {*kinds}:
        addresses[kind] = READERS[kind].address
    return addresses


# The operations below work on the n rows of a tile, which begin with row `first` of the
# chunk. They have the same arguments, some of which most operations do not use.


@operation(integers=True)
def clip_numbers(tile: int, n: int, chunk: int, first: int, _: int, __: int) -> None:
    """Clip each number of a tile to its own range (see `Layout.clips`)."""
    own = carray(_int64(tile), N_WORDS)
    dense = carray(_float64(own[DENSE]), (n, own[N_NUMBERS]))
    clips = carray(_float64(own[CLIPS]), (2, own[N_NUMBERS]))
    for i in range(n):
        for j in range(own[N_NUMBERS]):
            dense[i, j] = min(max(dense[i, j], clips[0, j]), clips[1, j])


@operation(integers=True)
def add_pairs(tile: int, n: int, chunk: int, first: int, _: int, __: int) -> None:
    """Add the lower triangle of Σ_i z_i z_iᵀ to the result, except the rows of hats."""
    own = carray(_int64(tile), N_WORDS)
    width, groups = own[N_NUMBERS], own[N_CODES]
    dense = carray(_float64(own[DENSE]), (n, width))
    codes = carray(_uint16(own[CODES]), (groups, own[N_ROWS]))
    slots = carray(_int64(own[SLOTS]), groups)
    matrix = carray(_float64(own[RESULT]), (own[N_PRODUCTS], own[N_PRODUCTS]))
    whole = n // 4 * 4
    for i in range(0, whole, 4):
        a, b, c, d = dense[i], dense[i + 1], dense[i + 2], dense[i + 3]
        for j in range(width):
            out = matrix[j]
            for h in range(j + 1):
                out[h] += (a[j] * a[h] + b[j] * b[h]) + (c[j] * c[h] + d[j] * d[h])
    for i in range(whole, n):
        for j in range(width):
            for h in range(j + 1):
                matrix[j, h] += dense[i, j] * dense[i, h]
    for g in range(groups):
        left, block = codes[g], matrix[slots[g] :]
        for i in range(n):
            out, row = block[left[i]], dense[i]
            for j in range(width):
                out[j] += row[j]
        for h in range(g + 1):
            right, start = codes[h], slots[h]
            for i in range(n):
                block[left[i], start + right[i]] += 1.0


@operation(integers=True)
def add_hat_pairs(tile: int, n: int, chunk: int, first: int, _: int, __: int) -> None:
    """Add the rows of hats in the lower triangle of Σ_i z_i z_iᵀ to the result.

    The hats of each z_i must be sorted by place.
    """
    own = carray(_int64(tile), N_WORDS)
    width, rows = own[N_NUMBERS], own[N_ROWS]
    dense = carray(_float64(own[DENSE]), (n, width))
    codes = carray(_uint16(own[CODES]), (own[N_CODES], rows))
    slots = carray(_int64(own[SLOTS]), own[N_CODES])
    places = carray(_int64(own[PLACES]), (own[N_HATS], rows))
    values = carray(_float64(own[VALUES]), (own[N_HATS], rows))
    matrix = carray(_float64(own[RESULT]), (own[N_PRODUCTS], own[N_PRODUCTS]))
    for e in range(len(places)):
        at, value = places[e], values[e]
        for i in range(n):
            out, row = matrix[at[i]], dense[i]
            for j in range(width):
                out[j] += value[i] * row[j]
        for g in range(len(slots)):
            right, start = codes[g], slots[g]
            for i in range(n):
                matrix[at[i], start + right[i]] += value[i]
        for f in range(e + 1):
            other, times = places[f], values[f]
            for i in range(n):
                matrix[at[i], other[i]] += value[i] * times[i]


@operation(integers=True)
def flush_pairs(tile: int, n: int, chunk: int, first: int, _: int, __: int) -> None:
    """Add the result to the total, and set it to zero."""
    own = carray(_int64(tile), N_WORDS)
    matrix = carray(_float64(own[RESULT]), own[N_PRODUCTS] * own[N_PRODUCTS])
    total = carray(_int64(own[TOTAL]), own[N_PRODUCTS] * own[N_PRODUCTS])
    for i in range(len(total)):
        total[i] += np.int64(matrix[i])
        matrix[i] = 0.0


@operation(integers=True)
def add_images(tile: int, n: int, chunk: int, first: int, _: int, __: int) -> None:
    """Write B z_i, without hats, to the result, for each row i."""
    own = carray(_int64(tile), N_WORDS)
    width, groups = own[N_NUMBERS], own[N_CODES]
    dense = carray(_float64(own[DENSE]), (n, width))
    codes = carray(_uint16(own[CODES]), (groups, own[N_ROWS]))
    slots = carray(_int64(own[SLOTS]), groups)
    columns = carray(_float64(own[COLUMNS]), (ANY, own[N_PRODUCTS]))
    images = carray(_float64(own[RESULT]), (n, own[N_PRODUCTS]))
    whole, fours = width // 4 * 4, groups // 4 * 4
    for i in range(n):
        out, row = images[i], dense[i]
        for r in range(len(out)):
            out[r] = 0.0
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
        for g in range(fours, groups):
            a = columns[slots[g] + codes[g, i]]
            for r in range(len(out)):
                out[r] += a[r]


@operation(integers=True)
def add_hat_images(tile: int, n: int, chunk: int, first: int, _: int, __: int) -> None:
    """Add the part of B z_i that belongs to hats to the result, for each row i."""
    own = carray(_int64(tile), N_WORDS)
    places = carray(_int64(own[PLACES]), (own[N_HATS], own[N_ROWS]))
    values = carray(_float64(own[VALUES]), (own[N_HATS], own[N_ROWS]))
    columns = carray(_float64(own[COLUMNS]), (ANY, own[N_PRODUCTS]))
    images = carray(_float64(own[RESULT]), (n, own[N_PRODUCTS]))
    for i in range(n):
        out = images[i]
        for e in range(len(places)):
            a, t = columns[places[e, i]], values[e, i]
            for r in range(len(out)):
                out[r] += t * a[r]


@operation()
def cap_rows(tile: int, n: int, chunk: int, first: int, _: int, __: int) -> None:
    """Compute exactly the same caps as `Metric.caps`, from the images B z_i.

    The squares of a row are added in a fixed order, so each addition waits for the one
    before. Four rows at a time wait together.
    """
    own = carray(_int64(tile), N_WORDS)
    width, limits = own[N_PRODUCTS], carray(_float64(own[LIMITS]), 3)
    reach, shortest, cap = limits[0], limits[1], limits[2]
    images = carray(_float64(own[RESULT]), (n, width))
    caps = carray(_int32(carray(_int64(own[CAPS]), ANY)[chunk] + 4 * first), n)
    last = n - 1
    for i in range(0, n, 4):
        j, k, h = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        a, b, c, d = images[i], images[j], images[k], images[h]
        t, u, v, w = 0.0, 0.0, 0.0, 0.0
        for r in range(width):
            t += a[r] * a[r]
            u += b[r] * b[r]
            v += c[r] * c[r]
            w += d[r] * d[r]
        for row, square in ((i, t), (j, u), (k, v), (h, w)):
            norm = np.sqrt(square) * (1.0 + 2.0**-40)
            caps[row] = np.int32(min(np.floor(reach / max(norm, shortest)), cap))


@kernel()
def walk(
    ranges: npt.NDArray[np.int64],
    taken: int,
    lines: npt.NDArray[np.int64],
    readers: npt.NDArray[np.int64],
    tile: npt.NDArray[np.int64],
    operations: npt.NDArray[np.int64],
    flush: int,
) -> None:
    """Read some rows in tiles, and call operations on each tile.

    Parameters
    ----------
    ranges, taken
        As in `kernels.sweep`.
    lines : int64 (chunks, groups, 7)
        The lines of each chunk.
    readers : int64 (kinds,)
        The addresses of the operations that read groups, from `compile_readers`.
    tile : int64 (16,)
        The `Tile`.
    operations : int64 (m,)
        The addresses of the operations to call.
    flush : int
        The address of `flush_pairs`, or 0. It is called at the end, and before sums of
        products could become inexact.
    """
    added, address, place = 0, tile.ctypes.data, add_at(taken, 1)
    while place < len(ranges):
        chunk, start, stop = ranges[place, 0], ranges[place, 1], ranges[place, 2]
        if flush and added + stop - start > GRAM_ROWS:
            call(flush, address, 0, 0, 0, 0, 0)
            added = 0
        added += stop - start
        for first in range(start, stop, tile[N_ROWS]):
            n = min(tile[N_ROWS], stop - first)
            for g in range(lines.shape[1]):
                group, reader = lines[chunk, g], readers[lines[chunk, g, KIND]]
                call(reader, group.ctypes.data, first, n, address, 0, 0)
            for one in range(len(operations)):
                call(operations[one], address, n, chunk, first, 0, 0)
        place = add_at(taken, 1)
    if flush:
        call(flush, address, 0, 0, 0, 0, 0)
