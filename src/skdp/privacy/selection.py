"""Choose privately: exact coins, one candidate of many, the best of several trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from skdp.privacy import accountant
from skdp.privacy.budget import ALLOWED_DRAWS, BudgetError, Event, PrivacyRecord
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import check, count_in_words

# ---- Toss coins and draw integers with exact probabilities
#
# The random bits come from the same source as all other noise. A probability is a
# fraction of two integers, and a uniform integer below a bound is drawn by rejection,
# so nothing is computed in floating point. The probabilities are exact, so the
# accountant need not allow for sampling errors.


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


# ---- The exponential mechanism on integers, without logarithms or floating point
#
# A candidate is proposed uniformly at random and accepted with probability
# exp(-rate·(best - score)). This is repeated until a candidate is accepted. A candidate
# is therefore chosen with probability ∝ exp(rate·score). Whether to accept is decided
# by a coin that shows heads with probability exp(-γ) for a fraction γ. Algorithm 1 of
# Canonne, Kamath, Steinke (2020) tosses such coins with uniform random bits.


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


# ---- Compute the privacy cost of choosing the best of several private trials
#
# A *trial* draws a candidate at random, fits it and releases a score. A trial is μ-GDP.
# The search makes K trials. It returns the trial with the best score and nothing about
# the other trials [1]_, [2]_. K has a truncated negative binomial law. Toss coins that
# succeed with probability γ, and count the failures before the r-th success. K is this
# count, given that it is not 0. Here r = `SHAPE`. The generating function f of K has
# the derivative
#
# .. math:: f'(1 - u) = m (γ / (γ + (1-γ) u))^{r+1} , m = E[K] = r (1-γ)/(γ (1-γ^r)) .
#
# **Theorem.** Let P and P' be the laws of a trial's output on two neighbouring tables.
# Let δ_Q be a privacy curve of the trials, which means that P(E) ≤ e^ε P'(E) + δ_Q(ε)
# for all ε ≥ 0, all events E and both orders of the tables. Let C ≥ 1 satisfy δ_Q(log
# C) ≤ (C - 1) γ/(1-γ). Then the search is (ε + (r+1) log C, m δ_Q(ε))-differentially
# private for all ε ≥ 0.
#
# *Proof.* Order outcomes y by score, break ties at random, and let u(y) be the
# probability that a trial is better than y. The best of K trials has the law g(u) dP
# with g(u) = E[K (1-u)^{K-1}] = f'(1 - u), which is at most m. On the other table u' ≤
# C u + δ_Q(log C), so γ + (1-γ) u' ≤ γ + (1-γ) C u + (C-1) γ = C (γ + (1-γ) u), and
# hence g(u) ≤ C^{r+1} g(u'). For an event E,
#
# .. math:: ∫_E g(u) dP - C^{r+1} e^ε ∫_E g(u') dP'
#    ≤ ∫_E g(u) (dP - e^ε dP') ≤ m δ_Q(ε) . ∎
#
# The number of trials is not returned. The run time may reveal it, but the run time is
# not protected. The number of trials is drawn exactly (`number_of_trials`), and so is
# the candidate of each trial. This is possible because γ is a float, hence a fraction,
# and `privacy.selection` tosses coins with exact fractional probabilities.
#
# At a δ of 1e-6 and E[K] = 20, the search costs as much as one release with about twice
# the μ of a trial. 20 trials in sequence would cost √20 times the μ of a trial. Near ε
# = 0, however, the curve of the search is no better than the curve of E[K] trials in
# sequence. The smallest Gaussian curve above it has about √E[K] times the μ of a trial.
# A ledger adds up Gaussian curves, so a random search would have no advantage in a
# ledger, and ledgers do not support it.
#
# References ---------- .. [1] N. Papernot, T. Steinke, "Hyperparameter tuning with
# Rényi differential privacy", ICLR 2022. .. [2] A. Koskela, R. Redberg, Y.-X. Wang,
# "Privacy profiles for private selection", ICML 2024. They use curves instead of Rényi
# divergences, as we do; our C is smaller.


#: The parameter r of the law of the number of trials. With r = 1 the law is geometric
#: and often gives a single trial. Larger values cost more privacy. With r = 3 and an
#: average of 3.5 trials per candidate, the probability that a given candidate is never
#: tried is 10 %.
SHAPE = 3
#: The sampler is not exactly normal. This changes the probabilities of one trial by a
#: factor of at most e^SLACK.
SLACK = ALLOWED_DRAWS * accountant.SLACK_PER_DRAW
#: An assumption that is stated in the record of every search.
HELD_OUT = (
    "Each row was held out for scoring with probability 1/5, independently of all "
    "other rows. This took no extra budget."
)
#: The same assumption if rows belong to persons.
HELD_OUT_PERSONS = (
    "Each person was held out for scoring with probability 1/5, independently of all "
    "other persons. Rows of one person stayed together. This took no extra budget."
)


def trial_delta(epsilon: float, mu: float) -> float:
    """Return δ(ε) of a trial, including the error of the sampler.

    Notes
    -----
    **Guarantee.** For all ε ≥ 0, a run is (ε, trial_delta(ε, μ))-DP if it would be
    μ-GDP with exactly normal noise, and if it draws at most `ALLOWED_DRAWS` values (by
    the sampler slack lemma of `skdp.privacy.accountant`).
    """
    ideal = accountant.gdp_delta(max(epsilon - 2 * SLACK, 0.0), mu)
    return min(1.0, math.exp(SLACK) * ideal * (1 + 1e-12))


def tail_ratio(mu: float, stop: float) -> float:
    """Return the smallest log C that the theorem above allows, rounded up."""
    if stop == 1:
        return 0.0
    return _find_smallest(
        lambda c: trial_delta(c, mu) <= math.expm1(c) * stop / (1 - stop)
    )


def mean_trials(stop: float) -> float:
    """Return the expected number of trials E[K] for a γ = `stop` in (0, 1]."""
    if stop == 1:
        return 1.0
    return SHAPE * (1 - stop) / (stop * -math.expm1(SHAPE * math.log(stop)))


def choose_stop(mean: float) -> float:
    """Return the γ at which the expected number of trials E[K] is `mean` ≥ 1."""
    if mean == 1:
        return 1.0
    return 1.0 / _find_smallest(lambda x: x > 1 and mean_trials(1 / x) >= mean)


def find_held_out(unit: Any) -> str:
    """Return the assumption about the rows, or persons, that score models."""
    return HELD_OUT if unit is None else HELD_OUT_PERSONS


def describe_scope(n_trials: int, stop: float | None) -> str:
    """Return the assumption that says which trials a search's record lists."""
    if stop is None:
        return f"All {count_in_words(n_trials, 'trial')} of the search are listed."
    return (
        f"This is the best of a random number of fits ({mean_trials(stop):.3g} "
        "on average), and only its releases are listed. The run time reveals "
        "the number of fits."
    )


def number_of_trials(stop: float, coins: Coins) -> int:
    """Draw the number of trials K.

    K is the number of failures before the r-th success. If there is no failure, K is
    drawn again.

    Notes
    -----
    **Guarantee.** For every γ in (0, 1], K has exactly the law of the theorem.
    """
    if stop == 1:
        return 1
    chance, failures = Fraction(stop), 0
    while not failures:
        for _ in range(SHAPE):
            while not coins.toss(chance):
                failures += 1
    return failures


def search_epsilon(mu: float, delta: float, stop: float) -> float:
    """Return the ε that a search satisfies at a given δ.

    Parameters
    ----------
    mu : float
        The μ of each trial.
    delta : float
        The δ of the search, in (0, 1).
    stop : float
        The γ of the theorem above, in (0, 1].

    Notes
    -----
    **Guarantee.** For all μ, δ and γ, the best of K μ-GDP trials is
    (search_epsilon(μ, δ, γ), δ)-DP (the theorem above).
    """
    if mu == math.inf:
        return math.inf
    most = delta / (mean_trials(stop) * (1 + 1e-12))
    reached = _find_smallest(lambda epsilon: trial_delta(epsilon, mu) <= most)
    return (reached + (SHAPE + 1) * tail_ratio(mu, stop)) * (1 + 1e-12)


def search_delta(epsilon: float, mu: float, stop: float) -> float:
    """Return the δ that a search satisfies at a given ε.

    It is 1 for ε below (r+1) log C.

    Notes
    -----
    **Guarantee.** For all ε ≥ 0, the best of K μ-GDP trials is
    (ε, search_delta(ε, μ, γ))-DP (the theorem above).
    """
    left = epsilon * (1 - 1e-12) - (SHAPE + 1) * tail_ratio(mu, stop)
    most = mean_trials(stop) * (1 + 1e-12)
    return min(1.0, most * trial_delta(left, mu)) if left >= 0 else 1.0


def trial_mu(epsilon: float, delta: float, stop: float) -> float:
    """Return the largest μ of each trial for which a search is (ε, δ)-DP, rounded down.

    Notes
    -----
    **Guarantee.** For all ε, δ and γ, search_epsilon(trial_mu(ε, δ, γ), δ, γ) ≤ ε holds
    in floating point.
    """
    if epsilon == math.inf:
        return math.inf
    check(epsilon > 8 * SLACK, f"epsilon must be above 2⁻²³, got {epsilon}.")
    low, high = 0.0, accountant.gdp_mu(epsilon, delta)
    for _ in range(50):
        middle = (low + high) / 2
        fits = search_epsilon(middle, delta, stop) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def _find_smallest(holds: Callable[[float], bool]) -> float:
    """Return the smallest float ≥ 0 at which a condition holds, rounded up slightly.

    The condition must hold at all larger numbers as well.
    """
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@dataclass(kw_only=True, eq=False, repr=False)
class SearchRecord(PrivacyRecord):
    """The budget of a search among models.

    Parameters
    ----------
    n_trials : int
        The number of models that are fitted one after the other. The record lists the
        releases of all of them.
    stop : float, optional
        The γ of the theorem above. If it is given, the number of trials is random.
        Then `epsilon` and `delta` belong to the whole search, but `budget` and the
        listed releases belong to one trial.
    """

    n_trials: int = 1
    stop: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stop is not None:
            check(0 < self.stop <= 1, f"stop must be in (0, 1], got {self.stop}.")
            self.budget = trial_mu(self.epsilon, self.delta, self.stop) ** 2

    @property
    def spent_epsilon(self) -> float:
        """The ε that the whole search satisfies at the record's δ."""
        if self.stop is None:
            return super().spent_epsilon
        return search_epsilon(math.sqrt(self.budget), self.delta, self.stop)

    def begin(self, mu_squared: float) -> Event:
        """Charge the full cost of a trial before the trial reads any record.

        The charge includes all noise draws that the search has left. Later, `end`
        replaces it with the actual cost of the trial.
        """
        z = 0.0 if mu_squared == math.inf else 1.0 / math.sqrt(mu_squared)
        left = ALLOWED_DRAWS - int(self._total("n_draws"))
        event = Event(Kind.TRIAL, "trial that did not end", 1.0, z * (1 + 1e-12), left)
        self.charge(event)
        return event

    def end(self, event: Event, records: Iterable[PrivacyRecord]) -> None:
        """Replace the provisional charge of a trial with charges for its releases.

        Notes
        -----
        **Guarantee.** For all trials, the recorded releases cost no more than the
        charge that `begin` made, and draw at most as many noise values. Otherwise
        BudgetError is raised and the charge remains.
        """
        records = list(records)
        spent = math.fsum(record.spent for record in records)
        if spent > event.mu_squared * (1 + 1e-9):
            raise BudgetError(
                "A trial spent more than its share of the search's budget."
            )
        if sum(record._total("n_draws") for record in records) > event.n_draws:
            raise BudgetError(
                f"A search may draw at most {ALLOWED_DRAWS} noise values, and this "
                "trial exceeded that limit."
            )
        for record in records:
            self.seeded |= record.seeded
            self.transcript.extend(record.transcript)
            self.visits.extend(record.visits)
            for release, times in record.events.items():
                self.events[release] = self.events.get(release, 0) + times
        # The charge is deleted last, so an interrupt leaves both the charge and the
        # releases in the record.
        del self.events[event]
