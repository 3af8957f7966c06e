r"""What choosing the best of several private trials costs.

A *trial* draws a candidate at random, fits it and releases a score; it is μ-GDP. The
search makes K trials, K geometric (after each, it stops with probability γ), and hands
out the trial with the best score and nothing of the others [1]_, [2]_.

**Theorem.** Let δ_Q be a curve of trials: P(E) ≤ e^ε P'(E) + δ_Q(ε) for all ε ≥ 0, all
events E and both orders of the two tables. Let δ_Q(log C) ≤ (C - 1) γ/(1-γ), C ≥ 1.
Then the search is (ε + 2 log C, δ_Q(ε)/γ)-differentially private for all ε ≥ 0.

*Proof.* Order outcomes y by score, ties at random, and let u(y) be the probability that
a trial is better than y. The best of K trials has the law P(dy) g(u), g(u) = E[K
(1-u)^{K-1}] = γ/(γ + (1-γ) u)², which is at most 1/γ. On the other table u' ≤ C u +
δ_Q(log C), so that γ + (1-γ) u' ≤ γ + (1-γ) C u + (C-1) γ = C (γ + (1-γ) u), hence
g(u) ≤ C² g(u'). For an event E, with e^{ε + 2 log C} = C² e^ε,

.. math:: ∫_E g(u) dP - C² e^ε ∫_E g(u') dP' ≤ ∫_E g(u) (dP - e^ε dP') ≤ δ_Q(ε)/γ . ∎

The number of trials is not handed out, but time shows it; that is not protected.

For a GDP trial log C is about μ for 20 trials, and at a δ of 1e-6 the search costs as
much as one release with 1.3 to 2 times the μ, whereas m trials one after the other cost
√m times. Near ε = 0, however, the curve is no better than theirs: the smallest Gaussian
curve above it has about μ √E[K]. A ledger adds up Gaussian curves, so that there a
random search gains nothing, and it is refused.

References
----------
.. [1] N. Papernot, T. Steinke, "Hyperparameter tuning with Rényi differential privacy",
   ICLR 2022.
.. [2] A. Koskela, R. Redberg, Y.-X. Wang, "Privacy profiles for private selection",
   ICML 2024: curves instead of Rényi divergences. C is sharper here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from skdp.privacy import accountant
from skdp.privacy.record import ALLOWED_DRAWS, PrivacyRecord
from skdp.schema import check

#: Logarithm of the factor that the sampler's slack is, for one trial.
SLACK = ALLOWED_DRAWS * accountant.SLACK_PER_DRAW


def trial_delta(epsilon: float, mu: float) -> float:
    """δ at ε of a trial that is μ-GDP but for the sampler's slack.

    Notes
    -----
    **Guarantee.** For all ε ≥ 0, a run whose ideal version is μ-GDP and which draws at
    most `ALLOWED_DRAWS` values is (ε, trial_delta(ε, μ))-DP (the slack lemma of
    `skdp.privacy.accountant`).
    """
    ideal = accountant.gdp_delta(max(epsilon - 2 * SLACK, 0.0), mu)
    return min(1.0, math.exp(SLACK) * ideal * (1 + 1e-12))


def tail_ratio(mu: float, stop: float) -> float:
    """Smallest log C of the theorem, rounded up."""
    if stop == 1:
        return 0.0
    return _first(lambda c: trial_delta(c, mu) <= math.expm1(c) * stop / (1 - stop))


def search_epsilon(mu: float, delta: float, stop: float) -> float:
    """ε of a search at δ.

    Parameters
    ----------
    mu : float
        What each trial costs.
    delta : float
        In (0, 1).
    stop : float
        γ, in (0, 1]: the chance to stop after a trial.

    Notes
    -----
    **Guarantee.** For all μ, δ and γ, the best of a geometric number of μ-GDP trials is
    (search_epsilon(μ, δ, γ), δ)-DP (the theorem of this module).
    """
    if mu == math.inf:
        return math.inf
    reached = _first(lambda epsilon: trial_delta(epsilon, mu) <= stop * delta)
    return (reached + 2 * tail_ratio(mu, stop)) * (1 + 1e-12)


def trial_mu(epsilon: float, delta: float, stop: float) -> float:
    """Largest μ that each trial of an (ε, δ) search may cost, rounded down.

    Notes
    -----
    **Guarantee.** For all ε, δ and γ, search_epsilon(trial_mu(ε, δ, γ), δ, γ) ≤ ε holds
    in floating point.
    """
    if epsilon == math.inf:
        return math.inf
    check(epsilon > 8 * SLACK, f"epsilon must be above 2⁻²³. Got {epsilon}: take 1.")
    low, high = 0.0, accountant.gdp_mu(epsilon, delta)
    for _ in range(50):
        middle = (low + high) / 2
        fits = search_epsilon(middle, delta, stop) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def _first(holds: Callable[[float], bool]) -> float:
    """A float at which a condition holds that stays true, close to the first one."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@dataclass(kw_only=True, eq=False)
class SearchRecord(PrivacyRecord):
    """The budget of a search among models.

    Parameters
    ----------
    n_trials : int
        Number of models fitted one after the other, all of whose releases are listed.
    stop : float, optional
        The chance γ to stop after a trial, for a random number of trials. `epsilon`
        and `delta` are then those of the theorem of this module, the releases listed
        are those of one trial, and the budget is that of one trial.
    """

    n_trials: int = 1
    stop: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stop is not None:
            check(0 < self.stop <= 1, f"stop must be in (0, 1]. Got {self.stop}.")
            self.budget = trial_mu(self.epsilon, self.delta, self.stop) ** 2

    @property
    def spent_epsilon(self) -> float:
        """The ε that holds at the record's δ."""
        if self.stop is None:
            return super().spent_epsilon
        return search_epsilon(math.sqrt(self.budget), self.delta, self.stop)
