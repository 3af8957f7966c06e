"""One trial of a search: a candidate is fitted and scored, for a budget."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.fit_warnings import (
    ConstantModelWarning,
    DoubtfulSchemaWarning,
    UnknownLabelsWarning,
)
from skdp.evaluation.metrics import Scale
from skdp.evaluation.scoring import encoded, released_scores
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.queries import Neighbours
from skdp.privacy.randomness import Randomness
from skdp.schema import check

#: Scores of which less is better.
LESS_IS_BETTER = ("log_loss", "rmse", "mae", "mse")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate that was fitted and scored.

    Attributes
    ----------
    params : dict
        Its parameters.
    score, noise_std : float
        The released score and the standard error of its noise.
    """

    params: dict[str, Any]
    score: float
    noise_std: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A trial, its model, what its score cost, and how good it is: more is better."""

    trial: Trial
    model: PrivateLinearModel
    score_record: PrivacyRecord
    rank: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trials:
    """What all trials of a search share.

    Attributes
    ----------
    estimator : PrivateLinearModel
        What candidates are made of.
    fit_part, score_part : (table, column, weights) and (table, column)
        The rows that fit and that score: disjoint parts, drawn by `RandomFolds`.
    fit_rows : int, optional
        Number of rows to divide by in a fit, where it is private and derived from a
        public one.
    score_rows : int, optional
        Number of rows that score, where it is public.
    expected_rows : float
        A public guess of it.
    scoring, scale
        The score that decides.
    delta, neighbours
        Of the search.
    noise : Randomness
        Where the noise of scores comes from.
    random_state : int, optional
        For tests.
    """

    estimator: PrivateLinearModel
    fit_part: tuple[Any, Any, Any]
    score_part: tuple[Any, Any]
    fit_rows: int | None
    score_rows: int | None
    expected_rows: float
    scoring: str
    scale: Scale
    delta: float
    neighbours: Neighbours
    noise: Randomness
    random_state: int | None

    def run(self, params: dict[str, Any], budget: float, index: int) -> Outcome:
        """Fit and score a candidate for a budget of μ².

        Notes
        -----
        **Guarantee.** For all tables that are neighbours, the model and the score are
        together √budget-GDP, by parallel composition (`RandomFolds`): a row that scores
        does not change the model, and a row that fits changes the score through the
        model alone. A row that scores pays no more than one that fits, so that the
        record of the fits holds for every row.
        """
        model: PrivateLinearModel = clone(self.estimator).set_params(
            **params,
            epsilon=epsilon_of(budget, self.delta),
            delta=self.delta,
            n_rows=self.fit_rows,
            ledger=None,
            verbose=0,  # how many trials there were is not paid for
            random_state=None
            if self.random_state is None
            else self.random_state + 1 + index,
        )
        with warnings.catch_warnings():  # which would tell how many trials there were
            warnings.simplefilter("ignore", ConstantModelWarning)
            warnings.simplefilter("ignore", DoubtfulSchemaWarning)
            warnings.simplefilter("ignore", UnknownLabelsWarning)
            model.fit(*self.fit_part)
        spent = model.privacy_.spent
        record = PrivacyRecord(
            epsilon=epsilon_of(spent, self.delta),
            delta=self.delta,
            neighbours=self.neighbours,
        )
        found = released_scores(
            model,
            encoded(model, *self.score_part, None, 1.0),
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
        sign = -1.0 if self.scoring in LESS_IS_BETTER else 1.0
        rank = -math.inf if math.isnan(score.value) else sign * score.value
        trial = Trial(params=params, score=score.value, noise_std=score.noise_std)
        return Outcome(trial=trial, model=model, score_record=record, rank=rank)


def epsilon_of(budget: float, delta: float) -> float:
    """ε at δ of a budget of μ², rounded so that it buys no more than that."""
    if budget == math.inf:
        return math.inf
    epsilon = accountant.gdp_epsilon(math.sqrt(budget) * (1 - 1e-9), delta)
    check(
        epsilon > 1e-6,
        f"The budget is too small for a search: each fit would have ε = {epsilon:.2g}. "
        "Take fewer candidates or a larger epsilon.",
    )
    return epsilon
