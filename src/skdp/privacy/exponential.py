"""The exponential mechanism on integers, without logarithms or floating point.

A candidate is proposed uniformly at random and accepted with probability
exp(-rate·(best - score)). This is repeated until a candidate is accepted. A candidate
is therefore chosen with probability ∝ exp(rate·score). Whether to accept is decided by
a coin that shows heads with probability exp(-γ) for a fraction γ. Algorithm 1 of
Canonne, Kamath, Steinke (2020) tosses such coins with uniform random bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from skdp.privacy.coins import Coins
from skdp.privacy.randomness import Randomness


class _ExponentialCoins(Coins):
    """Coins that show heads with probability exp(-γ)."""

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
    """Draw an index i with probability ∝ exp(rate·scores[i]).

    Notes
    -----
    **Guarantee.** For all pairs of neighbouring tables between which each score differs
    by at most s, the privacy losses of all indices lie in one interval of length
    2·rate·s, as `profiles.bounded_range_mu` requires. The privacy loss of an index is
    the logarithm of the ratio of its probabilities on the two tables.
    """
    coins, best = _ExponentialCoins(noise), max(scores)
    while True:
        proposed = coins.draw_below(len(scores))
        if coins.toss(rate * (best - scores[proposed])):
            return proposed
