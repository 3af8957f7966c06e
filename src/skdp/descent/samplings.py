"""Check the parameters of samplings and of smoothness, which are public."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from skdp.models.registry import Registered
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, check, check_integer, count_in_words

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


# ---- Define samplings: distributions over the sets of coordinates that a step moves
#
# A sampling draws a random set S of coordinates, with marginals p_j = P(j ∈ S). The
# paper assumes that a sampling is *proper* (every p_j > 0) and *nonvacuous* (S is never
# empty). Any other sampling raises an error. Sets are drawn with public randomness.
# Nothing in this file is private, and nothing reads a record.
#
# To add a sampling, write one class and put an example of it in ``SAMPLINGS``. The
# smoothness, the noise, the bounds and the tests use ``probabilities``, ``coupling``
# and ``support``, so they need no further code.


__all__ = [
    "MAX_SUPPORT",
    "SAMPLINGS",
    "Blocks",
    "ExplicitSets",
    "Full",
    "Independent",
    "Nice",
    "Sampling",
    "ShuffledBlocks",
    "SingleCoordinate",
    "sketch",
]

MAX_SUPPORT = 1024
"""A sampling with more possible sets than this has ``support`` None."""


class Sampling(Registered, ABC):
    """A proper, nonvacuous distribution over the subsets of {0, ..., d-1}.

    A subclass passes its properties to this constructor and implements ``draw``. It
    must pass ``coupling`` or ``support`` (or both), or override ``pair_probabilities``.

    Parameters
    ----------
    probabilities : (d,) array
        p_j = P(j ∈ S).
    coupling : (d,) array or None
        See the property ``coupling``.
    support : sequence of sorted index arrays, or None
        Every set of positive probability, or None if there are too many.
    set_probabilities : (len(support),) array or None
        The probability of each set of ``support``.
    """

    def __init__(
        self,
        probabilities: FloatArray,
        *,
        coupling: FloatArray | None = None,
        support: Sequence[IntArray] | None = None,
        set_probabilities: FloatArray | None = None,
    ) -> None:
        self._probabilities = freeze(probabilities)
        self._coupling = None if coupling is None else freeze(coupling)
        self._support = None if support is None else tuple(map(freeze, support))
        self._set_probabilities = (
            None if set_probabilities is None else freeze(set_probabilities)
        )

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates d."""
        return self._probabilities.size

    @property
    def probabilities(self) -> FloatArray:
        """p_j = P(j ∈ S), shape (d,)."""
        return self._probabilities

    @property
    def coupling(self) -> FloatArray | None:
        """The vector a that determines pair probabilities, or None if there is none.

        It is in [0, 1]^d and satisfies P(j, k ∈ S) = √(p_j a_j p_k a_k) for all j ≠ k.
        Single coordinates have a = 0, and the full set has a = 1. If there is such an
        a, the matrix of pair probabilities is diagonal plus rank one, and the
        smoothness has a closed form.
        """
        return self._coupling

    @property
    def support(self) -> tuple[IntArray, ...] | None:
        """Every set of positive probability, or None if there are too many."""
        return self._support

    @property
    def set_probabilities(self) -> FloatArray | None:
        """P(S = U) for each set U of ``support``, or None if ``support`` is None."""
        return self._set_probabilities

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw one set S, and return its indices sorted. S is never empty."""

    def sets(self, n_steps: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Draw the sets of ``n_steps`` consecutive steps, which are independent."""
        steps = range(check_integer(n_steps, "Sampling.sets: n_steps", low=0))
        return (self.draw(rng) for _ in steps)

    def pair_probabilities(self, block: IntArray) -> FloatArray:
        """Return P(j, k ∈ S) for j, k in ``block``, shape (len(block), len(block))."""
        block = np.asarray(block, dtype=np.intp)
        p = self.probabilities[block]
        if self.coupling is not None:
            root = np.sqrt(p * self.coupling[block])
            same = block[:, None] == block[None, :]
            return np.where(same, p[:, None], np.outer(root, root))
        if self.support is None or self.set_probabilities is None:
            raise NotImplementedError(
                f"{type(self).__name__} must give its coupling or its support, or "
                "override pair_probabilities."
            )
        member = np.stack([np.isin(block, chosen) for chosen in self.support])
        return np.asarray((member.T * self.set_probabilities) @ member)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_coordinates={self.n_coordinates})"


class Full(Sampling):
    """Every step moves all coordinates, S = {0, ..., d-1}: full gradient descent.

    Parameters
    ----------
    n_coordinates : int
        The number of coordinates d.
    """

    kind = "full"

    def __init__(self, n_coordinates: int) -> None:
        d = check_integer(n_coordinates, "Full: n_coordinates")
        super().__init__(
            np.ones(d),
            coupling=np.ones(d),
            support=(np.arange(d),),
            set_probabilities=np.ones(1),
        )
        self._everything = freeze(np.arange(d))

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's argument: the number of coordinates."""
        return {"n_coordinates": self.n_coordinates}

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Return all coordinates; ``rng`` is not used."""
        return self._everything


class SingleCoordinate(Sampling):
    """Every step moves one coordinate, which is j with probability p_j.

    Parameters
    ----------
    probabilities : (d,) array_like
        p, positive, with sum one.
    """

    kind = "single-coordinate"

    def __init__(self, probabilities: npt.ArrayLike) -> None:
        p = check_distribution(probabilities, "SingleCoordinate")
        super().__init__(
            p,
            coupling=np.zeros(p.size),
            support=tuple(np.arange(p.size)[:, None]),
            set_probabilities=p,
        )
        self._cumulative = _cumulative(p)

    @classmethod
    def uniform(cls, n_coordinates: int) -> Self:
        """Return the sampling in which every coordinate has probability 1/d."""
        d = check_integer(n_coordinates, "SingleCoordinate.uniform: n_coordinates")
        return cls(np.full(d, 1 / d))

    @classmethod
    def importance(cls, smoothness: npt.ArrayLike, floor: float = 0.0) -> Self:
        """Return the sampling with p_j ∝ M_j, mixed with uniform probabilities.

        M is the `smoothness`. The mixture ensures that p_j ≥ floor / d.
        """
        owner = "SingleCoordinate.importance"
        weights = check_positive(smoothness, None, owner, "smoothness")
        return cls(_mix_with_uniform(weights, floor, owner, "smoothness"))

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's argument: the probabilities."""
        return {"probabilities": self.probabilities}

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw one coordinate, by inverting the distribution function."""
        chosen = np.searchsorted(self._cumulative, rng.random(), side="right")
        return np.array([chosen], dtype=np.intp)


class _Listed(Sampling):
    """A sampling whose set S is one of a short list of sets."""

    def __init__(
        self, support: Sequence[IntArray], set_probabilities: FloatArray, d: int
    ) -> None:
        p = np.zeros(d)
        for chosen, probability in zip(support, set_probabilities, strict=True):
            p[chosen] += probability
        super().__init__(
            np.minimum(p, 1.0),  # a sum of rounded numbers may exceed one
            support=support,
            set_probabilities=set_probabilities,
        )
        self._sets = self._support or ()
        self._cumulative = _cumulative(set_probabilities)

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw one of the sets, by inverting the distribution function."""
        return self._sets[np.searchsorted(self._cumulative, rng.random(), side="right")]


class ExplicitSets(_Listed):
    """Each step moves sets[i] with probability probabilities[i]. The sets may overlap.

    Parameters
    ----------
    sets : sequence of index arrays
        The sets. None of them may be empty, and every coordinate must be in some set.
    probabilities : (len(sets),) array_like
        Positive, with sum one.
    n_coordinates : int, optional
        The number of coordinates d. By default, one more than the largest index.
    """

    kind = "explicit-sets"

    def __init__(
        self,
        sets: Sequence[npt.ArrayLike],
        probabilities: npt.ArrayLike,
        n_coordinates: int | None = None,
    ) -> None:
        name = "ExplicitSets"
        support = check_index_sets(sets, name, "sets")
        d = 1 + max(int(chosen[-1]) for chosen in support)
        if n_coordinates is not None:
            d = check_integer(n_coordinates, f"{name}: n_coordinates", low=d)
        missing = np.setdiff1d(np.arange(d), np.concatenate(support))
        if missing.size:
            raise ValueError(
                f"{name}: sets must together contain every coordinate, got no set with "
                f"coordinate {missing[0]}."
            )
        super().__init__(
            support, check_distribution(probabilities, name, len(support)), d
        )

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments: sets, probabilities, n_coordinates."""
        return {
            "sets": self.support,
            "probabilities": self.set_probabilities,
            "n_coordinates": self.n_coordinates,
        }


class _OneBlock(_Listed):
    """A sampling whose set S is one block of a partition of the coordinates."""

    def __init__(
        self, blocks: Sequence[npt.ArrayLike], block_probabilities: FloatArray
    ) -> None:
        partition = check_partition(blocks, None, type(self).__name__, "blocks")
        d = sum(block.size for block in partition)
        super().__init__(partition, block_probabilities, d)
        self._label = np.empty(d, dtype=np.intp)
        for label, block in enumerate(partition):
            self._label[block] = label

    @property
    def blocks(self) -> tuple[IntArray, ...]:
        """The blocks, each sorted."""
        return self._sets

    def pair_probabilities(self, block: IntArray) -> FloatArray:
        """Return P(j, k ∈ S), which is p_j if j and k share a block, and 0 if not."""
        label = self._label[block]
        together = label[:, None] == label[None, :]
        return np.where(together, self.probabilities[block][:, None], 0.0)


class Blocks(_OneBlock):
    """Each step moves blocks[i], a block of a partition, with probability q_i.

    Parameters
    ----------
    blocks : sequence of index arrays
        A partition of {0, ..., d-1}.
    probabilities : (len(blocks),) array_like
        q, positive, with sum one. These are the ``set_probabilities`` of the sampling.
        The sampling's ``probabilities`` have one number per coordinate.
    """

    kind = "blocks"

    def __init__(
        self, blocks: Sequence[npt.ArrayLike], probabilities: npt.ArrayLike
    ) -> None:
        super().__init__(
            blocks, check_distribution(probabilities, "Blocks", len(blocks))
        )

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments: the blocks and their probabilities."""
        return {"blocks": self.blocks, "probabilities": self.set_probabilities}

    @classmethod
    def uniform(cls, blocks: Sequence[npt.ArrayLike]) -> Self:
        """Return the sampling in which each of the b blocks has probability 1/b."""
        partition = check_partition(blocks, None, "Blocks.uniform", "blocks")
        return cls(partition, np.full(len(partition), 1 / len(partition)))

    @classmethod
    def importance(
        cls,
        blocks: Sequence[npt.ArrayLike],
        smoothness: npt.ArrayLike,
        floor: float = 0.0,
    ) -> Self:
        """Return the sampling that draws block B with q_B ∝ max_{j∈B} M_j.

        These probabilities are mixed with 1/b for each of the b blocks, which ensures
        that q_B ≥ floor / b.

        Parameters
        ----------
        blocks : sequence of index arrays
            A partition of {0, ..., d-1}.
        smoothness : (d,) array_like
            M, positive and public.
        floor : float
            In [0, 1]. With block-wise smoothness, the utility bound grows with 1/p_min,
            where p_min is the smallest q_B (erratum 6). A floor of 0.5 keeps
            q_B ≥ 1/(2b).
        """
        owner = "Blocks.importance"
        partition = check_partition(blocks, None, owner, "blocks")
        d = sum(block.size for block in partition)
        m = check_positive(smoothness, d, owner, "smoothness")
        weights = np.array([m[block].max() for block in partition])
        return cls(partition, _mix_with_uniform(weights, floor, owner, "smoothness"))

    @classmethod
    def prior(
        cls,
        blocks: Sequence[npt.ArrayLike],
        smoothness: npt.ArrayLike,
        distance: npt.ArrayLike,
        floor: float = 0.5,
    ) -> Self:
        """Return the sampling that draws block B with q_B ∝ √(Σ_{j∈B} M_j δ_j²).

        These probabilities are mixed with 1/b for each of the b blocks, which ensures
        that q_B ≥ floor / b. Here δ is a public guess of abs(w⁰−w*), the distance of
        the start w⁰ from the optimum w* in each coordinate. If δ is right, these q,
        before they are mixed, minimise R² = ‖w⁰−w*‖² in the norm of M P⁻¹, where P is
        the diagonal matrix of the coordinates' probabilities. R is the distance in the
        paper's utility bound.

        Parameters
        ----------
        blocks : sequence of index arrays
            A partition of {0, ..., d-1}.
        smoothness : (d,) array_like
            M, positive and public.
        distance : (d,) array_like
            δ ≥ 0, public, not all zero.
        floor : float
            In [0, 1]. The utility bound grows with 1/p_min, where p_min is the smallest
            q_B (erratum 6). A floor of 0.5 keeps q_B ≥ 1/(2b).
        """
        owner = "Blocks.prior"
        partition = check_partition(blocks, None, owner, "blocks")
        d = sum(block.size for block in partition)
        m = check_positive(smoothness, d, owner, "smoothness")
        delta = check_vector(distance, d, owner, "distance")
        check(
            0 <= delta.min() <= delta.max() and delta.max() > 0,
            f"{owner}: distance must be nonnegative with a positive entry, got a range "
            f"from {delta.min()} to {delta.max()}.",
        )
        # Guesses are scaled before they are squared, which avoids over- and underflow.
        scaled = np.sqrt(m / m.max()) * (delta / delta.max())
        weights = np.array([np.linalg.norm(scaled[block]) for block in partition])
        return cls(partition, _mix_with_uniform(weights, floor, owner, "distance"))


class ShuffledBlocks(_OneBlock):
    """Blocks in random order. Every cycle visits block i exactly counts[i] times.

    Each single step has the same distribution as in ``Blocks`` with
    q = counts / Σ counts, but the steps of a cycle depend on each other.

    Parameters
    ----------
    blocks : sequence of index arrays
        A partition of {0, ..., d-1}.
    counts : (len(blocks),) sequence of int
        Number of visits to each block in a cycle, at least one. By default, every block
        is visited once.
    """

    kind = "shuffled-blocks"

    def __init__(
        self, blocks: Sequence[npt.ArrayLike], counts: Sequence[int] | None = None
    ) -> None:
        name = "ShuffledBlocks"
        given = [1] * len(blocks) if counts is None else list(counts)
        check(
            len(given) == len(blocks),
            f"{name}: counts must have one entry for each of the {len(blocks)} blocks, "
            f"got {count_in_words(len(given), 'entry', 'entries')}.",
        )
        visits = np.array([check_integer(c, f"{name}: counts") for c in given])
        super().__init__(blocks, visits / max(visits.sum(), 1))
        self._cycle = freeze(np.repeat(np.arange(visits.size), visits))
        self._counts = freeze(visits)

    @property
    def counts(self) -> IntArray:
        """Number of visits to each block in a cycle."""
        return self._counts

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments: the blocks and their visits per cycle."""
        return {"blocks": self.blocks, "counts": self.counts}

    def sets(self, n_steps: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Draw the sets of ``n_steps`` steps, as shuffled cycles.

        The last cycle may be incomplete.
        """
        left = check_integer(n_steps, "ShuffledBlocks.sets: n_steps", low=0)
        return self._cycles(left, rng)

    def _cycles(self, left: int, rng: np.random.Generator) -> Iterator[IntArray]:
        while left > 0:
            for label in rng.permutation(self._cycle)[:left]:
                yield self._sets[label]
            left -= self._cycle.size


class Nice(Sampling):
    """The τ-nice sampling, in which all sets of τ coordinates are equally likely.

    It has p_j = τ/d and P(j, k ∈ S) = τ(τ−1)/(d(d−1)).

    Parameters
    ----------
    n_coordinates : int
        The number of coordinates d.
    tau : int
        The size of S, from 1 to d.
    """

    kind = "nice"

    def __init__(self, n_coordinates: int, tau: int) -> None:
        d = check_integer(n_coordinates, "Nice: n_coordinates")
        self._tau = check_integer(tau, "Nice: tau", high=d)
        n_sets = comb(d, self._tau)
        listed = n_sets <= MAX_SUPPORT
        super().__init__(
            np.full(d, self._tau / d),
            coupling=np.full(d, (self._tau - 1) / max(d - 1, 1)),
            support=[np.array(s) for s in combinations(range(d), self._tau)]
            if listed
            else None,
            set_probabilities=np.full(n_sets, 1 / n_sets) if listed else None,
        )

    @property
    def tau(self) -> int:
        """The size of every set."""
        return self._tau

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments: the number of coordinates and τ."""
        return {"n_coordinates": self.n_coordinates, "tau": self.tau}

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw τ coordinates without replacement."""
        chosen = rng.choice(self.n_coordinates, self._tau, replace=False, shuffle=False)
        return np.sort(chosen).astype(np.intp, copy=False)


class Independent(Sampling):
    """Each j is in S independently with probability π_j, given that S is not empty.

    With Z = 1 − Π_j (1−π_j), p_j = π_j / Z and P(j, k ∈ S) = π_j π_k / Z.

    Parameters
    ----------
    probabilities : (d,) array_like
        π_j in (0, 1], before conditioning on a nonempty set. The attribute
        ``Independent.inclusion`` holds π, and ``Independent.probabilities`` holds p.
    """

    kind = "independent"

    def __init__(self, probabilities: npt.ArrayLike) -> None:
        pi = check_positive(probabilities, None, "Independent", "probabilities")
        check(
            pi.max() <= 1,
            f"Independent: probabilities must lie in (0, 1], got {pi.max()}.",
        )
        # P(j is the first of S) = π_j Π_{i<j} (1−π_i). The sum over j is Z. This avoids
        # the cancellation in 1 − Π, so no digits are lost if all π are tiny.
        before = np.concatenate([[1.0], np.cumprod(1 - pi)[:-1]])
        first = pi * before
        support, likelihood = _nonempty_subsets(pi)
        super().__init__(
            np.minimum(pi / first.sum(), 1.0),
            coupling=pi,
            support=support,
            set_probabilities=None
            if likelihood is None
            else likelihood / likelihood.sum(),
        )
        self._first = _cumulative(first)

    @property
    def inclusion(self) -> FloatArray:
        """π, the probabilities before conditioning, shape (d,)."""
        assert self.coupling is not None
        return self.coupling

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's argument: the probabilities before conditioning."""
        return {"probabilities": self.inclusion}

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw the smallest coordinate of S, then the larger ones independently.

        No draw is rejected, so small probabilities π take no longer than large ones.
        """
        first = int(np.searchsorted(self._first, rng.random(), side="right"))
        later = self.inclusion[first + 1 :]
        chosen = np.flatnonzero(rng.random(later.size) < later) + first + 1
        return np.concatenate([[first], chosen]).astype(np.intp, copy=False)


def sketch(sampling: Sampling, chosen: npt.ArrayLike) -> FloatArray:
    """Return the diagonal of the unbiased sketch C = I_S P⁻¹ (Definition 3.2).

    Parameters
    ----------
    sampling : Sampling
        The sampling that S was drawn from.
    chosen : index array
        The set S.

    Returns
    -------
    (d,) array
        1/p_j for j in S and 0 elsewhere, so that E[C x] = x for every x.
    """
    d = sampling.n_coordinates
    indices = check_index_set(chosen, "sketch", "chosen")
    check(
        indices[-1] < d,
        f"sketch: chosen must hold indices from 0 to {d - 1}, got {indices[-1]}.",
    )
    diagonal = np.zeros(d)
    diagonal[indices] = 1 / sampling.probabilities[indices]
    return diagonal


def _cumulative(weights: FloatArray) -> FloatArray:
    """Return the cumulative sums of the weights, scaled to end at exactly one."""
    cumulative = np.cumsum(weights)
    return np.asarray(cumulative / cumulative[-1])


def _mix_with_uniform(
    weights: FloatArray, floor: float, owner: str, name: str
) -> FloatArray:
    """Return probabilities ∝ weights, mixed with the uniform distribution.

    The mixture makes each probability at least floor / len(weights).
    """
    check(0 <= floor <= 1, f"{owner}: floor must lie in [0, 1], got {floor!r}.")
    scaled = weights / weights.max()
    mixed = (1 - floor) * scaled / scaled.sum() + floor / scaled.size
    check(
        mixed.min() > 0,
        f"{owner}: {name} must give every set a positive probability if floor is 0, "
        f"got zero for set {int(np.argmin(mixed))}.",
    )
    return np.asarray(mixed)


def _nonempty_subsets(
    pi: FloatArray,
) -> tuple[list[IntArray] | None, FloatArray | None]:
    """Return all nonempty sets and their likelihoods, which are not normalised.

    If there are too many sets, return None for both.
    """
    d = pi.size
    if d > MAX_SUPPORT.bit_length() or 2**d - 1 > MAX_SUPPORT:
        return None, None
    member = (np.arange(1, 2**d)[:, None] >> np.arange(d)) & 1 == 1
    likelihood = np.where(member, pi, 1 - pi).prod(axis=1)
    possible = likelihood > 0
    sets = [np.flatnonzero(row) for row in member[possible]]
    return sets, likelihood[possible]


def _example_blocks(d: int) -> list[IntArray]:
    """Return interleaved blocks of about three coordinates each."""
    n_blocks = max(d // 3, 1)
    return [np.arange(start, d, n_blocks) for start in range(n_blocks)]


def _example_explicit(d: int) -> ExplicitSets:
    """Return a sampling whose sets are pairs of adjacent coordinates and the full set.

    Pairs of larger coordinates are more likely.
    """
    pairs = [np.unique([j, (j + 1) % d]) for j in range(d)]
    weights = np.append(np.arange(1.0, d + 1), d / 2)
    return ExplicitSets([*pairs, np.arange(d)], weights / weights.sum())


SAMPLINGS: dict[str, Callable[[int], Sampling]] = {
    "full": Full,
    "single-uniform": SingleCoordinate.uniform,
    "single-importance": lambda d: SingleCoordinate.importance(np.arange(1, d + 1)),
    "blocks-uniform": lambda d: Blocks.uniform(_example_blocks(d)),
    "blocks-importance": lambda d: Blocks.importance(
        _example_blocks(d), np.arange(1, d + 1)
    ),
    "blocks-prior": lambda d: Blocks.prior(
        _example_blocks(d), np.ones(d), np.arange(d, 0, -1)
    ),
    "shuffled": lambda d: ShuffledBlocks(
        _example_blocks(d), [1 + i % 3 for i in range(len(_example_blocks(d)))]
    ),
    "nice": lambda d: Nice(d, (d + 1) // 2),
    "independent": lambda d: Independent(np.linspace(0.15, 0.6, d)),
    "explicit": _example_explicit,
}
"""For each name, a function that returns an example for any d ≥ 1. Tests use them."""


# ---- Draw sets of coordinates with probabilities that depend on released gradients
#
# Every step of Algorithm 1 costs the same, whichever set it draws, because the noise is
# a fixed multiple of the sensitivity of that set. So the sets may depend on earlier
# releases at no cost. docs/guide/sketches.md has the proofs.


Law = Literal["fixed", "norms", "largest"]
LAWS: tuple[Law, ...] = ("fixed", "norms", "largest")


class FollowingLaw:
    """Set probabilities that depend on the last released gradient of each set.

    A step draws the set S with probability
    p(S) = explore · p̄(S) + (1 - explore) · a(S). Here p̄(S) is the probability of S
    under the sampling, and a(S) is computed from released values only. While some sets
    have never been drawn, a(S) is positive for these sets alone. After that, a(S)
    depends on a score s(S). The score is the squared norm of the value that the last
    step on S released, minus the expected squared norm of its noise. If this difference
    is negative, s(S) is 0. Up to a factor that all sets share, s(S) estimates by how
    much a step on S lowers the objective. ``"norms"`` makes a(S) proportional to √s(S)
    (adaptive importance sampling). ``"largest"`` makes a(S) positive only for the set
    with the largest score (the rule of Gauss and Southwell, with gradients of earlier
    steps). If all scores are 0, a(S) is p̄(S).

    Parameters
    ----------
    sampling : Sampling
        The sampling that lists the sets and has the probabilities p̄.
    law : {"norms", "largest"}
        How a(S) depends on the scores.
    explore : float
        In (0, 1]. No set becomes much rarer than under p̄, because p ≥ explore · p̄.
    """

    def __init__(self, sampling: Sampling, law: Law, explore: float) -> None:
        support, own = sampling.support, sampling.set_probabilities
        check(
            support is not None,
            f"law={law!r} requires a sampling that lists its sets, got {sampling!r}.",
        )
        assert support is not None
        assert own is not None
        self._sets, self._own = support, own
        self._law, self._explore = law, explore
        self._index = {chosen.tobytes(): i for i, chosen in enumerate(support)}
        self.forget()

    def forget(self) -> None:
        """Forget all releases. Call this before another run."""
        self._scores = np.full(len(self._sets), np.nan)

    def probabilities(self) -> FloatArray:
        """Return the probability with which the next step draws each set."""
        return self._explore * self._own + (1.0 - self._explore) * self._follow()

    def _follow(self) -> FloatArray:
        new = np.isnan(self._scores)
        if new.any():
            share = np.where(new, self._own, 0.0)
        elif self._law == "norms":
            share = np.sqrt(self._scores)
        else:
            share = (self._scores == self._scores.max()) * self._own
        total = float(share.sum())
        followed = total > 0 and (new.any() or self._scores.max() > 0)
        return share / total if followed else self._own

    def sets(self, n_steps: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Draw the sets of ``n_steps`` steps, each after the previous step's release.

        Notes
        -----
        **Guarantee.** For all tables, each set is a function of public randomness and
        of the values passed to `learn`, all of which were released.
        """
        for _ in range(n_steps):
            cumulative = np.cumsum(self.probabilities())
            place = rng.random() * cumulative[-1]
            yield self._sets[int(np.searchsorted(cumulative, place, side="right"))]

    def find_probability(self, at: IntArray) -> float:
        """Return the probability with which the next step draws the set `at`."""
        return float(self.probabilities()[self._index[at.tobytes()]])

    def weigh(self, at: IntArray) -> float:
        """Return explore · p̄(S)/p(S) ≤ 1 for the set S = `at` that was drawn.

        The step drew S with probability p(S), and the sampling has probability p̄(S).
        """
        own = float(self._own[self._index[at.tobytes()]])
        return self._explore * own / self.find_probability(at)

    def learn(self, at: IntArray, released: Released) -> None:
        """Update the score s(S) of the set S = `at` from the release of a step on S."""
        if not isinstance(released, Released):
            raise TypeError(
                "Probabilities may depend only on released values, got "
                f"{type(released).__name__}."
            )
        noise = np.broadcast_to(released.noise_std, released.values.shape)
        score = float((released.values**2).sum() - (noise**2).sum())
        self._scores[self._index[at.tobytes()]] = max(score, 0.0)
