"""Audit whole fits, by replaying them on neighbouring tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from skdp.audit import games
from skdp.audit.games import Audit, Game, Observation, compare_releases, play_games
from skdp.audit.tables import COLUMNS, SyntheticTable, make_neighbours
from skdp.descent.algorithm1 import Query, Update
from skdp.descent.plan import Plan
from skdp.descent.samplings import Full, Sampling
from skdp.engines.reference import ReferenceEngine
from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.fit_warnings import DoubtfulSchemaWarning
from skdp.estimators.opening import RANGE, sort_target
from skdp.estimators.other_solvers import OWN
from skdp.estimators.weights import add_up_weights
from skdp.privacy import queries
from skdp.privacy.budget import PrivacyRecord, default_delta
from skdp.privacy.encoding import Records
from skdp.privacy.grid import FEATURE_ONE
from skdp.privacy.look import Profile, describe_finely, make_profile
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.schema import (
    Categorical,
    FloatArray,
    IntArray,
    Numeric,
    Schema,
    check,
    toml_files,
)

# ---- Replay a fit, to compute the exact sum behind each release on any table
#
# The weights of each step depend only on the earlier releases. So the transcript, which
# lists all releases, determines the sum of each step on any other table. Nothing is
# released here.


Sums = list[queries.BoundedSum]
MakeEngine = Callable[[Records], queries.Engine]


class Replay:
    """Repeat a plan step by step, using the releases of an earlier run.

    Parameters
    ----------
    plan : Plan
        The plan of the run.
    records : Records
        The table whose records are summed. It need not be the table that was fitted.
    transcript : sequence of Released
        The releases of the earlier run. If the records' weights were released as a
        histogram, the list starts with it. Otherwise it starts with the releases of the
        geometry. Those of a look come before and are left out (`replay_look`).
    engine : callable Records -> Engine
        Makes the engine that sums the records.

    Attributes
    ----------
    sums : list of BoundedSum
        The exact sums, to which a run would add noise.
    """

    def __init__(
        self,
        plan: Plan,
        records: Records,
        transcript: Sequence[Released],
        engine: MakeEngine = ReferenceEngine,
    ) -> None:
        self.sums: Sums = []
        self._transcript = transcript
        if transcript[0].kind == Kind.WEIGHT_HISTOGRAM:
            self.next_release(add_up_weights(records, plan.neighbours))
        task = plan.make_task(engine(records), self.next_release)
        prepared = plan.geometry.prepare(task)
        self.query: Query = prepared.query
        self.update: Update = prepared.update
        self.start = prepared.start
        self.finish = prepared.finish

    def next_release(self, total: queries.BoundedSum, share: float = 1.0) -> Released:
        """Store the exact sum, and return the earlier run's release of it."""
        self.sums.append(total)
        return self._transcript[len(self.sums) - 1]


def replay(
    plan: Plan,
    records: Sequence[Records],
    transcript: Sequence[Released],
    sets: Sequence[IntArray] | None = None,
    engine: MakeEngine = ReferenceEngine,
) -> tuple[FloatArray, list[Sums]]:
    """Replay a run. Return its weights and, for each table, the exact sums of the run.

    Parameters
    ----------
    plan : Plan
        The plan of the run.
    records : sequence of Records
        The tables whose records are summed.
    transcript : sequence of Released
        As in `Replay`.
    sets : sequence of arrays, optional
        The coordinates that each step updated, which are public. They are required
        unless every step updated all coordinates.
    engine : callable Records -> Engine
        Makes the engine that sums the records.
    """
    runs = [Replay(plan, table, transcript, engine) for table in records]
    chosen = iter(sets if sets is not None else _full_sets(plan))
    shares = plan.average(plan.n_steps)
    weights = runs[0].start
    for _ in range(plan.n_restarts):
        theta, weights = weights, np.zeros_like(weights)
        for index in range(plan.n_steps):
            at = next(chosen)
            for run in runs:
                released = run.next_release(run.query(at, theta))
            theta = runs[0].update(theta, released, at)
            weights = weights + shares[index] * theta
    finished = [run.finish(weights) for run in runs]  # may need one more sum
    return finished[0], [run.sums for run in runs]


def _full_sets(plan: Plan) -> Iterator[IntArray]:
    check(
        isinstance(plan.sampling, Full),
        "sets is required, because the run drew its sets at random.",
    )
    everything = np.arange(plan.sampling.n_coordinates)
    return iter([everything] * (plan.n_steps * plan.n_restarts))


def replay_look(
    records: Records,
    limits: Schema,
    transcript: Sequence[Released],
    neighbours: queries.Neighbours,
    n_rows: int | None,
) -> tuple[Profile, Sums]:
    """Replay a look. Return its profile, and the exact sums behind its releases.

    Parameters
    ----------
    records : Records
        The table, read as `skdp.privacy.look.describe_finely` describes it. It need not
        be the table that was looked at.
    limits : Schema
        The schema before the look.
    transcript : sequence of Released
        The releases of the fit, which start with those of the look.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    n_rows : int, optional
        The number of records, or None if it is private.
    """
    sums: Sums = []

    def next_release(total: queries.BoundedSum, share: float) -> Released:
        sums.append(total)
        return transcript[len(sums) - 1]

    return make_profile(records, limits, neighbours, n_rows, next_release), sums


def compare_fit(
    plan: Plan,
    record: PrivacyRecord,
    records: tuple[Records, Records],
    *,
    counted: bool = False,
    sets: Sequence[IntArray] | None = None,
    looks: Sequence[Sums] | None = None,
) -> Observation:
    """Compare the releases of a fit with the exact sums on both tables.

    Parameters
    ----------
    plan, record : Plan and PrivacyRecord
        The plan and the privacy record of the fit.
    records : pair of Records
        The table and its neighbour.
    counted : bool
        Whether the number of rows was released before the plan was run, and not by a
        look.
    sets : sequence of arrays, optional
        As in `replay`.
    looks : pair of lists of BoundedSum, optional
        The exact sums behind the releases of a look, on both tables.
    """
    before: list[Sums] = [[], []] if looks is None else [*map(list, looks)]
    if counted:
        engines = [ReferenceEngine(table) for table in records]
        before = [[queries.counts(engine, 1, plan.neighbours)] for engine in engines]
    first = len(before[0])
    _, (table, other) = replay(plan, records, record.transcript[first:], sets)
    both = zip(before[0] + table, before[1] + other, strict=True)
    return compare_releases(record, list(both))


# ---- Audit whole fits of any estimator on worst-case tables


class RecordedSampling(Sampling):
    """A sampling that remembers the sets of coordinates it drew, which are public."""

    def __init__(self, law: Sampling) -> None:
        super().__init__(
            law.probabilities,
            coupling=law.coupling,
            support=law.support,
            set_probabilities=law.set_probabilities,
        )
        self._law = law
        self.seen: list[IntArray] = []

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw one set."""
        return self._law.draw(rng)

    def sets(self, n_steps: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Draw the sets of a run and store them in `seen` until the next call."""
        self.seen = list(self._law.sets(n_steps, rng))
        return iter(self.seen)


def complete_schema(estimator: PrivateLinearModel) -> PrivateLinearModel:
    """Return a copy of the estimator with a complete schema.

    If the estimator does not describe columns or a target, a small example supplies
    them.
    """
    model: PrivateLinearModel = clone(estimator)
    schema, target = toml_files.accept_schema(model.schema), model._target()
    if schema is None:
        schema = Schema(COLUMNS)
    if schema.target is not None:
        target = schema.target_column
    elif isinstance(target, str):
        target = Numeric(0.0, 1.0) if target == RANGE else Categorical([0, 1])
    target = sort_target(target)  # as a fit reads it
    whole = replace(schema, target=target)
    # The schema is complete, so nothing else needs to be described or inferred. No
    # ledger is charged for synthetic tables.
    model.set_params(schema=whole, bounds=None, classes=None, target_bounds=None)
    model.set_params(ledger=None, verbose=0)
    return model


def is_low_steeper(model: PrivateLinearModel, schema: Schema) -> bool:
    """Return whether the loss is steeper for the lowest target than for the highest.

    The slopes are compared at zero weights.
    """
    loss = model._loss(schema)
    numeric = isinstance(schema.target_column, Numeric)
    units = np.array([0, FEATURE_ONE if numeric else 1])
    low, high = np.abs(loss.slope(np.zeros((2, loss.n_outputs)), units)).max(axis=1)
    return bool(low > high)


def make_game(
    estimator: PrivateLinearModel,
    *,
    group: int = 1,
    rows_each: int = 1,
    n_rows: int = 1000,
    twins: int = 20,
) -> Game:
    """Return the game that fits an estimator to one of two neighbouring tables.

    The parameters are those of `fit`.
    """
    model = complete_schema(estimator)
    check(
        model.epsilon < np.inf and model.random_state is None,
        "epsilon must be finite and random_state None, because other fits claim no "
        f"privacy, got {model.epsilon} and {model.random_state!r}.",
    )
    check(
        model.solver == OWN,
        f"Only fits with solver={OWN!r} can be audited, got {model.solver!r}.",
    )
    schema = model.schema
    assert isinstance(schema, Schema)
    neighbours: Any = model.neighbours
    looks = model._looks(schema)
    # A look decides from where a number is measured, so no cells add nothing for sure.
    # A record that is zeroed out is then left out. No sum contains the number of rows.
    absent = looks and neighbours == "zero-out"
    tables = make_neighbours(
        schema,
        "add-remove" if absent else neighbours,
        group=group,
        rows_each=rows_each,
        n_rows=n_rows,
        twins=twins,
        low_target=is_low_steeper(model, schema),
        intercept=model.fit_intercept,
        max_weight=model.max_weight,
    )
    private = neighbours == "add-remove" and model.n_rows is None

    def read(table: SyntheticTable, described: Schema) -> Records:
        return table.encode(
            described, intercept=model.fit_intercept, max_weight=model.max_weight
        )

    def fit_to(other: bool) -> PrivateLinearModel:
        table = tables[other]
        with warnings.catch_warnings():  # the schema of a synthetic table is fine
            warnings.simplefilter("ignore", DoubtfulSchemaWarning)
            return model.fit(table.columns, table.target, sample_weight=table.weight)

    plan = fit_to(False).plan_
    check(
        getattr(plan.geometry, "law", "fixed") == "fixed",
        "Whole fits can be audited only if the geometry draws sets with law='fixed'. "
        "For other laws, use audit.mechanism('adaptive sets').",
    )
    recorded = None
    if not isinstance(plan.sampling, Full):
        recorded = RecordedSampling(plan.sampling)
        given = {"geometry": plan.geometry, "n_steps": plan.n_steps}
        model.set_params(sampling=recorded, **given)
        looks = model._looks(schema)
    plain = read(tables[0], schema), read(tables[1], schema)
    finely = [read(table, describe_finely(schema)) for table in tables if looks]

    def play(other: bool) -> Observation:
        fit = fit_to(other)
        looked = None
        if looks:
            rows = None if private or fit.profile_ is None else fit.profile_.n_rows
            looked = [
                replay_look(own, schema, fit.privacy_.transcript, neighbours, rows)[1]
                for own in finely
            ]
        return compare_fit(
            fit.plan_,
            fit.privacy_,
            (read(tables[0], fit.schema_), read(tables[1], fit.schema_))
            if looks
            else plain,
            counted=private and not looks,
            sets=None if recorded is None else recorded.seen,
            looks=looked,
        )

    return play


def fit(
    estimator: PrivateLinearModel,
    *,
    group: int = 1,
    rows_each: int = 1,
    n_trials: int | None = None,
    n_rows: int = 1000,
    twins: int = 20,
    confidence: float = games.CONFIDENCE,
    progress: Callable[[int], object] | None = None,
) -> Audit:
    """Audit whole fits of an estimator, with the estimator's own parameters.

    The estimator is fitted repeatedly to two synthetic neighbouring tables that are
    made for its schema. The noise comes from the operating system. An auditor who knows
    both tables and sees everything that was released guesses which table was fitted.

    Parameters
    ----------
    estimator : estimator of skdp
        The estimator to audit. It is copied, not changed. If it has no schema, the
        tables have one numeric and one categorical column.
    group : int
        Number of records in which the tables differ. If one record is protected with μ,
        then g records together are protected with g·μ. Groups of about 2/μ records need
        the fewest fits.
    rows_each : int
        Number of rows of each record in which the tables differ. If the estimator's
        schema has a unit, these rows belong to one person, and the claim about persons
        must hold. Without a unit, the claim is about single rows, so an audit with
        several rows per record should refute it.
    n_trials : int, optional
        Number of fits, half of them on each table. The default is enough to find noise
        that is 20 % too small with a probability of 99 %.
    n_rows : int
        Number of rows of the tables.
    twins : int
        Number of pairs of records that have the columns of a canary and opposite
        targets. In long runs they keep the slope of the loss on a canary at its bound.
    confidence : float
        Confidence of each bound.
    progress : callable, optional
        Called with the number of fits made since the last call.

    Returns
    -------
    Audit
        The claim, the lower bounds and the verdict.

    Examples
    --------
    >>> from skdp import LinearRegression, audit
    >>> model = LinearRegression(epsilon=8.0, neighbours="zero-out", n_steps=4)
    >>> audit.fit(model, n_trials=40, confidence=1 - 1e-6).passed
    True
    """
    play = make_game(
        estimator, group=group, rows_each=rows_each, n_rows=n_rows, twins=twins
    )
    if n_trials is None:
        shown = [play(other) for other in (False, True) for _ in range(4)]
        n_trials = 2 * choose_n_games(shown, group, confidence)
    rows = estimator.n_rows if estimator.neighbours == "add-remove" else n_rows
    delta = default_delta(rows) if estimator.delta is None else estimator.delta
    return play_games(
        type(estimator).__name__,
        estimator.neighbours,
        play,
        n_trials // 2,
        delta=delta,
        group=group,
        confidence=confidence,
        progress=progress,
    )


def choose_n_games(
    shown: Sequence[Observation], group: int = 1, confidence: float = games.CONFIDENCE
) -> int:
    """Choose how many games per table are needed to find noise that is 20 % too small.

    The distance between the tables is estimated by the median of the distances in
    `shown`. If the tables are too similar to reveal such noise, the number is chosen as
    if their distance were the largest that the claim allows.
    """
    mu = group * math.sqrt(max(trial.mu_squared for trial in shown))
    apart = float(np.median([np.linalg.norm(trial.shift) for trial in shown])) / mu
    reach = min(1.0, apart) if apart > 1.05 * games.SHRUNK else 1.0
    return games.trials_needed(mu, confidence=confidence, reach=reach)
