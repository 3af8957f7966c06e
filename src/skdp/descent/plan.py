"""Define plans, which are made before a record is read, and run them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from skdp.descent import algorithm1, bounds, samplings
from skdp.descent.algorithm1 import Step, draw_course, run_steps
from skdp.descent.bounds import paper_noise_multiplier
from skdp.descent.geometry import Geometry, Task
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet, Penalty
from skdp.privacy import accountant, queries
from skdp.privacy.budget import (
    BudgetError,
    PrivacyRecord,
    check_budget,
)
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import Released, release
from skdp.privacy.randomness import Randomness
from skdp.privacy.visits import CountVisits
from skdp.schema import (
    FloatArray,
    IntArray,
    Layout,
    check,
    check_integer,
    count_in_words,
    name_record,
)
from skdp.schema.validation import fact

# ---- Check that a penalty is separable, so that steps may move a part of the weights


def check_separable(
    penalty: Penalty,
    sampling: samplings.Sampling,
    n_outputs: int,
    diagonal: bool = True,
) -> None:
    """Raise if the penalty couples coordinates that different steps may move.

    A step on a set S may apply the proximal map only if the penalty is a function of
    the coordinates in S plus a function of the others. If a penalty has
    ``separable = False``, its method `splits` says for which sets this holds.
    Any other penalty is tested by `is_separable`, unless it is ``trusted``, or every
    step moves all coordinates in a diagonal metric.
    """
    name, support = type(penalty).__name__, sampling.support
    if not penalty.separable:
        check(
            support is not None and all(map(penalty.splits, support)),
            f"{name} couples coordinates that different steps move. Use full steps, "
            "blocks that do not split its parts, or skdp.solvers.dp_sega.",
        )
        return
    full = isinstance(sampling, samplings.Full)
    if penalty.trusted or (full and diagonal):
        return
    label = np.arange(sampling.n_coordinates)
    sets = support or ()
    if diagonal and sum(map(len, sets)) == len(label):  # disjoint blocks
        for number, block in enumerate(sets):
            label[block] = number
    check(
        is_separable(penalty, label, n_outputs),
        f"{name} couples coordinates that different steps move, so its proximal map on "
        "a part of them would be wrong. Use full steps in the diagonal geometry.",
    )


def is_separable(penalty: Penalty, label: IntArray, n_outputs: int) -> bool:
    """Return whether a penalty appears to be a sum of one function per label.

    `label` numbers the sets of coordinates that steps move together. For each binary
    digit, consider the coordinates whose label has a 1 in this digit. The proximal map
    of these coordinates alone must agree with the proximal map of all coordinates. Any
    two labels differ in some digit, so every pair of labels is tested. The weights in
    the test are fixed and of three sizes. No record is read.
    """
    at = np.arange(len(label))
    metric = 1.0 + 0.5 * np.sin(3.7 * at)
    places = np.arange(1.0, len(label) * n_outputs + 1).reshape(-1, n_outputs)
    for size in (0.1, 1.0, 10.0):
        weights = size * np.sin(12.9898 * places)
        whole = penalty.prox(weights, metric, at)
        for bit in range(int(label.max()).bit_length()):
            part = np.flatnonzero(label >> bit & 1)
            alone = penalty.prox(weights[part], metric[part], part)
            if not np.allclose(alone, whole[part], rtol=1e-6, atol=1e-9 * size):
                return False
    return True


# ---- Define `Plan`, which is made before data is read, and `run`, which executes it


Calibration = Literal["exact", "paper"]
#: The seed of the example sets from which a plan expects its visits. It is not that of
#: any run.
EXAMPLE_SEED = 20_250_503
#: Computing a slope takes as long as multiplying about this many numbers.
SLOPE_ENTRIES = 8


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """Everything that a run will do, decided from public facts.

    Parameters
    ----------
    layout : Layout
        The coordinates of an encoded row.
    loss : Loss
        The loss. Its mean over rows is minimised.
    n_rows : int
        The public (or released) number of rows, by which sums are divided.
    epsilon, delta : float
        The privacy budget. With an infinite epsilon the run adds no noise (SkGD).
    sampling : Sampling
        The distribution of the sets of coordinates that steps move.
    geometry : Geometry
        The form of the steps and of the noise.
    n_steps, n_restarts : int
        The paper's K (steps per inner loop) and T (number of inner loops).
    penalty : Penalty
        Added to the mean loss. Steps apply its proximal map.
    average : Average
        How an inner loop averages its iterates.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours. The default is replace-one, as in the paper: n is
        public there. The default of estimators is add-remove.
    calibration : {"exact", "paper"}
        Whether the noise follows from exact Gaussian-DP accounting or from Theorem 4.1.
    rate : Rate, optional
        The bound on the excess risk from which K was chosen.
    assumptions : tuple of str
        Facts that were assumed to be public. They are written to the privacy record.
    reasons : tuple of str
        The knots and pairs that were chosen, and why.
    engine : str
        The engine that a fit uses. It is shown but not saved, because all engines give
        the same result.
    outlook : callable, optional
        Forecasts the effects, or says why it does not. It is called when the plan is
        shown, and not saved.
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
    average: algorithm1.Average = algorithm1.mean
    neighbours: queries.Neighbours = "replace-one"
    calibration: Calibration = "exact"
    rate: bounds.Rate | None = None
    assumptions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    engine: str = "auto"
    outlook: Callable[[], EffectOutlook | str] | None = field(
        default=None, compare=False, repr=False
    )
    #: About how many numbers engines compute from the rows in a run. If persons may
    #: have several rows, this is not known (infinity).
    n_computed: float = fact()

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, self.n_rows)
        for name in ("n_steps", "n_restarts"):
            check_integer(getattr(self, name), name)
        rule = f"average must be a function of algorithm1, got {self.average!r}."
        check(callable(self.average), rule)
        check(
            self.neighbours in queries.NEIGHBOURS,
            f"neighbours must be one of {queries.NEIGHBOURS}, got {self.neighbours!r}.",
        )
        directions = self.geometry.count_directions(self.layout)
        check(
            self.sampling.n_coordinates == directions,
            f"sampling must have {directions} coordinates, as the layout or the "
            f"geometry has, got {self.sampling.n_coordinates}.",
        )
        check_calibration(self.calibration, self.epsilon, self.delta)
        check_separable(
            self.penalty,
            self.sampling,
            self.loss.n_outputs,
            self.geometry.is_diagonal,
        )
        d, steps = self.layout.n_features, self.n_steps * self.n_restarts
        per_row = steps * self.loss.n_outputs * (d + SLOPE_ENTRIES) + d**2
        known = self.layout.unit is None
        vars(self).update(
            n_computed=float(self.n_rows) * per_row if known else math.inf
        )

    def noise_multiplier(self, budget: float, most: float | None = None) -> float:
        """Return the noise multiplier of every step in a run that may spend `budget`.

        `budget` is the sum of μ² over all releases of the run, including those that the
        geometry makes before the first step and after the last one. `most` is the
        number of steps that the run must pay for. By default it is `expected_visits`,
        because a run draws its sets, and counts the visits, when it starts.
        """
        releases = self.n_steps * self.n_restarts
        share = math.sqrt(budget * (1.0 - self.geometry.share))
        most = self.expected_visits if most is None else most
        exact = accountant.noise_multiplier(share, most)
        if self.calibration == "exact" or not exact:
            return exact
        return paper_noise_multiplier(self.epsilon, self.delta, releases)

    @cached_property
    def expected_visits(self) -> float:
        """About the number of steps that the run must pay for.

        It is the number of steps that one record can take part in
        (`skdp.privacy.visits`), for example sets.
        """
        count = partial(self.geometry.count_visits, self.layout)
        return expect_visits(self.sampling, count, self.n_steps * self.n_restarts)

    def make_task(
        self,
        engine: queries.Engine,
        release_share: Callable[[queries.BoundedSum, float], Released],
    ) -> Task:
        """Return the task, everything from which the geometry prepares the steps."""
        max_weight = engine.records.max_weight
        return Task(
            engine=engine,
            loss=self.loss,
            slopes=queries.Slopes(loss=self.loss, max_weight=max_weight),
            curvature=self.loss.curvature * max_weight,
            neighbours=self.neighbours,
            n_rows=self.n_rows,
            penalty=self.penalty,
            release=release_share,
            sampling=self.sampling,
        )

    def __repr__(self) -> str:
        return (
            f"<Plan: {self.loss.kind} loss, "
            f"{count_in_words(self.n_rows, name_record(self.layout.unit))}, "
            f"ε = {self.epsilon:g}, δ = {self.delta:g}, "
            f"{count_in_words(self.n_steps * self.n_restarts, 'step')}>"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # in notebooks

    def __str__(self) -> str:
        from skdp.descent.forecast import describe_plan

        return describe_plan(self)

    def to_json(self) -> str:
        """Return the plan as JSON."""
        from skdp.descent.plan_files import dump_plan

        return dump_plan(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read a plan from the JSON of `to_json`."""
        from skdp.descent.plan_files import parse_plan

        return parse_plan(text)


#: Visits are counted for at most this many example sets, and scaled.
MOST_EXAMPLES = 1 << 14


def expect_visits(
    sampling: samplings.Sampling, count: CountVisits, n_steps: int
) -> float:
    """Return about the number of steps that a run with this sampling must pay for.

    The sets are examples. They are drawn in the same way each time, so plans made from
    equal facts are equal. A run draws its own sets and counts its own visits.
    """
    if isinstance(sampling, samplings.Full):
        return float(n_steps)
    examples, seeded = min(n_steps, MOST_EXAMPLES), Randomness(EXAMPLE_SEED)
    drawn = draw_course(
        sampling.sets, count, n_steps=examples, n_restarts=1, randomness=seeded
    )
    return drawn.most * n_steps / examples


@dataclass(frozen=True)
class EffectForecast:
    """What a plan expects of the effects of a column.

    Attributes
    ----------
    column : str
        The name of the column.
    told : float
        The expected share of the effects of the column that get an interval.
    width : float
        The width of their 95 % intervals, or infinity if none is told. It is on the
        scale of the effect from one end of what rows fill to the other, or of a
        category compared with the mean of its column or with its reference.
    """

    column: str
    told: float
    width: float


@dataclass(frozen=True, kw_only=True)
class EffectOutlook:
    """What a plan expects of all effects, if its assumptions about rows hold.

    Attributes
    ----------
    effects : tuple of EffectForecast
        The columns of the schema, in its order.
    link : str
        The link of the model, which says what effects are.
    times_to_tell_all : float
        About how many times as many rows would suffice to tell all effects. It is
        infinite if no such number was found.
    epsilon_to_tell_all : float
        An ε that would suffice for that with these rows, or infinity.
    """

    effects: tuple[EffectForecast, ...]
    link: str
    times_to_tell_all: float
    epsilon_to_tell_all: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The result of a run: released weights and the privacy record."""

    weights: FloatArray
    record: PrivacyRecord
    plan: Plan


def check_calibration(calibration: Any, epsilon: float, delta: float) -> None:
    """Raise if the calibration is unknown, or if Theorem 4.1 does not cover ε."""
    check(
        calibration in ("exact", "paper"),
        f"calibration must be 'exact' or 'paper', got {calibration!r}.",
    )
    if calibration == "paper" and epsilon < math.inf:
        paper_noise_multiplier(epsilon, delta, 1)  # raises if ε is too large


def check_record_unit(record: PrivacyRecord, layout: Layout) -> None:
    """Raise if a privacy record and a layout have different units."""
    check(
        record.unit == layout.unit,
        f"The privacy record must have the unit of the schema, {layout.unit}, got "
        f"{record.unit}.",
    )


def run(
    plan: Plan,
    records: Records,
    *,
    engine: Callable[[Records], queries.Engine] = ReferenceEngine,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    start: FloatArray | None = None,
    callback: Callable[[Step], None] | None = None,
) -> Fit:
    """Run a plan on records.

    Parameters
    ----------
    plan : Plan
        The plan.
    records : Records
        The encoded table, in the plan's layout.
    engine : callable Records -> Engine
        Makes the engine that adds up the records.
    random_state : int, optional
        A seed, for tests only. A seeded run claims no privacy.
    noise : Randomness, optional
        Source of the noise, used instead of a seed.
    record : PrivacyRecord, optional
        A privacy record of earlier releases on the same table. The run spends the
        budget that remains in this record.
    start : float64 (d, k), optional
        w⁰, which must be public or released. By default the geometry chooses it.
    callback : callable, optional
        Called with a `Step` after each step.
    """
    check(
        records.layout == plan.layout,
        "The records must have the plan's layout. Were they encoded by another schema?",
    )
    if plan.neighbours != "add-remove":  # the number of rows is public
        n_rows, what = records.count(), plan.layout.counted
        check(
            n_rows == plan.n_rows,
            f"The table must have {plan.n_rows} {what}, as planned, got {n_rows}.",
        )
    randomness = noise or Randomness(random_state)
    record = record or PrivacyRecord(
        epsilon=plan.epsilon,
        delta=plan.delta,
        neighbours=plan.neighbours,
        assumptions=plan.assumptions,
        seeded=randomness.seeded,
        unit=plan.layout.unit,
    )
    check_record_unit(record, plan.layout)
    check(
        record.neighbours == plan.neighbours,
        "The privacy record and the plan must have the same neighbours, got "
        f"{record.neighbours} and {plan.neighbours}.",
    )
    if record.budget < math.inf and record.remaining <= 1e-9 * record.budget:
        raise BudgetError(
            "The privacy budget is exhausted; no further release is allowed."
        )
    # What is left, and not what the plan expected: an earlier release may have cost a
    # little less, and the steps may use all that remains.
    budget = record.remaining

    def release_geometry(total: queries.BoundedSum, share: float) -> Released:
        z = accountant.noise_multiplier(math.sqrt(budget * share), 1)
        return release(total, z, randomness, record)

    task = plan.make_task(engine(records), release_geometry)
    prepared = plan.geometry.prepare(task)
    start = prepared.start if start is None else check_start(start, prepared.start)
    # Public sets are drawn first, and the noise follows from what one record can take
    # part in. Sets that follow releases are not known yet, so all steps are paid for.
    course = draw_course(
        (prepared.law or plan.sampling).sets,
        None if prepared.law else prepared.visits,
        n_steps=plan.n_steps,
        n_restarts=plan.n_restarts,
        randomness=randomness,
    )
    weights = run_steps(
        query=prepared.query,
        update=prepared.update,
        course=course,
        average=plan.average,
        start=start,
        noise_multiplier=plan.noise_multiplier(budget, course.most),
        randomness=randomness,
        record=record,
        callback=callback,
    )
    return Fit(weights=prepared.finish(weights), record=record, plan=plan)


def check_start(start: Any, like: FloatArray) -> FloatArray:
    """Return w⁰ as a matrix (d, k). Raise if its shape is wrong or it is not finite."""
    given = np.array(start, dtype=np.float64)
    given = given[:, None] if given.ndim == 1 and like.shape[1] == 1 else given
    check(
        given.shape == like.shape and bool(np.isfinite(given).all()),
        f"start must have finite weights of shape {like.shape}, got shape "
        f"{given.shape}.",
    )
    return given


def release_row_count(
    records: Records,
    record: PrivacyRecord,
    share: float = 0.01,
    engine: Callable[[Records], queries.Engine] = ReferenceEngine,
    noise: Randomness | None = None,
) -> int:
    """Release the number of rows, or of persons, for a `share` of the budget.

    Under add-remove the number is private, so a run needs this release. The release is
    charged to `record`. Pass the same record to `run`.
    """
    check_record_unit(record, records.layout)
    z = accountant.noise_multiplier(math.sqrt(record.budget * share), 1)
    total = queries.counts(engine(records), 1, record.neighbours)
    released = release(total, z, noise or Randomness(), record)
    # The noise may make it zero or negative, and every mean divides by it.
    return max(1, round(float(released.values[0])))
