"""Replay a fit, to compute the exact sum behind each release on any table.

The weights of each step depend only on the earlier releases. So the transcript, which
lists all releases, determines the sum of each step on any other table. Nothing is
released here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from skdp.audit.games import Observation, compare_releases
from skdp.descent.algorithm1 import Query, Update
from skdp.descent.samplings import Full
from skdp.engines.reference import ReferenceEngine
from skdp.estimators import record_weights
from skdp.planning.plan import Plan
from skdp.privacy import queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, check

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
        geometry.
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
        if transcript[0].query == record_weights.QUERY:
            self.next_release(record_weights.add_up_weights(records, plan.neighbours))
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


def compare_fit(
    plan: Plan,
    record: PrivacyRecord,
    records: tuple[Records, Records],
    *,
    counted: bool = False,
    sets: Sequence[IntArray] | None = None,
) -> Observation:
    """Compare the releases of a fit with the exact sums on both tables.

    Parameters
    ----------
    plan, record : Plan and PrivacyRecord
        The plan and the privacy record of the fit.
    records : pair of Records
        The table and its neighbour.
    counted : bool
        Whether the number of rows was released before the plan was run.
    sets : sequence of arrays, optional
        As in `replay`.
    """
    before: list[Sums] = [[], []]
    if counted:
        engines = [ReferenceEngine(table) for table in records]
        before = [[queries.counts(engine, 1, plan.neighbours)] for engine in engines]
    first = len(before[0])
    _, (table, other) = replay(plan, records, record.transcript[first:], sets)
    both = zip(before[0] + table, before[1] + other, strict=True)
    return compare_releases(record, list(both))
