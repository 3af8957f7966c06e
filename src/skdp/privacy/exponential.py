"""The exponential mechanism on integers, exactly: no logarithm, no floating point.

A candidate is proposed uniformly and kept with chance exp(-rate·(best - score)), until
one is kept: the law is ∝ exp(rate·score). Coins of chance exp(-γ), γ a fraction, are
tossed by Algorithm 1 of Canonne, Kamath, Steinke (2020), from uniform bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from skdp.privacy.coins import Coins
from skdp.privacy.randomness import Randomness


class _Coins(Coins):
    """Coins whose chance is an exponential."""

    def rare(self, gamma: Fraction) -> bool:
        """Toss a coin of chance exp(-gamma)."""
        while gamma > 1:
            if not self._short(Fraction(1)):
                return False
            gamma -= 1
        return self._short(gamma)

    def _short(self, gamma: Fraction) -> bool:
        k = 1
        while self.below(gamma.denominator * k) < gamma.numerator:
            k += 1
        return k % 2 == 1


def choose(scores: Sequence[int], rate: Fraction, noise: Randomness) -> int:
    """Return an index i with probability ∝ exp(rate·scores[i]).

    Notes
    -----
    **Guarantee.** For all tables, if no score differs by more than s between
    neighbours, the logarithm of the ratio of the chances of an index lies in an
    interval of length 2·rate·s, whichever index it is (`profiles.bounded_range_mu`).
    """
    coins, best = _Coins(noise), max(scores)
    while True:
        proposed = coins.below(len(scores))
        if coins.rare(rate * (best - scores[proposed])):
            return proposed
