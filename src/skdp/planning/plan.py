"""A plan is made before the data is touched; only `run` sees records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from skdp.descent import averages, samplings
from skdp.descent.algorithm1 import Step, descend
from skdp.descent.geometry import Geometry, Task
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.planning import theory
from skdp.planning.theorem1 import paper_noise_multiplier
from skdp.privacy import accountant, queries
from skdp.privacy.budget import BudgetError, PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released, release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, Layout, check

Calibration = Literal["exact", "paper"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """All that a run does, decided from public facts.

    Parameters
    ----------
    layout : Layout
        The coordinates of an encoded row.
    loss : Loss
        What is minimised, as a mean over rows.
    n_rows : int
        The public (or released) number of rows that sums are divided by.
    epsilon, delta : float
        The budget; an infinite epsilon runs SkGD without noise.
    sampling : Sampling
        The law of the sets.
    geometry : Geometry
        Steps and noise shape.
    n_steps, n_restarts : int
        K and T.
    penalty : Penalty
        Added to the mean loss, by its proximal map.
    average : Average
        What an inner loop returns.
    relation : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    calibration : {"exact", "paper"}
        Exact Gaussian-DP accounting, or the constant of Theorem 1.
    rate : Rate, optional
        The bound on the excess risk that K was chosen by.
    assumptions : tuple of str
        What was taken as public; it goes into the record.
    """

    layout: Layout
    loss: Loss
    n_rows: int
    epsilon: float
    delta: float
    sampling: samplings.Sampling
    geometry: Geometry
    n_steps: int
    n_restarts: int = 1
    penalty: Penalty = field(default_factory=ElasticNet)
    average: averages.Average = averages.mean
    relation: queries.Relation = "replace-one"
    calibration: Calibration = "exact"
    rate: theory.Rate | None = None
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, self.n_rows)
        for name in ("n_steps", "n_restarts"):
            times = getattr(self, name)
            whole = isinstance(times, (int, np.integer)) and not isinstance(times, bool)
            check(
                whole and times >= 1,
                f"{name} must be a whole number ≥ 1. Got {times!r}: take one.",
            )
        check(
            callable(self.average),
            f"average must be one of descent.averages. Got {self.average!r}.",
        )
        check(
            self.relation in queries.RELATIONS,
            f"neighbours must be one of {queries.RELATIONS}. Got {self.relation!r}.",
        )
        check(
            self.sampling.n_coordinates == self.layout.n_features,
            f"The sampling must be over {self.layout.n_features} coordinates, as the "
            f"layout. Got one over {self.sampling.n_coordinates}: make it for them.",
        )
        check(
            self.calibration in ("exact", "paper"),
            f"calibration must be 'exact' or 'paper'. Got {self.calibration!r}.",
        )
        if self.calibration == "paper" and self.epsilon < math.inf:
            paper_noise_multiplier(self.epsilon, self.delta, 1)  # refuses a large ε

    def noise_multiplier(self, budget: float) -> float:
        """Noise multiplier of every step, for a budget of μ²."""
        releases = self.n_steps * self.n_restarts
        share = math.sqrt(budget * (1.0 - self.geometry.share))
        exact = accountant.noise_multiplier(share, releases)
        if self.calibration == "exact" or not exact:
            return exact
        return paper_noise_multiplier(self.epsilon, self.delta, releases)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # what a notebook shows

    def __str__(self) -> str:
        from skdp.planning.forecast import described  # which works on plans

        return described(self)

    def to_json(self) -> str:
        """Write the plan."""
        from skdp.planning.plan_files import dumps

        return dumps(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read a plan that `to_json` wrote."""
        from skdp.planning.plan_files import loads

        return loads(text)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """What a run returns: released weights and what they cost."""

    weights: FloatArray
    record: PrivacyRecord
    plan: Plan


def check_budget(epsilon: float, delta: float, n_rows: float) -> None:
    """Refuse budgets that mean nothing: ε ≤ 0, δ ≤ 0, δ ≥ 1/n."""
    check(n_rows >= 1, f"n_rows must be at least 1. Got {n_rows}: count the rows.")
    check(epsilon > 0, f"epsilon must be positive. Got {epsilon}: 1 is a usual choice.")
    check(
        0 < delta < 1.0 / n_rows,
        "delta must be in (0, 1/n_rows), or a whole record may be published by chance. "
        f"Got {delta} for {n_rows} rows: take {min(1e-6, 0.1 / n_rows):.3g}.",
    )


def run(
    plan: Plan,
    records: Records,
    *,
    engine: Callable[[Records], queries.Engine] = ReferenceEngine,
    seed: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    callback: Callable[[Step], None] | None = None,
) -> Fit:
    """Run a plan on records.

    Parameters
    ----------
    plan : Plan
        What to do.
    records : Records
        The encoded table, of the plan's layout.
    engine : callable Records -> Engine
        What adds up the records.
    seed : int, optional
        For tests: a seeded run claims no privacy.
    noise : Randomness, optional
        Where noise comes from, instead of a seed.
    record : PrivacyRecord, optional
        One that earlier releases on the same table were charged to; the plan spends
        what is left of it.
    callback : callable, optional
        Called with a `Step` after each.
    """
    check(
        records.layout == plan.layout,
        "The records must have the plan's layout: encode them with the plan's schema.",
    )
    if plan.relation != "add-remove":  # the number of rows is public
        n_rows = sum(len(chunk.target) for chunk in records.chunks)
        check(
            n_rows == plan.n_rows,
            f"The plan is for {plan.n_rows} rows. Got {n_rows}: make a plan for them.",
        )
    randomness = noise or Randomness(seed)
    record = record or PrivacyRecord(
        epsilon=plan.epsilon,
        delta=plan.delta,
        relation=plan.relation,
        assumptions=plan.assumptions,
        seeded=randomness.seeded,
    )
    check(
        record.relation == plan.relation,
        f"The record is for {record.relation} neighbours. Got a plan for "
        f"{plan.relation}: use one relation.",
    )
    if record.budget < math.inf and record.remaining <= 1e-9 * record.budget:
        raise BudgetError("Nothing is left of the budget: start a new record.")
    budget = record.remaining
    noise_multiplier = plan.noise_multiplier(budget)

    def release_geometry(total: queries.BoundedSum, share: float) -> Released:
        z = accountant.noise_multiplier(math.sqrt(budget * share), 1)
        return release(total, z, randomness, record)

    query, update, start = plan.geometry.prepare(
        Task(
            engine=engine(records),
            loss=plan.loss,
            slopes=queries.Slopes(loss=plan.loss, max_weight=records.max_weight),
            curvature=plan.loss.curvature * records.max_weight,
            relation=plan.relation,
            n_rows=plan.n_rows,
            penalty=plan.penalty,
            release=release_geometry,
        )
    )
    weights = descend(
        query=query,
        update=update,
        sets=plan.sampling.sets,
        average=plan.average,
        start=start,
        n_steps=plan.n_steps,
        n_restarts=plan.n_restarts,
        noise_multiplier=noise_multiplier,
        randomness=randomness,
        record=record,
        callback=callback,
    )
    return Fit(weights=weights, record=record, plan=plan)


def release_row_count(
    records: Records,
    record: PrivacyRecord,
    share: float = 0.01,
    engine: Callable[[Records], queries.Engine] = ReferenceEngine,
    noise: Randomness | None = None,
) -> int:
    """Release the number of rows for a `share` of the budget, for add-remove tables.

    It is charged to `record`; give the same record to `run`.
    """
    z = accountant.noise_multiplier(math.sqrt(record.budget * share), 1)
    counted = queries.counts(engine(records), 1, record.relation)
    total = replace(counted, query="number of rows")
    released = release(total, z, noise or Randomness(), record)
    return max(1, round(float(released.values[0])))
