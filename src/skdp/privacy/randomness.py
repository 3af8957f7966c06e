"""Draw exact normal deviates from the random bytes of the operating system.

Karney's algorithm N (Sampling exactly from the normal distribution, ACM TOMS 2016)
compares uniform deviates but never computes with them, so it does not rely on a
logarithm or quantile function. A deviate is ±(whole + fraction). The whole part and the
first 64 bits of the fraction are drawn here. Further bits are drawn when rounding needs
them, so rounding applies to an exact real number.

Slack. Uniform deviates are compared by their first 64 bits. This changes the
probability of a trial by a small factor. For a trial of probability exp(-½), the factor
is 1 ± 2⁻⁶³. For a trial of probability exp(-x(2k+x)/(2k+2)), which is at least 1/e, the
factor is 1 ± (8 + 16(k+1))·2⁻⁶⁴·e, where the term 16(k+1) comes from a number drawn
modulo 2k+2. An outcome with whole part k takes k+1+k(k-1) trials of the first kind and
k+1 of the second. For k ≤ 20 the product of all factors is within exp(±2⁻⁵¹), and the
rejected attempts can add as much again. Together this gives
`accountant.SLACK_PER_DRAW` = 2⁻⁵⁰. Larger k have a total probability below 2⁻³⁰⁰.
"""

import hashlib
import itertools
import os
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from skdp.schema import check

Words = npt.NDArray[np.uint64]
POOL = 4096


class Randomness:
    """The random bits of one run.

    Each thread should have an object of its own. Threads that share an object may get
    an error, but never the same bits.

    Parameters
    ----------
    seed : int, optional
        A seed, for tests only. Anyone who knows the seed can subtract the noise, so a
        seeded run claims no privacy. By default the bits come from the operating
        system.
    """

    def __init__(self, seed: int | None = None) -> None:
        check(
            seed is None or isinstance(seed, (int, np.integer)),
            f"random_state must be None or an integer, got {type(seed).__name__}.",
        )
        self.seeded = seed is not None
        self._keys = (f"skdp {seed} {call}".encode() for call in itertools.count())
        self._pool: list[int] = []
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        raise TypeError("Randomness cannot be copied or stored.")

    def words(self, size: int) -> Words:
        """Return `size` uniform 64-bit words that were never returned before."""
        data = os.urandom(0 if self.seeded else 8 * size)
        if self.seeded:
            data = hashlib.shake_256(next(self._keys)).digest(8 * size)
        return np.frombuffer(data, dtype="<u8").astype(np.uint64)

    def generator(self) -> np.random.Generator:
        """Return a numpy generator for public choices, such as the block to update."""
        return np.random.default_rng(self.words(4))

    def normals(self, size: int) -> list[int]:
        """Return the first 64 binary digits of `size` standard normals ξ.

        An entry v means that ξ lies in [v, v+1]·2⁻⁶⁴. The further digits of ξ are
        uniform, and are not drawn yet.

        Notes
        -----
        **Guarantee.** The deviates are independent, each is used once, and each is
        normal up to a factor exp(±2⁻⁵⁰) on the probability of every interval.
        """
        if self._process != os.getpid():  # a forked child must not reuse the pool
            self._pool, self._process = [], os.getpid()
        while len(self._pool) < size:
            self._pool += self._attempts(max(POOL, size))
        # pop() is atomic, so two threads never get the same deviate.
        return [self._pool.pop() for _ in range(size)]

    def _attempts(self, size: int) -> list[int]:
        """Run `size` attempts of algorithm N, and return the accepted deviates."""
        half, fraction = np.full(size, 1 << 63, np.uint64), self.words(size)  # N3
        whole, good, at = np.zeros(size, np.int64), np.ones(size, bool), np.arange(size)
        while len(at):  # N1: whole = k with probability ∝ exp(-k/2)
            at = at[self._trial(half[at])]
            whole[at] += 1
        # Step N2 accepts with probability exp(-k(k-1)/2), where k is the whole part.
        # Step N4 accepts with probability exp(-x(2k+x)/2), where x is the fraction.
        for start, times in ((half, whole * (whole - 1)), (fraction, whole + 1)):
            left = np.where(good, times, 0)
            while len(at := np.flatnonzero(left)):
                good[at] = self._trial(
                    start[at], whole[at] if start is fraction else None
                )
                left[at] = np.where(good[at], left[at] - 1, 0)
        pairs = zip(whole[good].tolist(), fraction[good].tolist(), strict=True)
        values = [(k << 64) + v for k, v in pairs]
        signs = (self.words(len(values)) >> np.uint64(63)).tolist()  # N5
        return [~v if sign else v for v, sign in zip(values, signs, strict=True)]

    def _trial(self, start: Words, k: Any = None) -> npt.NDArray[np.bool_]:
        """Run one trial per entry of `start` and return which trials succeed.

        A trial draws a decreasing run of uniforms, start > u₁ > u₂ > …, and succeeds if
        the length of the run is even. For a start x this has probability exp(-x). If k
        is given, the run also ends at each step with probability 1 - (2k+x)/(2k+2),
        which changes the probability of success to exp(-x(2k+x)/(2k+2)).
        """
        even, active = np.ones(len(start), bool), np.arange(len(start))
        previous = start
        while len(active):
            word = self.words(len(active))
            falls = word < previous
            if k is not None:
                edge = 2 * k[active].astype(np.uint64)
                side = self.words(len(active)) % (edge + np.uint64(2))
                below = self.words(len(active)) < start[active]
                falls &= (side < edge) | ((side == edge) & below)
            active, previous = active[falls], word[falls]
            even[active] ^= True
        return even
