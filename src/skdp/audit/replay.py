"""A fit seen again: the exact sums behind each release, on either table.

Weights are a function of what was released, so whoever has the transcript can compute,
for each step, what the sum would have been on any table. Nothing is released here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from skdp.audit.judge import Trial, observed
from skdp.descent.algorithm1 import Query, Update
from skdp.descent.geometry import Task
from skdp.descent.samplings import Full
from skdp.engines.reference import ReferenceEngine
from skdp.planning.plan import Plan
from skdp.privacy import queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, check

Sums = list[queries.BoundedSum]
MakeEngine = Callable[[Records], queries.Engine]


class Replay:
    """A run of a plan, step by step, with another run's releases in place of noise.

    Parameters
    ----------
    plan : Plan
        What was run.
    records : Records
        The table to ask for sums; it need not be the one that was fitted.
    transcript : sequence of Released
        What the run released, from the geometry's own releases on.
    engine : callable Records -> Engine
        What adds up the records.

    Attributes
    ----------
    sums : list of BoundedSum
        What would have been released, without its noise.
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
        task = Task(
            engine=engine(records),
            loss=plan.loss,
            slopes=queries.Slopes(loss=plan.loss, max_weight=records.max_weight),
            curvature=plan.loss.curvature * records.max_weight,
            relation=plan.relation,
            n_rows=plan.n_rows,
            penalty=plan.penalty,
            release=self.next,
        )
        query, update, start = plan.geometry.prepare(task)
        self.query: Query = query
        self.update: Update = update
        self.start = start

    def next(self, total: queries.BoundedSum, share: float = 1.0) -> Released:
        """Note a sum; return what was released in its place."""
        self.sums.append(total)
        return self._transcript[len(self.sums) - 1]


def replay(
    plan: Plan,
    records: Sequence[Records],
    transcript: Sequence[Released],
    sets: Sequence[IntArray] | None = None,
    engine: MakeEngine = ReferenceEngine,
) -> tuple[FloatArray, list[Sums]]:
    """Follow a run; return its weights, and the sums of every step on each table.

    Parameters
    ----------
    plan : Plan
        What was run.
    records : sequence of Records
        The tables to ask.
    transcript : sequence of Released
        What was released, from the geometry's own releases on.
    sets : sequence of arrays, optional
        The public sets of the steps, where they are drawn.
    engine : callable Records -> Engine
        What adds up the records.
    """
    runs = [Replay(plan, table, transcript, engine) for table in records]
    chosen = iter(sets if sets is not None else _full(plan))
    shares = plan.average(plan.n_steps)
    weights = runs[0].start
    for _ in range(plan.n_restarts):
        theta, weights = weights, np.zeros_like(weights)
        for index in range(plan.n_steps):
            at = next(chosen)
            for run in runs:
                released = run.next(run.query(at, theta))
            theta = runs[0].update(theta, released, at)
            weights = weights + shares[index] * theta
    return weights, [run.sums for run in runs]


def _full(plan: Plan) -> Iterator[IntArray]:
    check(
        isinstance(plan.sampling, Full),
        "A replay needs the sets that a sampling drew: hand them in.",
    )
    everything = np.arange(plan.layout.n_features)
    return iter([everything] * (plan.n_steps * plan.n_restarts))


def trial(
    plan: Plan,
    record: PrivacyRecord,
    records: tuple[Records, Records],
    *,
    counted: bool = False,
    sets: Sequence[IntArray] | None = None,
) -> Trial:
    """Compare a fit's transcript with the sums on both tables.

    Parameters
    ----------
    plan, record : Plan and PrivacyRecord
        Of the fit.
    records : pair of Records
        The table and its neighbour.
    counted : bool
        Whether the number of rows was released first.
    sets : sequence of arrays, optional
        As in `replay`.
    """
    before: list[Sums] = [[], []]
    if counted:
        engines = [ReferenceEngine(table) for table in records]
        before = [[queries.counts(engine, 1, plan.relation)] for engine in engines]
    first = len(before[0])
    _, (table, other) = replay(plan, records, record.transcript[first:], sets)
    both = zip(before[0] + table, before[1] + other, strict=True)
    return observed(record, list(both))
