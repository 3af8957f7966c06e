"""Play games between an auditor and a mechanism, and derive bounds on μ and ε.

In each game the mechanism runs on one of two tables, and the auditor guesses which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np

from skdp.audit import bounds
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import BoundedSum, Neighbours
from skdp.schema import FloatArray, check


@dataclass(frozen=True, eq=False)
class Observation:
    """One run, as seen by an auditor who knows both tables and all releases.

    Here f(table) is the exact sum to which a release adds noise. The vectors `residual`
    and `shift` list the values of all releases of a run.

    Attributes
    ----------
    residual : float64 (m,)
        (released - f(table)) / noise scale.
    shift : float64 (m,)
        (f(other) - f(table)) / noise scale. Both sums are computed from the same
        earlier releases. In a step, for example, both use the same weights.
    mu_squared, delta : float
        The privacy cost that was charged to the privacy record.
    uncharged : int
        Number of releases that were made but not charged to the privacy record.
    choices : float
        log P(sets | other) - log P(sets | table), for the sets of coordinates that were
        drawn. It is 0 unless the draws depend on records.
    """

    residual: FloatArray
    shift: FloatArray
    mu_squared: float
    delta: float = 0.0
    uncharged: int = 0
    choices: float = 0.0


#: Runs the mechanism on the table (False) or on its neighbour (True).
Game = Callable[[bool], Observation]


def make_record(neighbours: Neighbours) -> PrivacyRecord:
    """Return a privacy record without a limit. Audits test the costs charged to it."""
    return PrivacyRecord(epsilon=math.inf, delta=0.5, neighbours=neighbours)


def compare_release(
    released: Released, table: BoundedSum, other: BoundedSum
) -> tuple[FloatArray, FloatArray]:
    """Return the residual and the shift of one release, as in `Observation`."""
    first = table.value.astype(np.float64) * table.unit
    second = other.value.astype(np.float64) * other.unit
    std = np.broadcast_to(released.noise_std, first.shape)
    residual, shift = (released.values - first) / std, (second - first) / std
    return residual.ravel(), shift.ravel()


def compare_releases(
    record: PrivacyRecord, pairs: Sequence[tuple[BoundedSum, BoundedSum]]
) -> Observation:
    """Compare the releases of a privacy record with the exact sums on both tables.

    `pairs` has one pair of sums, on the table and on its neighbour, for each release.
    """
    found = len(record.transcript)
    check(
        found == len(pairs),
        f"The transcript must have one release per sum ({len(pairs)}), got {found}.",
    )
    parts = [
        compare_release(r, *p) for r, p in zip(record.transcript, pairs, strict=True)
    ]
    return Observation(
        residual=np.concatenate([residual for residual, _ in parts]),
        shift=np.concatenate([shift for _, shift in parts]),
        mu_squared=record.spent,
        uncharged=found - sum(record.events.values()),
    )


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit: the claim, the lower bounds and the verdict.

    Attributes
    ----------
    name, neighbours : str
        The mechanism or estimator, and the neighbour relation.
    epsilon, delta, mu : float
        The claimed privacy of one record.
    group : int
        Number of records in which the tables differ. A μ-GDP claim allows group·μ for
        all of them together.
    n_trials : int
        Number of games, half of them on each table.
    errors : int
        Number of wrong guesses of the likelihood ratio test with threshold 0.
    mu_lower, epsilon_lower : float
        Lower bounds on the true μ and ε of one record. They assume that the mechanism
        is μ-GDP for some μ.
    plain_epsilon_lower : float or None
        A lower bound on the true ε that needs no such assumption. It is None if the
        tables differ in several records.
    reached : float or None
        The exact μ that separates the outputs on the two tables, for the stated noise,
        divided by the number of records that differ. It is None if decisions are
        released instead of numbers.
    uncharged : int
        Number of releases that were made but not charged to the privacy record.
    confidence : float
        Each lower bound is above the true value with probability at most
        1 - confidence.
    seconds : float
        Run time of the audit.
    choices : float
        The largest difference between the log-likelihoods of the drawn sets on the two
        tables. If it is not 0, the draws depend on records.
    """

    name: str
    neighbours: str
    epsilon: float
    delta: float
    mu: float
    group: int
    n_trials: int
    errors: int
    mu_lower: float
    epsilon_lower: float
    plain_epsilon_lower: float | None
    reached: float | None
    uncharged: int
    confidence: float
    seconds: float
    choices: float = 0.0

    @property
    def violations(self) -> list[str]:
        """The reasons why the claim is false. The list is empty if there are none."""
        found = []
        if self.mu_lower > self.mu:
            found.append(f"ε ≥ {self.epsilon_lower:.3g} by the gdp bound")
        if (self.plain_epsilon_lower or 0.0) > self.epsilon:
            found.append(f"ε ≥ {self.plain_epsilon_lower:.3g} by the plain bound")
        if self.reached is not None and self.reached > self.mu * (1 + 1e-9):
            found.append(
                f"tables differ by μ = {self.reached:.3g}, above the claimed "
                f"{self.mu:.3g}"
            )
        if self.uncharged:
            releases = "release was" if self.uncharged == 1 else "releases were"
            found.append(f"{self.uncharged} {releases} not charged")
        if self.choices:
            found.append("the sets that are drawn depend on records")
        return found

    @property
    def passed(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, the violations and the verdict, for JSON."""
        return asdict(self) | {"violations": self.violations, "passed": self.passed}

    def __str__(self) -> str:
        verdict = "; ".join(self.violations) or "no violation found"
        return (
            f"{self.name}, {self.neighbours}: claims ε = {self.epsilon:.4g} at "
            f"δ = {self.delta:.3g}; ε ≥ {self.epsilon_lower:.4g} with confidence "
            f"{self.confidence:g} after {self.n_trials} trials: {verdict}."
        )


def play_games(
    name: str,
    neighbours: str,
    play: Game,
    n_each: int,
    *,
    delta: float,
    group: int = 1,
    gaussian: bool = True,
    confidence: float = bounds.CONFIDENCE,
    progress: Callable[[int], object] | None = None,
) -> Audit:
    """Play `n_each` games on each of two tables and return the bounds they prove.

    Two auditors guess. The first trusts the stated noise and uses the likelihood ratio
    test, which is the best test if the claim is right. The second measures the mean and
    the covariance of the noise in the first half of the games, and guesses in the
    second half. The second auditor detects noise that is shared, repeated or fixed.

    Parameters
    ----------
    name, neighbours : str
        Copied to the result.
    play : callable bool -> Observation
        Plays one game on the table (False) or on its neighbour (True).
    n_each : int
        Number of games on each table.
    delta : float
        The total δ at which ε is stated. It includes any δ charged to the
        privacy record.
    group : int
        Number of records in which the tables differ.
    gaussian : bool
        Whether the mechanism releases numbers with Gaussian noise. Otherwise it
        releases decisions, and the distance between two decisions has no meaning.
    confidence : float
        Confidence of each bound.
    progress : callable, optional
        Called with the number of games played since the last call.
    """
    check(n_each >= 1, f"An audit needs at least 2 trials, got {2 * n_each}.")
    start = perf_counter()
    games: tuple[list[Observation], list[Observation]] = ([], [])
    for number in range(n_each):
        for other in (False, True):
            games[other].append(play(other))
        if progress is not None and number % 16 == 15:
            progress(32)
    if progress is not None:
        progress(2 * (n_each % 16))
    trials = games[0] + games[1]
    charged = max(trial.mu_squared for trial in trials)
    mu, extra = math.sqrt(charged), max(trial.delta for trial in trials)
    spare = 1.0 - confidence
    scores = [np.array([_score(trial) for trial in side]) for side in games]
    errors = _errors(scores)
    lower = bounds.mu_lower(errors, 2 * n_each, bounds.gdp_miss(confidence), extra)
    measured = _measured_scores(games)
    if measured is not None:
        wrong, n = _errors(measured), 2 * len(measured[0])
        share = spare * bounds.MEASURED_SHARE
        lower = max(lower, bounds.mu_lower(wrong, n, share, extra))
    epsilon = accountant.spent_epsilon(mu, delta, 0, extra)
    plain = None
    if group == 1:
        plain = _plain_bound(scores, mu, delta, spare, gaussian)
    reached = None
    if gaussian:
        reached = max(float(np.linalg.norm(t.shift)) for t in trials) / group
    return Audit(
        name=name,
        neighbours=neighbours,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        group=group,
        n_trials=2 * n_each,
        errors=errors,
        mu_lower=lower / group,
        epsilon_lower=accountant.spent_epsilon(lower / group, delta, 0, extra),
        plain_epsilon_lower=plain,
        reached=reached,
        uncharged=max(trial.uncharged for trial in trials),
        confidence=confidence,
        seconds=perf_counter() - start,
        choices=max(abs(trial.choices) for trial in trials),
    )


def _score(trial: Observation) -> float:
    """Return log P(run | other table) - log P(run | table), for the stated noise."""
    return trial.choices + float(trial.shift @ (trial.residual - trial.shift / 2))


def _errors(scores: Sequence[FloatArray]) -> int:
    """Count the wrong guesses. A score above 0 means a guess of the other table."""
    return int((scores[0] > 0).sum() + (scores[1] <= 0).sum())


def _measured_scores(
    games: tuple[list[Observation], list[Observation]],
) -> list[FloatArray] | None:
    """Score the second half of the games, using the noise measured in the first half.

    Return None if the runs have different lengths, or if there are too few runs to
    measure the covariance.
    """
    lengths = {len(trial.shift) for side in games for trial in side}
    half = len(games[0]) // 2
    if len(lengths) != 1 or half < max(lengths):
        return None
    noise = np.stack(
        [t.residual - other * t.shift for other in (0, 1) for t in games[other][:half]]
    )
    middle = noise.mean(axis=0)
    covariance = np.atleast_2d(np.cov(noise, rowvar=False))
    covariance += 1e-12 * np.eye(len(middle))  # keeps it invertible for constant noise
    scores = []
    for side in games:
        shifts = np.stack([trial.shift for trial in side[half:]])
        away = np.stack([trial.residual for trial in side[half:]]) - middle - shifts / 2
        scores.append((np.linalg.solve(covariance, shifts.T).T * away).sum(axis=1))
    return scores


def _plain_bound(
    scores: Sequence[FloatArray], mu: float, delta: float, miss: float, gaussian: bool
) -> float:
    """Return the largest plain bound on ε over a few thresholds.

    The thresholds depend on the claim alone, so they were fixed before the games.
    """
    n_each = len(scores[0])
    top = 0.0
    if gaussian and mu > 0:
        top = bounds.plain_threshold(mu, n_each, delta, miss / 2)
    thresholds = {top, -top}
    return max(
        bounds.plain_epsilon_lower(
            int((scores[0] > threshold).sum()),
            int((scores[1] <= threshold).sum()),
            n_each,
            delta,
            miss / len(thresholds),
        )
        for threshold in thresholds
    )
