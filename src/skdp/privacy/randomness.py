"""Exact normal deviates from the bytes of the operating system.

Karney's algorithm N (Sampling exactly from the normal distribution, ACM TOMS 2016)
compares uniform deviates and never computes with them, so no logarithm or quantile
function is trusted. A deviate is ±(whole + fraction): the whole part and 64 bits of the
fraction are drawn here, further bits on demand, so that what is rounded later is the
real number itself.

Slack. Two 64-bit words that agree leave a comparison undecided; the attempt is then
dropped. Given an outcome with whole part k ≤ 40 an accepted attempt makes at most
2.7 (k+1+k(k-1)) + 15 (k+1) < 2¹³ comparisons on average, each undecided with
probability 2⁻⁶⁴, so every outcome's probability is within a factor exp(±2⁻⁵⁰) of the
ideal (`accountant.SLACK_PER_DRAW`). Larger k have probability below 2⁻¹⁰⁰⁰.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
POOL = 4096


class Randomness:
    """The bits of one run.

    Parameters
    ----------
    seed : int, optional
        None reads the operating system. A seed is for tests: whoever knows it can
        subtract the noise, so a seeded run claims no privacy.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seeded = seed is not None
        self._key = None if seed is None else f"skdp {seed} ".encode()
        self._calls = 0
        self._pool: list[int] = []
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        raise TypeError("Randomness must not be copied or stored: make a new one.")

    def words(self, size: int) -> Words:
        """Return `size` uniform 64-bit words, never handed out before."""
        self._calls += 1
        if self._key is None:
            data = os.urandom(8 * size)
        else:
            key = self._key + str(self._calls).encode()
            data = hashlib.shake_256(key).digest(8 * size)
        return np.frombuffer(data, dtype="<u8").astype(np.uint64)

    def generator(self) -> np.random.Generator:
        """Return a generator for what is public: which sets a sampling draws."""
        return np.random.default_rng(self.words(4))

    def normals(self, size: int) -> list[int]:
        """Return `size` standard normals ξ, to 64 binary digits.

        An entry v stands for a ξ in [v, v+1]·2⁻⁶⁴ whose further digits are not drawn
        yet: they are uniform.

        Notes
        -----
        **Guarantee.** The deviates are independent, each is used once, and each is
        normal but for a factor exp(±2⁻⁵⁰) on the probability of every interval.
        """
        if self._process != os.getpid():  # a forked child must not share its parent's
            self._pool, self._process = [], os.getpid()
        while len(self._pool) < size:
            self._pool += self._attempts(max(POOL, size))
        drawn, self._pool = self._pool[:size], self._pool[size:]
        return drawn

    def _attempts(self, size: int) -> list[int]:
        """Algorithm N on `size` attempts at once; those accepted, about half."""
        whole, good = np.zeros(size, np.int64), np.ones(size, bool)
        at = np.arange(size)
        while len(at):  # N1: whole = k with probability ∝ exp(-k/2)
            at = at[self._trial(at, good)]
            whole[at] += 1
        fraction = self.words(size)  # N3
        # N2 and N4: accept with probability exp(-k(k-1)/2) and exp(-x(2k+x)/2).
        for times, x in ((whole * (whole - 1), None), (whole + 1, fraction)):
            left = np.where(good, times, 0)
            while len(at := np.flatnonzero(left)):
                good[at] &= self._trial(at, good, x, whole)
                left[at] = np.where(good[at], left[at] - 1, 0)
        pairs = zip(whole[good].tolist(), fraction[good].tolist(), strict=True)
        values = [(k << 64) + v for k, v in pairs]
        signs = (self.words(len(values)) >> np.uint64(63)).tolist()  # N5
        return [~v if sign else v for v, sign in zip(values, signs, strict=True)]

    def _trial(self, at: Any, good: Any, x: Any = None, k: Any = None) -> Any:
        """Trials by runs start > u₁ > u₂ > …: true where the longest is even.

        Without x runs start at ½: probability exp(-½). With x they start there and each
        step is kept with probability (2k+x)/(2k+2): exp(-x(2k+x)/(2k+2)).
        """
        half = np.full(len(at), 1 << 63, np.uint64)
        start = half if x is None else x[at]
        even, previous, active = (
            np.ones(len(at), bool),
            start.copy(),
            np.arange(len(at)),
        )
        while len(active):
            word = self.words(len(active))
            good[at[active[word == previous[active]]]] = False
            falls = word < previous[active]
            if x is not None:
                edge, other = (
                    2 * k[at[active]].astype(np.uint64),
                    self.words(len(active)),
                )
                side = self._below(edge + np.uint64(2))
                good[at[active[(side == edge) & (other == start[active])]]] = False
                falls &= (side < edge) | ((side == edge) & (other < start[active]))
            previous[active] = word
            active = active[falls]
            even[active] ^= True
        return even

    def _below(self, sides: Words) -> Words:
        """Return uniform integers below `sides`, by rejection."""
        most, throw = np.uint64(2**64 - 1), self.words(len(sides))
        while (again := throw >= most - most % sides).any():
            throw[again] = self.words(int(again.sum()))
        return throw % sides
