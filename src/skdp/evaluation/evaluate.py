"""skdp.evaluate: score a model on a private table, within a privacy budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sklearn.utils.validation import check_is_fitted

from skdp.engines.choice import place_table
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.display import show_work
from skdp.estimators.inputs import accept_column, accept_table
from skdp.estimators.preparation import open_table
from skdp.estimators.regressors import accept_exposure, check_numeric_target
from skdp.estimators.spending import open_ledger, reserve_budget
from skdp.estimators.unit import assume_given_count, check_unit, count_given
from skdp.evaluation.metrics import choose_metrics, choose_scale, list_columns
from skdp.evaluation.results import Evaluation
from skdp.evaluation.score_formulas import DEVIANCE, RESIDUALS, TARGET, Scale
from skdp.evaluation.scoring import encode_table, release_scores
from skdp.planning.plan import (
    EXPECTED_ROWS,
    check_budget,
    check_budget_types,
    default_delta,
)
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.randomness import Randomness
from skdp.schema import check
from skdp.tables.ids import GIVEN

MODEL_IS_PUBLIC = (
    "The evaluated model and its schema are public, or another budget covers them."
)


def evaluate(
    model: PrivateLinearModel,
    table: Any,
    y: Any = None,
    *,
    epsilon: float,
    delta: float | None = None,
    metrics: Sequence[str] | None = None,
    neighbours: str = "add-remove",
    n_rows: int | None = None,
    unit: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    offset: Any = None,
    max_weight: float = 1.0,
    max_loss: float = 5.0,
    max_residual: float | None = None,
    confidence: float = 0.95,
    ledger: Any = None,
    engine: str | None = None,
    random_state: int | None = None,
    verbose: int = 0,
) -> Evaluation:
    """Score a model on a private table, with a budget for the scores alone.

    Parameters
    ----------
    model : fitted estimator
        An skdp model. The budget protects the rows of `table`, not the rows that the
        model was fitted to. If they are the same rows, the two budgets add up.
    table, y : table and column
        As for ``fit``. `y` is required if the schema does not name the target.
    epsilon, delta : float
        The budget. δ has the same default as in estimators. If epsilon is infinite, the
        exact scores are released and no privacy is claimed.
    metrics : sequence of str, optional
        The scores to release. Classifiers have ``"accuracy"``,
        ``"balanced_accuracy"``, ``"precision"``, ``"recall"``, ``"f1"`` and
        ``"confusion"``. Classifiers that predict probabilities also have
        ``"log_loss"`` and ``"d2"``. With two classes there is ``"auc"`` and, if
        probabilities are predicted, ``"calibration"`` and ``"ece"``. Regressors have
        ``"r2"``, ``"rmse"``, ``"mae"`` and ``"mse"``; models of counts also have
        ``"deviance"`` and ``"d2"``. By default, all scores except mse are released.
        Scores are computed from columns of cells (see Notes). Each column increases the
        noise of the other columns, so request only the scores that you need. All scores
        of the confusion matrix share one column. Calibration and ece also share a
        column, and so do r2, rmse, mae and mse.
    neighbours : {"add-remove", "zero-out", "replace-one"}
        As for estimators.
    n_rows : int, optional
        The number of rows, or of persons, if it is public (add-remove only).
    unit : column, str or list of str, optional
        The ids of persons, as for ``fit``. The default is the unit of the model's
        schema.
    sample_weight : column or str, optional
        Weight of each row, clipped to `max_weight`.
    exposure, offset : column or str, optional
        As for `PoissonRegressor.fit`. Scores are then about rates, weighted by the
        exposure, and the deviance is per unit of exposure.
    max_weight : float
        Public bound on weights and exposures.
    max_loss : float
        Public bound, at most 16, at which the log-loss of a row is clipped. The noise
        of log_loss is proportional to this bound. A log-loss of 5 means that the
        predicted probability of the true class was 0.007.
    max_residual : float, optional
        Public bound, in the target's units, at which a regressor's residuals are
        clipped. By default a bound that few residuals exceed is found privately, for a
        tenth of the budget. The noise of mae is proportional to the bound, and the
        noise of mse to the square of the bound.
    confidence : float
        The confidence level of the intervals.
    ledger : Ledger or absolute path, optional
        The ledger of the data set that `table` is from. It is charged before a record
        is read.
    engine : str, optional
        As for estimators. The default is the model's engine.
    random_state : int, optional
        A seed, for tests. A seeded evaluation claims no privacy.
    verbose : int
        Whether to show progress on standard error, or in a notebook.

    Returns
    -------
    Evaluation
        The scores, which can be printed. ``scores`` has values, standard errors and
        intervals. ``confusion`` and ``calibration`` are tables, ``plot()`` draws the
        ROC and the calibration curve, and ``privacy_`` is the privacy record. Every
        score is in its possible range. If noise hides a number, "too noisy to say" is
        printed instead.

    Notes
    -----
    Scores are computed from columns of cells (`score_cells`). Every row divides one
    unit among the cells of each column, and the sums of all columns are released
    together. Several scores share a column. AUC and calibration count rows in bins of
    the margin. These bins have about equal numbers of rows. An earlier release, which
    takes a tenth of the budget, finds their edges. The number of bins of the AUC grows
    with (n μ)^0.4, because more bins mean more noise, and fewer bins mean more ties. A
    calibration table has as many lines as noise allows. A row whose class is not in the
    schema counts as a wrong answer with the largest loss. Predictions of a regressor
    are clipped to the target's range.

    **Guarantee.** For all tables that are neighbours, the result is post-processing of
    at most two Gaussian releases charged to ``privacy_``, which is (epsilon,
    delta)-private. The amounts that a row adds to the cells depend only on that row, on
    the model and on the earlier release. With a unit, they also depend on how many rows
    the row's person has.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(20_000, 2))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> clf = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1]).fit(X, y)
    >>> scores = skdp.evaluate(clf, X, y, epsilon=1.0, metrics=["accuracy"])
    >>> scores.scores["accuracy"].noise_std < 0.001
    True
    """
    check(
        isinstance(model, PrivateLinearModel),
        f"model must be an skdp model, got {type(model).__name__}.",
    )
    check_is_fitted(model, "weights_")
    wanted = choose_metrics(model, model.schema_, metrics)
    scale = choose_scale(model, model.schema_, max_loss, max_residual)
    check(0 < confidence < 1, f"confidence must be in (0, 1), got {confidence}.")
    check_budget_types(epsilon, delta)
    book, noise = open_ledger(ledger, epsilon, random_state), Randomness(random_state)
    name = model.engine if engine is None else engine
    check(
        not model._exposed or exposure is not None or offset is not None,
        "The model was fitted with exposures, so it predicts counts per unit of "
        "exposure. Pass the exposure or the offset of these rows too.",
    )
    if exposure is not None or offset is not None:
        sample_weight = accept_exposure(model, sample_weight, exposure, offset)
    given = table, y, sample_weight, unit
    table, y, sample_weight, unit, _ = place_table(*given, name, model.n_threads)
    table, y = accept_table(table), accept_column(y)
    sample_weight = accept_column(sample_weight, "sample_weight")
    unit = model.schema_.unit if unit is None else unit
    check(
        not (isinstance(unit, str) and unit == GIVEN),
        "The model was fitted to ids that were passed as an array. Pass the ids of "
        "this table as unit=.",
    )
    about = open_table(
        table,
        y,
        schema=model.schema_,
        bounds=None,
        target=None,
        unit=unit,
        sample_weight=sample_weight,
    )
    most, persons = model.max_rows_per_unit, None
    check_unit(about.ids, max_rows_per_unit=most, neighbours=neighbours)
    public_rows = count_given(n_rows, about.ids, most)
    if neighbours != "add-remove":
        persons = about.count_rows_per_unit(most)
        public_rows = about.count_rows() if persons is None else len(persons)
    delta = default_delta(public_rows) if delta is None else delta
    check_budget(epsilon, delta, public_rows or None)
    # The rows of a person together count as at most one row, and often as less. Their
    # sum over all persons is therefore not exactly the number of persons.
    weighted = sample_weight is not None or about.ids is not None
    record = PrivacyRecord(
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,  # type: ignore[arg-type]  # checked inside
        assumptions=(
            MODEL_IS_PUBLIC,
            *assume_given_count(n_rows, neighbours, about.ids),
        ),
        unit=about.unit_name,
    )
    query = f"evaluation of a {type(model).__name__}"
    with reserve_budget(record, book, query=query, described=about):
        records = encode_table(
            *(model, table, y, sample_weight, max_weight, about, persons), verbose
        )
        with show_work("scoring", verbose):
            found = release_scores(
                model,
                records,
                wanted,
                budget=record.budget,
                n_rows=None if weighted else public_rows,
                expected_rows=float(public_rows or EXPECTED_ROWS),
                weighted=sample_weight is not None,
                scale=scale,
                find_bounds=_list_bounds(model, wanted, max_residual),
                confidence=confidence,
                noise=noise,
                record=record,
            )
    return Evaluation(
        scores=found.scores,
        confusion=found.confusion,
        calibration=found.calibration,
        roc=found.roc,
        n_rows=found.n_rows,
        rows_released=weighted or public_rows is None,
        model=type(model).__name__,
        target=model.schema_.target_name,
        classes=tuple(getattr(model, "classes_", ())),
        confidence=confidence,
        notes=tuple(_list_notes(model, wanted, found.scale)),
        privacy_=record,
    )


def _list_bounds(
    model: PrivateLinearModel, wanted: Sequence[str], max_residual: float | None
) -> list[str]:
    """Return the names of the bounds that must be found privately."""
    columns = {column for name in wanted for column in list_columns(name, model)}
    found = ["largest"] if RESIDUALS in columns and max_residual is None else []
    found += ["deviance"] if DEVIANCE in columns else []
    return found + (["target"] if TARGET in columns else [])


def _list_notes(model: Any, wanted: Sequence[str], scale: Scale) -> Iterator[str]:
    """Yield notes about the classes that scores refer to, and about clipped values."""
    averaged = [name for name in ("precision", "recall", "f1") if name in wanted]
    if averaged and len(model.classes_) == 2:
        yield f"{', '.join(averaged)}: computed for class {model.classes_[1]}."
    elif averaged:
        yield f"{', '.join(averaged)}: averaged over all classes."
    if "log_loss" in wanted:
        yield f"The log-loss of a row is clipped at {scale.largest:g}."
    columns = {column for name in wanted for column in list_columns(name, model)}
    if model._loss(model.schema_).n_classes == 0:
        column = check_numeric_target(model.schema_.target_column)
        yield f"Predictions are clipped to [{column.low:g}, {column.high:g}]."
        if RESIDUALS in columns and scale.largest < scale.width:
            yield f"Residuals are clipped at {scale.largest:.4g}."
        if DEVIANCE in columns:
            yield f"The deviance of a row is clipped at {scale.deviance:.4g}."
        if TARGET in columns and scale.target != (0.0, 1.0):
            low, high = (column.low + end * scale.width for end in scale.target)
            what = "entropy" if model.link == "log" else "variance"
            yield (
                f"The {what} of the target is computed after clipping the target to "
                f"[{low:.4g}, {high:.4g}]."
            )
