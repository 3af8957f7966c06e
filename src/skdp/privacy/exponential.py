"""The exponential mechanism on integers, without logarithms or floating point.

A candidate is proposed uniformly at random and accepted with probability
exp(-rate·(best - score)). This is repeated until a candidate is accepted. A candidate
is therefore chosen with probability ∝ exp(rate·score). The coins show heads with
probability exp(-γ) for a fraction γ. They are tossed by Algorithm 1 of Canonne, Kamath,
Steinke (2020), from uniform random bits.
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
    **Guarantee.** For all pairs of neighbouring tables between which no score differs
    by more than s, consider the logarithm of the ratio of an index's probabilities on
    the two tables. These logarithms, over all indices, lie in one interval of length
    2·rate·s, as `profiles.bounded_range_mu` requires.
    """
    coins, best = _ExponentialCoins(noise), max(scores)
    while True:
        proposed = coins.draw_below(len(scores))
        if coins.toss(rate * (best - scores[proposed])):
            return proposed
