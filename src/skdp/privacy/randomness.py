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
Mask = npt.NDArray[np.bool_]
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
        rising = np.arange(size)  # N1: whole = k with probability ∝ exp(-k/2)
        while len(rising):
            rising = rising[self._half_exponential(rising, good)]
            whole[rising] += 1
        left = np.where(good, whole * (whole - 1), 0)  # N2: accept exp(-k(k-1)/2)
        while (at := np.flatnonzero(left)).size:
            good[at] &= self._half_exponential(at, good)
            left[at] = np.where(good[at], left[at] - 1, 0)
        fraction = self.words(size)  # N3
        left = np.where(good, whole + 1, 0)  # N4: accept exp(-x(2k+x)/2)
        while (at := np.flatnonzero(left)).size:
            good[at] &= self._step(at, good, fraction[at], whole[at])
            left[at] = np.where(good[at], left[at] - 1, 0)
        pairs = zip(whole[good].tolist(), fraction[good].tolist(), strict=True)
        values = [(k << 64) + x for k, x in pairs]  # N5: and a sign
        signs = (self.words(len(values)) >> np.uint64(63)).tolist()
        return [~v if sign else v for v, sign in zip(values, signs, strict=True)]

    def _half_exponential(self, at: Any, good: Mask) -> Mask:
        """Trials of probability exp(-1/2): runs ½ > u₁ > u₂ > … of even length."""
        start = np.full(len(at), 1 << 63, np.uint64)
        return self._even_run(
            at, good, start, lambda active: np.ones(len(active), bool)
        )

    def _step(self, at: Any, good: Mask, x: Words, k: Any) -> Mask:
        """Trials of probability exp(-x(2k+x)/(2k+2)).

        Runs x > z₁ > z₂ > … of even length, each step kept with (2k+x)/(2k+2).
        """
        sides = (2 * k + 2).astype(np.uint64)

        def keep(active: Any) -> Mask:
            side, edge = self._below(sides[active]), sides[active] - np.uint64(2)
            word = self.words(len(active))
            good[at[active[(side == edge) & (word == x[active])]]] = False
            kept: Mask = (side < edge) | ((side == edge) & (word < x[active]))
            return kept

        return self._even_run(at, good, x, keep)

    def _below(self, sides: Words) -> Words:
        """Return uniform integers below `sides`, by rejection."""
        most = np.uint64(2**64 - 1)
        throw = self.words(len(sides))
        while (again := throw >= most - most % sides).any():
            throw[again] = self.words(int(again.sum()))
        return throw % sides

    def _even_run(self, at: Any, good: Mask, start: Words, keep: Any) -> Mask:
        """Whether the longest run start > u₁ > u₂ > … with every keep is even."""
        even, previous = np.ones(len(at), bool), start.copy()
        active = np.arange(len(at))
        while len(active):
            word = self.words(len(active))
            good[at[active[word == previous[active]]]] = False
            goes_on = (word < previous[active]) & keep(active)
            previous[active] = word
            active = active[goes_on]
            even[active] ^= True
        return even
