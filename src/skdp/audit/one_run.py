"""Audit a single fit with many canaries (Steinke, Nasr and Jagielski 2023).

For each of m canaries, a fair coin decides whether the canary is in the table. After
one fit, an auditor guesses those coins that the releases reveal best. Let W be a
binomial variable with one trial for each guess and success probability e^ε/(1 + e^ε).
If the fit is (ε, δ)-private, at least v guesses are correct with probability at most
P[W ≥ v], plus a term proportional to δ. This holds even if the canaries influence each
other [1]_. An audit with many fits gives a better lower bound on ε, but it takes too
long if each fit is large.

References
----------
.. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run",
   NeurIPS 2023 (arXiv 2305.08846), Theorem 5.2 and Corollary 5.4.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import binom

from skdp.audit import games
from skdp.audit.fits import (
    Sums,
    complete_schema,
    is_low_steeper,
    replay,
    replay_look,
)
from skdp.audit.tables import SyntheticTable, extreme_targets
from skdp.engines.choice import choose_engine
from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.fit_warnings import DoubtfulSchemaWarning
from skdp.privacy import accountant
from skdp.privacy.look import describe_finely
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, FloatArray, Schema, check

#: Kinds of sums whose entries belong to bins, and not to single canaries.
HISTOGRAMS = (Kind.TARGET_HISTOGRAM, Kind.WEIGHT_HISTOGRAM)


def p_value(
    n_canaries: int, n_guesses: int, n_correct: int, epsilon: float, delta: float
) -> float:
    r"""Bound the probability that at least `n_correct` guesses are correct.

    The bound holds for every (ε, δ)-private fit. For m canaries, r guesses and v
    correct guesses it is

    .. math:: P[W ≥ v] + 2mδ · \max_i P[v > W ≥ v - i] / i ,

    where W is binomial with r trials and probability e^ε/(1 + e^ε).
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
    """Return the largest ε that the guesses refute, or 0 if they refute no ε.

    If the fit is (ε, δ)-private, the returned value is above ε with probability at most
    `miss`.
    """

    def is_refuted(epsilon: float) -> bool:
        return p_value(n_canaries, n_guesses, n_correct, epsilon, delta) < miss

    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high):
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def choose_n_guesses(n_canaries: int, mu: float, delta: float, miss: float) -> int:
    """Choose the number of canaries for which the auditor guesses.

    The number depends on the claim alone and is chosen before the fit. If μ is the
    exact privacy, the score of a canary is N(μ²/2, μ²) if the canary is in the table,
    and N(-μ²/2, μ²) if it is not. The auditor guesses only for the canaries whose
    scores are farthest from zero.
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
    """The result of an audit of one fit with many canaries.

    Attributes
    ----------
    name : str
        The class of the estimator.
    epsilon, delta, mu : float
        The claim.
    n_canaries, n_guesses, n_correct : int
        The numbers of canaries, of guesses and of correct guesses.
    epsilon_lower : float
        The lower bound on ε that the guesses prove.
    reached : float
        The μ that separates the releases with and without a canary, for the stated
        noise. This is the median over all canaries.
    confidence : float
        The bound is above the true ε with probability at most 1 - confidence.
    seconds : float
        Run time of the audit.
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
        """Return all fields and the verdict, for JSON."""
        return asdict(self) | {"passed": self.passed}


def one_run(
    estimator: PrivateLinearModel,
    *,
    n_canaries: int = 1000,
    confidence: float = games.CONFIDENCE,
) -> OneRun:
    """Audit a single fit of an estimator, without an intercept, under zero-out.

    Each canary is a record with a category that no other record has. No other record
    affects that category's coordinate, so only noise hides whether the canary is in the
    table.

    Parameters
    ----------
    estimator : estimator of skdp
        The estimator to audit. It is copied, not changed. In the copy, the schema's
        columns, the intercept, the neighbour relation and the sampling are replaced.
    n_canaries : int
        Number of canaries. Each is in the table with probability one half.
    confidence : float
        Confidence of the bound.

    Returns
    -------
    OneRun
        The claim, the guesses and the lower bound.
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
    table = _make_canary_table(names, own, coins)
    with warnings.catch_warnings():  # the schema of a synthetic table is fine
        warnings.simplefilter("ignore", DoubtfulSchemaWarning)
        model.fit(table.columns, table.target, sample_weight=table.weight)
    record, mu = model.privacy_, math.sqrt(model.privacy_.spent)
    everyone = _make_canary_table(names, own, np.ones(n_canaries, dtype=bool))
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


def _make_canary_table(
    names: list[str], target: Any, there: npt.NDArray[np.bool_]
) -> SyntheticTable:
    """Return a table with one row per canary. The row of an absent canary is empty."""
    cells = [n if here else None for n, here in zip(names, there.tolist(), strict=True)]
    return SyntheticTable(
        {"canary": cells}, [target] * len(names), there.astype(np.float64)
    )


def _score_canaries(
    model: PrivateLinearModel, everyone: SyntheticTable
) -> tuple[FloatArray, FloatArray]:
    """Return each canary's score, and the μ between tables with and without it.

    The score is log P(releases | canary present) - log P(releases | canary absent).
    `everyone` is a table that contains all canaries. Each coordinate of a sum over this
    table belongs to one canary, and its value is that canary's contribution.
    """
    read = partial(everyone.encode, intercept=False, max_weight=model.max_weight)
    transcript, profile = model.privacy_.transcript, model.profile_
    looked: Sums = []
    if profile is not None:
        seen = read(describe_finely(profile.limits))
        _, looked = replay_look(
            seen, profile.limits, transcript, "zero-out", profile.n_rows
        )
    records = read(model.schema_)
    engine = choose_engine(model.engine, model.n_threads)
    after = transcript[len(looked) :]
    _, (asked,) = replay(model.plan_, [records], after, engine=engine)
    n = len(everyone.target)
    score, square = np.zeros((2, n))
    for released, total in zip(transcript, looked + asked, strict=True):
        # The counts of the canaries, which are levels, are the first of a look.
        mine = slice(n) if total.kind == Kind.LOOK else slice(None)
        if len(total.value[mine]) != n or total.kind in HISTOGRAMS:
            continue  # its entries do not belong to single canaries
        std = released.noise_std[mine]
        part = total.value[mine].astype(np.float64) * total.unit / std
        found = released.values[mine] / std
        score += (part * (found - part / 2)).reshape(n, -1).sum(axis=1)
        square += (part * part).reshape(n, -1).sum(axis=1)
    return score, np.sqrt(square)
