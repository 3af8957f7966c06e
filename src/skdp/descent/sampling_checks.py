"""Check the parameters of samplings and of smoothness, which are public."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from skdp.schema import FloatArray, IntArray, check

Scalar = TypeVar("Scalar", bound=np.generic)


def freeze(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return a read-only copy of an array."""
    copied = array.copy()
    copied.flags.writeable = False
    return copied


def check_partition(
    blocks: Sequence[npt.ArrayLike], n_coordinates: int | None, owner: str, name: str
) -> tuple[IntArray, ...]:
    """Check that ``blocks`` partition {0, ..., d-1}; return each block sorted.

    Parameters
    ----------
    blocks : sequence of index arrays
        The blocks.
    n_coordinates : int or None
        The number of coordinates d. If None, d is the total number of indices.
    owner, name : str
        The function and the name of its parameter, for the error message.
    """
    partition = check_index_sets(blocks, owner, name)
    indices = np.concatenate(partition)
    d = indices.size if n_coordinates is None else n_coordinates
    counts = np.bincount(np.minimum(indices, d), minlength=d + 1)
    rule = (
        f"{owner}: {name} must hold each of the coordinates 0 to {d - 1} exactly once"
    )
    check(not counts[d], f"{rule}, got coordinate {indices.max()}.")
    odd = int(np.argmax(counts[:d] != 1))
    check(counts[odd] == 1, f"{rule}, got coordinate {odd} in {counts[odd]} of them.")
    return partition


def check_index_set(values: npt.ArrayLike, owner: str, name: str) -> IntArray:
    """Check that the indices form a nonempty set, and return them sorted."""
    try:
        indices = np.asarray(values)
    except ValueError:
        indices = np.empty((0, 0))
    good = indices.ndim == 1 and indices.size > 0 and indices.dtype.kind in "iu"
    if good:
        unique = np.unique(indices).astype(np.intp)
        good = unique.size == indices.size and unique[0] >= 0
    if not good:
        raise ValueError(
            f"{owner}: {name} must hold nonempty lists of distinct nonnegative "
            f"integers, got {values!r}."
        )
    return unique


def check_index_sets(
    sets: Sequence[npt.ArrayLike], owner: str, name: str
) -> tuple[IntArray, ...]:
    """Check several nonempty sets of indices, and return each of them sorted."""
    check(len(sets) > 0, f"{owner}: {name} must hold at least one set, got none.")
    return tuple(check_index_set(values, owner, name) for values in sets)


def check_vector(
    values: npt.ArrayLike, length: int | None, owner: str, name: str
) -> FloatArray:
    """Check that a vector is finite and has the right length, and return it."""
    expected = "d" if length is None else str(length)
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.empty((0, 0))
    if (
        vector.ndim != 1
        or vector.size == 0
        or (length is not None and vector.size != length)
        or not np.all(np.isfinite(vector))
    ):
        raise ValueError(
            f"{owner}: {name} must be a vector of {expected} finite numbers, got "
            f"{values!r}."
        )
    return vector


def check_positive(
    values: npt.ArrayLike, length: int | None, owner: str, name: str
) -> FloatArray:
    """Check that all entries of a vector are positive, and return the vector."""
    numbers = check_vector(values, length, owner, name)
    least = int(np.argmin(numbers))
    check(
        numbers[least] > 0,
        f"{owner}: {name} must be positive everywhere, got {numbers[least]} at index "
        f"{least}.",
    )
    return numbers


def check_distribution(
    values: npt.ArrayLike, owner: str, length: int | None = None
) -> FloatArray:
    """Check that probabilities are positive and sum to one, and return them."""
    probabilities = check_positive(values, length, owner, "probabilities")
    total = probabilities.sum()
    check(
        abs(total - 1) <= 1e-9,
        f"{owner}: probabilities must sum to one within 1e-9, got a sum of {total}.",
    )
    return np.asarray(probabilities / total)
