"""Toss coins and draw integers with exact probabilities.

The random bits come from the same source as all other noise. A probability is a
fraction of two integers, and a uniform integer below a bound is drawn by rejection, so
nothing is computed in floating point. The probabilities are exact, so the accountant
need not allow for sampling errors.
"""

from __future__ import annotations

from fractions import Fraction

from skdp.privacy.randomness import Randomness

#: Number of random 64-bit words to fetch at a time.
WORDS = 512


class Coins:
    """Coins tossed with the random bits of a run. Each bit is used only once."""

    def __init__(self, noise: Randomness) -> None:
        self._noise = noise
        self._pool: list[int] = []

    def draw_below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound).

        Notes
        -----
        **Guarantee.** For every bound ≥ 1, each integer has probability exactly
        1/bound, and draws are independent.
        """
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

    def toss(self, chance: Fraction) -> bool:
        """Return True with a probability of exactly `chance`."""
        return self.draw_below(chance.denominator) < chance.numerator
