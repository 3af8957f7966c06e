"""Define the public grids that make every sum an exact integer.

Features are multiples of 2⁻¹⁴. Slopes are multiples of 2⁻¹⁶ times a power of two near
the slope bound. Weights are multiples of 2⁻ᵍ inside a box. In these units, products and
sums are integers below 2⁵³, so float64 adds them without rounding, in any order and on
any machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skdp.schema import FloatArray, Layout, check

FEATURE_BITS = 14
FEATURE_ONE = 1 << FEATURE_BITS
SLOPE_BITS = 16
WEIGHT_BOX = 1024.0
#: All rows of a person count as one record, which is divided into 2²⁰ parts. A row of a
#: person with m rows gets ⌊2²⁰/m⌋ parts. The slopes of such a row are on a finer grid
#: than usual, because they are divided by m. A sum of 2¹⁸ products of a slope below 2²¹
#: and a feature of at most 2¹⁴ is at most 2⁵³.
UNIT_BITS = 20
#: Largest number of rows in a chunk. A sum of 2²² products of a slope below 2¹⁷ and a
#: feature of at most 2¹⁴ stays below 2⁵³.
CHUNK_ROWS = 1 << 22


def round_up(value: float) -> float:
    """Return a float that is safely above `value`, by a few ulps."""
    return value * (1.0 + 2.0**-45)


def truncate(values: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Round feature values in [-1, 1] toward zero, to integers in units of 2⁻¹⁴.

    The result is written into `out`, which may be `values`, or into a new array.

    Notes
    -----
    **Guarantee.** For every float, including nan and infinities, the result is an
    integer of magnitude at most 2¹⁴. For values in [-1, 1], the magnitude of the result
    times 2⁻¹⁴ does not exceed the magnitude of the value.
    """
    units: FloatArray = np.clip(values, -1.0, 1.0, out=out)
    np.copyto(units, 0.0, where=np.isnan(units))  # nan passes through np.clip
    units *= FEATURE_ONE
    return np.trunc(units, out=units)


@np.errstate(all="ignore")
def truncate_column(values: FloatArray, least: float) -> npt.NDArray[np.int16]:
    """Truncate values in [least, 1] as `truncate` does, but faster.

    `least` is 0 or -1, and `values` is overwritten.

    Notes
    -----
    **Guarantee.** For every float, including nan and infinities, the result is an
    integer from least·2¹⁴ to 2¹⁴. For values in [least, 1], it equals that of
    `truncate`. Other values may become any such integer.
    """
    values *= FEATURE_ONE
    units: npt.NDArray[np.int16] = values.astype(np.int16)  # rounds toward zero
    return np.clip(units, int(least * FEATURE_ONE), FEATURE_ONE, out=units)


def bound_positions(
    positions: FloatArray, axes: tuple[int, ...]
) -> npt.NDArray[np.uint32]:
    """Round positions (n, axes) of hats down, to integers in units of 2⁻¹⁴.

    Notes
    -----
    **Guarantee.** For every float, including nan and infinities, each result is an
    integer in [0, width · 2¹⁴], where width is the width of the axis. By the guarantee
    of `skdp.schema.split_hats`, the row's coordinates k are integers in units of 2⁻¹⁴
    with k ≥ 0 and Σ k ≤ 2¹⁴, so Σ k² ≤ 2²⁸.
    """
    finite = np.where(np.isnan(positions), 0.0, positions)
    inside = np.clip(finite, 0.0, np.array(axes, np.float64))
    return np.ascontiguousarray(np.floor(inside * FEATURE_ONE), np.uint32)


@np.errstate(all="ignore")
def bound_rows(values: FloatArray, norm: float) -> FloatArray:
    """Divide rows by `norm`, shrink them to norm one, and round them to feature units.

    Notes
    -----
    **Guarantee.** For every matrix of floats, each row k of the result consists of
    integers with Σ k_j² ≤ 2²⁸. The inequality is checked in exact integers.
    """
    finite = np.nan_to_num(np.asarray(values, np.float64), nan=0.0)
    largest = np.abs(finite).max(axis=1, keepdims=True, initial=0.0)
    # Entries may be as large as 1e308, or denormal. Each row is first divided by its
    # largest entry, which keeps the squares in range.
    direction = finite / np.where(largest > 0, largest, 1.0)
    length = np.zeros_like(largest)
    for column in direction.T:  # sums each row's squares in the same order for every n
        length[:, 0] += column * column
    length = np.sqrt(length)
    scale = np.minimum(largest / norm, 1.0 / np.where(length > 0, length, 1.0))
    return shrink_rows(truncate(direction * scale), float(FEATURE_ONE**2))


def shrink_rows(units: FloatArray, squared_norm: float) -> FloatArray:
    """Shrink integer rows k toward zero until Σ k_j² ≤ `squared_norm` holds exactly."""
    squares = (units * units).sum(axis=1, keepdims=True)
    while (squares > squared_norm).any():
        factor = np.sqrt(squared_norm / np.maximum(squares, 1.0)) * (1.0 - 2.0**-16)
        units = np.where(squares > squared_norm, np.trunc(units * factor), units)
        squares = (units * units).sum(axis=1, keepdims=True)
    return units


def multiply(matrix: FloatArray, total: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Multiply a matrix of integers below 2²⁴ by Python integers, exactly.

    The big integers are split into pieces small enough for exact float64 products.
    """
    bits = 29 - matrix.shape[1].bit_length()
    product = np.zeros((len(matrix), total.shape[1]), np.int64).astype(object)
    if max(map(abs, total.ravel().tolist()), default=0) < 1 << 63:
        total = total.astype(np.int64)  # numpy splits these faster
    rest, sign, shift = abs(total), np.sign(total), 0
    while rest.any():
        limb = sign * (rest & ((1 << bits) - 1))
        part = (matrix @ limb.astype(np.float64)).astype(np.int64)
        product = product + (part.astype(object) << shift)
        rest, shift = rest >> bits, shift + bits
    return product


@dataclass(frozen=True, kw_only=True)
class WeightGrid:
    """The grid of weights, which are multiples of 2⁻ᵇⁱᵗˢ inside a box.

    On this grid, float64 computes margins exactly.
    """

    bits: int

    @classmethod
    def of(cls, layout: Layout) -> WeightGrid:
        """Return the finest grid on which Σ_j |x_j w_j| stays below 2⁵² units."""
        room = math.ceil(math.log2(layout.absolute_sum * WEIGHT_BOX))
        return cls(bits=52 - FEATURE_BITS - room)

    def units(self, weights: FloatArray) -> FloatArray:
        """Return weights as integers in units of 2⁻ᵇⁱᵗˢ.

        Weights outside the box are clipped to it, and nan becomes 0.
        """
        finite = np.where(np.isnan(weights), 0.0, weights)
        inside = np.clip(finite, -WEIGHT_BOX, WEIGHT_BOX)
        units: FloatArray = np.rint(np.ldexp(inside, self.bits))
        return units


@dataclass(frozen=True, kw_only=True)
class SlopeGrid:
    """The grid of slopes, which are integers in units of `unit`.

    The norm of each row's slopes is at most `cap` units.
    """

    unit: float
    cap: int

    @classmethod
    def of(cls, bound: float, bits: int = SLOPE_BITS) -> SlopeGrid:
        """Return the grid for slopes whose norm is at most `bound`.

        The cap is `bound` in units, rounded down. It is between 2ᵇⁱᵗˢ and 2ᵇⁱᵗˢ⁺¹.
        """
        check(
            1e-290 < bound < 1e290,
            f"The slope bound must be between 1e-290 and 1e290, got {bound}.",
        )
        unit = math.ldexp(1.0, math.frexp(bound)[1] - 1 - bits)
        return cls(unit=unit, cap=math.floor(bound / unit))

    def units(self, slopes: FloatArray, caps: npt.ArrayLike) -> FloatArray:
        """Return slopes (n, k) as integers whose row norms are at most `caps` (n,).

        Notes
        -----
        **Guarantee.** For every matrix of floats, including nan and infinities, and all
        integer caps c_i ≥ 0, row i of the result consists of integers and has norm at
        most min(c_i, cap). This row depends only on row i of `slopes` and on c_i.
        """
        caps = np.minimum(np.asarray(caps, np.float64), self.cap)[:, None]
        finite = np.where(np.isnan(slopes), 0.0, slopes)
        with np.errstate(over="ignore"):
            units = np.clip(np.floor(finite / self.unit + 0.5), -caps, caps)
        if units.shape[1] == 1:
            return units
        squares = np.zeros((len(units), 1))
        for column in range(units.shape[1]):  # every engine adds in this order
            squares[:, 0] += units[:, column] * units[:, column]
        factor = caps / np.sqrt(np.maximum(squares, 1.0)) * (1.0 - 2.0**-40)
        return np.where(squares > caps * caps, np.trunc(units * factor), units)
