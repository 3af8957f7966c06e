"""What every solver is handed and what it hands back: one calling convention.

    solver(problem, *, epsilon, delta, random_state, noise, record, engine,
           callback, **own)

`problem` holds the records and what is public about them; `epsilon` and `delta` are the
budget, unless a `record` that was opened before is given, of which what is left is
spent; `own` are the solver's parameters, each with a default that is computed from
public facts alone: n, d, the budget and the loss's constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from skdp.descent.algorithm1 import Step
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.planning.plan import check_budget, default_delta
from skdp.privacy import queries
from skdp.privacy.budget import BudgetError, Event, PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, Layout, check

Callback = Callable[[Step], None]
EngineOf = Callable[[Records], queries.Engine]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Problem:
    """Minimise the mean of a loss over records plus a penalty.

    Parameters
    ----------
    records : Records
        The encoded table, the only thing here that is not public.
    loss : Loss
        Its slopes are bounded.
    n_rows : int
        The public (or released) number of rows that sums are divided by.
    penalty : Penalty
        Added to the mean loss.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    assumptions : tuple of str
        What was taken as public; it goes into the record.
    """

    records: Records
    loss: Loss
    n_rows: int
    penalty: Penalty = field(default_factory=ElasticNet)
    neighbours: queries.Neighbours = "replace-one"
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(
            self.neighbours in queries.NEIGHBOURS,
            f"neighbours must be one of {queries.NEIGHBOURS}. Got {self.neighbours!r}.",
        )
        check(self.n_rows >= 1, f"n_rows must be at least 1. Got {self.n_rows}.")
        if self.neighbours != "add-remove":  # then the number of rows is public
            rows = sum(len(chunk.target) for chunk in self.records.chunks)
            check(
                rows == self.n_rows,
                f"n_rows must be the number of records. Got {self.n_rows} for {rows}.",
            )

    @property
    def layout(self) -> Layout:
        """The coordinates of an encoded row."""
        return self.records.layout

    @property
    def all(self) -> IntArray:
        """Every coordinate."""
        return np.arange(self.layout.n_features)

    @property
    def start(self) -> FloatArray:
        """Weights (d, k) to begin with: zeros."""
        return np.zeros((self.layout.n_features, self.loss.n_outputs))

    @property
    def slope_bound(self) -> float:
        """Bound on a record's slope, its weight included."""
        return self.loss.slope_bound * self.records.max_weight

    @property
    def curvature(self) -> float:
        """Bound β on the second derivative in the margin, weights included."""
        return self.loss.curvature * self.records.max_weight

    @property
    def row_norm(self) -> float:
        """Bound R on the norm of an encoded row, the intercept included."""
        return math.sqrt(self.layout.squared_norm(self.all))

    def slopes(self, bound: float | None = None) -> queries.Slopes:
        """How slopes are computed and bounded, by less than their own if so asked."""
        least = min(bound or math.inf, self.slope_bound)
        return queries.Slopes(loss=self.loss, max_weight=least / self.loss.slope_bound)


@dataclass(frozen=True, kw_only=True, eq=False)
class Solved:
    """What a solver returns: released weights, what they cost, what was decided.

    Attributes
    ----------
    weights : float64 (d, k)
        The model.
    record : PrivacyRecord
        What was spent.
    n_steps : int
        How many steps were taken; 1 for solvers that release once.
    settings : mapping
        Every parameter that was used, all of them public or released.
    """

    weights: FloatArray
    record: PrivacyRecord
    n_steps: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What a solver spends and draws with.

    Attributes
    ----------
    record : PrivacyRecord
        What every release is charged to.
    noise : Randomness
        Where noise comes from.
    budget : float
        μ² that may be spent: what is left of the record.
    delta : float
        What a charge that is not Gaussian may cost beside it.
    """

    record: PrivacyRecord
    noise: Randomness
    budget: float
    delta: float

    @property
    def mu(self) -> float:
        """√budget, infinite for a run without noise."""
        return math.sqrt(self.budget)

    def share(self, part: float) -> Run:
        """Return the same run with a part of what may be spent."""
        return replace(self, budget=self.budget * part)


def opened(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    delta_share: float = 0.0,
) -> Run:
    """Open the budget of a run, or go on with a record.

    Parameters
    ----------
    problem : Problem
        What is solved.
    epsilon, delta : float
        The budget; δ is min(1e-6, 1/(10 n)) if None. Not read if a record is given.
    random_state : int, optional
        For tests: a seeded run claims no privacy.
    noise : Randomness, optional
        Where noise comes from, instead of a seed.
    record : PrivacyRecord, optional
        One that earlier releases on the same table were charged to.
    delta_share : float
        The part of δ that charges which are not Gaussian will need. A record that is
        handed in must have been opened with as much in reserve.
    """
    source = noise or Randomness(random_state)
    if record is None:
        delta = default_delta(problem.n_rows) if delta is None else delta
        check_budget(epsilon, delta, problem.n_rows)
        record = PrivacyRecord(
            epsilon=epsilon,
            delta=delta,
            neighbours=problem.neighbours,
            assumptions=problem.assumptions,
            seeded=source.seeded,
            reserved_delta=delta * delta_share,
        )
    check(
        record.neighbours == problem.neighbours,
        f"The record is for {record.neighbours} neighbours. Got a problem for "
        f"{problem.neighbours}: use the same neighbours.",
    )
    if record.budget < math.inf and record.remaining <= 1e-9 * record.budget:
        raise BudgetError("Nothing is left of the budget: start a new record.")
    spent = math.fsum(n * event.delta for event, n in record.events.items())
    left = min(record.reserved_delta - spent, record.delta * delta_share)
    check(
        delta_share == 0.0 or left > 0 or record.budget == math.inf,
        "This solver needs a part of delta that is set aside: open the record with "
        f"reserved_delta={record.delta * delta_share:.3g} or more.",
    )
    return Run(record=record, noise=source, budget=record.remaining, delta=left)


def charged(run: Run, event: Event) -> PrivacyRecord:
    """Charge an event before records are read for it; its releases go to the result.

    That record is thrown away, but for the values, which enter the transcript of the
    real one.
    """
    run.record.charge(event)
    run.record.seeded |= run.noise.seeded
    return PrivacyRecord(
        epsilon=math.inf,
        delta=0.5,
        neighbours=run.record.neighbours,
        transcript=run.record.transcript,
    )


def whole(value: Any, name: str, least: int = 1) -> int:
    """Return a whole number of at least `least`."""
    fits = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    check(
        fits and value >= least,
        f"{name} must be a whole number ≥ {least}. Got {value!r}.",
    )
    return int(value)


__all__ = [
    "Callback",
    "EngineOf",
    "Problem",
    "ReferenceEngine",
    "Run",
    "Solved",
    "charged",
    "opened",
    "whole",
]
