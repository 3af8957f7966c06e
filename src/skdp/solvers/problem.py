"""Define the arguments and the result that all solvers have in common.

    solver(problem, *, epsilon, delta, random_state, noise, record, engine,
           callback, **own)

`problem` holds the records and public facts about them. `epsilon` and `delta` are the
privacy budget. If an existing privacy `record` is given, the run spends the remaining
budget of this record instead. `own` are further parameters of the solver. Their
defaults are computed from public facts alone: n, d, the budget and the constants of the
loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from skdp.descent.algorithm1 import Step
from skdp.descent.plan import check_record_unit
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import LOSSES, Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.privacy import queries
from skdp.privacy.budget import (
    BudgetError,
    Event,
    PrivacyRecord,
    check_budget,
    default_delta,
)
from skdp.privacy.encoding import Records
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray, Layout, check

Callback = Callable[[Step], None]
EngineOf = Callable[[Records], queries.Engine]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Problem:
    """The problem of minimising the mean of a loss over records plus a penalty.

    Parameters
    ----------
    records : Records
        The encoded table. All other arguments are public.
    loss : Loss
        A loss with bounded slopes.
    n_rows : int
        The public (or released) number of rows, by which sums are divided.
    penalty : Penalty
        Added to the mean loss.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours. The default is replace-one, as in `Plan`. The
        default of estimators is add-remove.
    assumptions : tuple of str
        Facts that were assumed to be public. They are written to the privacy record.
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
            f"neighbours must be one of {queries.NEIGHBOURS}, got {self.neighbours!r}.",
        )
        check(self.n_rows >= 1, f"n_rows must be at least 1, got {self.n_rows}.")
        if self.neighbours != "add-remove":  # so the number of rows is public
            rows = self.records.count()
            check(
                rows == self.n_rows,
                f"n_rows must be the number of records, {rows}, got {self.n_rows}.",
            )

    @property
    def layout(self) -> Layout:
        """The coordinates of an encoded row."""
        return self.records.layout

    @property
    def all(self) -> IntArray:
        """The indices of all coordinates."""
        return np.arange(self.layout.n_features)

    @property
    def start(self) -> FloatArray:
        """The initial weights (d, k), which are zero."""
        return np.zeros((self.layout.n_features, self.loss.n_outputs))

    @property
    def slope_bound(self) -> float:
        """Bound on the product of a record's slope and the record's weight."""
        return self.loss.slope_bound * self.records.max_weight

    @property
    def curvature(self) -> float:
        """Bound β on the second derivative of a record's loss, times its weight.

        The derivative is with respect to the margin.
        """
        return self.loss.curvature * self.records.max_weight

    @property
    def row_norm(self) -> float:
        """Bound R on the norm of an encoded row, including the intercept."""
        return math.sqrt(self.layout.squared_norm(self.all))

    def slopes(self, bound: float | None = None) -> queries.Slopes:
        """Return the description of how slopes are computed and bounded.

        The bound is the smaller of `bound` and `slope_bound`.
        """
        least = min(bound or math.inf, self.slope_bound)
        return queries.Slopes(loss=self.loss, max_weight=least / self.loss.slope_bound)


@dataclass(frozen=True, kw_only=True, eq=False)
class Solved:
    """The result of a solver: released weights, their cost and the settings.

    Attributes
    ----------
    weights : float64 (d, k)
        The weights of the model.
    record : PrivacyRecord
        The privacy record, which says what was spent.
    n_steps : int
        Number of steps. It is 1 for solvers without steps.
    settings : mapping
        Every parameter that was used. All of them are public or released.
    """

    weights: FloatArray
    record: PrivacyRecord
    n_steps: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """The budget and the noise of a solver's run.

    Attributes
    ----------
    record : PrivacyRecord
        The record to which every release is charged.
    noise : Randomness
        Source of the noise.
    budget : float
        The μ² that may be spent.
    delta : float
        The δ that may be spent in addition, by charges that are not Gaussian.
    """

    record: PrivacyRecord
    noise: Randomness
    budget: float
    delta: float

    @property
    def mu(self) -> float:
        """The square root of the budget, which is infinite for a run without noise."""
        return math.sqrt(self.budget)

    def share(self, part: float) -> Run:
        """Return a run with the share `part` of this run's budget."""
        return replace(self, budget=self.budget * part)


@dataclass(frozen=True)
class Solver:
    """An algorithm and what it requires of a problem and of a privacy record.

    Attributes
    ----------
    run : callable
        ``run(problem, *, epsilon, delta=None, random_state=None, noise=None,
        record=None, engine=ReferenceEngine, callback=None, **own) -> Solved``.
    losses : tuple of str
        Kinds of the losses that the algorithm can fit. If empty, it can fit all losses.
    delta_share : float
        The share of δ that the algorithm charges in addition to μ. A privacy record
        must have reserved this share.
    persons : bool
        Whether the algorithm can protect persons with several rows.
    reads_rows : str
        The reason why all rows must be in one process, for messages. It is empty if the
        algorithm only asks an engine for sums.
    """

    run: Callable[..., Solved]
    losses: tuple[str, ...] = ()
    delta_share: float = 0.0
    persons: bool = False
    reads_rows: str = ""


#: Every solver, by name. The tests run each solver in this table.
SOLVERS: dict[str, Solver] = {}
#: Losses with one output, whose slopes are increasing functions of the margin.
ONE_OUTPUT = tuple(kind for kind, loss in LOSSES.items() if loss().n_outputs == 1)


def register_solver(
    *,
    losses: tuple[str, ...] = (),
    delta_share: float = 0.0,
    persons: bool = False,
    reads_rows: str = "",
) -> Callable[[F], F]:
    """Return a decorator that adds a function to `SOLVERS` under its own name.

    The parameters are those of `Solver`.
    """

    def register(function: F) -> F:
        SOLVERS[function.__name__] = Solver(
            function, losses, delta_share, persons, reads_rows
        )
        return function

    return register


def open_run(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    delta_share: float = 0.0,
    persons: bool = False,
    calibration: str = "exact",
) -> Run:
    """Start a run, either with a new privacy record or with an existing one.

    Parameters
    ----------
    problem : Problem
        The problem to solve.
    epsilon, delta : float
        The privacy budget. If δ is None, it is min(1e-6, 1/(10 n)). Both are ignored if
        a record is given.
    random_state : int, optional
        A seed, for tests only. A seeded run claims no privacy.
    noise : Randomness, optional
        Source of the noise, used instead of a seed.
    record : PrivacyRecord, optional
        A privacy record to which earlier releases on the same table were charged.
    delta_share : float
        The share of δ that is needed for charges that are not Gaussian. If a record is
        given, it must have reserved this share.
    persons : bool
        Whether the solver can protect persons with several rows. This requires that it
        reads records only through queries, because queries bound all rows of a person
        together like one record.
    calibration : {"exact", "paper"}
        Whether the noise is the least that the budget allows, or as in the paper. It is
        only checked here. The solver itself chooses the noise.
    """
    check(
        calibration in ("exact", "paper"),
        f"calibration must be 'exact' or 'paper', got {calibration!r}.",
    )
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
            unit=problem.layout.unit,
        )
    check_record_unit(record, problem.layout)
    check(
        persons or problem.layout.unit is None,
        "This solver bounds the influence of one row, not of one person. With a unit, "
        "use DP-SkGD, or a solver that is registered with persons=True.",
    )
    check(
        record.neighbours == problem.neighbours,
        "The privacy record and the problem must have the same neighbours, got "
        f"{record.neighbours} and {problem.neighbours}.",
    )
    if record.budget < math.inf and record.remaining <= 1e-9 * record.budget:
        raise BudgetError(
            "The privacy budget is exhausted; no further release is allowed."
        )
    spent = math.fsum(n * event.delta for event, n in record.events.items())
    left = min(record.reserved_delta - spent, record.delta * delta_share)
    check(
        delta_share == 0.0 or left > 0 or record.budget == math.inf,
        "This solver requires a privacy record with reserved_delta ≥ "
        f"{record.delta * delta_share:.3g}.",
    )
    return Run(record=record, noise=source, budget=record.remaining, delta=left)


def charge_run(run: Run, event: Event) -> PrivacyRecord:
    """Charge an event before data is read. Return a privacy record for its releases.

    Use the returned privacy record for the releases that belong to the event. Charges
    to it do not count, because the event has been charged already. The released values
    are kept in a transcript that the returned record shares with the run's own record.
    """
    run.record.charge(event)
    run.record.seeded |= run.noise.seeded
    return PrivacyRecord(
        epsilon=math.inf,
        delta=0.5,
        neighbours=run.record.neighbours,
        transcript=run.record.transcript,
    )


def refuse_coupled_penalty(problem: Problem) -> None:
    """Raise if the penalty couples coordinates, for solvers that move one at a time."""
    check(
        problem.penalty.separable,
        f"{type(problem.penalty).__name__} couples coordinates, and this solver moves "
        "one coordinate at a time. Use skdp.solvers.dp_sega.",
    )


__all__ = [
    "ONE_OUTPUT",
    "SOLVERS",
    "Callback",
    "EngineOf",
    "Problem",
    "ReferenceEngine",
    "Run",
    "Solved",
    "Solver",
    "charge_run",
    "open_run",
    "refuse_coupled_penalty",
    "register_solver",
]
