"""The exponential mechanism on integers, without logarithms or floating point.

Candidates are proposed uniformly and accepted with probability exp(-rate·(best -
score)), until one is accepted, which gives a law ∝ exp(rate·score). Coins of
probability exp(-γ), γ a fraction, are tossed by Algorithm 1 of Canonne, Kamath, Steinke
(2020), from uniform bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from skdp.privacy.coins import Coins
from skdp.privacy.randomness import Randomness


class _Coins(Coins):
    """Coins whose chance is an exponential."""

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
