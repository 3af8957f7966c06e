"""Checks of what samplings are made of: public mistakes refused in one sentence."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
Scalar = TypeVar("Scalar", bound=np.generic)


def check_partition(
    blocks: Sequence[npt.ArrayLike], n_coordinates: int | None, owner: str, name: str
) -> tuple[IntArray, ...]:
    """Return ``blocks`` sorted, or refuse what is no partition of {0, ..., d-1}.

    Parameters
    ----------
    blocks : sequence of index arrays
        What is checked.
    n_coordinates : int or None
        The number of coordinates d; the number of indices given if None.
    owner, name : str
        The function and its parameter, for the message.
    """
    partition = index_sets(blocks, owner, name)
    indices = np.concatenate(partition)
    d = indices.size if n_coordinates is None else n_coordinates
    counts = np.bincount(np.minimum(indices, d), minlength=d + 1)
    rule = f"hold each of the coordinates 0 to {d - 1} exactly once"
    remedy = "Give a partition: disjoint blocks that cover every coordinate."
    if counts[d]:
        raise refusal(owner, name, rule, f"coordinate {indices.max()}", remedy)
    if np.any(counts[:d] != 1):
        odd = int(np.argmax(counts[:d] != 1))
        got = f"coordinate {odd} {counts[odd]} times"
        raise refusal(owner, name, rule, got, remedy)
    return partition


def refusal(owner: str, name: str, rule: str, got: str, remedy: str) -> ValueError:
    """Say what is wrong: the rule, what came instead and what to do."""
    return ValueError(
        f"The '{name}' parameter of {owner} must {rule}. Got {got} instead. {remedy}"
    )


def frozen(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return a copy that nobody can write to."""
    copied = array.copy()
    copied.flags.writeable = False
    return copied


def integer_in(value: object, low: int, high: int | None, owner: str, name: str) -> int:
    """Return a whole number in [low, high], or refuse it."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    span = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise refusal(
        owner, name, f"be an integer {span}", repr(value), f"Give an integer {span}."
    )


def index_set(values: npt.ArrayLike, owner: str, name: str) -> IntArray:
    """Return sorted distinct indices, or refuse them."""
    try:
        indices = np.asarray(values)
    except ValueError:
        indices = np.empty((0, 0))
    good = indices.ndim == 1 and indices.size > 0 and indices.dtype.kind in "iu"
    if good:
        unique = np.unique(indices).astype(np.intp)
        good = unique.size == indices.size and unique[0] >= 0
    if not good:
        raise refusal(
            owner,
            name,
            "hold nonempty lists of distinct nonnegative integers",
            repr(values),
            "Number the coordinates from 0 and leave no set empty.",
        )
    return unique


def index_sets(
    sets: Sequence[npt.ArrayLike], owner: str, name: str
) -> tuple[IntArray, ...]:
    """Return several sets of indices, or refuse them."""
    if len(sets) == 0:
        raise refusal(owner, name, "hold at least one set", "none", "Give the sets.")
    return tuple(index_set(values, owner, name) for values in sets)


def vector(
    values: npt.ArrayLike, length: int | None, owner: str, name: str
) -> FloatArray:
    """Return a finite vector of the given length, or refuse it."""
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
        raise refusal(
            owner,
            name,
            f"be a vector of {expected} finite numbers",
            repr(values),
            "Give one number per entry and no NaN or infinity.",
        )
    return vector


def positive_vector(
    values: npt.ArrayLike, length: int | None, owner: str, name: str
) -> FloatArray:
    """Return a vector of positive numbers, or refuse it."""
    numbers = vector(values, length, owner, name)
    if np.any(numbers <= 0):
        where = int(np.argmin(numbers))
        raise refusal(
            owner,
            name,
            "be positive everywhere",
            f"{numbers[where]} at {where}",
            "A zero here makes the sampling improper or the step infinite.",
        )
    return numbers


def distribution(
    values: npt.ArrayLike, owner: str, length: int | None = None
) -> FloatArray:
    """Return probabilities that sum to one, or refuse them."""
    probabilities = positive_vector(values, length, owner, "probabilities")
    total = probabilities.sum()
    if not abs(total - 1) <= 1e-9:
        raise refusal(
            owner,
            "probabilities",
            "sum to one within 1e-9",
            f"a sum of {total}",
            "Divide them by their sum.",
        )
    return np.asarray(probabilities / total)


def mixed(weights: FloatArray, floor: float, owner: str, name: str) -> FloatArray:
    """Weights made probabilities, of which each is at least floor / len(weights)."""
    if not 0 <= floor <= 1:
        raise refusal(
            owner, "floor", "lie in [0, 1]", repr(floor), "0.5 is a safe choice."
        )
    scaled = weights / weights.max()
    mixed = (1 - floor) * scaled / scaled.sum() + floor / scaled.size
    if np.any(mixed <= 0):
        raise refusal(
            owner,
            name,
            "give every set a positive probability",
            f"zero for set {int(np.argmin(mixed))}",
            "Give 'floor' a positive value.",
        )
    return np.asarray(mixed)
