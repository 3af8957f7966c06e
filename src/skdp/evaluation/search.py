"""Search for the best parameters privately."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.fit_warnings import (
    ConstantModelWarning,
    DoubtfulSchemaWarning,
    UnknownLabelsWarning,
    describe_doubts,
    remember_table,
    warn_if_labels_unknown,
    warn_of_doubts,
)
from skdp.estimators.opening import (
    OpenedTable,
    PrivacyRequest,
    assume_given_count,
    open_table,
    reserve_budget,
)
from skdp.estimators.other_solvers import OWN, find_delta_share
from skdp.estimators.progress import show_work
from skdp.evaluation.evaluate import encode_table, release_scores
from skdp.evaluation.folds import RandomFolds, divide_table
from skdp.evaluation.metrics import (
    METRICS,
    Scale,
    choose_metrics,
    choose_scale,
    list_metrics,
)
from skdp.privacy import accountant
from skdp.privacy.budget import EXPECTED_ROWS, Event, PrivacyRecord
from skdp.privacy.queries import Neighbours
from skdp.privacy.randomness import Randomness
from skdp.privacy.selection import (
    Coins,
    SearchRecord,
    choose_stop,
    describe_scope,
    find_held_out,
    number_of_trials,
    trial_mu,
)
from skdp.schema import check, count_in_words, name_record
from skdp.tables.ids import Ids

# ---- Predict with the best model of a search


def _delegate(name: str) -> Callable[[Any], Any]:
    """Make a search have the method `name` only if the best model has this method.

    Before the search is fitted, `estimator` is used in place of the best model.
    """

    def has_method(search: Any) -> bool:
        return hasattr(getattr(search, "best_estimator_", search.estimator), name)

    decorator: Callable[[Any], Any] = available_if(has_method)
    return decorator


# ---- Run the trials of a search. Each trial fits and scores one candidate


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
        opened = open_table(
            table,
            y,
            schema=model.schema_,
            unit=ids,
            max_rows_per_unit=model.max_rows_per_unit,
        )
        found = release_scores(
            model,
            encode_table(model, opened, 1.0),
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


# ---- skdp.PrivateSearchCV: choose hyper-parameters within a single privacy budget


#: Average number of trials per candidate in a random search, by default.
TRIALS_PER_CANDIDATE = 3.5
#: On average, one in this many rows scores models. All other rows fit them.
PARTS = 5
#: Unless neighbours is add-remove, a search refuses tables with fewer rows than this.
FEWEST_ROWS = 50


def _part_rows(model: PrivateLinearModel, rows: int, held_out: float) -> int:
    """Return the parameter ``n_rows`` for a fit to the rows that are not held out."""
    return max(1, round((rows - held_out) * model.max_rows_per_unit))


class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Choose hyper-parameters by released scores, all within one budget.

    scikit-learn's searches compare scores without noise. ``cv_results_``,
    ``best_params_`` and ``best_score_`` are therefore not private, even if every model
    is. Here the budget (epsilon, delta) covers all fits, all scores and the choice.

    Parameters
    ----------
    estimator : LogisticRegression, LinearRegression, ...
        An skdp model with a schema, or with bounds and classes (or target_bounds). The
        search sets the model's epsilon, delta and random_state.
    param_grid : dict of lists, or list of them
        The candidates, as for ``GridSearchCV``. They are public. If `n_candidates` is
        given, distributions are allowed too, as for ``RandomizedSearchCV``.
    epsilon, delta : float
        The budget of the whole search.
    n_candidates : int, optional
        Number of candidates to draw from `param_grid`. By default all are used.
    scoring : str, optional
        A metric of `skdp.evaluate`. The default is log_loss for classifiers that
        predict probabilities, accuracy for other classifiers, and r2 for regressors.
    method : {"auto", "split", "random"}
        ``"split"`` fits every candidate, each with an equal part of the budget.
        ``"random"`` makes a random number of fits, each of a candidate drawn at random,
        and returns only the best. The budget of each fit then hardly depends on the
        number of candidates. But it may miss a candidate, and cannot charge a ledger.
        ``"auto"`` chooses the method that gives each fit the larger budget.
    n_trials : float, optional
        Average number of fits of a random search. The default is 3.5 per candidate,
        which misses any given candidate with probability 10 %.
    max_loss, max_residual : float
        As for `skdp.evaluate`.
    ledger : Ledger or absolute path, optional
        The whole search is charged to it before a record is read. The default is the
        estimator's ledger.
    random_state : int, optional
        A seed, for tests. A seeded search claims no privacy.
    verbose : int
        Whether to show that the search is running, on standard error or in a notebook.
        The number of fits of a random search is private, so it is not shown.

    Attributes
    ----------
    best_estimator_ : estimator
        The best model. Its ``privacy_`` is the record of the whole search.
    best_params_, best_score_
        The parameters and the released score of the best model. As in scikit-learn,
        higher is better: a loss has a negative sign.
    results_ : list of Trial
        The parameters and the released score of each candidate. A random search lists
        only the best, because the budget does not cover the others.
    method_ : {"split", "random"}
        The method that was used. It was chosen from public facts.
    privacy_ : SearchRecord
        The budget spent on the rows that fitted the models.
    score_privacy_ : SearchRecord
        The budget spent on the rows that scored models, at most that of `privacy_`.

    Notes
    -----
    Each row is assigned independently to score the models (one row in five) or to fit
    them. The assignment of a row moves no other row, so each part has the whole budget
    under every relation (see the proof in `skdp.RandomFolds`). For a row that scores,
    the models are public. For a row that fits, scores are post-processing, because they
    are computed from the models and from rows that are equal in both tables. Under
    add-remove, the number of rows in each part is private. A fit then releases this
    number or, if ``n_rows`` is given, uses four fifths of ``n_rows``. Scores are
    divided by a released number.

    **Split.** m trials of μ/√m each compose exactly to μ (Dong, Roth, Su 2022,
    Corollary 3.3).

    **Random.** `skdp.privacy.selection` has the theorem and its proof.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> clf = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1])
    >>> search = skdp.PrivateSearchCV(clf, {"alpha": [1e-5, 10]}, method="split")
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
        verbose: int = 0,
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
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, unit: Any = None
    ) -> Self:
        """Run the search and keep the best model.

        Parameters
        ----------
        X, y : table and column
            As for the estimator's ``fit``, but files are accepted only if a Dask
            cluster reads them or if there is a unit.
        sample_weight : column or str, optional
            Weight of each record in the fits. Scores weight all records equally.
        unit : column, str or list of str, optional
            The ids of persons, as for the estimator's ``fit``. All rows of a person are
            in the same part, so privacy protects persons.
        """
        check(
            isinstance(self.estimator, PrivateLinearModel),
            "estimator must be an skdp model, because only skdp models record the "
            f"budget they spend, got {type(self.estimator).__name__}.",
        )
        check(
            self.estimator.solver == OWN
            or find_delta_share(self.estimator.solver) == 0,
            f"solver={self.estimator.solver!r} charges δ as well as μ. A search can "
            "only add up μ. Use solver='skgd'.",
        )
        candidates = list_candidates(
            self.estimator, self.param_grid, self.n_candidates, self.random_state
        )
        ledgers = [self.ledger, self.estimator.ledger]
        check(
            None in ledgers,
            "Set ledger on the search or on its estimator, not on both.",
        )
        ledger = next((one for one in ledgers if one is not None), None)
        model = self.estimator
        asked = PrivacyRequest(
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=model.neighbours,
            n_rows=model.n_rows,
            max_rows_per_unit=model.max_rows_per_unit,
            solver=model.solver,
            calibration=model.calibration,
            ledger=ledger,
            random_state=self.random_state,
        )
        opened, _ = asked.open(
            X,
            y,
            sample_weight,
            unit,
            schema=model.schema,
            bounds=model.bounds,
            target=model._target(),
            empty=model.neighbours == "add-remove",
            engine=model.engine,
            n_threads=model.n_threads,
        )
        opened.check_once("the fits", "the scores")
        rows = asked.count_public(opened)
        delta = asked.choose_delta(rows)
        stop = self._choose_stop(len(candidates), delta, asked.ledger is not None)
        count = assume_given_count(model.n_rows, model.neighbours, opened.ids)
        assumptions = (*opened.assumptions, *count, find_held_out(opened.ids))
        terms = delta, len(candidates), stop, opened.unit_name
        record = self._open_record(assumptions, *terms)
        trials = self._prepare_trials(opened, rows, record)
        public = ("For the rows that score models, the models are public.",)
        score_record = self._open_record(public, *terms)
        many = count_in_words(len(candidates), "candidate")
        query = f"search among {many} of {type(model).__name__}"
        with (
            show_work("searching", self.verbose),
            reserve_budget(record, asked.ledger, query=query, described=opened) as tell,
        ):
            # A trial fits one part of the table and scores the other. Each row is in
            # one part only, so both may spend the whole budget, the smaller one if they
            # differ.
            least = min(score_record.budget, record.budget)
            score_record.budget = record.budget = least
            if stop is None:
                found = run_all(trials, candidates, record, score_record)
            else:
                found = [run_random(trials, candidates, record, score_record, stop)]
            # Scores are released values, so choosing the best is post-processing. In a
            # random search the choice is paid for in the cost of the trials.
            best = max(found, key=lambda one: one.trial.score)
            tell(best.model)
        # The next two lines read the model's own record, which is then replaced.
        best.model._standard_errors()
        said = describe_doubts(best.model)
        best.model.privacy_ = record
        remember_table(best.model, X)  # lets `score` warn that X is not public
        warn_if_labels_unknown(best.model)
        warn_of_doubts(said)
        self.best_estimator_ = best.model
        self.best_params_, self.best_score_ = best.trial.params, best.trial.score
        self.results_ = [one.trial for one in found]
        self.method_ = "split" if stop is None else "random"
        self.scoring_ = trials.scoring
        self.privacy_, self.score_privacy_ = record, score_record
        return self

    def _open_record(
        self,
        assumptions: tuple[str, ...],
        delta: float,
        n_trials: int,
        stop: float | None,
        unit: str | None = None,
    ) -> SearchRecord:
        """Return a new privacy record of the search, without charges."""
        scope = describe_scope(n_trials, stop)
        return SearchRecord(
            epsilon=self.epsilon,
            delta=delta,
            neighbours=self.estimator.neighbours,
            assumptions=(*assumptions, scope),
            n_trials=n_trials,
            stop=stop,
            unit=unit,
        )

    def _prepare_trials(
        self,
        opened: OpenedTable,
        rows: int | None,
        record: SearchRecord,
    ) -> Trials:
        """Check the public facts, divide the table, and return the `Trials`."""
        schema, model = opened.schema, self.estimator
        if schema is None:
            raise ValueError(
                "A search requires a complete public description of the table. "
                "Otherwise each fit would spend budget to find a description. Set "
                "schema, or set bounds and classes (or target_bounds)."
            )
        scoring = self.scoring or list_metrics(model, schema)[0]
        choose_metrics(model, schema, scoring)
        check(
            scoring in METRICS and scoring != "ece",
            "scoring must be a metric with a single value that noise does not bias, "
            f"got {scoring!r}. Use log_loss, which rewards calibration too.",
        )
        private_rows = record.neighbours == "add-remove"
        check(
            private_rows or (rows is not None and rows >= FEWEST_ROWS),
            f"A search needs at least {FEWEST_ROWS} {name_record(opened.ids)}s, got "
            f"{rows}.",
        )
        # Rows are assigned independently. With parts of a fixed size, one more row
        # would move others from part to part, and neighbouring tables would differ in
        # many rows.
        folds = RandomFolds(PARTS, random_state=self.random_state)
        fit_part, score_part, score_rows = divide_table(opened, folds)
        guess = (rows or EXPECTED_ROWS) / PARTS
        return Trials(
            estimator=model,
            fit_part=fit_part,
            score_part=score_part,
            fit_rows=_part_rows(model, rows, guess) if private_rows and rows else None,
            score_rows=None if private_rows else score_rows,
            expected_rows=guess,
            scoring=scoring,
            scale=choose_scale(model, schema, self.max_loss, self.max_residual),
            delta=record.delta,
            neighbours=record.neighbours,
            noise=Randomness(self.random_state),
            random_state=self.random_state,
        )

    def _choose_stop(
        self, n_candidates: int, delta: float, has_ledger: bool
    ) -> float | None:
        """Return γ, the parameter of the random number of trials.

        Return None if every candidate is to be fitted. Only public facts decide this.
        """
        check(
            self.method in ("auto", "split", "random"),
            f"method must be 'auto', 'split' or 'random', got {self.method!r}.",
        )
        check(
            not (self.method == "random" and has_ledger),
            "method='random' cannot be charged to a ledger, because a ledger adds up "
            "only the costs of Gaussian mechanisms. Use method='split'.",
        )
        trials = self.n_trials or TRIALS_PER_CANDIDATE * n_candidates
        check(
            1 <= trials < 1e6,
            f"n_trials must be in [1, 1e6), got {self.n_trials}.",
        )
        stop = choose_stop(trials)
        if self.method == "random":
            return stop
        if self.method == "split" or has_ledger or self.epsilon == math.inf:
            return None
        # Splitting gives each of N candidates μ/√N. In a random search, the μ of a
        # trial falls more slowly with N.
        each = accountant.gdp_mu(self.epsilon, delta) / math.sqrt(n_candidates)
        return stop if trial_mu(self.epsilon, delta, stop) > each else None

    # What a search passes on to the best model

    def _get_best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @_delegate("predict")
    def predict(self, X: Any) -> Any:
        """Return the predictions of the best model."""
        return self._get_best().predict(X)

    @_delegate("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the best model."""
        return self._get_best().predict_proba(X)

    @_delegate("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of the probabilities of the best model."""
        return self._get_best().predict_log_proba(X)

    @_delegate("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Return the margins of the best model."""
        return self._get_best().decision_function(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the best model's score without noise.

        Use it only on rows that need no protection.
        """
        return float(self._get_best().score(X, y, sample_weight))

    @property
    def classes_(self) -> Any:
        """The class labels of the best model."""
        return self._get_best().classes_

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the table that was fitted."""
        return int(self._get_best().n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags = inner.input_tags
        return tags
