"""Run the trials of a search. Each trial fits and scores one candidate."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.fit_warnings import (
    ConstantModelWarning,
    DoubtfulSchemaWarning,
    UnknownLabelsWarning,
)
from skdp.estimators.preparation import open_table
from skdp.evaluation.metrics import METRICS
from skdp.evaluation.score_formulas import Scale
from skdp.evaluation.scoring import encode_table, release_scores
from skdp.privacy import accountant
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.coins import Coins
from skdp.privacy.queries import Neighbours
from skdp.privacy.randomness import Randomness
from skdp.privacy.selection import SearchRecord, number_of_trials
from skdp.schema import check
from skdp.tables.ids import Ids

#: Parameters that candidates must not change. The search sets them, or all candidates
#: must share them.
FIXED = (
    *("epsilon", "delta", "ledger", "random_state", "neighbours", "n_rows"),
    *("schema", "bounds", "classes", "target_bounds", "solver", "calibration"),
    "max_rows_per_unit",
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate that was fitted and scored.

    Attributes
    ----------
    params : dict
        The parameters of the candidate.
    score, noise_std : float
        The released score and the standard deviation of its noise. As in scikit-learn,
        higher is better: a loss has a negative sign.
    """

    params: dict[str, Any]
    score: float
    noise_std: float


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialResult:
    """The outcome of a trial.

    Attributes
    ----------
    trial : Trial
        The candidate and its score.
    model : PrivateLinearModel
        The fitted model, with the privacy record of the fit.
    score_record : PrivacyRecord
        The privacy record of the score.
    """

    trial: Trial
    model: PrivateLinearModel
    score_record: PrivacyRecord


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trials:
    """The facts and rows that all trials of a search share.

    Attributes
    ----------
    estimator : PrivateLinearModel
        The model whose parameters the candidates change.
    fit_part, score_part : (table, column, weights, ids) and (table, column, ids)
        The rows that fit the models and the rows that score them. No row, and no
        person, is in both parts. `RandomFolds` drew them.
    fit_rows : int, optional
        The ``n_rows`` of each fit, derived from the ``n_rows`` that the user stated to
        be public. It is None if each fit counts its rows itself.
    score_rows : int, optional
        The number of rows in `score_part`, if it is public.
    expected_rows : float
        A public guess of the number of rows in `score_part`.
    scoring, scale
        The metric by which candidates are compared, and its units.
    delta, neighbours
        The δ and the neighbour relation of the search.
    noise : Randomness
        The source of the scores' noise.
    random_state : int, optional
        A seed, for tests.
    """

    estimator: PrivateLinearModel
    fit_part: tuple[Any, Any, Any, Ids | None]
    score_part: tuple[Any, Any, Ids | None]
    fit_rows: int | None
    score_rows: int | None
    expected_rows: float
    scoring: str
    scale: Scale
    delta: float
    neighbours: Neighbours
    noise: Randomness
    random_state: int | None

    def run(self, params: dict[str, Any], budget: float, index: int) -> TrialResult:
        """Fit and score a candidate with a budget of μ². `index` numbers the trial.

        Notes
        -----
        **Guarantee.** For all tables that are neighbours, the model and the score are
        together √budget-GDP, by parallel composition (`RandomFolds`). A row that scores
        does not change the model, and a row that fits changes the score through the
        model alone. Scoring costs no more than fitting, so the record of the fits holds
        for every row.
        """
        model: PrivateLinearModel = clone(self.estimator).set_params(
            **params,
            epsilon=compute_epsilon(budget, self.delta),
            delta=self.delta,
            n_rows=self.fit_rows,
            ledger=None,
            verbose=0,  # progress would reveal the number of trials
            random_state=None
            if self.random_state is None
            else self.random_state + 1 + index,
        )
        with warnings.catch_warnings():  # warnings would reveal the number of trials
            warnings.simplefilter("ignore", ConstantModelWarning)
            warnings.simplefilter("ignore", DoubtfulSchemaWarning)
            warnings.simplefilter("ignore", UnknownLabelsWarning)
            model.fit(*self.fit_part)
        spent = model.privacy_.spent
        record = PrivacyRecord(
            epsilon=compute_epsilon(spent, self.delta),
            delta=self.delta,
            neighbours=self.neighbours,
            unit=model.privacy_.unit,
        )
        table, y, ids = self.score_part
        schema = model.schema_
        opened = open_table(table, y, schema=schema, bounds=None, target=None, unit=ids)
        found = release_scores(
            model,
            encode_table(model, table, y, None, 1.0, opened),
            [self.scoring],
            budget=min(spent, record.budget),
            n_rows=self.score_rows,
            expected_rows=self.expected_rows,
            scale=self.scale,
            confidence=0.95,
            noise=self.noise,
            record=record,
        )
        score = found.scores[self.scoring]
        sign = 1.0 if METRICS[self.scoring].higher_is_better else -1.0
        trial = Trial(
            params=params, score=sign * score.value, noise_std=score.noise_std
        )
        return TrialResult(trial=trial, model=model, score_record=record)


def compute_epsilon(budget: float, delta: float) -> float:
    """Return the ε that a budget of μ² gives at δ, rounded down."""
    if budget == math.inf:
        return math.inf
    epsilon = accountant.gdp_epsilon(math.sqrt(budget) * (1 - 1e-9), delta)
    check(
        epsilon > 1e-6,
        f"The budget is too small for this search, because each fit would have only "
        f"ε = {epsilon:.2g}. Use fewer candidates.",
    )
    return epsilon


def list_candidates(
    estimator: PrivateLinearModel,
    param_grid: Any,
    n_candidates: int | None,
    random_state: int | None,
) -> list[dict[str, Any]]:
    """Return the parameters of all candidates.

    Raise ValueError if a candidate sets a parameter that is unknown or in `FIXED`.
    """
    if n_candidates is None:
        listed = list(ParameterGrid(param_grid))
    else:
        # scikit-learn may draw the candidates, because they are public and the theorem
        # holds for any candidates. Pass it a seed, because by default it uses numpy's
        # global generator, whose state may depend on records that other code has read.
        seed = random_state
        if seed is None:
            seed = Coins(Randomness()).draw_below(1 << 32)
        listed = list(ParameterSampler(param_grid, n_candidates, random_state=seed))
    check(bool(listed), "param_grid must have at least one candidate, got none.")
    for params in listed:
        for name in params:
            check(
                name not in FIXED,
                f"param_grid must not contain {name!r}, which all candidates must "
                "share. Set it on the estimator or on the search.",
            )
        clone(estimator).set_params(**params)  # refuses unknown names
    return listed


def run_all(
    trials: Trials,
    candidates: list[dict[str, Any]],
    record: SearchRecord,
    score_record: SearchRecord,
) -> list[TrialResult]:
    """Fit and score every candidate, each with an equal part of the budget."""
    part = record.budget / len(candidates)
    found = []
    for index, params in enumerate(candidates):
        charged = record.begin(part)
        found.append(trials.run(params, part, index))
        _enter(found[-1], charged, record, score_record)
    return found


def run_random(
    trials: Trials,
    candidates: list[dict[str, Any]],
    record: SearchRecord,
    score_record: SearchRecord,
    stop: float,
) -> TrialResult:
    """Fit and score candidates that are drawn at random. Return only the best trial."""
    coins = Coins(trials.noise)
    charged, best = record.begin(record.budget), None
    for index in range(number_of_trials(stop, coins)):
        params = candidates[coins.draw_below(len(candidates))]
        one = trials.run(params, record.budget, index)
        # Of equal scores, keep the first. This equals a random choice, because trials
        # are exchangeable.
        if best is None or one.trial.score > best.trial.score:
            best = one
    assert best is not None  # there is at least one trial
    _enter(best, charged, record, score_record)
    return best


def _enter(
    one: TrialResult, charged: Event, record: SearchRecord, score_record: SearchRecord
) -> None:
    """Add a trial's releases to two privacy records: for fits and for scores."""
    score_record.end(score_record.begin(charged.mu_squared), [one.score_record])
    record.end(charged, [one.model.privacy_])
