"""Update margins and add up gradients, in compiled loops over tiles of rows.

Rows are never copied. A chunk's arrays are passed as addresses, so one compiled kernel
serves every mixture of column kinds. Each call runs a short *program* on each tile of
rows. One line of the program is one operation on one column or group of columns. The
fields of a line are `KIND`, `SLOT`, `WIDTH`, `STRIDE` and `ADDRESS`. Tiles are so small
that their margins and slopes stay in the fastest cache.

Compiling takes much longer than fitting a small table. So each kind of column and each
loss has functions of its own (`Operation`), which the sweep calls by their addresses.
They are compiled when a table first has such a column or a model first has such a loss.

The compiler may reorder and fuse loops that only add exact integers (marked
``integers``), because such sums are exact in any order. Slopes are rounded, so their
loops keep the order of operations of `models.losses` and `SlopeGrid.units`, and give
the same bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray  # type: ignore[attr-defined]  # exported at run time
from numba.core import cgutils, types
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
#: The length of an array whose length is not known. Kernels do not check indices.
ANY = 1 << 32

#: Kinds of program lines, in order: the intercept, a contiguous column of numbers, one
#: column of a matrix, all columns of a matrix, a sparse matrix, a column of one-byte
#: codes, a column of two-byte codes, positions on one axis, and positions on two axes.
#: The last kind is that of a line and the three lines after it, which are all COLUMN.
ONES, COLUMN, STRIDED, MATRIX, SPARSE, CODE8, CODE16, CURVE, SURFACE, FOUR = range(10)
#: Fields of a program line: the kind, the first slot, the number of columns, the number
#: of elements from one row to the next (for SURFACE, the width of the second axis), and
#: the address.
KIND, SLOT, WIDTH, STRIDE, ADDRESS = range(5)

#: Formulas of slopes, as `skdp.models.losses` defines them. A bent residual is a
#: function of the residual that is read from a table.
MEAN, RESIDUAL, BENT_RESIDUAL, RAMP, SOFTMAX = range(5)
#: Parameters of a formula: the value of a margin unit, the start of the table, the
#: number of table steps per unit of the margin, the formula's bound, the value of a
#: target unit, the number of slope units in 1, and the largest slope in units.
UNIT, LOW, STEPS, BOUND, TARGET, SCALE, CAP = range(7)

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[Any]
Program = npt.NDArray[np.int64]


def compile_cached(make: Callable[..., Any], integers: bool = False) -> Any:
    """Return what `make` returns, which should keep compiled code on disk if possible.

    Set `integers` only for functions that add exact integers, because it lets the
    compiler reorder operations.
    """
    flags = {"reassoc", "nsz", "contract"} if integers else False
    options: dict[str, Any] = {"error_model": "numpy", "fastmath": flags}
    try:
        return make(cache=True, **options)
    except RuntimeError:  # no writable directory, so compile in each process
        return make(**options)


def kernel(
    signature: Any = None, *, integers: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function, for calls from Python.

    Without a signature, the function is compiled on its first call, and again for
    arguments of other types. See `compile_cached` for `integers`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        def make(**options: Any) -> Any:
            return numba.jit(signature, nogil=True, **options)(function)

        return compile_cached(make, integers)

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Make a function a part of each kernel that calls it, compiled together with it.

    A function with code of its own would be compiled again for each kernel.
    """
    return numba.jit(inline="always")(function)


class Operation:
    """A function of integers that is compiled when its address is first needed.

    Compiled functions call it by its address (see `call`), and so need not be compiled
    together with it. The arguments are addresses and numbers.
    """

    def __init__(self, function: Callable[..., None], integers: bool) -> None:
        self.function, self.integers = function, integers

    @cached_property
    def address(self) -> int:
        """The address of the compiled function."""
        numbers = [types.int64] * len(inspect.signature(self.function).parameters)

        def make(**options: Any) -> Any:
            return numba.cfunc(types.void(*numbers), **options)(self.function)

        self._compiled = compile_cached(make, self.integers)  # kept alive
        return int(self._compiled.address)


def operation(*, integers: bool = False) -> Callable[[Callable[..., None]], Operation]:
    """Return a decorator that makes a function an `Operation`."""
    return lambda function: Operation(function, integers)


unpack: Any = cgutils.unpack_tuple
star_arguments: Any = types.StarArgTuple


def _call(typing_context: Any, address: Any, *arguments: Any) -> Any:
    """Define the compiled function `call`."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = ir.IntType(64)
        given = unpack(builder, values[1])
        kind = ir.FunctionType(ir.VoidType(), [number] * len(given))
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), given)
        return context.get_dummy_value()

    numbers = star_arguments([types.int64] * len(arguments))
    return types.void(types.int64, numbers), codegen


#: Calls the operation with the address that comes first.
call: Any = intrinsic(_call)


def _pointer_to(kind: Any) -> Any:
    """Return a compiled function that casts an address to a pointer to `kind`."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.inttoptr(values[0], kind)

    pointer: Any = types.CPointer

    def cast(typing_context: Any, address: Any) -> Any:
        return pointer(kind)(types.int64), codegen

    return intrinsic(cast)


def _atomic_add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Define the compiled function `add_at`."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer: Any = types.CPointer
        kind = context.get_value_type(pointer(types.int64))
        where = builder.inttoptr(values[0], kind)
        return builder.atomic_rmw("add", where, values[1], "monotonic")

    return types.int64(types.int64, types.int64), codegen


#: Adds an amount to the integer at an address, which several threads may do at the same
#: time, and returns the integer that was there before.
add_at: Any = intrinsic(_atomic_add)


_int64, _int16, _uint8, _uint16, _int32, _uint32, _float32, _float64 = (
    _pointer_to(kind)
    for kind in (
        types.int64,
        types.int16,
        types.uint8,
        types.uint16,
        types.int32,
        types.uint32,
        types.float32,
        types.float64,
    )
)

# The operations that move margins add Σ_columns x_i · moves to the margins of n rows,
# starting with row `start` of the chunk. Those that add up slopes add Σ_i x_i slopes_i
# to the sums. `line` is the address of a program line. Sums are spread over lanes,
# which lie `lane` bytes apart (0 if there is only one), and the caller adds them up.
# The operations that move margins do not use the last argument.


@operation(integers=True)
def _move_ones(line: int, start: int, n: int, margins: int, moves: int, _: int) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    u = carray(_float64(moves + 8 * own[SLOT]), 1)[0]
    for i in range(n):
        m[i] += u


@operation(integers=True)
def _add_ones(line: int, start: int, n: int, slopes: int, sums: int, lane: int) -> None:
    own, s, total = carray(_int64(line), 5), carray(_float64(slopes), n), 0.0
    for i in range(n):
        total += s[i]
    carray(_float64(sums + 8 * own[SLOT]), 1)[0] += total


@operation(integers=True)
def _move_four(line: int, start: int, n: int, margins: int, moves: int, _: int) -> None:
    lines, m = carray(_int64(line), (4, 5)), carray(_float64(margins), n)
    a = carray(_int16(lines[0, ADDRESS] + 2 * start), n)
    b = carray(_int16(lines[1, ADDRESS] + 2 * start), n)
    c = carray(_int16(lines[2, ADDRESS] + 2 * start), n)
    d = carray(_int16(lines[3, ADDRESS] + 2 * start), n)
    change = carray(_float64(moves), ANY)
    u, v = change[lines[0, SLOT]], change[lines[1, SLOT]]
    w, x = change[lines[2, SLOT]], change[lines[3, SLOT]]
    for i in range(n):
        m[i] += (a[i] * u + b[i] * v) + (c[i] * w + d[i] * x)


@operation(integers=True)
def _add_four(line: int, start: int, n: int, slopes: int, sums: int, lane: int) -> None:
    lines, s = carray(_int64(line), (4, 5)), carray(_float64(slopes), n)
    a = carray(_int16(lines[0, ADDRESS] + 2 * start), n)
    b = carray(_int16(lines[1, ADDRESS] + 2 * start), n)
    c = carray(_int16(lines[2, ADDRESS] + 2 * start), n)
    d = carray(_int16(lines[3, ADDRESS] + 2 * start), n)
    out = carray(_float64(sums), ANY)
    u, v, w, x = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        u += a[i] * s[i]
        v += b[i] * s[i]
        w += c[i] * s[i]
        x += d[i] * s[i]
    out[lines[0, SLOT]] += u
    out[lines[1, SLOT]] += v
    out[lines[2, SLOT]] += w
    out[lines[3, SLOT]] += x


@operation(integers=True)
def _move_column(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    a = carray(_int16(own[ADDRESS] + 2 * start), n)
    u = carray(_float64(moves + 8 * own[SLOT]), 1)[0]
    for i in range(n):
        m[i] += a[i] * u


@operation(integers=True)
def _add_column(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s, total = carray(_int64(line), 5), carray(_float64(slopes), n), 0.0
    a = carray(_int16(own[ADDRESS] + 2 * start), n)
    for i in range(n):
        total += a[i] * s[i]
    carray(_float64(sums + 8 * own[SLOT]), 1)[0] += total


@operation(integers=True)
def _move_strided(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    stride = own[STRIDE]
    a = carray(_int16(own[ADDRESS] + 2 * start * stride), n * stride)
    u = carray(_float64(moves + 8 * own[SLOT]), 1)[0]
    for i in range(n):
        m[i] += a[i * stride] * u


@operation(integers=True)
def _add_strided(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s, total = carray(_int64(line), 5), carray(_float64(slopes), n), 0.0
    stride = own[STRIDE]
    a = carray(_int16(own[ADDRESS] + 2 * start * stride), n * stride)
    for i in range(n):
        total += a[i * stride] * s[i]
    carray(_float64(sums + 8 * own[SLOT]), 1)[0] += total


@operation(integers=True)
def _move_matrix(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    width, stride = own[WIDTH], own[STRIDE]
    a = carray(_int16(own[ADDRESS] + 2 * start * stride), (n, stride))
    u = carray(_float64(moves + 8 * own[SLOT]), width)
    for i in range(n):
        total = 0.0
        for j in range(width):
            total += a[i, j] * u[j]
        m[i] += total


@operation(integers=True)
def _add_matrix(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s = carray(_int64(line), 5), carray(_float64(slopes), n)
    width, stride = own[WIDTH], own[STRIDE]
    a = carray(_int16(own[ADDRESS] + 2 * start * stride), (n, stride))
    out, whole = carray(_float64(sums + 8 * own[SLOT]), width), n // 4 * 4
    for i in range(0, whole, 4):
        t, u, v, w = s[i], s[i + 1], s[i + 2], s[i + 3]
        for j in range(width):
            out[j] += (a[i, j] * t + a[i + 1, j] * u) + (
                a[i + 2, j] * v + a[i + 3, j] * w
            )
    for i in range(whole, n):
        for j in range(width):
            out[j] += a[i, j] * s[i]


@operation(integers=True)
def _move_sparse(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    where = carray(_int64(own[ADDRESS]), 3)
    starts = carray(_int32(where[0] + 4 * start), n + 1)
    columns = carray(_int32(where[1]), starts[n])
    entries = carray(_int16(where[2]), starts[n])
    u = carray(_float64(moves + 8 * own[SLOT]), own[WIDTH])
    for i in range(n):
        total = 0.0
        for e in range(starts[i], starts[i + 1]):
            total += entries[e] * u[columns[e]]
        m[i] += total


@operation(integers=True)
def _add_sparse(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s = carray(_int64(line), 5), carray(_float64(slopes), n)
    where = carray(_int64(own[ADDRESS]), 3)
    starts = carray(_int32(where[0] + 4 * start), n + 1)
    columns = carray(_int32(where[1]), starts[n])
    entries = carray(_int16(where[2]), starts[n])
    out = carray(_float64(sums + 8 * own[SLOT]), own[WIDTH])
    for i in range(n):
        for e in range(starts[i], starts[i + 1]):
            out[columns[e]] += entries[e] * s[i]


@inlined
def _move_by_codes(m: Floats, codes: Codes, u: Floats) -> None:
    for i in range(len(m)):
        m[i] += u[codes[i]]


@inlined
def _add_by_codes(
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


@operation(integers=True)
def _move_codes8(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    codes = carray(_uint8(own[ADDRESS] + start), n)
    _move_by_codes(m, codes, carray(_float64(moves + 8 * own[SLOT]), own[WIDTH] + 1))


@operation(integers=True)
def _add_codes8(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s = carray(_int64(line), 5), carray(_float64(slopes), n)
    codes = carray(_uint8(own[ADDRESS] + start), n)
    out, size = sums + 8 * own[SLOT], own[WIDTH] + 1
    first, second = carray(_float64(out), size), carray(_float64(out + lane), size)
    third = carray(_float64(out + 2 * lane), size)
    fourth = carray(_float64(out + 3 * lane), size)
    _add_by_codes(s, codes, first, second, third, fourth)


@operation(integers=True)
def _move_codes16(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    codes = carray(_uint16(own[ADDRESS] + 2 * start), n)
    _move_by_codes(m, codes, carray(_float64(moves + 8 * own[SLOT]), own[WIDTH] + 1))


@operation(integers=True)
def _add_codes16(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s = carray(_int64(line), 5), carray(_float64(slopes), n)
    codes = carray(_uint16(own[ADDRESS] + 2 * start), n)
    out, size = sums + 8 * own[SLOT], own[WIDTH] + 1
    first, second = carray(_float64(out), size), carray(_float64(out + lane), size)
    third = carray(_float64(out + 2 * lane), size)
    fourth = carray(_float64(out + 3 * lane), size)
    _add_by_codes(s, codes, first, second, third, fourth)


@operation(integers=True)
def _move_curve(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    positions = carray(_uint32(own[ADDRESS] + 4 * start), n)
    u = carray(_float64(moves + 8 * own[SLOT]), own[WIDTH] + 1)
    for i in range(n):
        below, part = positions[i] >> HAT_BITS, positions[i] & (HAT - 1)
        above = below + (part > 0)
        m[i] += (HAT - part) * u[below] + part * u[above]


@operation(integers=True)
def _add_curve(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s = carray(_int64(line), 5), carray(_float64(slopes), n)
    positions = carray(_uint32(own[ADDRESS] + 4 * start), n)
    first = carray(_float64(sums + 8 * own[SLOT]), own[WIDTH] + 1)
    second = carray(_float64(sums + 8 * own[SLOT] + lane), own[WIDTH] + 1)
    for i in range(n):
        below, part = positions[i] >> HAT_BITS, positions[i] & (HAT - 1)
        first[below] += (HAT - part) * s[i]
        second[below + (part > 0)] += part * s[i]


@operation(integers=True)
def _move_surface(
    line: int, start: int, n: int, margins: int, moves: int, _: int
) -> None:
    own, m = carray(_int64(line), 5), carray(_float64(margins), n)
    positions = carray(_uint32(own[ADDRESS] + 8 * start), (n, 2))
    u, width = carray(_float64(moves + 8 * own[SLOT]), own[WIDTH] + 1), own[STRIDE]
    for i in range(n):
        b, f = np.int64(positions[i, 0] >> HAT_BITS), positions[i, 0] & (HAT - 1)
        c, g = np.int64(positions[i, 1] >> HAT_BITS), positions[i, 1] & (HAT - 1)
        place, down, right = b * width + c, (f > 0) * width, np.int64(g > 0)
        m[i] += (
            (((HAT - f) * (HAT - g)) >> HAT_BITS) * u[place]
            + (((HAT - f) * g) >> HAT_BITS) * u[place + right]
            + ((f * (HAT - g)) >> HAT_BITS) * u[place + down]
            + ((f * g) >> HAT_BITS) * u[place + down + right]
        )


@operation(integers=True)
def _add_surface(
    line: int, start: int, n: int, slopes: int, sums: int, lane: int
) -> None:
    own, s = carray(_int64(line), 5), carray(_float64(slopes), n)
    positions = carray(_uint32(own[ADDRESS] + 8 * start), (n, 2))
    out, size, width = sums + 8 * own[SLOT], own[WIDTH] + 1, own[STRIDE]
    first, second = carray(_float64(out), size), carray(_float64(out + lane), size)
    third = carray(_float64(out + 2 * lane), size)
    fourth = carray(_float64(out + 3 * lane), size)
    for i in range(n):
        b, f = np.int64(positions[i, 0] >> HAT_BITS), positions[i, 0] & (HAT - 1)
        c, g = np.int64(positions[i, 1] >> HAT_BITS), positions[i, 1] & (HAT - 1)
        place, down, right = b * width + c, (f > 0) * width, np.int64(g > 0)
        first[place] += (((HAT - f) * (HAT - g)) >> HAT_BITS) * s[i]
        second[place + right] += (((HAT - f) * g) >> HAT_BITS) * s[i]
        third[place + down] += ((f * (HAT - g)) >> HAT_BITS) * s[i]
        fourth[place + down + right] += ((f * g) >> HAT_BITS) * s[i]


#: For each kind of line, the operation that moves margins and the one that adds up.
COLUMNS = {
    ONES: (_move_ones, _add_ones),
    COLUMN: (_move_column, _add_column),
    STRIDED: (_move_strided, _add_strided),
    MATRIX: (_move_matrix, _add_matrix),
    SPARSE: (_move_sparse, _add_sparse),
    CODE8: (_move_codes8, _add_codes8),
    CODE16: (_move_codes16, _add_codes16),
    CURVE: (_move_curve, _add_curve),
    SURFACE: (_move_surface, _add_surface),
    FOUR: (_move_four, _add_four),
}
#: The addresses of these operations, or 0 for kinds that have not been needed yet.
ADDRESSES = np.zeros((len(COLUMNS), 2), np.int64)
MOVE, ADD = range(2)


def compile_columns(kinds: Iterable[int]) -> None:
    """Compile the operations for some kinds of program lines, if not done before."""
    for kind in {*kinds}:
        if not ADDRESSES[kind].all():
            ADDRESSES[kind] = [one.address for one in COLUMNS[kind]]


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
        The address of the operation that computes slopes (see `SLOPES`), and the rest
        of `skdp.engines.formula.Formula`. The arrays are given by their addresses.
    rounding
        The address of the operation `round_slopes`.
    columns
        The address of `ADDRESSES`.
    programs, bounds
        The address of the programs of all chunks, int64 (lines, 5), and the address of
        an array int64 (n, 4). For each chunk, it has the first line and the end of two
        programs: for the columns whose weights changed, and for the columns to add up.
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
    rounding: int
    columns: int
    programs: int
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


N_WORDS = len(SweepJob._fields)
PARAMETERS, TABLE, N_ENTRIES, N_OUTPUTS, FINISHED = map(
    SweepJob._fields.index,
    ("parameters", "table", "n_entries", "n_outputs", "finished"),
)


@inlined
def _interpolate(
    table: Floats,
    low: float,
    steps: float,
    values: Floats,
    index: npt.NDArray[np.int32],
) -> None:
    """Replace each value v of a tile by `losses.interpolate` at v.

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


@inlined
def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


# The operations for slopes compute the slopes (k, TILE) of the loss for n rows, from
# margins in units, which are `step` bytes apart for each output. `job` is the address
# of a `SweepJob`. Three rows of working memory follow the slopes.


@operation()
def _mean_slopes(
    job: int, margins: int, step: int, target: int, slopes: int, n: int
) -> None:
    own = carray(_int64(job), N_WORDS)
    p, table = carray(_float64(own[PARAMETERS]), 7), own[TABLE]
    m, s = carray(_float64(margins), n), carray(_float64(slopes), n)
    y, index = carray(_uint16(target), n), carray(_int32(slopes + 8 * TILE), n)
    unit, bound, one = p[UNIT], p[BOUND], p[TARGET]
    for i in range(n):
        s[i] = m[i] * unit
    _interpolate(carray(_float64(table), own[N_ENTRIES]), p[LOW], p[STEPS], s, index)
    for i in range(n):
        s[i] = _clip(s[i] - y[i] * one, -bound, bound)


@operation()
def _residual_slopes(
    job: int, margins: int, step: int, target: int, slopes: int, n: int
) -> None:
    p = carray(_float64(carray(_int64(job), N_WORDS)[PARAMETERS]), 7)
    m, s = carray(_float64(margins), n), carray(_float64(slopes), n)
    y, unit, bound, one = carray(_uint16(target), n), p[UNIT], p[BOUND], p[TARGET]
    for i in range(n):
        s[i] = _clip(m[i] * unit - (2.0 * (y[i] * one) - 1.0), -bound, bound)


@operation()
def _bent_slopes(
    job: int, margins: int, step: int, target: int, slopes: int, n: int
) -> None:
    own = carray(_int64(job), N_WORDS)
    p, table = carray(_float64(own[PARAMETERS]), 7), own[TABLE]
    m, s = carray(_float64(margins), n), carray(_float64(slopes), n)
    y, index = carray(_uint16(target), n), carray(_int32(slopes + 8 * TILE), n)
    unit, bound, one = p[UNIT], p[BOUND], p[TARGET]
    for i in range(n):
        s[i] = m[i] * unit - (2.0 * (y[i] * one) - 1.0)
    _interpolate(carray(_float64(table), own[N_ENTRIES]), p[LOW], p[STEPS], s, index)
    for i in range(n):
        s[i] = _clip(s[i], -bound, bound)


@operation()
def _ramp_slopes(
    job: int, margins: int, step: int, target: int, slopes: int, n: int
) -> None:
    p = carray(_float64(carray(_int64(job), N_WORDS)[PARAMETERS]), 7)
    m, s = carray(_float64(margins), n), carray(_float64(slopes), n)
    y, unit, bound, one = carray(_uint16(target), n), p[UNIT], p[BOUND], p[TARGET]
    for i in range(n):
        sign = 2.0 * (y[i] * one) - 1.0
        s[i] = -sign * _clip((1.0 - sign * (m[i] * unit)) / bound, 0.0, 1.0)


@operation()
def _softmax_slopes(
    job: int, margins: int, step: int, target: int, slopes: int, n: int
) -> None:
    own = carray(_int64(job), N_WORDS)
    p, k = carray(_float64(own[PARAMETERS]), 7), own[N_OUTPUTS]
    table, unit = carray(_float64(own[TABLE]), own[N_ENTRIES]), p[UNIT]
    rest = slopes + 8 * TILE * k
    largest, total = carray(_float64(rest), n), carray(_float64(rest + 8 * TILE), n)
    index, y = carray(_int32(rest + 16 * TILE), n), carray(_uint16(target), n)
    for i in range(n):
        largest[i], total[i] = -np.inf, 0.0
    for c in range(k):
        m = carray(_float64(margins + c * step), n)
        for i in range(n):
            largest[i] = max(largest[i], m[i] * unit)
    for c in range(k):
        m = carray(_float64(margins + c * step), n)
        s = carray(_float64(slopes + 8 * TILE * c), n)
        for i in range(n):
            s[i] = m[i] * unit - largest[i]
        _interpolate(table, p[LOW], p[STEPS], s, index)
        for i in range(n):
            total[i] += s[i]
    for c in range(k):
        s = carray(_float64(slopes + 8 * TILE * c), n)
        for i in range(n):
            s[i] = s[i] / total[i] - (1.0 if c == y[i] else 0.0)


#: The operation that computes the slopes of each formula.
SLOPES = {
    MEAN: _mean_slopes,
    RESIDUAL: _residual_slopes,
    BENT_RESIDUAL: _bent_slopes,
    RAMP: _ramp_slopes,
    SOFTMAX: _softmax_slopes,
}


@operation()
def round_slopes(
    job: int, chunk: int, first: int, rows: int, slopes: int, _: int
) -> None:
    """Replace slopes by `SlopeGrid.units` of weight times slope.

    The rows begin with row `first` of the chunk. `chunk` is the address of its line in
    the job's array `chunks`.
    """
    own, line = carray(_int64(job), N_WORDS), carray(_int64(chunk), 7)
    p, k = carray(_float64(own[PARAMETERS]), 7), own[N_OUTPUTS]
    scale, cap, capped = p[SCALE] / line[4], p[CAP], line[2] != 0
    weight = carray(_float32(line[1] + 4 * first * line[5]), rows)
    caps = carray(_int32(line[2] + 4 * first * line[6]), rows)
    for c in range(k):
        s = carray(_float64(slopes + 8 * TILE * c), rows)
        for i in range(rows):
            raw = s[i] * weight[i]
            raw = raw if raw == raw else 0.0
            s[i] = _clip(np.floor(raw * scale + 0.5), -cap, cap)
        if capped:
            for i in range(rows):
                s[i] = _clip(s[i], -float(caps[i]), float(caps[i]))
    if k > 1:
        whole = carray(_float64(slopes), (k, TILE))
        for i in range(rows):
            most = min(float(caps[i]), cap) if capped else cap
            squares = 0.0
            for c in range(k):
                squares += whole[c, i] * whole[c, i]
            if squares > most * most:
                factor = most / np.sqrt(max(squares, 1.0)) * (1.0 - 2.0**-40)
                for c in range(k):
                    whole[c, i] = np.trunc(whole[c, i] * factor)


@inlined
def _run(
    columns: Program,
    which: int,
    lines: Program,
    begin: int,
    end: int,
    start: int,
    n: int,
    values: int,
    others: int,
    lane: int,
) -> None:
    """Run the lines of a program, from `begin` to `end`, on n rows."""
    line = begin
    while line < end:
        address, kind = lines.ctypes.data + 40 * line, lines[line, KIND]
        call(columns[kind, which], address, start, n, values, others, lane)
        line += 4 if kind == FOUR else 1


@inlined
def _flush(sums: Floats, totals: npt.NDArray[np.int64], lanes: int, size: int) -> None:
    """Add the sums of all lanes to the totals, and set them to zero.

    The lanes together have at most `MOST_ROWS` rows, so they add up exactly.
    """
    for i in range(size):
        own = 0.0
        for lane in range(lanes):
            own += sums[lane * size + i]
            sums[lane * size + i] = 0.0
        value = np.int64(own)
        totals[i] += value >> 32
        totals[size + i] += value & 0xFFFFFFFF


@inlined
def _gather(lines: Program, totals: npt.NDArray[np.int64], n_slots: int) -> None:
    """Add the totals of each combination to the totals of its codes.

    `lines` is `combined_codes.list_lines`.
    """
    for line in range(len(lines)):
        start, slot, width = lines[line, 0], lines[line, 1], lines[line, 2]
        before, after = lines[line, 3], lines[line, 4]
        for first in range(0, len(totals), n_slots):
            place = first + start
            for _ in range(before):
                for code in range(first + slot, first + slot + width):
                    for other in range(place, place + after):
                        totals[code] += totals[other]
                    place += after


@kernel()
def sweep(job: npt.NDArray[np.int64]) -> None:
    """Update the margins of some rows, compute their slopes and add up gradients.

    Threads that call this function with the same job share its ranges of rows.

    Parameters
    ----------
    job : int64 (23,)
        Addresses and sizes, as `SweepJob` lists them.
    """
    ranges, taken = carray(_int64(job[0]), (job[1], 3)), job[2]
    chunks, formula, rounding = carray(_int64(job[3]), (job[4], 7)), job[5], job[9]
    columns = carray(_int64(job[10]), (ANY, 2))
    programs = carray(_int64(job[11]), (ANY, 5))
    bounds = carray(_int64(job[12]), (job[4], 4))
    kept_margins = carray(_int64(job[13]), job[4])
    combined = carray(_int64(job[14]), (job[15], 5))
    moves, k, n_slots = job[16], job[17], job[18]
    result, n_totals, lanes = job[19], job[20], job[21]
    size = k * n_slots
    # All memory is one array, because each kind of array takes time to compile.
    memory = np.zeros((2 + lanes) * size + (2 * k + 3) * TILE)
    sums_at = memory.ctypes.data + 16 * size
    fresh_at = sums_at + 8 * lanes * size
    slopes = fresh_at + 8 * k * TILE
    totals = carray(_int64(memory.ctypes.data), 2 * size)
    sums, fresh = (
        carray(_float64(sums_at), lanes * size),
        carray(_float64(fresh_at), k * TILE),
    )
    lane, added, place = 8 * size if lanes > 1 else 0, 0, add_at(taken, 1)
    while place < len(ranges):
        chunk, start, stop = ranges[place, 0], ranges[place, 1], ranges[place, 2]
        rows, own = chunks[chunk], bounds[chunk]
        if added + stop - start > MOST_ROWS:
            _flush(sums, totals, lanes, size)
            added = 0
        added += stop - start
        for first in range(start, stop, TILE):
            n = min(TILE, stop - first)
            if job[13]:
                margins, step = kept_margins[chunk] + 8 * first, 8 * rows[3]
            else:
                for i in range(k * TILE):
                    fresh[i] = 0.0
                margins, step = fresh_at, 8 * TILE
            for c in range(k):
                at, to = margins + c * step, moves + 8 * c * n_slots
                _run(columns, MOVE, programs, own[0], own[1], first, n, at, to, 0)
            target = rows[0] + 2 * first
            call(formula, job.ctypes.data, margins, step, target, slopes, n)
            call(rounding, job.ctypes.data, rows.ctypes.data, first, n, slopes, 0)
            for c in range(k):
                at, to = slopes + 8 * TILE * c, sums_at + 8 * c * n_slots
                _run(columns, ADD, programs, own[2], own[3], first, n, at, to, lane)
        place = add_at(taken, 1)
    _flush(sums, totals, lanes, size)
    _gather(combined, totals, n_slots)
    for row in range(2 * k):
        for slot in range(n_totals):
            total = totals[row * n_slots + slot]
            if total:
                add_at(result + 8 * (row * n_totals + slot), total)
    memory[0] = 0.0  # numba frees an array after its last use, which must be here
    add_at(job.ctypes.data + 8 * FINISHED, 1)


@kernel(integers=True)
def find_moves(
    units: Floats,
    asked: Floats,
    from_asked: bool,
    slots: npt.NDArray[np.int64],
    worth: npt.NDArray[np.int64],
    moves: Floats,
    changed: npt.NDArray[np.int64],
) -> tuple[int, bool]:
    """Write the changes of the weights into `moves` (k, slots), and weights to `asked`.

    Weights (d, k) change to `units`, from those in `asked` or else from zero.
    Coordinate j counts worth[j] times in slots[j]. The coordinates that change are
    written to `changed`. Return how many these are, and whether fewer weights differ
    from those asked before than from zero.
    """
    for c in range(len(moves)):
        for slot in range(moves.shape[1]):
            moves[c, slot] = 0.0
    n_changed, nonzero, different = 0, 0, 0
    for j in range(len(units)):
        changes = False
        for c in range(len(moves)):
            nonzero += units[j, c] != 0.0
            different += units[j, c] != asked[j, c]
            move = units[j, c] - (asked[j, c] if from_asked else 0.0)
            moves[c, slots[j]] = move * worth[j]
            changes |= move != 0.0
            asked[j, c] = units[j, c]
        if changes:
            changed[n_changed] = j
            n_changed += 1
    return n_changed, different < nonzero
