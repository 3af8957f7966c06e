"""Play distinguishing games, and bound what they prove."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import BoundedSum, Neighbours
from skdp.schema import FloatArray, check

# ---- Compute lower bounds on ε and μ from the number of wrong guesses
#
# In each game a mechanism runs on one of two neighbouring tables, and an auditor
# guesses which. If more guesses are correct than the claim allows, the claim is
# refuted. There are two lower bounds:
#
# - **plain**: (ε, δ)-DP means 1 - β ≤ e^ε α + δ for every test of error rates α, β
#   [1]_. This bound assumes nothing, but it is far below the true ε unless there are
#   about e^ε/δ games.
# - **gdp**: μ-GDP means that every test has (α + β)/2 ≥ Φ(-μ/2) [2]_. The best test at
#   its best threshold has exactly this error rate. skdp claims a μ, so this bound tests
#   the claim itself. It is near the true μ after a thousand games.
#
# Error rates are bounded by Clopper and Pearson's intervals, so no bound relies on
# asymptotics.
#
# References
# ----------
# .. [1] P. Kairouz, S. Oh, P. Viswanath, "The composition theorem for differential
#    privacy", ICML 2015, Theorem 2.1.
# .. [2] J. Dong, A. Roth, W. J. Su, "Gaussian differential privacy", JRSS B 84 (2022):
#    Definition 2.6; for groups of records Theorem 2.14.
# .. [3] W. Hoeffding, "On the distribution of the number of successes in independent
#    trials", Annals of Mathematical Statistics 27 (1956), Theorem 5.


#: Default confidence of a bound, and default power of an audit. The power is the
#: probability that the audit finds noise that is too small.
CONFIDENCE, POWER = 0.999, 0.99
#: Audits must find noise whose scale is only this share of the correct scale.
SHRUNK = 0.8


def rate_upper(errors: int, n_trials: int, miss: float) -> float:
    """Return the Clopper-Pearson upper bound on the rate of errors.

    The bound is below the true rate with probability at most `miss`.
    """
    if errors >= n_trials:
        return 1.0
    return float(betaincinv(errors + 1.0, float(n_trials - errors), 1.0 - miss))


def mu_lower(
    errors: int, n_trials: int, miss: float, extra_delta: float = 0.0
) -> float:
    """Return a lower bound on μ, from the number of wrong guesses.

    Let α and β be the error rates on the two tables. Half of the `n_trials` = n games
    are played on each table, so the number of wrong guesses has mean n(α + β)/2. Its
    lower tail is at most the lower tail of a binomial variable with n trials and the
    same mean [3]_. A single interval therefore covers α and β together. A mechanism
    that is μ-GDP except with probability `extra_delta` has
    α + β ≥ 2Φ(-μ/2) - extra_delta. The bound is above the true μ with probability at
    most `miss`.
    """
    rate = rate_upper(errors, n_trials, miss) + extra_delta / 2
    return max(0.0, -2.0 * float(ndtri(min(rate, 0.5))))


def plain_epsilon_lower(
    false_positives: int,
    false_negatives: int,
    n_each: int,
    delta: float,
    miss: float,
) -> float:
    """Return a lower bound on ε at `delta`, from the two kinds of wrong guesses.

    Nothing is assumed about the mechanism. The bound is above the true ε with
    probability at most `miss`.
    """
    alpha = rate_upper(false_positives, n_each, miss / 2)
    beta = rate_upper(false_negatives, n_each, miss / 2)
    best = 0.0
    for missed, caught in ((alpha, 1.0 - beta), (beta, 1.0 - alpha)):
        if caught > delta:
            best = max(best, math.log((caught - delta) / missed))
    return best


def plain_threshold(mu: float, n_each: int, delta: float, miss: float) -> float:
    """Return the threshold t ≥ 0 that should make `plain_epsilon_lower` largest.

    The auditor compares the log-likelihood ratio with t. If μ is the exact privacy,
    this ratio is N(-μ²/2, μ²) on one table and N(μ²/2, μ²) on the other. The threshold
    depends on the claim alone, so it can be chosen before the games.
    """
    grid = np.linspace(0.0, mu * (mu / 2 + 4.0), 201)
    false_positives = np.floor(n_each * ndtr(-grid / mu - mu / 2)).astype(int)
    false_negatives = np.ceil(n_each * ndtr(grid / mu - mu / 2)).astype(int)
    found = [
        plain_epsilon_lower(p, n, n_each, delta, miss)
        for p, n in zip(false_positives.tolist(), false_negatives.tolist(), strict=True)
    ]
    return float(grid[int(np.argmax(found))])


def detection_power(
    mu: float, n_each: int, *, miss: float, shrunk: float = SHRUNK, reach: float = 1.0
) -> float:
    """Return the exact probability that `n_each` games per table refute the claim of μ.

    The noise is assumed to be `shrunk` times as large as the claim requires. The two
    tables are assumed to be `reach` times as far apart as the claim allows.
    """
    n = 2 * n_each
    claimed, real = ndtr(-mu / 2), ndtr(-mu * reach / shrunk / 2)
    most = int(binom.ppf(miss, n, claimed)) - 1  # errors that refute the claim
    return float(binom.cdf(most, n, real))


def trials_needed(
    mu: float,
    *,
    confidence: float = CONFIDENCE,
    shrunk: float = SHRUNK,
    reach: float = 1.0,
    power: float = POWER,
) -> int:
    """Return the number of games per table that reveal noise that is too small.

    Noise of `shrunk` times its correct scale is found with probability at least
    `power`. The two tables are `reach` times as far apart as the claim allows. If reach
    ≤ shrunk, even the smaller noise satisfies the claim on these tables, and a
    ValueError is raised.
    """
    if reach <= shrunk:
        raise ValueError(
            f"reach must be above shrunk = {shrunk}, got {reach:.3g}. These tables are "
            "so similar that an audit cannot detect noise that is too small."
        )
    miss = gdp_miss(confidence)

    def enough(n: int) -> bool:
        return detection_power(mu, n, miss=miss, shrunk=shrunk, reach=reach) >= power

    high = 16
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > max(1, low // 100):  # within one percent
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def best_group(mu: float) -> int:
    """Return the number of records in which the two tables of an audit should differ.

    An audit needs the fewest games if the group's μ is near 2.
    """
    return max(1, round(2.0 / mu))


#: Share of the error probability 1 - confidence that is allowed to the second auditor
#: of `play_games`, who measures the noise.
MEASURED_SHARE = 0.1


def gdp_miss(confidence: float) -> float:
    """Return the error probability allowed to the first auditor of `play_games`."""
    return (1.0 - confidence) * (1.0 - MEASURED_SHARE)


# ---- Play games between an auditor and a mechanism, and derive bounds on μ and ε
#
# In each game the mechanism runs on one of two tables, and the auditor guesses which.


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
    confidence: float = CONFIDENCE,
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
    scores = [np.array([_score_trial(trial) for trial in side]) for side in games]
    errors = _errors(scores)
    lower = mu_lower(errors, 2 * n_each, gdp_miss(confidence), extra)
    measured = _measured_scores(games)
    if measured is not None:
        wrong, n = _errors(measured), 2 * len(measured[0])
        share = spare * MEASURED_SHARE
        lower = max(lower, mu_lower(wrong, n, share, extra))
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


def _score_trial(trial: Observation) -> float:
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
        top = plain_threshold(mu, n_each, delta, miss / 2)
    thresholds = {top, -top}
    return max(
        plain_epsilon_lower(
            int((scores[0] > threshold).sum()),
            int((scores[1] <= threshold).sum()),
            n_each,
            delta,
            miss / len(thresholds),
        )
        for threshold in thresholds
    )
