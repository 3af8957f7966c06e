"""Audits of whole fits: any estimator, on tables made to be hard on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from skdp.audit import bounds
from skdp.audit.judge import Audit, Game, Trial, judge
from skdp.audit.replay import trial
from skdp.audit.tables import COLUMNS, neighbours
from skdp.descent.samplings import Full, Sampling
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.preparation import RANGE
from skdp.estimators.solving import OWN
from skdp.planning.plan import default_delta
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import Categorical, IntArray, Numeric, Schema, check, toml_files


class Watched(Sampling):
    """A sampling that remembers its sets, which are public."""

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
        """One set of the law."""
        return self._law.draw(rng)

    def sets(self, n_steps: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """The law's sets, kept until the next call."""
        self.seen = list(self._law.sets(n_steps, rng))
        return iter(self.seen)


def described(estimator: PrivateLinearModel) -> PrivateLinearModel:
    """A copy with a whole schema: its own, or that of a small table."""
    model: PrivateLinearModel = clone(estimator)
    schema, target = toml_files.given(model.schema), model._target()
    if schema is None:
        schema = Schema(COLUMNS)
    if schema.target is not None:
        target = schema.target_column
    elif isinstance(target, str):
        target = Numeric(0.0, 1.0) if target == RANGE else Categorical([0, 1])
    whole = Schema(schema.columns, target=target, row_norm=schema.row_norm)
    # What the schema says goes; nothing is left to be found, and no ledger is charged
    # for tables that were made up.
    model.set_params(schema=whole, bounds=None, classes=None, target_bounds=None)
    model.set_params(ledger=None, verbose=0)
    return model


def low_is_steeper(model: PrivateLinearModel, schema: Schema) -> bool:
    """Whether the loss is steeper, at weights of zero, for the lower target."""
    loss = model._loss(schema)
    numeric = isinstance(schema.target_column, Numeric)
    units = np.array([0, FEATURE_ONE if numeric else 1])
    low, high = np.abs(loss.slope(np.zeros((2, loss.n_outputs)), units)).max(axis=1)
    return bool(low > high)


def game(
    estimator: PrivateLinearModel,
    *,
    group: int = 1,
    n_rows: int = 1000,
    twins: int = 20,
) -> Game:
    """Return the game of an estimator on neighbouring tables."""
    model = described(estimator)
    check(
        model.epsilon < np.inf and model.random_state is None,
        "An audit needs a finite epsilon and no random_state: a fit without noise of "
        "its own claims nothing.",
    )
    check(
        model.solver == OWN,
        f"Audits replay fits of solver={OWN!r}. Got {model.solver!r}: its releases "
        "are of other kinds.",
    )
    schema = model.schema
    assert isinstance(schema, Schema)
    relation: Any = model.neighbours
    tables = neighbours(
        schema,
        relation,
        group=group,
        n_rows=n_rows,
        twins=twins,
        low_target=low_is_steeper(model, schema),
        intercept=model.fit_intercept,
        max_weight=model.max_weight,
    )
    records = tuple(
        t.encoded(schema, intercept=model.fit_intercept, max_weight=model.max_weight)
        for t in tables
    )
    counted = relation == "add-remove" and model.n_rows is None

    def fitted(other: bool) -> PrivateLinearModel:
        table = tables[other]
        return model.fit(table.columns, table.target, sample_weight=table.weight)

    plan = fitted(False).plan_
    watched = None
    if not isinstance(plan.sampling, Full):
        watched = Watched(plan.sampling)
        given = {"geometry": plan.geometry, "n_steps": plan.n_steps}
        model.set_params(sampling=watched, **given)

    def play(other: bool) -> Trial:
        fit = fitted(other)
        return trial(
            fit.plan_,
            fit.privacy_,
            (records[0], records[1]),
            counted=counted,
            sets=None if watched is None else watched.seen,
        )

    return play


def fit(
    estimator: PrivateLinearModel,
    *,
    group: int = 1,
    n_trials: int | None = None,
    n_rows: int = 1000,
    twins: int = 20,
    confidence: float = bounds.CONFIDENCE,
    progress: Callable[[int], object] | None = None,
) -> Audit:
    """Audit whole fits of an estimator with its parameters.

    It is fitted again and again to two neighbouring tables made for its schema, with
    noise of the operating system, and an auditor who sees all that was released and
    knows both tables guesses which one it was. No record of anybody is read.

    Parameters
    ----------
    estimator : estimator of skdp
        Not changed. Without a schema it is given one of two columns.
    group : int
        Records in which the tables differ. A group of g records is protected by g·μ,
        so that groups of about 2/μ show most with the fewest fits.
    n_trials : int, optional
        Fits, half of them on each table; by default as many as find noise that is 20 %
        too small with a chance of 99 %, on tables as far apart as a few fits show.
    n_rows : int
        Rows of the tables.
    twins : int
        Pairs of records like the canary with opposite targets: they keep its slope at
        its bound in long runs.
    confidence : float
        Of each bound.
    progress : callable, optional
        Called with the number of fits made since the last call.

    Returns
    -------
    Audit
        Claim, lower bounds and verdict; print it.

    Examples
    --------
    >>> from skdp import LinearRegression, audit
    >>> model = LinearRegression(epsilon=8.0, neighbours="zero-out", n_steps=4)
    >>> audit.fit(model, n_trials=200, confidence=1 - 1e-6).passed
    True
    """
    play = game(estimator, group=group, n_rows=n_rows, twins=twins)
    if n_trials is None:
        shown = [play(other) for other in (False, True) for _ in range(4)]
        n_trials = 2 * needed(shown, group, confidence)
    rows = estimator.n_rows if estimator.neighbours == "add-remove" else n_rows
    delta = default_delta(rows) if estimator.delta is None else estimator.delta
    return judge(
        type(estimator).__name__,
        estimator.neighbours,
        play,
        n_trials // 2,
        delta=delta,
        group=group,
        confidence=confidence,
        progress=progress,
    )


def needed(
    shown: Sequence[Trial], group: int = 1, confidence: float = bounds.CONFIDENCE
) -> int:
    """Games on each table that find noise 20 % too small, from what a few games show.

    Where the tables are not far enough apart in the median for that, as many as would
    do if they were.
    """
    mu = group * math.sqrt(max(trial.mu_squared for trial in shown))
    apart = float(np.median([np.linalg.norm(trial.shift) for trial in shown])) / mu
    reach = min(1.0, apart) if apart > 1.05 * bounds.SHRUNK else 1.0
    return bounds.trials_needed(mu, confidence=confidence, reach=reach)
