"""Audit of a single fit with many canaries (Steinke, Nasr and Jagielski 2023).

Each of m canaries is in the table or not, by the fall of a coin. After one fit an
auditor guesses for some of them, the surest. If the fit is (ε, δ)-private, the number
of correct guesses is hardly ever above that of coins that fall right with probability
e^ε/(1 + e^ε), however the canaries interact [1]_. The bound is lower than that of many
fits, but one fit can be of any size.

References
----------
.. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run",
   NeurIPS 2023 (arXiv 2305.08846), Theorem 5.2 and Corollary 5.4.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import binom

from skdp.audit import bounds
from skdp.audit.fits import described, low_is_steeper
from skdp.audit.replay import replay
from skdp.audit.tables import Table, targets
from skdp.engines.choice import choose_engine
from skdp.estimators.base import PrivateLinearModel
from skdp.privacy import accountant
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, FloatArray, Schema, check


def p_value(
    n_canaries: int, n_guesses: int, n_correct: int, epsilon: float, delta: float
) -> float:
    r"""Largest chance of that many correct guesses about an (ε, δ)-private fit.

    With W binomial of r guesses and probability e^ε/(1 + e^ε),

    .. math:: P[W ≥ v] + 2mδ · \max_i P[v > W ≥ v - i] / i .
    """
    check(
        0 <= n_correct <= n_guesses <= n_canaries,
        "There cannot be more correct guesses than guesses, or guesses than canaries.",
    )
    q = 1.0 / (1.0 + math.exp(-epsilon))
    # P[v > W ≥ v - i] for i = 1, …, v
    below = np.cumsum(binom.pmf(np.arange(n_correct - 1, -1, -1), n_guesses, q))
    steepest = (below / np.arange(1, n_correct + 1)).max(initial=0.0)
    tail = float(binom.sf(n_correct - 1, n_guesses, q))
    return min(1.0, tail + 2.0 * n_canaries * delta * float(steepest))


def epsilon_lower(
    n_canaries: int, n_guesses: int, n_correct: int, delta: float, miss: float
) -> float:
    """Largest ε that so many correct guesses refute, wrongly with chance `miss`."""

    def refuted(epsilon: float) -> bool:
        return p_value(n_canaries, n_guesses, n_correct, epsilon, delta) < miss

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def best_guesses(n_canaries: int, mu: float, delta: float, miss: float) -> int:
    """How many canaries to guess about, decided from the claim before the fit.

    A score is N(±μ²/2, μ²); guesses are made where it is far from zero.
    """
    best = (0.0, n_canaries)
    for far in np.linspace(0.0, 4.0, 21):
        right, wrong = float(ndtr(mu / 2 - far)), float(ndtr(-mu / 2 - far))
        n_guesses = 2 * math.floor(n_canaries * (right + wrong) / 2)
        if n_guesses:
            correct = math.floor(n_guesses * right / (right + wrong))
            found = epsilon_lower(n_canaries, n_guesses, correct, delta, miss)
            best = max(best, (found, n_guesses))
    return best[1]


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """The outcome of one fit with many canaries.

    Attributes
    ----------
    name : str
        The estimator.
    epsilon, delta, mu : float
        The claim.
    n_canaries, n_guesses, n_correct : int
        Of which so many were guessed about, so many of them right.
    epsilon_lower : float
        What that proves.
    reached : float
        Median over the canaries of the μ by which each shows in the stated noise.
    confidence : float
        The bound is too high with a chance of at most one minus this.
    seconds : float
        Time taken.
    """

    name: str
    epsilon: float
    delta: float
    mu: float
    n_canaries: int
    n_guesses: int
    n_correct: int
    epsilon_lower: float
    reached: float
    confidence: float
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing was found against the claim."""
        return self.epsilon_lower <= self.epsilon

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self) | {"passed": self.passed}


def one_run(
    estimator: PrivateLinearModel,
    *,
    n_canaries: int = 1000,
    confidence: float = bounds.CONFIDENCE,
) -> OneRun:
    """Audit a single fit of an estimator, without an intercept, under zero-out.

    A canary is a record with a category of its own: no other touches its coordinate,
    so that noise alone hides whether it is there.

    Parameters
    ----------
    estimator : estimator of skdp
        Not changed; its schema, intercept and relation are replaced.
    n_canaries : int
        Records, each in the table with probability one half.
    confidence : float
        Of the bound.

    Returns
    -------
    OneRun
        Claim, guesses and lower bound.
    """
    start = perf_counter()
    model = described(estimator)
    assert isinstance(model.schema, Schema)
    names = [f"c{i}" for i in range(n_canaries)]
    schema = Schema({"canary": Categorical(names)}, target=model.schema.target)
    model.set_params(
        schema=schema, fit_intercept=False, neighbours="zero-out", sampling="full"
    )
    coins = Randomness().generator().integers(0, 2, n_canaries).astype(bool)
    own = targets(schema.target_column)[0 if low_is_steeper(model, schema) else 1]
    table = _table(names, own, coins)
    model.fit(table.columns, table.target, sample_weight=table.weight)
    record, mu = model.privacy_, math.sqrt(model.privacy_.spent)
    everyone = _table(names, own, np.ones(n_canaries, dtype=bool))
    scores, reached = _scores(model, everyone)
    miss = 1.0 - confidence
    n_guesses = best_guesses(n_canaries, mu, record.delta, miss)
    order = np.argsort(scores)
    out, into = order[: n_guesses // 2], order[n_canaries - n_guesses // 2 :]
    n_correct = int((~coins[out]).sum() + coins[into].sum())
    return OneRun(
        name=type(estimator).__name__,
        epsilon=accountant.spent_epsilon(mu, record.delta, 0),
        delta=record.delta,
        mu=mu,
        n_canaries=n_canaries,
        n_guesses=n_guesses,
        n_correct=n_correct,
        epsilon_lower=epsilon_lower(
            n_canaries, n_guesses, n_correct, record.delta, miss
        ),
        reached=float(np.median(reached)),
        confidence=confidence,
        seconds=perf_counter() - start,
    )


def _table(names: list[str], target: Any, there: npt.NDArray[np.bool_]) -> Table:
    """One row a canary; that of an absent one is empty and counts for nothing."""
    cells = [n if here else None for n, here in zip(names, there.tolist(), strict=True)]
    return Table({"canary": cells}, [target] * len(names), there.astype(np.float64))


def _scores(
    model: PrivateLinearModel, everyone: Table
) -> tuple[FloatArray, FloatArray]:
    """Log-likelihood ratio that each canary was there, and the μ by which it shows.

    What a table of all canaries adds to a coordinate is what its canary would add.
    """
    assert isinstance(model.schema, Schema)
    weight = {"intercept": False, "max_weight": model.max_weight}
    records = everyone.encoded(model.schema, **weight)  # type: ignore[arg-type]
    transcript = model.privacy_.transcript
    engine = choose_engine(model.engine, model.n_threads)
    _, (asked,) = replay(model.plan_, [records], transcript, engine=engine)
    score = np.zeros(len(everyone.target))
    square = np.zeros_like(score)
    for released, total in zip(transcript, asked, strict=True):
        if len(total.value) != len(score):  # a histogram of the target
            continue
        part = total.value.astype(np.float64) * total.unit / released.noise_std
        seen = released.values / released.noise_std
        score += (part * (seen - part / 2)).reshape(len(score), -1).sum(axis=1)
        square += (part * part).reshape(len(score), -1).sum(axis=1)
    return score, np.sqrt(square)
