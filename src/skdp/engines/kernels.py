"""Update margins and add up gradients, in compiled loops over tiles of rows.

Rows are never copied. A chunk's arrays are passed as addresses, so one compiled kernel
serves every mixture of column kinds. Each call runs a short *program* on each tile of
rows. One line of the program is one operation on one column or group of columns. The
fields of a line are `KIND`, `SLOT`, `WIDTH`, `STRIDE` and `ADDRESS`. Tiles are so small
that their margins and slopes stay in the fastest cache.

The compiler may reorder and fuse loops that only add exact integers (marked
``integers``), because such sums are exact in any order. Slopes are rounded, so their
loops keep the order of operations of `models.formulas` and `SlopeGrid.units`, and give
the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]  # exported at run time
from numba.extending import intrinsic

from skdp.privacy.grid import FEATURE_BITS

#: Number of rows in a tile.
TILE = 2048
#: Largest number of rows whose products are added up in float64. Features are at most
#: 2¹⁴ units and slopes less than 2²¹, so sums stay below 2¹⁸ · 2¹⁴ · 2²¹ = 2⁵³.
MOST_ROWS = 1 << 18
#: A position is a whole number of knots times HAT plus a fraction of HAT.
HAT_BITS = FEATURE_BITS
HAT = 1 << HAT_BITS

#: Kinds of program lines, in order: the intercept, a contiguous column of numbers, one
#: column of a matrix, all columns of a matrix, a sparse matrix, a column of one-byte
#: codes, a column of two-byte codes, positions on one axis, and positions on two axes.
ONES, COLUMN, STRIDED, MATRIX, SPARSE, CODE8, CODE16, CURVE, SURFACE = range(9)
#: Fields of a program line: the kind, the first slot, the number of columns, the number
#: of elements from one row to the next (for SURFACE, the width of the second axis), and
#: the address.
KIND, SLOT, WIDTH, STRIDE, ADDRESS = range(5)

#: Formulas of slopes, as `skdp.models.formulas` defines them. A bent residual is a
#: function of the residual that is read from a table.
MEAN, RESIDUAL, BENT_RESIDUAL, RAMP, SOFTMAX = range(5)
#: Parameters of a formula: the value of a margin unit, the start of the table, the
#: number of table steps per unit of the margin, the formula's bound, the value of a
#: target unit, the number of slope units in 1, and the largest slope in units.
UNIT, LOW, STEPS, BOUND, TARGET, SCALE, CAP = range(7)

Floats = npt.NDArray[np.float64]
Shorts = npt.NDArray[np.int16]
Codes = npt.NDArray[Any]
Program = npt.NDArray[np.int64]


def kernel(
    signature: Any = None, *, integers: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function.

    Without a signature, the function is compiled on its first call, and again for
    arguments of other types.

    The compiled code is kept on disk if possible. Set `integers` only for functions
    that add exact integers, because it lets the compiler reorder operations.
    """
    flags = {"reassoc", "nsz", "contract"} if integers else False
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags}

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.jit(signature, cache=True, **options)(function)
        except RuntimeError:  # no writable directory, so compile in each process
            return numba.jit(signature, **options)(function)

    return decorate


def _pointer_to(kind: Any) -> Any:
    """Return a compiled function that casts an address to a pointer to `kind`."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.inttoptr(values[0], kind)

    pointer: Any = numba.types.CPointer

    def cast(typing_context: Any, address: Any) -> Any:
        return pointer(kind)(numba.types.int64), codegen

    return intrinsic(cast)


def _atomic_add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Define the compiled function `add_at`."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer: Any = numba.types.CPointer
        kind = context.get_value_type(pointer(numba.types.int64))
        where = builder.inttoptr(values[0], kind)
        return builder.atomic_rmw("add", where, values[1], "monotonic")

    return numba.types.int64(numba.types.int64, numba.types.int64), codegen


#: Adds an amount to the integer at an address, which several threads may do at the same
#: time, and returns the integer that was there before.
add_at: Any = intrinsic(_atomic_add)


_int64, _int16, _uint8, _uint16, _int32, _uint32, _float32, _float64 = (
    _pointer_to(kind)
    for kind in (
        numba.types.int64,
        numba.types.int16,
        numba.types.uint8,
        numba.types.uint16,
        numba.types.int32,
        numba.types.uint32,
        numba.types.float32,
        numba.types.float64,
    )
)


@kernel(integers=True)
def _move_columns(
    m: Floats,
    a: Shorts,
    b: Shorts,
    c: Shorts,
    d: Shorts,
    u: float,
    v: float,
    w: float,
    x: float,
) -> None:
    for i in range(len(m)):
        m[i] += (a[i] * u + b[i] * v) + (c[i] * w + d[i] * x)


@kernel(integers=True)
def _move_column(m: Floats, a: Shorts, stride: int, u: float) -> None:
    if stride == 1:
        for i in range(len(m)):
            m[i] += a[i] * u
    else:
        for i in range(len(m)):
            m[i] += a[i * stride] * u


@kernel(integers=True)
def _move_matrix(m: Floats, a: Shorts, u: Floats) -> None:
    for i in range(len(m)):
        total = 0.0
        for j in range(len(u)):
            total += a[i, j] * u[j]
        m[i] += total


@kernel(integers=True)
def _move_sparse(
    m: Floats, starts: Codes, columns: Codes, entries: Shorts, u: Floats
) -> None:
    for i in range(len(m)):
        total = 0.0
        for e in range(starts[i], starts[i + 1]):
            total += entries[e] * u[columns[e]]
        m[i] += total


@kernel(integers=True)
def _add_sparse(
    s: Floats, starts: Codes, columns: Codes, entries: Shorts, out: Floats
) -> None:
    for i in range(len(s)):
        for e in range(starts[i], starts[i + 1]):
            out[columns[e]] += entries[e] * s[i]


@kernel(integers=True)
def _move_codes(m: Floats, codes: Codes, u: Floats) -> None:
    for i in range(len(m)):
        m[i] += u[codes[i]]


@kernel(integers=True)
def _move_curve(m: Floats, positions: Codes, u: Floats) -> None:
    for i in range(len(m)):
        below, part = positions[i] >> HAT_BITS, positions[i] & (HAT - 1)
        above = below + (part > 0)
        m[i] += (HAT - part) * u[below] + part * u[above]


@kernel(integers=True)
def _add_curve(s: Floats, positions: Codes, first: Floats, second: Floats) -> None:
    for i in range(len(s)):
        below, part = positions[i] >> HAT_BITS, positions[i] & (HAT - 1)
        first[below] += (HAT - part) * s[i]
        second[below + (part > 0)] += part * s[i]


@kernel(integers=True)
def _move_surface(m: Floats, positions: Codes, width: int, u: Floats) -> None:
    for i in range(len(m)):
        b, f = np.int64(positions[i, 0] >> HAT_BITS), positions[i, 0] & (HAT - 1)
        c, g = np.int64(positions[i, 1] >> HAT_BITS), positions[i, 1] & (HAT - 1)
        place, down, right = b * width + c, (f > 0) * width, np.int64(g > 0)
        m[i] += (
            (((HAT - f) * (HAT - g)) >> HAT_BITS) * u[place]
            + (((HAT - f) * g) >> HAT_BITS) * u[place + right]
            + ((f * (HAT - g)) >> HAT_BITS) * u[place + down]
            + ((f * g) >> HAT_BITS) * u[place + down + right]
        )


@kernel(integers=True)
def _add_surface(
    s: Floats,
    positions: Codes,
    width: int,
    first: Floats,
    second: Floats,
    third: Floats,
    fourth: Floats,
) -> None:
    for i in range(len(s)):
        b, f = np.int64(positions[i, 0] >> HAT_BITS), positions[i, 0] & (HAT - 1)
        c, g = np.int64(positions[i, 1] >> HAT_BITS), positions[i, 1] & (HAT - 1)
        place, down, right = b * width + c, (f > 0) * width, np.int64(g > 0)
        first[place] += (((HAT - f) * (HAT - g)) >> HAT_BITS) * s[i]
        second[place + right] += (((HAT - f) * g) >> HAT_BITS) * s[i]
        third[place + down] += ((f * (HAT - g)) >> HAT_BITS) * s[i]
        fourth[place + down + right] += ((f * g) >> HAT_BITS) * s[i]


@kernel(integers=True)
def _add_columns(
    s: Floats, a: Shorts, b: Shorts, c: Shorts, d: Shorts, out: Floats
) -> None:
    u, v, w, x = 0.0, 0.0, 0.0, 0.0
    for i in range(len(s)):
        u += a[i] * s[i]
        v += b[i] * s[i]
        w += c[i] * s[i]
        x += d[i] * s[i]
    out[0] += u
    out[1] += v
    out[2] += w
    out[3] += x


@kernel(integers=True)
def _add_column(s: Floats, a: Shorts, stride: int, out: Floats) -> None:
    total = 0.0
    if stride == 1:
        for i in range(len(s)):
            total += a[i] * s[i]
    else:
        for i in range(len(s)):
            total += a[i * stride] * s[i]
    out[0] += total


@kernel(integers=True)
def _add_matrix(s: Floats, a: Shorts, out: Floats) -> None:
    whole = len(s) // 4 * 4
    for i in range(0, whole, 4):
        t, u, v, w = s[i], s[i + 1], s[i + 2], s[i + 3]
        for j in range(len(out)):
            out[j] += (a[i, j] * t + a[i + 1, j] * u) + (
                a[i + 2, j] * v + a[i + 3, j] * w
            )
    for i in range(whole, len(s)):
        for j in range(len(out)):
            out[j] += a[i, j] * s[i]


@kernel(integers=True)
def _add_codes(
    s: Floats,
    codes: Codes,
    first: Floats,
    second: Floats,
    third: Floats,
    fourth: Floats,
) -> None:
    # Rows use four accumulators in turn, because adjacent rows with the same code would
    # otherwise wait for each other.
    whole = len(s) // 4 * 4
    for i in range(0, whole, 4):
        first[codes[i]] += s[i]
        second[codes[i + 1]] += s[i + 1]
        third[codes[i + 2]] += s[i + 2]
        fourth[codes[i + 3]] += s[i + 3]
    for i in range(whole, len(s)):
        first[codes[i]] += s[i]


@kernel(integers=True)
def _move(
    program: Program,
    moves: Floats,
    margins: Floats,
    origin: int,
    start: int,
    stop: int,
) -> None:
    """Add Σ_lines x_i · moves[c] to margins[c, i - origin], for one tile of rows."""
    for c in range(len(moves)):
        m, line = margins[c, start - origin : stop - origin], 0
        while line < len(program):
            kind, slot = program[line, KIND], program[line, SLOT]
            width, stride = program[line, WIDTH], program[line, STRIDE]
            address = program[line, ADDRESS]
            if kind == ONES:
                for i in range(len(m)):
                    m[i] += moves[c, slot]
            elif (
                kind == COLUMN
                and line + 3 < len(program)
                and program[line + 3, KIND] == COLUMN
            ):
                _move_columns(
                    m,
                    carray(_int16(address), stop)[start:],
                    carray(_int16(program[line + 1, ADDRESS]), stop)[start:],
                    carray(_int16(program[line + 2, ADDRESS]), stop)[start:],
                    carray(_int16(program[line + 3, ADDRESS]), stop)[start:],
                    moves[c, slot],
                    moves[c, program[line + 1, SLOT]],
                    moves[c, program[line + 2, SLOT]],
                    moves[c, program[line + 3, SLOT]],
                )
                line += 3
            elif kind in (COLUMN, STRIDED):
                a = carray(_int16(address), stop * stride)[start * stride :]
                _move_column(m, a, stride, moves[c, slot])
            elif kind == MATRIX:
                matrix = carray(_int16(address), (stop, stride))[start:]
                _move_matrix(m, matrix, moves[c, slot : slot + width])
            elif kind == SPARSE:
                where = carray(_int64(address), 3)
                starts = carray(_int32(where[0]), stop + 1)[start:]
                columns = carray(_int32(where[1]), starts[stop - start])
                entries = carray(_int16(where[2]), starts[stop - start])
                u = moves[c, slot : slot + width]
                _move_sparse(m, starts, columns, entries, u)
            elif kind == CODE8:
                codes = carray(_uint8(address), stop)[start:]
                _move_codes(m, codes, moves[c, slot : slot + width + 1])
            elif kind == CURVE:
                positions = carray(_uint32(address), stop)[start:]
                _move_curve(m, positions, moves[c, slot : slot + width + 1])
            elif kind == SURFACE:
                places = carray(_uint32(address), (stop, 2))[start:]
                _move_surface(m, places, stride, moves[c, slot : slot + width + 1])
            else:
                wide = carray(_uint16(address), stop)[start:]
                _move_codes(m, wide, moves[c, slot : slot + width + 1])
            line += 1


@kernel(integers=True)
def _add(program: Program, sums: Floats, slopes: Floats, start: int, stop: int) -> None:
    """Add Σ_i x_i slopes[c, i] to sums[:, c], for one tile of rows.

    The result is spread over the first axis of `sums`, which the caller adds up.
    """
    last = len(sums) - 1
    four = np.empty(4)
    for c in range(len(slopes)):
        s, line = slopes[c, : stop - start], 0
        while line < len(program):
            kind, slot = program[line, KIND], program[line, SLOT]
            width, stride = program[line, WIDTH], program[line, STRIDE]
            address = program[line, ADDRESS]
            out = sums[0, c, slot : slot + width + 1]
            if kind == ONES:
                total = 0.0
                for i in range(len(s)):
                    total += s[i]
                out[0] += total
            elif (
                kind == COLUMN
                and line + 3 < len(program)
                and program[line + 3, KIND] == COLUMN
            ):
                four[:] = 0.0
                _add_columns(
                    s,
                    carray(_int16(address), stop)[start:],
                    carray(_int16(program[line + 1, ADDRESS]), stop)[start:],
                    carray(_int16(program[line + 2, ADDRESS]), stop)[start:],
                    carray(_int16(program[line + 3, ADDRESS]), stop)[start:],
                    four,
                )
                for other in range(4):
                    sums[0, c, program[line + other, SLOT]] += four[other]
                line += 3
            elif kind in (COLUMN, STRIDED):
                a = carray(_int16(address), stop * stride)[start * stride :]
                _add_column(s, a, stride, out)
            elif kind == MATRIX:
                matrix = carray(_int16(address), (stop, stride))[start:]
                _add_matrix(s, matrix, out[:width])
            elif kind == SPARSE:
                where = carray(_int64(address), 3)
                starts = carray(_int32(where[0]), stop + 1)[start:]
                columns = carray(_int32(where[1]), starts[stop - start])
                entries = carray(_int16(where[2]), starts[stop - start])
                _add_sparse(s, starts, columns, entries, out)
            else:
                second = sums[min(1, last), c, slot : slot + width + 1]
                third = sums[min(2, last), c, slot : slot + width + 1]
                fourth = sums[min(3, last), c, slot : slot + width + 1]
                if kind == CODE8:
                    codes = carray(_uint8(address), stop)[start:]
                    _add_codes(s, codes, out, second, third, fourth)
                elif kind == CURVE:
                    positions = carray(_uint32(address), stop)[start:]
                    _add_curve(s, positions, out, second)
                elif kind == SURFACE:
                    places = carray(_uint32(address), (stop, 2))[start:]
                    _add_surface(s, places, stride, out, second, third, fourth)
                else:
                    wide = carray(_uint16(address), stop)[start:]
                    _add_codes(s, wide, out, second, third, fourth)
            line += 1


@kernel()
def _interpolate(
    table: Floats,
    low: float,
    steps: float,
    values: Floats,
    index: npt.NDArray[np.int32],
) -> None:
    """Replace each value v of a tile by `formulas.interpolate` at v.

    `index` is working memory.
    """
    last, most = float(len(table) - 1), np.int32(len(table) - 2)
    for i in range(len(values)):
        # This comparison turns even nan into a valid index.
        inside = values[i] if values[i] > low else low
        place = min((inside - low) * steps, last)
        index[i] = min(np.int32(place), most)
        values[i] = place - index[i]
    for i in range(len(values)):
        entry = np.uint32(
            index[i]
        )  # unsigned, so numba need not check for negative indices
        below, above = table[entry], table[entry + np.uint32(1)]
        values[i] = below + values[i] * (above - below)


@kernel()
def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


@kernel()
def _slopes(
    formula: int,
    p: Floats,
    table: Floats,
    margins: Floats,
    start: int,
    target: Codes,
    slopes: Floats,
    scratch: Floats,
    index: npt.NDArray[np.int32],
) -> None:
    """Compute the slopes (k, rows) of the loss for a tile, from margins in units."""
    rows = len(target)
    m, s = margins[0, start : start + rows], slopes[0, :rows]
    unit, low, steps, bound, one = p[UNIT], p[LOW], p[STEPS], p[BOUND], p[TARGET]
    if formula == MEAN:
        for i in range(rows):
            s[i] = m[i] * unit
        _interpolate(table, low, steps, s, index)
        for i in range(rows):
            s[i] = _clip(s[i] - target[i] * one, -bound, bound)
    elif formula in (RESIDUAL, BENT_RESIDUAL):
        for i in range(rows):
            s[i] = m[i] * unit - (2.0 * (target[i] * one) - 1.0)
        if formula == BENT_RESIDUAL:
            _interpolate(table, low, steps, s, index)
        for i in range(rows):
            s[i] = _clip(s[i], -bound, bound)
    elif formula == RAMP:
        for i in range(rows):
            sign = 2.0 * (target[i] * one) - 1.0
            s[i] = -sign * _clip((1.0 - sign * (m[i] * unit)) / bound, 0.0, 1.0)
    else:
        largest, total = scratch[0], scratch[1]
        for i in range(rows):
            largest[i], total[i] = m[i] * unit, 0.0
        for c in range(1, len(slopes)):
            m = margins[c, start : start + rows]
            for i in range(rows):
                largest[i] = max(largest[i], m[i] * unit)
        for c in range(len(slopes)):
            m, s = margins[c, start : start + rows], slopes[c, :rows]
            for i in range(rows):
                s[i] = m[i] * unit - largest[i]
            _interpolate(table, low, steps, s, index)
            for i in range(rows):
                total[i] += s[i]
        for c in range(len(slopes)):
            s = slopes[c, :rows]
            for i in range(rows):
                s[i] = s[i] / total[i] - (1.0 if c == target[i] else 0.0)


@kernel()
def _round(
    slopes: Floats,
    weight: npt.NDArray[np.float32],
    caps: npt.NDArray[np.int32],
    scale: float,
    cap: float,
) -> None:
    """Replace slopes by `SlopeGrid.units` of weight times slope.

    `caps` is empty if rows have no individual caps.
    """
    rows, capped = len(weight), len(caps) > 0
    for c in range(len(slopes)):
        s = slopes[c]
        for i in range(rows):
            raw = s[i] * weight[i]
            raw = raw if raw == raw else 0.0
            s[i] = _clip(np.floor(raw * scale + 0.5), -cap, cap)
        if capped:
            for i in range(rows):
                s[i] = _clip(s[i], -float(caps[i]), float(caps[i]))
    if len(slopes) > 1:
        for i in range(rows):
            most = min(float(caps[i]), cap) if capped else cap
            squares = 0.0
            for c in range(len(slopes)):
                squares += slopes[c, i] * slopes[c, i]
            if squares > most * most:
                factor = most / np.sqrt(max(squares, 1.0)) * (1.0 - 2.0**-40)
                for c in range(len(slopes)):
                    slopes[c, i] = np.trunc(slopes[c, i] * factor)


@kernel(integers=True)
def _flush(sums: Floats, totals: npt.NDArray[np.int64]) -> None:
    """Add the sums of all lanes to the totals, and set them to zero.

    The lanes together have at most `MOST_ROWS` rows, so they add up exactly.
    """
    for c in range(sums.shape[1]):
        own, high, low = sums[0, c], totals[0, c], totals[1, c]
        for lane in range(1, len(sums)):
            other = sums[lane, c]
            for slot in range(len(own)):
                own[slot] += other[slot]
                other[slot] = 0.0
        for slot in range(len(own)):
            value = np.int64(own[slot])
            high[slot] += value >> 32
            low[slot] += value & 0xFFFFFFFF
            own[slot] = 0.0


@kernel(integers=True)
def spread(lines: Program, moves: Floats) -> None:
    """Write the sum of the moves of its codes into the slot of each combination.

    `lines` is `combined_codes.list_lines`, and the slots of combinations are zero.
    """
    for line in range(len(lines)):
        start, slot, width = lines[line, 0], lines[line, 1], lines[line, 2]
        before, after = lines[line, 3], lines[line, 4]
        for c in range(len(moves)):
            own, place = moves[c], start
            for _ in range(before):
                for code in range(slot, slot + width):
                    for other in range(place, place + after):
                        own[other] += own[code]
                    place += after


@kernel(integers=True)
def find_moves(
    units: Floats,
    asked: Floats,
    from_asked: bool,
    slots: npt.NDArray[np.int64],
    worth: npt.NDArray[np.int64],
    lines: Program,
    moves: Floats,
) -> tuple[npt.NDArray[np.int64], bool]:
    """Write the changes of the weights into `moves` (k, slots), and weights to `asked`.

    Weights (d, k) change to `units`, from those in `asked` or else from zero.
    Coordinate j counts worth[j] times in slots[j]. Return the coordinates that change.
    Also return whether fewer weights differ from those asked before than from zero.
    """
    moves[:] = 0.0
    changed = np.zeros(len(units), np.bool_)
    nonzero, different = 0, 0
    for j in range(len(units)):
        for c in range(len(moves)):
            nonzero += units[j, c] != 0.0
            different += units[j, c] != asked[j, c]
            move = units[j, c] - (asked[j, c] if from_asked else 0.0)
            moves[c, slots[j]] = move * worth[j]
            changed[j] |= move != 0.0
            asked[j, c] = units[j, c]
    spread(lines, moves)
    return np.flatnonzero(changed), different < nonzero


@kernel(integers=True)
def _gather(lines: Program, totals: npt.NDArray[np.int64]) -> None:
    """Add the totals (2, k, slots) of each combination to the totals of its codes.

    `lines` is `combined_codes.list_lines`.
    """
    for line in range(len(lines)):
        start, slot, width = lines[line, 0], lines[line, 1], lines[line, 2]
        before, after = lines[line, 3], lines[line, 4]
        for word in range(2):
            for c in range(totals.shape[1]):
                own, place = totals[word, c], start
                for _ in range(before):
                    for code in range(slot, slot + width):
                        for other in range(place, place + after):
                            own[code] += own[other]
                        place += after


@kernel(integers=True)
def read_totals(
    totals: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    worth: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the totals (2, k, slots) of some slots, times their worth, as (slots, k).

    The result must fit into int64.
    """
    found = np.empty((len(slots), totals.shape[1]), np.int64)
    for j in range(len(slots)):
        for c in range(totals.shape[1]):
            high, low = totals[0, c, slots[j]], totals[1, c, slots[j]]
            found[j, c] = ((high << 32) + low) * worth[j]
    return found


class SweepJob(NamedTuple):
    """A sweep over rows, as the kernel `sweep` reads it.

    Attributes
    ----------
    ranges, n_ranges
        The address of an array int64 (m, 3), and m. For each range of rows it has the
        index of the chunk, the first row, and the row after the last. A range has at
        most `MOST_ROWS` rows.
    taken
        The address of the number of ranges that threads have taken (int64). Each thread
        takes the next range until none is left.
    chunks, n_chunks
        The address of an array int64 (n, 7), and n. For each chunk it has the
        addresses of the targets (uint16), weights (float32) and caps (int32). The
        address of caps is 0 if rows have no caps. Then comes the number of rows, and
        the divisor of the chunk's slopes. The last two numbers say whether each row has
        its own weight and its own cap (1), or whether there is one tile of weights or
        caps, which all tiles of rows share (0).
    formula, parameters, table, n_entries
        The slope of the loss, as `skdp.engines.formula.Formula` describes it. The
        arrays are given by their addresses.
    programs, n_lines, bounds
        The address of the programs of all chunks, int64 (lines, 5), the number of
        lines, and the address of an array int64 (n, 4). For each chunk, it has the
        first line and the end of two programs: for the columns whose weights changed,
        and for the columns to add up.
    margins
        The address of the addresses of each chunk's margins (float64), or 0 if margins
        are not kept.
    combined, n_combined
        The address of `combined_codes.list_lines`, int64 (lines, 5), and the number of
        lines.
    moves, n_outputs, n_slots
        The address of the changes of the weights, float64 (k, slots), and the two
        sizes. If margins are not kept, they start at zero.
    totals, n_totals
        The address of the output, int64 (2, k, n_totals), for the first n_totals slots,
        which are those without combinations. Threads add their sums to it. A sum is
        totals[0] · 2³² + totals[1], because one word is too short for the sum over
        2²⁸ persons.
    lanes
        The number of accumulators that rows use in turn, 1 or 4.
    finished
        The number of threads that have finished their sweep. `sweep` adds to it.
    """

    ranges: int
    n_ranges: int
    taken: int
    chunks: int
    n_chunks: int
    formula: int
    parameters: int
    table: int
    n_entries: int
    programs: int
    n_lines: int
    bounds: int
    margins: int
    combined: int
    n_combined: int
    moves: int
    n_outputs: int
    n_slots: int
    totals: int
    n_totals: int
    lanes: int
    finished: int = 0


FINISHED = SweepJob._fields.index("finished")


@kernel()
def sweep(job: npt.NDArray[np.int64]) -> None:
    """Update the margins of some rows, compute their slopes and add up gradients.

    Threads that call this function with the same job share its ranges of rows.

    Parameters
    ----------
    job : int64 (22,)
        Addresses and sizes, as `SweepJob` lists them.
    """
    ranges, taken = carray(_int64(job[0]), (job[1], 3)), job[2]
    chunks = carray(_int64(job[3]), (job[4], 7))
    formula, parameters = job[5], carray(_float64(job[6]), 7)
    table = carray(_float64(job[7]), job[8])
    programs = carray(_int64(job[9]), (job[10], 5))
    bounds = carray(_int64(job[11]), (job[4], 4))
    kept_margins = carray(_int64(job[12]), job[4] if job[12] else 0)
    combined = carray(_int64(job[13]), (job[14], 5))
    moves = carray(_float64(job[15]), (job[16], job[17]))
    result, n_totals, lanes = job[18], job[19], job[20]
    k = len(moves)
    totals = np.zeros((2, k, moves.shape[1]), np.int64)
    sums = np.zeros((lanes, k, moves.shape[1]))
    slopes, scratch = np.empty((k, TILE)), np.empty((2, TILE))
    index, fresh = np.empty(TILE, np.int32), np.zeros((k, TILE))
    added, place = 0, add_at(taken, 1)
    while place < len(ranges):
        chunk, start, stop = ranges[place, 0], ranges[place, 1], ranges[place, 2]
        rows, own = chunks[chunk], bounds[chunk]
        moving, adding = programs[own[0] : own[1]], programs[own[2] : own[3]]
        if added + stop - start > MOST_ROWS:
            _flush(sums, totals)
            added = 0
        added += stop - start
        for first in range(start, stop, TILE):
            last = min(first + TILE, stop)
            target = carray(_uint16(rows[0]), last)[first:]
            at = first * rows[5]
            weight = carray(_float32(rows[1]), at + last - first)[at:]
            at = first * rows[6]
            caps = carray(_int32(rows[2]), at + last - first if rows[2] else 0)[at:]
            if len(kept_margins):
                margins = carray(_float64(kept_margins[chunk]), (k, rows[3]))
                origin = 0
            else:
                fresh[:] = 0.0
                margins, origin = fresh, first
            _move(moving, moves, margins, origin, first, last)
            _slopes(
                formula,
                parameters,
                table,
                margins,
                first - origin,
                target,
                slopes,
                scratch,
                index,
            )
            _round(slopes, weight, caps, parameters[SCALE] / rows[4], parameters[CAP])
            _add(adding, sums, slopes, first, last)
        place = add_at(taken, 1)
    _flush(sums, totals)
    _gather(combined, totals)
    for word in range(2):
        for c in range(k):
            for slot in range(n_totals):
                place = (word * k + c) * n_totals + slot
                if totals[word, c, slot]:
                    add_at(result + 8 * place, totals[word, c, slot])
    add_at(job.ctypes.data + 8 * FINISHED, 1)


@kernel(integers=True)
def combine_columns(lines: Program, shape: npt.NDArray[np.int64], out: Codes) -> None:
    """Write the code of each row's combination into `out`, which must be zero.

    The lines tell where the columns of codes are, and `shape` has the number of codes
    of each column.
    """
    n = len(out)
    for g in range(len(lines)):
        width, address = shape[g], lines[g, ADDRESS]
        if lines[g, KIND] == CODE8:
            narrow = carray(_uint8(address), n)
            for i in range(n):
                out[i] = out[i] * width + narrow[i]
        else:
            wide = carray(_uint16(address), n)
            for i in range(n):
                out[i] = out[i] * width + wide[i]


@kernel(integers=True)
def count_classes(
    target: npt.NDArray[np.uint16],
    weight: npt.NDArray[np.float32],
    counts: npt.NDArray[np.int64],
) -> None:
    """Add to `counts` the number of rows of each class, without rows of weight 0.

    There is a weight per row, or one tile of equal weights.
    """
    last, step = len(counts) - 1, len(weight) == len(target)
    for i in range(len(target)):
        if weight[i * step] > 0:
            counts[target[i] if target[i] < last else last] += 1
