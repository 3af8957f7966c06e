"""Audit of a single fit with many canaries (Steinke, Nasr and Jagielski 2023).

A coin decides for each of m canaries whether it is in the table. After one fit an
auditor guesses for the canaries it is surest about. If the fit is (ε, δ)-private, the
number of correct guesses rarely exceeds that of coins with probability e^ε/(1 + e^ε),
even if canaries interact [1]_. The bound is lower than that of many fits, but one fit
can be of any size.

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
from skdp.audit.fits import complete_schema, is_low_steeper
from skdp.audit.neighbouring_tables import SyntheticTable, extreme_targets
from skdp.audit.replay import replay
from skdp.engines.choice import choose_engine
from skdp.estimators.base import PrivateLinearModel
from skdp.privacy import accountant
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, FloatArray, Schema, check


def p_value(
    n_canaries: int, n_guesses: int, n_correct: int, epsilon: float, delta: float
) -> float:
    r"""Return the largest chance of as many correct guesses on an (ε, δ)-private fit.

    With W binomial of r guesses and probability e^ε/(1 + e^ε),

    .. math:: P[W ≥ v] + 2mδ · \max_i P[v > W ≥ v - i] / i .
    """
    check(
        0 <= n_correct <= n_guesses <= n_canaries,
        "n_correct must be at most n_guesses and n_guesses at most n_canaries, got "
        f"{n_correct}, {n_guesses} and {n_canaries}.",
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
    """Return the largest ε refuted by the guesses, wrongly with chance `miss`."""

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


def choose_n_guesses(n_canaries: int, mu: float, delta: float, miss: float) -> int:
    """Choose how many canaries to guess about, from the claim and before the fit.

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
        Numbers of canaries, of guesses about them and of correct guesses.
    epsilon_lower : float
        The lower bound on ε that they prove.
    reached : float
        Median over the canaries of the μ that each adds, in the stated noise.
    confidence : float
        The bound is too high with probability at most one minus this.
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
        """Whether no violation was found."""
        return self.epsilon_lower <= self.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return asdict(self) | {"passed": self.passed}


def one_run(
    estimator: PrivateLinearModel,
    *,
    n_canaries: int = 1000,
    confidence: float = bounds.CONFIDENCE,
) -> OneRun:
    """Audit a single fit of an estimator, without an intercept, under zero-out.

    A canary is a record with a category of its own. No other record touches its
    coordinate, so only noise hides whether it is in the table.

    Parameters
    ----------
    estimator : estimator of skdp
        Not changed; its schema, intercept and relation are replaced.
    n_canaries : int
        Number of records, each in the table with probability one half.
    confidence : float
        Confidence of the bound.

    Returns
    -------
    OneRun
        Claim, guesses and lower bound.
    """
    start = perf_counter()
    model = complete_schema(estimator)
    assert isinstance(model.schema, Schema)
    names = [f"c{i}" for i in range(n_canaries)]
    schema = Schema({"canary": Categorical(names)}, target=model.schema.target)
    model.set_params(
        schema=schema, fit_intercept=False, neighbours="zero-out", sampling="full"
    )
    coins = Randomness().generator().integers(0, 2, n_canaries).astype(bool)
    own = extreme_targets(schema.target_column)[
        0 if is_low_steeper(model, schema) else 1
    ]
    table = _make_table(names, own, coins)
    model.fit(table.columns, table.target, sample_weight=table.weight)
    record, mu = model.privacy_, math.sqrt(model.privacy_.spent)
    everyone = _make_table(names, own, np.ones(n_canaries, dtype=bool))
    scores, reached = _score_canaries(model, everyone)
    miss = 1.0 - confidence
    n_guesses = choose_n_guesses(n_canaries, mu, record.delta, miss)
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


def _make_table(
    names: list[str], target: Any, there: npt.NDArray[np.bool_]
) -> SyntheticTable:
    """Return a table with one row per canary; rows of absent canaries are empty."""
    cells = [n if here else None for n, here in zip(names, there.tolist(), strict=True)]
    return SyntheticTable(
        {"canary": cells}, [target] * len(names), there.astype(np.float64)
    )


def _score_canaries(
    model: PrivateLinearModel, everyone: SyntheticTable
) -> tuple[FloatArray, FloatArray]:
    """Return each canary's log-likelihood ratio of being present, and its μ.

    A table of all canaries adds to a coordinate what its canary would add.
    """
    assert isinstance(model.schema, Schema)
    weight = {"intercept": False, "max_weight": model.max_weight}
    records = everyone.encode(model.schema, **weight)  # type: ignore[arg-type]
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
