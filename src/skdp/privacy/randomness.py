"""Exact normal deviates from the bytes of the operating system.

Karney's algorithm N (Sampling exactly from the normal distribution, ACM TOMS 2016)
compares uniform deviates and never computes with them, so it trusts no logarithm or
quantile function. A deviate is ±(whole + fraction). The whole part and 64 bits of the
fraction are drawn here and further bits on demand, so the number that is rounded later
is the real number itself.

Slack. Uniform deviates are compared by their first 64 bits. This changes a trial of
probability exp(-½) by a factor 1 ± 2⁻⁶³, and one of probability exp(-x(2k+x)/(2k+2)),
which is at least 1/e, by 1 ± (8 + 16(k+1))·2⁻⁶⁴·e, the second term for a side drawn
modulo 2k+2. An outcome with whole part k takes k+1+k(k-1) trials of the first kind and
k+1 of the second; for k ≤ 20 this makes a factor within exp(±2⁻⁵¹), and as much again
for the attempts that were rejected: `accountant.SLACK_PER_DRAW` = 2⁻⁵⁰. Larger k have
probability below 2⁻³⁰⁰.
"""

import hashlib
import itertools
import os
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
POOL = 4096


class Randomness:
    """The random bits of one run.

    Meant for one thread. Two threads may get an error, but never the same bits.

    Parameters
    ----------
    seed : int, optional
        None reads from the operating system. A seed is for tests only: anyone who knows
        it can subtract the noise, so a seeded run claims no privacy.
    """

    def __init__(self, seed: int | None = None) -> None:
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
        """Return a generator for public choices, such as the sets of a sampling."""
        return np.random.default_rng(self.words(4))

    def normals(self, size: int) -> list[int]:
        """Return `size` standard normals ξ, to 64 binary digits.

        An entry v stands for a ξ in [v, v+1]·2⁻⁶⁴ whose further digits, which are
        uniform, are not drawn yet.

        Notes
        -----
        **Guarantee.** The deviates are independent, each is used once, and each is
        normal but for a factor exp(±2⁻⁵⁰) on the probability of every interval.
        """
        if self._process != os.getpid():  # a forked child must not reuse its parent's
            self._pool, self._process = [], os.getpid()
        while len(self._pool) < size:
            self._pool += self._attempts(max(POOL, size))
        return [self._pool.pop() for _ in range(size)]  # atomic: threads never share

    def _attempts(self, size: int) -> list[int]:
        """Run algorithm N on `size` attempts; return those accepted, about half."""
        half, fraction = np.full(size, 1 << 63, np.uint64), self.words(size)  # N3
        whole, good, at = np.zeros(size, np.int64), np.ones(size, bool), np.arange(size)
        while len(at):  # N1: whole = k with probability ∝ exp(-k/2)
            at = at[self._trial(half[at])]
            whole[at] += 1
        # N2 and N4: accept with probability exp(-k(k-1)/2) and exp(-x(2k+x)/2).
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
        """Run trials on falling runs start > u₁ > u₂ > …; return where they are even.

        The probability is exp(-x) for a start x. With k, a step is kept only with
        probability (2k+x)/(2k+2), which makes it exp(-x(2k+x)/(2k+2)).
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
