"""Audits of single mechanisms: every kind of release that a fit makes.

Each entry of `MECHANISMS` makes two neighbouring tables on which the sums are as far
apart as their stated sensitivity, and releases one of them with the library's own code
and the noise of the operating system. A new kind of release needs an entry here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtr

from skdp.audit import bounds
from skdp.audit.judge import Audit, Game, Trial, judge, observed
from skdp.audit.scores import evaluation
from skdp.audit.tables import neighbours
from skdp.descent.geometry import Diagonal
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Squared
from skdp.planning.plan import release_row_count
from skdp.privacy import accountant, discovery, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Coded
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Relation
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema, check

Pair = tuple[queries.BoundedSum, queries.BoundedSum]
ALL: tuple[Relation, ...] = queries.RELATIONS
MIXED = Schema(
    {"number": Numeric(0.0, 1.0), "kind": Categorical(["a", "b", "c"])},
    target=Numeric(-1.0, 1.0),
)
CODES = Schema(
    {"kind": Categorical(["a", "b"]), "sort": Categorical(["a", "b"])},
    target=Categorical([0, 1]),
)
#: Slopes of ±1 at weights of zero, the bound.
SLOPES = queries.Slopes(loss=Squared(1.0))


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """How to play a mechanism.

    Attributes
    ----------
    game : callable (relation, noise multiplier, group, delta) -> Game
        `delta` is what a release may cost beside its μ.
    relations : tuple
        Those that it is used under.
    gaussian : bool
        Whether numbers are released, or decisions made from them.
    extra : float
        Share of δ that it costs beside its μ.
    slow : bool
        Whether a game takes milliseconds, so that long audits take groups of records.
    """

    game: Callable[[Relation, float, int, float], Game]
    relations: tuple[Relation, ...] = ALL
    gaussian: bool = True
    extra: float = 0.0
    slow: bool = False


def fresh(relation: Relation) -> PrivacyRecord:
    """A record without a limit: what it was charged is the claim."""
    return PrivacyRecord(epsilon=math.inf, delta=0.5, relation=relation)


def released(
    make: Callable[[Relation, int], Pair],
    relation: Relation,
    z: float,
    group: int,
    delta: float,
) -> Game:
    """Release one of two sums."""
    pair, noise = make(relation, group), Randomness()

    def play(other: bool) -> Trial:
        record = fresh(relation)
        release(pair[other], z, noise, record)
        return observed(record, [pair])

    return play


def engines(
    schema: Schema, relation: Relation, group: int, replace_features: bool = False
) -> list[ReferenceEngine]:
    """Two neighbouring tables, encoded."""
    tables = neighbours(
        schema,
        relation,
        group=group,
        n_rows=group + 2,
        replace_features=replace_features,
    )
    return [
        ReferenceEngine(t.encoded(schema, intercept=True, max_weight=1.0))
        for t in tables
    ]


def gradient(relation: Relation, group: int) -> Pair:
    """All blocks at once, noise shaped by a diagonal geometry."""
    layout = MIXED.layout(intercept=True)
    at, zero = np.arange(layout.n_features), np.zeros((layout.n_features, 1))
    geometry = Diagonal(smoothness=np.linspace(1.0, 2.0, layout.n_features))
    shape = geometry.shape(at, layout.group_of)
    first, second = (
        queries.gradient(engine, SLOPES, zero, at, relation, shape)
        for engine in engines(MIXED, relation, group)
    )
    return first, second


def mapped_gradient(relation: Relation, group: int) -> Pair:
    """In a matrix metric that is neither diagonal nor symmetric."""
    d = MIXED.layout(intercept=True).n_features
    matrix = np.eye(d) + 0.5 * np.eye(d, k=1) - 0.25 * np.eye(d, k=-2)
    metric = queries.Metric.of(matrix, radius=0.5)
    first, second = (
        queries.mapped_gradient(
            engine, queries.capped(engine, SLOPES, metric), np.zeros((d, 1)), relation
        )
        for engine in engines(MIXED, relation, group)
    )
    return first, second


def gram(relation: Relation, group: int) -> Pair:
    """Two categorical columns: a replaced record shares no coordinate with its twin."""
    pattern = queries.GramPattern.of(CODES.layout(intercept=True), relation)
    both = engines(CODES, relation, group, replace_features=True)
    first, second = (queries.gram(engine, pattern) for engine in both)
    return first, second


def centred_gram(relation: Relation, group: int) -> Pair:
    """A number, taken from the middle of its range, beside a category."""
    layout = MIXED.layout(intercept=True)
    pattern = queries.GramPattern.of(layout, relation, centred=True)
    both = engines(MIXED, relation, group)
    first, second = (queries.gram(engine, pattern) for engine in both)
    return first, second


def counts(relation: Relation, group: int) -> Pair:
    """Rows of each class."""
    both = engines(CODES, relation, group)
    first, second = (queries.counts(engine, 2, relation) for engine in both)
    return first, second


def row_count(relation: Relation, z: float, group: int, delta: float) -> Game:
    """The number of rows, as add-remove fits release it."""
    both, noise = engines(MIXED, relation, group), Randomness()
    first, second = (queries.counts(engine, 1, relation) for engine in both)
    # It takes its share of a budget: one whose hundredth is worth z.
    epsilon = accountant.gdp_epsilon(10.0 / z, 0.01)
    budget = PrivacyRecord(epsilon=epsilon, delta=0.01, relation=relation).budget
    share = 1.0 / (z * z * budget)

    def play(other: bool) -> Trial:
        record = fresh(relation)
        record.budget = budget
        release_row_count(both[other].records, record, share, noise=noise)
        return observed(record, [(first, second)])

    return play


def ranges(relation: Relation, z: float, group: int, delta: float) -> Game:
    """Magnitudes of a column; a replaced record moves from one bin to another."""
    rest = [0.5, 2.0]
    cells = {
        False: [1.0] * group + rest,
        True: ([-1.0] * group if relation == "replace-one" else []) + rest,
    }
    noise, n_bins = Randomness(), discovery.TEXT + 1
    first, second = (
        queries.histogram(
            queries.big(
                [np.bincount(discovery.magnitude_bins(np.array(c)), minlength=n_bins)]
            ),
            1,
            relation,
            "magnitudes",
        )
        for c in cells.values()
    )

    def play(other: bool) -> Trial:
        record = fresh(relation)
        table = [{"x": np.array(cells[other])}]
        discovery.ranges(table, ["x"], z, noise, record)
        return observed(record, [(first, second)])

    return play


def levels(relation: Relation, z: float, group: int, delta: float) -> Game:
    """Whether a category is found whose count is just above or below the threshold.

    A replaced record takes two categories across it, in opposite directions; what is
    decided then shows 1/√2 of the distance at most.
    """
    std = z * queries.histogram(queries.big([0]), 1, relation, "").sensitivity
    sides = 2 if relation == "replace-one" else 1
    near = math.ceil(discovery.level_threshold(std, delta / sides) + 0.5)
    # Less than the δ allowed puts the threshold in the middle between two counts.
    delta = sides * float(ndtr(2.0**-10 - (near - 1.5) / std))
    before, after = [near, near - 1], [near - 1, near]
    if relation != "replace-one":
        before, after = before[:1], after[:1]
    noise = Randomness()

    def play(other: bool) -> Trial:
        found, record = _found(after if other else before, z, delta, relation, noise)
        decided = np.array([name in found for name in "ab"[: len(before)]], float)
        # The first one loses records, the second gains them.
        residual, shift = decided - [1.0, 0.0][: len(before)], [-1.0, 1.0]
        return _decision(residual, np.array(shift[: len(before)]), record)

    return play


def rare_level(relation: Relation, z: float, group: int, delta: float) -> Game:
    """A category that only the canary has: it may be found with probability δ."""
    noise = Randomness()

    def play(other: bool) -> Trial:
        table = [50, 1] if other else [50 + (relation == "replace-one")]
        found, record = _found(table, z, delta, relation, noise)
        return _decision(np.array([float("b" in found)]), np.ones(1), record)

    return play


def _found(
    sizes: list[int], z: float, delta: float, relation: Relation, noise: Randomness
) -> tuple[list[str], PrivacyRecord]:
    """Categories that are found in a column with so many a and b."""
    record = fresh(relation)
    record.reserved_delta = delta
    codes = np.repeat(np.arange(len(sizes)), sizes)
    table = [{"x": Coded(codes, list("ab"[: len(sizes)]))}]
    return discovery.levels(table, ["x"], z, delta, noise, record)["x"], record


def _decision(residual: np.ndarray, shift: np.ndarray, record: PrivacyRecord) -> Trial:
    """A trial that shows decisions and no released numbers."""
    delta = sum(event.delta * times for event, times in record.events.items())
    return Trial(residual, shift, record.spent, delta)


MECHANISMS: dict[str, Mechanism] = {
    "gradient": Mechanism(game=partial(released, gradient)),
    "matrix gradient": Mechanism(game=partial(released, mapped_gradient)),
    "gram": Mechanism(game=partial(released, gram)),
    "centred gram": Mechanism(
        game=partial(released, centred_gram), relations=("zero-out", "add-remove")
    ),
    "counts": Mechanism(
        game=partial(released, counts), relations=("replace-one", "add-remove")
    ),
    "row count": Mechanism(game=row_count, relations=("add-remove",)),
    "ranges": Mechanism(game=ranges, slow=True),
    "levels": Mechanism(game=levels, gaussian=False, extra=0.1),
    "rare level": Mechanism(game=rare_level, gaussian=False, extra=0.8),
    "evaluation": Mechanism(
        game=evaluation, relations=("replace-one", "add-remove"), slow=True
    ),
}


def mechanism(
    name: str,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    neighbours: Relation = "replace-one",
    group: int = 1,
    n_trials: int | None = None,
    confidence: float = bounds.CONFIDENCE,
    progress: Callable[[int], object] | None = None,
) -> Audit:
    """Audit one kind of release on the tables that are worst for it.

    Parameters
    ----------
    name : str
        One of `MECHANISMS`.
    epsilon, delta : float
        The claim that its noise is made for.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours.
    group : int
        Records in which the tables differ; g of them are protected by g·μ.
    n_trials : int, optional
        Releases, half of them on each table; by default as many as find noise that is
        20 % too small with a chance of 99 %.
    confidence : float
        Of each bound.
    progress : callable, optional
        Called with the number of releases made since the last call.

    Returns
    -------
    Audit
        Claim, lower bounds and verdict; print it.

    Examples
    --------
    >>> from skdp import audit
    >>> audit.mechanism("gram", epsilon=8.0, n_trials=500, confidence=1 - 1e-6).passed
    True
    """
    check(
        name in MECHANISMS,
        f"mechanism must be one of {sorted(MECHANISMS)}. Got {name!r}: choose one.",
    )
    chosen = MECHANISMS[name]
    check(
        neighbours in chosen.relations,
        f"{name!r} is released under {chosen.relations} only. Got {neighbours!r}.",
    )
    check(
        chosen.gaussian or group == 1,
        f"{name!r} is protected but for a δ, which does not scale with groups. Got "
        f"{group}: take 1.",
    )
    extra = delta * chosen.extra
    mu = accountant.gdp_mu(epsilon, delta - extra)
    play = chosen.game(neighbours, 1.0 / mu, group, extra)
    if n_trials is None:
        n_trials = 2 * bounds.trials_needed(mu * group, confidence=confidence)
    return judge(
        name,
        neighbours,
        play,
        n_trials // 2,
        delta=delta,
        group=group,
        gaussian=chosen.gaussian,
        confidence=confidence,
        progress=progress,
    )
