"""Multiply rows by each other and by a matrix, for Gram matrices and caps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skdp.engines.kernels import Codes, Floats, kernel


@kernel()
def cap_rows(
    images: Floats,
    reach: float,
    shortest: float,
    cap: float,
    caps: npt.NDArray[np.int32],
) -> None:
    """Compute `Metric.caps` from the images (n, r) of rows, with the same bits."""
    for i in range(len(images)):
        squares = 0.0
        for r in range(images.shape[1]):
            squares += images[i, r] * images[i, r]
        norm = np.sqrt(squares) * (1.0 + 2.0**-40)
        caps[i] = np.int32(min(np.floor(reach / max(norm, shortest)), cap))


@kernel(integers=True)
def add_pairs(
    slots: npt.NDArray[np.int64], dense: Floats, codes: Codes, matrix: Floats
) -> None:
    """Add the lower triangle of Σ_i z_i z_iᵀ to `matrix`.

    The vector z_i consists of the numbers of row i, from `dense` (rows, m), followed by
    its one-hot codes, from `codes` (groups, rows). The one-hot codes of group g start
    at place `slots[g]`.
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
    """Add B z_i to images[i] for each row i.

    z_i is the same vector as in `add_pairs`, and `columns` holds the columns of B.
    """
    width = dense.shape[1]
    whole = width // 4 * 4
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
        for g in range(len(slots)):
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
    """Add the rows of the lower triangle of Σ_i z_i z_iᵀ that belong to hats.

    z_i is the vector of `add_pairs`, followed by hats. The e-th entry of row i is
    values[e, i] at the place places[e, i]. Entries are sorted by place.
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
    """Add the part of B z_i that belongs to hats to images[i], for each row i.

    Places and values have the same meaning as in `add_hat_pairs`.
    """
    for i in range(len(images)):
        out = images[i]
        for e in range(len(places)):
            a, t = columns[places[e, i]], values[e, i]
            for r in range(len(out)):
                out[r] += t * a[r]
