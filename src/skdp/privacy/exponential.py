"""The exponential mechanism on integers, without logarithms or floating point.

Candidates are proposed uniformly and accepted with probability exp(-rate·(best -
score)), until one is accepted, which gives a law ∝ exp(rate·score). Coins of
probability exp(-γ), γ a fraction, are tossed by Algorithm 1 of Canonne, Kamath, Steinke
(2020), from uniform bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from skdp.privacy.randomness import Randomness

#: Number of random words drawn at a time.
WORDS = 512


class _Coins:
    """Exact coins from the random bits of a run; each bit is used once."""

    def __init__(self, noise: Randomness) -> None:
        self._noise = noise
        self._pool: list[int] = []

    def draw_below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        bits = (bound - 1).bit_length()
        while True:
            value, left = 0, bits
            while left > 0:
                if not self._pool:
                    self._pool = self._noise.words(WORDS).tolist()
                value, left = (value << 64) + self._pool.pop(), left - 64
            value >>= -left
            if value < bound:
                return value

    def toss(self, gamma: Fraction) -> bool:
        """Return True with probability exp(-gamma)."""
        while gamma > 1:
            if not self._toss_below_one(Fraction(1)):
                return False
            gamma -= 1
        return self._toss_below_one(gamma)

    def _toss_below_one(self, gamma: Fraction) -> bool:
        k = 1
        while self.draw_below(gamma.denominator * k) < gamma.numerator:
            k += 1
        return k % 2 == 1


def choose(scores: Sequence[int], rate: Fraction, noise: Randomness) -> int:
    """Return an index i with probability ∝ exp(rate·scores[i]).

    Notes
    -----
    **Guarantee.** For all neighbouring tables on which no score differs by more than s,
    the logarithms of the ratios of all indices' probabilities lie in one interval of
    length 2·rate·s (`profiles.bounded_range_mu`).
    """
    coins, best = _Coins(noise), max(scores)
    while True:
        proposed = coins.draw_below(len(scores))
        if coins.toss(rate * (best - scores[proposed])):
            return proposed
