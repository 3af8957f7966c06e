"""Audit single mechanisms: each kind of release in a DP-SkGD fit or an evaluation.

Each entry of `MECHANISMS` makes two neighbouring tables whose sums differ by as much as
the stated sensitivity allows. It then releases the sum of one table, with the library's
own code and noise from the operating system. Add an entry here for each new kind of
release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from skdp.audit import bounds
from skdp.audit.discovery_games import (
    make_levels_game,
    make_ranges_game,
    make_rare_level_game,
)
from skdp.audit.evaluation_game import make_evaluation_game
from skdp.audit.games import (
    Audit,
    Game,
    Observation,
    compare_releases,
    make_record,
    play_games,
)
from skdp.audit.neighbouring_tables import MIXED, make_engines
from skdp.audit.sketch_games import make_sketch_game
from skdp.descent.geometry import Diagonal
from skdp.models.losses import Squared
from skdp.planning.plan import release_row_count
from skdp.privacy import accountant, discovery, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Neighbours
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema, check
from skdp.schema import Pair as Surface

Pair = tuple[queries.BoundedSum, queries.BoundedSum]
ALL: tuple[Neighbours, ...] = queries.NEIGHBOURS
CODES = Schema(
    {"kind": Categorical(["a", "b"]), "sort": Categorical(["a", "b"])},
    target=Categorical([0, 1]),
)
_NUMBERS = {"a": Numeric(0, 1, knots=3), "b": Numeric(0, 1, knots=4)}
LINES = Schema(
    {"a": Numeric(0.0, 1.0), "b": Numeric(0.0, 1.0)}, target=Categorical([0, 1])
)
CURVED = Schema(_NUMBERS | {"c": Surface("a", "b", 2)}, target=Categorical([0, 1]))
#: Slopes of the squared loss. At zero weights they are ±1, which is their bound.
SLOPES = queries.Slopes(loss=Squared(1.0))


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The facts that an audit of a mechanism needs.

    Attributes
    ----------
    game : callable (relation, noise multiplier, group, delta) -> Game
        Makes the game. `delta` is the δ that a release may cost in addition to its μ.
    relations : tuple
        The neighbour relations under which the mechanism is used.
    gaussian : bool
        Whether the mechanism releases numbers. Otherwise it releases decisions that are
        computed from noisy numbers.
    extra : float
        The share of the claimed δ that the mechanism costs in addition to its μ.
    slow : bool
        Whether a game takes milliseconds instead of microseconds. If so, the tables of
        long audits differ in several records, because that needs fewer games.
    """

    game: Callable[[Neighbours, float, int, float], Game]
    relations: tuple[Neighbours, ...] = ALL
    gaussian: bool = True
    extra: float = 0.0
    slow: bool = False


def make_release_game(
    make: Callable[[Neighbours, int], Pair],
    neighbours: Neighbours,
    z: float,
    group: int,
    delta: float,
) -> Game:
    """Return the game that releases one of the two sums that `make` returns."""
    pair, noise = make(neighbours, group), Randomness()

    def play(other: bool) -> Observation:
        record = make_record(neighbours)
        release(pair[other], z, noise, record)
        return compare_releases(record, [pair])

    return play


def make_gradients(neighbours: Neighbours, group: int) -> Pair:
    """Return the gradients of both tables in all coordinates.

    A diagonal geometry scales the noise of each coordinate.
    """
    layout = MIXED.layout(intercept=True)
    at, zero = np.arange(layout.n_features), np.zeros((layout.n_features, 1))
    geometry = Diagonal(
        smoothness=np.linspace(1.0, 2.0, layout.n_features), elliptical=True
    )
    shape = geometry.shape(at, layout.group_of)
    first, second = (
        queries.gradient(engine, SLOPES, zero, at, neighbours, shape)
        for engine in make_engines(MIXED, neighbours, group)
    )
    return first, second


def make_mapped_gradients(neighbours: Neighbours, group: int) -> Pair:
    """Return the gradients of both tables, in a metric with an asymmetric matrix."""
    d = MIXED.layout(intercept=True).n_features
    matrix = np.eye(d) + 0.5 * np.eye(d, k=1) - 0.25 * np.eye(d, k=-2)
    metric = queries.Metric.of(matrix, radius=0.5)
    first, second = (
        queries.mapped_gradient(
            engine,
            queries.cap_slopes(engine, SLOPES, metric),
            np.zeros((d, 1)),
            neighbours,
        )
        for engine in make_engines(MIXED, neighbours, group)
    )
    return first, second


def make_grams(neighbours: Neighbours, group: int) -> Pair:
    """Return the Gram matrices of both tables, with two categorical columns.

    Under replace-one, a record and its replacement have no category in common.
    """
    pattern = queries.GramPattern.of(CODES.layout(intercept=True), neighbours)
    both = make_engines(CODES, neighbours, group, replace_features=True)
    first, second = (queries.gram(engine, pattern) for engine in both)
    return first, second


def make_centred_grams(of: Neighbours, group: int, schema: Schema = MIXED) -> Pair:
    """Return the Gram matrices of both tables, in which numbers are centred."""
    pattern = queries.GramPattern.of(schema.layout(True), of, centred=True)
    both = make_engines(schema, of, group)
    first, second = (queries.gram(engine, pattern) for engine in both)
    return first, second


def make_counts(neighbours: Neighbours, group: int) -> Pair:
    """Return the number of rows of each class, for both tables."""
    both = make_engines(CODES, neighbours, group)
    first, second = (queries.counts(engine, 2, neighbours) for engine in both)
    return first, second


def make_row_count_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases the number of rows, as fits under add-remove do."""
    both, noise = make_engines(MIXED, neighbours, group), Randomness()
    first, second = (queries.counts(engine, 1, neighbours) for engine in both)
    # The release spends a share of a budget. Choose the share that gives the noise
    # multiplier z.
    epsilon = accountant.gdp_epsilon(10.0 / z, 0.01)
    budget = PrivacyRecord(epsilon=epsilon, delta=0.01, neighbours=neighbours).budget
    share = 1.0 / (z * z * budget)

    def play(other: bool) -> Observation:
        record = make_record(neighbours)
        record.budget = budget
        release_row_count(both[other].records, record, share, noise=noise)
        return compare_releases(record, [(first, second)])

    return play


def make_shares_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases how many rows are in each bin of two columns.

    A fit uses such counts to place the knots of curves.
    """
    names, noise = ("a", "b"), Randomness()
    both = [
        engine.records
        for engine in make_engines(LINES, neighbours, group, replace_features=True)
    ]
    first, second = (
        queries.histogram(
            queries.big(discovery.count_shares(records, names)),
            len(names),
            neighbours,
            "shares",
        )
        for records in both
    )

    def play(other: bool) -> Observation:
        record = make_record(neighbours)
        discovery.release_shares(both[other], names, z, noise, record)
        return compare_releases(record, [(first, second)])

    return play


MECHANISMS: dict[str, Mechanism] = {
    "gradient": Mechanism(game=partial(make_release_game, make_gradients)),
    "matrix gradient": Mechanism(
        game=partial(make_release_game, make_mapped_gradients)
    ),
    "sketch": Mechanism(
        game=partial(make_sketch_game, "fixed"),
        relations=("replace-one", "add-remove"),
        slow=True,
    ),
    "adaptive sets": Mechanism(
        game=partial(make_sketch_game, "largest"),
        relations=("replace-one", "add-remove"),
        slow=True,
    ),
    "gram": Mechanism(game=partial(make_release_game, make_grams)),
    "centred gram": Mechanism(
        game=partial(make_release_game, make_centred_grams),
        relations=("zero-out", "add-remove"),
    ),
    "gram of curves": Mechanism(
        game=partial(make_release_game, partial(make_centred_grams, schema=CURVED)),
        relations=("add-remove",),
    ),
    "counts": Mechanism(
        game=partial(make_release_game, make_counts),
        relations=("replace-one", "add-remove"),
    ),
    "row count": Mechanism(game=make_row_count_game, relations=("add-remove",)),
    "ranges": Mechanism(game=make_ranges_game, slow=True),
    "shares": Mechanism(game=make_shares_game, slow=True),
    "levels": Mechanism(game=make_levels_game, gaussian=False, extra=0.1),
    "rare level": Mechanism(game=make_rare_level_game, gaussian=False, extra=0.8),
    "evaluation": Mechanism(
        game=make_evaluation_game, relations=("replace-one", "add-remove"), slow=True
    ),
}


def mechanism(
    name: str,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    neighbours: Neighbours = "replace-one",
    group: int = 1,
    n_trials: int | None = None,
    confidence: float = bounds.CONFIDENCE,
    progress: Callable[[int], object] | None = None,
) -> Audit:
    """Audit one kind of release on the worst-case tables for this release.

    Parameters
    ----------
    name : str
        A name in `MECHANISMS`.
    epsilon, delta : float
        The claim. The noise is calibrated to it.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours. The default is replace-one, as in `Plan`. The
        default of estimators is add-remove.
    group : int
        Number of records in which the tables differ. If one record is protected with μ,
        g records together are protected with g·μ.
    n_trials : int, optional
        Number of releases, half of them on each table. By default there are enough
        releases to detect, with a probability of 99 %, noise that is 20 % too small.
    confidence : float
        Confidence of each bound.
    progress : callable, optional
        Called with the number of releases made since the last call.

    Returns
    -------
    Audit
        The claim, the lower bounds and the verdict.

    Examples
    --------
    >>> from skdp import audit
    >>> audit.mechanism("gram", epsilon=8.0, n_trials=500, confidence=1 - 1e-6).passed
    True
    """
    check(
        name in MECHANISMS,
        f"name must be one of {sorted(MECHANISMS)}, got {name!r}.",
    )
    chosen = MECHANISMS[name]
    check(
        neighbours in chosen.relations,
        f"{name!r} requires neighbours in {chosen.relations}, got {neighbours!r}.",
    )
    check(
        chosen.gaussian or group == 1,
        f"group must be 1 for {name!r}, because its δ does not scale with groups, got "
        f"{group}.",
    )
    extra = delta * chosen.extra
    mu = accountant.gdp_mu(epsilon, delta - extra)
    play = chosen.game(neighbours, 1.0 / mu, group, extra)
    if n_trials is None:
        n_trials = 2 * bounds.trials_needed(mu * group, confidence=confidence)
    return play_games(
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
