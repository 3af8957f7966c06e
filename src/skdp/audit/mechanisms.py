"""Audit each mechanism with games on made-up tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import ndtr

from skdp.audit import games
from skdp.audit.games import (
    Audit,
    Game,
    Observation,
    compare_releases,
    make_record,
    play_games,
)
from skdp.audit.tables import MIXED, make_engines
from skdp.descent import algorithm1
from skdp.descent.algorithm1 import Step, draw_course, run_steps
from skdp.descent.geometry import Diagonal, Prepared, Task
from skdp.descent.plan import release_row_count
from skdp.descent.samplings import Blocks, Law
from skdp.descent.sketches import Sketched, randomised_hadamard
from skdp.estimators.classifiers import LogisticRegression
from skdp.evaluation.evaluate import evaluate
from skdp.evaluation.results import Evaluation
from skdp.models.losses import Squared
from skdp.models.penalties import ElasticNet
from skdp.privacy import accountant, discovery, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Coded
from skdp.privacy.mechanism import Released, release
from skdp.privacy.queries import Kind, Neighbours
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, FloatArray, IntArray, Numeric, Schema, check
from skdp.schema import Pair as Surface

# ---- Make audit games for the private discovery of ranges and categories
#
# The code calls the categories of a column its levels.


def make_ranges_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases a histogram of the magnitudes of a column.

    Under replace-one, the replaced records move to another bin.
    """
    rest = [0.5, 2.0]
    cells = {
        False: [1.0] * group + rest,
        True: ([-1.0] * group if neighbours == "replace-one" else []) + rest,
    }
    noise, n_bins = Randomness(), discovery.TEXT + 1
    first, second = (
        queries.histogram(
            queries.big(
                [np.bincount(discovery.find_bins(np.array(c)), minlength=n_bins)]
            ),
            1,
            neighbours,
            Kind.RANGES,
            "magnitudes",
        )
        for c in cells.values()
    )

    def play(other: bool) -> Observation:
        record = make_record(neighbours)
        table = [({"x": np.array(cells[other])}, None)]
        discovery.release_ranges(table, ["x"], z, noise, record)
        return compare_releases(record, [(first, second)])

    return play


def make_levels_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases which categories of a column were found.

    The count of a category is just above the threshold in one table and just below it
    in the other. Under replace-one, two categories cross the threshold in opposite
    directions. The game can then reveal at most 1/√2 of the μ that is charged.
    """
    zero = queries.big([0])
    asked = queries.histogram(zero, 1, neighbours, Kind.CATEGORIES, "categories")
    std = z * asked.sensitivity
    sides = 2 if neighbours == "replace-one" else 1
    near = math.ceil(discovery.compute_threshold(std, delta / sides) + 0.5)
    # Lower δ a little, to put the threshold midway between two counts.
    delta = sides * float(ndtr(2.0**-10 - (near - 1.5) / std))
    before, after = [near, near - 1], [near - 1, near]
    if neighbours != "replace-one":
        before, after = before[:1], after[:1]
    noise = Randomness()

    def play(other: bool) -> Observation:
        found, record = _release_levels(
            after if other else before, z, delta, neighbours, noise
        )
        decided = np.array([name in found for name in "ab"[: len(before)]], float)
        # In the other table, the first category has one record less and the second one
        # record more.
        residual, shift = decided - [1.0, 0.0][: len(before)], [-1.0, 1.0]
        return _decision(residual, np.array(shift[: len(before)]), record)

    return play


def make_rare_level_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that looks for a category that only the canary has.

    The category is found with probability at most δ.
    """
    noise = Randomness()

    def play(other: bool) -> Observation:
        table = [50, 1] if other else [50 + (neighbours == "replace-one")]
        found, record = _release_levels(table, z, delta, neighbours, noise)
        return _decision(np.array([float("b" in found)]), np.ones(1), record)

    return play


def _release_levels(
    sizes: list[int], z: float, delta: float, neighbours: Neighbours, noise: Randomness
) -> tuple[list[str], PrivacyRecord]:
    """Release the categories of a column that has `sizes[0]` rows of category a.

    If `sizes` has a second entry, it is the number of rows of category b.
    """
    record = make_record(neighbours)
    record.reserved_delta = delta
    codes = np.repeat(np.arange(len(sizes)), sizes)
    table = [({"x": Coded(codes, list("ab"[: len(sizes)]))}, None)]
    return discovery.release_levels(table, ["x"], z, delta, noise, record)["x"], record


def _decision(
    residual: np.ndarray, shift: np.ndarray, record: PrivacyRecord
) -> Observation:
    """Return the observation of a run that released decisions instead of numbers."""
    delta = sum(event.delta * times for event, times in record.events.items())
    return Observation(residual, shift, record.spent, delta)


# ---- Make the audit game of a private evaluation on two neighbouring tables


SCHEMA = Schema({"x": Numeric(-1.0, 1.0)}, target=Categorical([0, 1]))
#: Losses are clipped to this value. The loss of every wrong prediction exceeds it.
MAX_LOSS = 0.25
DELTA = 1e-4


def make_evaluation_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases the scores of an overconfident model."""
    x = np.repeat([-1.0, 1.0], 20)
    model = LogisticRegression(
        epsilon=math.inf, schema=SCHEMA, fit_intercept=False, alpha=0.0
    )
    model.fit(x[:, None], x > 0)
    model.weights_ = np.full_like(model.weights_, 40.0)
    right = np.concatenate([np.ones(group), [0.0, 1.0]])
    wrong = np.concatenate([np.zeros(group), [0.0, 1.0]])
    other = wrong if neighbours == "replace-one" else right[group:]
    epsilon = accountant.spent_epsilon(1.0 / z, DELTA, 0)

    def evaluate_on(target: np.ndarray, budget: float) -> Evaluation:
        table = np.ones((len(target), 1))
        return evaluate(
            model,
            table,
            target.astype(int),
            epsilon=budget,
            delta=DELTA,
            metrics=["accuracy", "log_loss"],
            max_loss=MAX_LOSS,
            neighbours=neighbours,
        )

    # With an infinite budget there is no noise, so the released values are exact sums.
    first, second = (
        evaluate_on(target, math.inf).privacy_.transcript[0].values
        for target in (right, other)
    )

    def play(changed: bool) -> Observation:
        record = evaluate_on(other if changed else right, epsilon).privacy_
        (released,) = record.transcript
        std = released.noise_std
        return Observation(
            ((released.values - first) / std).ravel(),
            ((second - first) / std).ravel(),
            record.spent,
            uncharged=len(record.transcript) - sum(record.events.values()),
        )

    return play


# ---- Make audit games for sketched steps, which move along a few rows of a matrix
#
# The set of rows may be drawn with fixed probabilities, or depend on earlier releases.


#: Number of steps of a game. All steps together cost what one release costs in the
#: games of other mechanisms.
N_STEPS = 3
#: The cap on gradients. On every set, the gradient of a canary is longer than the cap.
CAP = 0.25
#: The public number of rows. It is so large that weights hardly move, and the slope of
#: a canary stays above its cap.
N_ROWS = 1e6


def make_sketch_game(
    law: Law, neighbours: queries.Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that takes a few steps along the rows of a random rotation.

    `law` says how the sets of rows are drawn. All steps together have the noise
    multiplier z.
    """
    engines = make_engines(MIXED, neighbours, group)
    loss, noise = Squared(1.0), Randomness()
    # With this seed, a canary's image on the second set of directions has √5 times the
    # length of its image on the first set.
    directions = randomised_hadamard(engines[0].records.layout.n_features, seed=1)
    sampling = Blocks.uniform(np.split(np.arange(len(directions)), 2))
    geometry = Sketched(directions=directions, cap=CAP, law=law, explore=0.1)
    tasks = [
        Task(
            engine=engine,
            loss=loss,
            slopes=queries.Slopes(loss=loss),
            curvature=loss.curvature,
            neighbours=neighbours,
            n_rows=N_ROWS,
            penalty=ElasticNet(),
            release=_refuse_release,
            sampling=sampling,
        )
        for engine in engines
    ]

    runs = [geometry.prepare(task) for task in tasks]

    def play(other: bool) -> Observation:
        record, steps = make_record(neighbours), list[Step]()
        views = [_View(run) for run in runs]
        run = runs[other]
        course = draw_course(
            (run.law or sampling).sets,
            None if run.law else run.visits,
            n_steps=N_STEPS,
            n_restarts=1,
            randomness=noise,
        )
        run_steps(
            query=views[other].query,
            update=run.update,
            course=course,
            average=algorithm1.last,
            start=run.start,
            noise_multiplier=z * math.sqrt(N_STEPS),
            randomness=noise,
            record=record,
            callback=steps.append,
        )
        theta = runs[other].start
        for step in steps:  # the same steps on the table that was not run
            views[not other].query(step.at, theta)
            runs[not other].update(theta, step.released, step.at)
            theta = step.weights
        pairs = zip(views[0].sums, views[1].sums, strict=True)
        seen = compare_releases(record, list(pairs))
        return replace(seen, choices=views[1].chance - views[0].chance)

    return play


class _View:
    """Stores the exact sums of a run, and the log-likelihood of the drawn sets."""

    def __init__(self, run: Prepared) -> None:
        self._run, self.sums, self.chance = run, list[queries.BoundedSum](), 0.0
        if run.law is not None:
            run.law.forget()

    def query(self, at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        """Return and store the sum on the set `at`, and update the log-likelihood."""
        if self._run.law is not None:
            self.chance += math.log(self._run.law.find_probability(at))
        self.sums.append(self._run.query(at, weights))
        return self.sums[-1]


def _refuse_release(total: queries.BoundedSum, share: float) -> Released:
    raise AssertionError("Games with public directions release only steps.")


# ---- Audit single mechanisms: each kind of release in a DP-SkGD fit or an evaluation
#
# Each entry of `MECHANISMS` makes two neighbouring tables whose sums differ by as much
# as the stated sensitivity allows. It then releases the sum of one table, with the
# library's own code and noise from the operating system. Add an entry here for each new
# kind of release.


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
            Kind.KNOT_SHARES,
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
    confidence: float = games.CONFIDENCE,
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
        n_trials = 2 * games.trials_needed(mu * group, confidence=confidence)
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
