"""Exact coins and dice, from the same bits as all other noise.

Nothing is computed in floating point: a chance is a fraction of two integers, and a
uniform integer below a bound is drawn from whole bits until it is below it. There is no
slack to account for.
"""

from __future__ import annotations

from fractions import Fraction

from skdp.privacy.randomness import Randomness

#: Words that are fetched at a time.
WORDS = 512


class Coins:
    """Exact coins from the bits of a run; they are used once and then forgotten."""

    def __init__(self, noise: Randomness) -> None:
        self._noise = noise
        self._pool: list[int] = []

    def draw_below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound).

        Notes
        -----
        **Guarantee.** For every bound ≥ 1, each integer has chance 1/bound exactly, and
        draws are independent.
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

    def heads(self, chance: Fraction) -> bool:
        """Toss a coin that shows heads with exactly this chance."""
        return self.draw_below(chance.denominator) < chance.numerator
