"""skdp.PrivateSearchCV: hyper-parameters chosen within one budget."""

from __future__ import annotations

import math
from typing import Any, Self

from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler

from skdp.estimators.base import EXPECTED_ROWS, PrivateLinearModel
from skdp.estimators.fit_warnings import (
    describe_doubts,
    remember_table,
    warn_if_labels_unknown,
    warn_of_doubts,
)
from skdp.estimators.inputs import accept_column
from skdp.estimators.other_solvers import OWN, find_delta_share
from skdp.estimators.preparation import OpenedTable, open_table
from skdp.estimators.spending import check_budget_types, open_ledger, reserve_budget
from skdp.evaluation.asked import CALIBRATION, metrics_of, scale_of, wanted_metrics
from skdp.evaluation.chosen import Chosen
from skdp.evaluation.folds import RandomFolds, rows_at, weights_at
from skdp.evaluation.trials import Outcome, Trials
from skdp.planning.plan import check_budget, default_delta
from skdp.privacy import accountant
from skdp.privacy.budget import Event
from skdp.privacy.coins import Coins
from skdp.privacy.randomness import Randomness
from skdp.privacy.selection import (
    SearchRecord,
    choose_stop,
    mean_trials,
    number_of_trials,
    trial_mu,
)
from skdp.schema import check

#: Trials that a random search makes on average, for each candidate.
TRIALS_PER_CANDIDATE = 3.5
#: One row in so many scores, in the mean; the others fit.
PARTS = 5
#: Fewest rows of a search, where their number is public: fewer may leave a part empty.
FEWEST_ROWS = 50
#: Parameters that are the search's own, or on which all candidates must agree.
FIXED = (
    *("epsilon", "delta", "ledger", "random_state", "neighbours", "n_rows"),
    *("schema", "bounds", "classes", "target_bounds", "solver", "calibration"),
)
#: What the record of every search says.
HELD_OUT = (
    "Each row was drawn by itself to fit or, one in five, to score, at no extra cost."
)


class PrivateSearchCV(Chosen):
    """Choose hyper-parameters by released scores, everything within one budget.

    scikit-learn's searches fit many models, look at every score without noise and
    say which was best: ``cv_results_``, ``best_params_`` and ``best_score_`` are not
    private, whatever the models are. Here the budget (epsilon, delta) covers all fits,
    all scores and the choice.

    Parameters
    ----------
    estimator : LogisticRegression, LinearRegression, ...
        A model of skdp with a whole public description: a schema, or bounds and
        classes or target_bounds. Its epsilon, delta and random_state are replaced by
        the search's.
    param_grid : dict of lists, or list of them
        Candidates, as for ``GridSearchCV``; with `n_candidates` also distributions, as
        for ``RandomizedSearchCV``. They are public.
    epsilon, delta : float
        The budget of the whole search.
    n_candidates : int, optional
        Draw as many candidates from `param_grid`; all of a grid by default.
    scoring : str, optional
        One of the metrics of `skdp.evaluate`; log_loss, accuracy or r2 by default.
    method : {"auto", "split", "random"}
        ``"split"`` fits every candidate, each for its part of the budget. ``"random"``
        fits candidates drawn at random, a random number of times, and hands out the
        best of them alone: each has a budget that hardly depends on how many there
        are, but a candidate may be missed, and no ledger takes it. ``"auto"`` takes
        the one that gives a candidate the larger budget.
    n_trials : float, optional
        Fits that a random search makes on average; 3.5 for each candidate by default,
        so that it misses any one of them with a probability of 10 %.
    max_loss, max_residual : float
        As for `skdp.evaluate`.
    ledger : Ledger or absolute path, optional
        Charged with the whole search before a record is read; that of the estimator
        by default.
    random_state : int, optional
        For tests: a seeded search claims no privacy.

    Attributes
    ----------
    best_estimator_ : estimator
        The chosen model. Its ``privacy_`` is that of the whole search.
    best_params_, best_score_
        Its parameters and its released score.
    results_ : list of Trial
        Parameters and released scores of all candidates; of the best alone in a random
        search, whose budget covers nothing else.
    method_ : {"split", "random"}
        How the search was made: a public decision.
    privacy_ : SearchRecord
        What the rows paid that models were fitted to.
    score_privacy_ : SearchRecord
        What the rows paid that models were scored on: no more than the others.

    Notes
    -----
    Each row is drawn by itself to score the models (one in five) or to fit them. A
    row is in one part and moves no other row, so that each part has the whole budget
    under every relation (`skdp.RandomFolds` has the proof): to a row that scores,
    models are public; to one that fits, scores are post-processing of the models and
    of rows that are the same in both tables. Under add-remove the parts' numbers of
    rows are private: a fit releases its own or, if ``n_rows`` is given, takes four
    fifths of it, and scores are divided by a released number.

    **Split.** m trials of μ/√m each compose to μ, exactly (Dong, Roth, Su 2022,
    Corollary 3.3).

    **Random.** `skdp.privacy.selection` has the theorem and its proof.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> clf = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1])
    >>> search = skdp.PrivateSearchCV(clf, {"alpha": [1e-5, 10.0]}, epsilon=2.0)
    >>> search.fit(X, y).best_params_
    {'alpha': 1e-05}
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        n_candidates: int | None = None,
        scoring: str | None = None,
        method: str = "auto",
        n_trials: float | None = None,
        max_loss: float = 5.0,
        max_residual: float | None = None,
        ledger: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.n_candidates = n_candidates
        self.scoring = scoring
        self.method = method
        self.n_trials = n_trials
        self.max_loss = max_loss
        self.max_residual = max_residual
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Search, within the budget.

        Parameters
        ----------
        X, y : table and column
            As the estimator's ``fit`` takes them; tables in memory.
        sample_weight : column or str, optional
            What each record counts for in the fits. In scores all count alike.
        """
        check(
            isinstance(self.estimator, PrivateLinearModel),
            "PrivateSearchCV takes a model of skdp, whose fits can be charged. Got "
            f"{type(self.estimator).__name__}: pass one, not a pipeline.",
        )
        check_budget_types(self.epsilon, self.delta)
        check(
            self.estimator.solver == OWN
            or find_delta_share(self.estimator.solver) == 0,
            f"solver={self.estimator.solver!r} charges δ beside μ, which a search does "
            "not add up: take solver='skgd'.",
        )
        candidates = self._candidates()
        ledgers = [self.ledger, self.estimator.ledger]
        check(
            None in ledgers,
            "A search and its estimator were both given a ledger: leave out the "
            "estimator's.",
        )
        ledger = next((one for one in ledgers if one is not None), None)
        book = open_ledger(ledger, self.epsilon, self.random_state)
        model = self.estimator
        private_rows = model.neighbours == "add-remove"
        weights = accept_column(sample_weight, "sample_weight")
        given = {"schema": model.schema, "bounds": model.bounds}
        target = model._target()
        about = open_table(X, y, target=target, empty=private_rows, **given)
        rows = model.n_rows if private_rows else about.count_rows()
        delta = default_delta(rows) if self.delta is None else self.delta
        check_budget(self.epsilon, delta, rows or EXPECTED_ROWS)
        stop = self._stop(len(candidates), delta, book is not None)
        told = (*about.assumptions, *model._row_assumption(), HELD_OUT)
        record = self._record(told, delta, len(candidates), stop)
        trials = self._trials(about, (about.table, about.y, weights), rows, record)
        public = ("Models are public to the rows that score them.",)
        score_record = self._record(public, delta, len(candidates), stop)
        query = f"search among {len(candidates)} of {type(model).__name__}"
        with reserve_budget(record, book, query=query, described=about) as tell:
            score_record.budget = record.budget = min(
                score_record.budget, record.budget
            )
            if stop is None:
                found = _all(trials, candidates, record, score_record)
            else:
                found = [_some(trials, candidates, record, score_record, stop)]
            best = max(found, key=lambda one: one.rank)
            tell(best.model)
        best.model._standard_errors()  # from its own releases, before they are all
        said = describe_doubts(best.model)  # likewise
        best.model.privacy_ = record
        remember_table(best.model, X)  # a score on it is not private, and says so
        warn_if_labels_unknown(best.model)
        warn_of_doubts(said)
        self.best_estimator_ = best.model
        self.best_params_, self.best_score_ = best.trial.params, best.trial.score
        self.results_ = [one.trial for one in found]
        self.method_ = "split" if stop is None else "random"
        self.scoring_ = trials.scoring
        self.privacy_, self.score_privacy_ = record, score_record
        return self

    def _record(
        self, told: tuple[str, ...], delta: float, n_trials: int, stop: float | None
    ) -> SearchRecord:
        """Open the budget of the search."""
        if stop is None:
            said = f"All {n_trials} trials of the search are listed."
        else:
            said = (
                "This is the best of a random number of fits, "
                f"{mean_trials(stop):.3g} on average; the list is that of one. Time "
                "shows how many there were."
            )
        return SearchRecord(
            epsilon=self.epsilon,
            delta=delta,
            neighbours=self.estimator.neighbours,
            assumptions=(*told, said),
            n_trials=n_trials,
            stop=stop,
        )

    def _trials(
        self,
        about: OpenedTable,
        given: tuple[Any, Any, Any],
        rows: int | None,
        record: SearchRecord,
    ) -> Trials:
        """Divide the table; what is public and wrong raises."""
        schema, model = about.schema, self.estimator
        if schema is None:
            raise ValueError(
                "A search needs a whole public description: a schema of the estimator, "
                "or bounds and classes (target_bounds)."
            )
        scoring = self.scoring or metrics_of(model, schema)[0]
        wanted_metrics(model, schema, scoring)
        check(
            scoring != CALIBRATION,
            "scoring must be one number. Got 'calibration': log_loss rewards it.",
        )
        private_rows = record.neighbours == "add-remove"
        check(
            private_rows or (rows is not None and rows >= FEWEST_ROWS),
            f"A search needs at least {FEWEST_ROWS} rows, got {rows}.",
        )
        # How many rows there are decides nothing but how many draws are made.
        table, y, weights = given
        n_rows = about.count_rows()
        folds = RandomFolds(PARTS, random_state=self.random_state)
        kept, out = next(folds.split(range(n_rows)))
        weights = weights_at(weights, kept, n_rows)
        guess = (rows or EXPECTED_ROWS) / PARTS
        return Trials(
            estimator=model,
            fit_part=(rows_at(table, kept), rows_at(y, kept), weights),
            score_part=(rows_at(table, out), rows_at(y, out)),
            fit_rows=max(1, round(rows - guess)) if private_rows and rows else None,
            score_rows=None if private_rows else len(out),
            expected_rows=guess,
            scoring=scoring,
            scale=scale_of(model, schema, self.max_loss, self.max_residual),
            delta=record.delta,
            neighbours=record.neighbours,
            noise=Randomness(self.random_state),
            random_state=self.random_state,
        )

    def _candidates(self) -> list[dict[str, Any]]:
        """All candidates, and what is public and wrong about them."""
        if self.n_candidates is None:
            listed = list(ParameterGrid(self.param_grid))
        else:
            # scikit-learn draws them: candidates are public, and the theorem holds for
            # any. Its default is numpy's global generator, whose state other code may
            # have advanced by what it read of the records: a seed of our own is not.
            seed = self.random_state
            if seed is None:
                seed = Coins(Randomness()).draw_below(1 << 32)
            listed = list(
                ParameterSampler(self.param_grid, self.n_candidates, random_state=seed)
            )
        check(bool(listed), "param_grid must have a candidate. Got none: list some.")
        for params in listed:
            for name in params:
                check(
                    name not in FIXED,
                    f"param_grid must leave {name!r} alone, on which all candidates "
                    "agree: set it in the estimator or in the search.",
                )
            clone(self.estimator).set_params(**params)  # refuses unknown names
        return listed

    def _stop(self, n_candidates: int, delta: float, has_ledger: bool) -> float | None:
        """γ of the number of trials, None to fit all: decided from public facts."""
        check(
            self.method in ("auto", "split", "random"),
            f"method must be 'auto', 'split' or 'random'. Got {self.method!r}.",
        )
        check(
            not (self.method == "random" and has_ledger),
            "A ledger adds up Gaussian curves, and the smallest one above a random "
            "search is no better than a split: pass method='split', or no ledger.",
        )
        trials = self.n_trials or TRIALS_PER_CANDIDATE * n_candidates
        check(
            1 <= trials < 1e6,
            f"n_trials must be in [1, 1e6). Got {self.n_trials}: leave it out.",
        )
        stop = choose_stop(trials)
        if self.method == "random":
            return stop
        if self.method == "split" or has_ledger or self.epsilon == math.inf:
            return None
        each = accountant.gdp_mu(self.epsilon, delta) / math.sqrt(n_candidates)
        return stop if trial_mu(self.epsilon, delta, stop) > each else None


def _all(
    trials: Trials,
    candidates: list[dict[str, Any]],
    record: SearchRecord,
    score_record: SearchRecord,
) -> list[Outcome]:
    """Fit and score every candidate, each for its part of the budget."""
    part = record.budget / len(candidates)
    found = []
    for index, params in enumerate(candidates):
        charged = record.begin(part)
        found.append(trials.run(params, part, index))
        _enter(found[-1], charged, record, score_record)
    return found


def _some(
    trials: Trials,
    candidates: list[dict[str, Any]],
    record: SearchRecord,
    score_record: SearchRecord,
    stop: float,
) -> Outcome:
    """Fit and score candidates drawn at random; hand out the best and nothing else."""
    coins = Coins(trials.noise)
    charged, best = record.begin(record.budget), None
    for index in range(number_of_trials(stop, coins)):
        params = candidates[coins.draw_below(len(candidates))]
        one = trials.run(params, record.budget, index)
        # Of equal scores the first is kept: trials are alike, so that this is fair.
        if best is None or one.rank > best.rank:
            best = one
    assert best is not None  # there is a trial
    _enter(best, charged, record, score_record)
    return best


def _enter(
    one: Outcome, charged: Event, record: SearchRecord, score_record: SearchRecord
) -> None:
    """Enter what a trial released, each release where it belongs."""
    score_record.end(score_record.begin(charged.mu_squared), [one.score_record])
    record.end(charged, [one.model.privacy_])
