"""Score a model on private rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.opening import OpenedTable, PrivacyRequest, reserve_budget
from skdp.estimators.progress import show_work
from skdp.estimators.regressors import accept_exposure, check_numeric_target
from skdp.evaluation import metrics as formulas
from skdp.evaluation import score_cells
from skdp.evaluation.metrics import (
    DEVIANCE,
    RESIDUALS,
    TABLES,
    TARGET,
    PredictedRows,
    Rows,
    Scale,
    choose_metrics,
    choose_scale,
    find_metric,
    list_columns,
)
from skdp.evaluation.results import Bin, Confusion, Evaluation, Score, Subgroup
from skdp.evaluation.score_cells import BINS_SHARE, Bins, release_bins, release_bounds
from skdp.evaluation.uncertainty import (
    PlausibleCounts,
    list_bins,
    score_calibration,
)
from skdp.privacy import accountant
from skdp.privacy.budget import EXPECTED_ROWS, PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Neighbours, count_changes
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, FloatArray, Pair, Schema, check
from skdp.tables.ids import GIVEN

# ---- Release the sums that scores need, and compute scores and errors from them


#: A calibration table has `FEWEST_LINES` to `MOST_LINES` lines. Between these limits, a
#: line has about `ROWS_PER_LINE` rows per standard deviation of the noise in a cell.
FEWEST_LINES, MOST_LINES, ROWS_PER_LINE = 2, 10, 24


@dataclass(frozen=True, eq=False)
class ReleasedScores:
    """The released scores and tables, with the number of rows and the units.

    If rows have weights, the number of rows is the sum of the weights.
    """

    scores: dict[str, Score]
    confusion: Confusion | None
    calibration: tuple[Bin, ...]
    roc: tuple[tuple[float, float], ...]
    groups: tuple[Subgroup, ...]
    n_rows: float
    scale: Scale


#: Largest number of subgroups.
MOST_GROUPS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Grouping:
    """A column that divides the rows into subgroups.

    The column may be one that the model does not use. It is then read beside the
    model's columns, and its weights are zero.

    Attributes
    ----------
    by : str
        The name of the column.
    schema : Schema
        The model's schema with that column.
    place : int
        The position of the column's codes in the layout of `schema`.
    weights : float64 (d, k)
        The model's weights for the layout of `schema`.
    levels : tuple
        The categories, and None at the end if a row may have none of them.
    """

    by: str
    schema: Schema
    place: int
    weights: FloatArray
    levels: tuple[Any, ...]

    @classmethod
    def of(cls, model: PrivateLinearModel, by: Any) -> Grouping:
        """Find or add the column that the argument `by` of `evaluate` names."""
        schema, weights = model.schema_, model.weights_
        if isinstance(by, tuple) and len(by) == 2:
            name, column = by
            check(
                isinstance(name, str) and isinstance(column, Categorical),
                f"by must be (name, Categorical([...])), got {by!r}.",
            )
            check(
                name not in (*schema.inputs, *schema.columns, schema.target_name),
                f"The model's schema describes {name!r} already. Pass by={name!r}.",
            )
            check(
                schema.row_norm is None,
                "The schema has row_norm, so no column can be added to it. Pass the "
                "name of one of its categorical columns as by=.",
            )
            at = weights.shape[0] - any(g.kind == "ones" for g in model._layout.groups)
            zeros = np.zeros((column.width, weights.shape[1]))
            weights = np.concatenate([weights[:at], zeros, weights[at:]])
            schema = replace(schema, columns={**schema.columns, name: column})
            by = name
        columns: dict[str, Any] = dict(schema.columns)
        known = [
            name
            for name, column in columns.items()
            if column.kind == "code" and not isinstance(column, Pair)
        ]
        check(
            isinstance(by, str) and by in known,
            f"by must be a column of categories or bins of the model's schema, among "
            f"{known}, or (name, Categorical([...])) for another column of the table. "
            f"Got {by!r}.",
        )
        column = columns[by]
        complete = not isinstance(column, Categorical) or column.other is not None
        levels = getattr(column, "levels", None) or column.list_labels(by)
        levels = (*levels,) if complete else (*levels, None)
        check(
            len(levels) <= MOST_GROUPS,
            f"by must have at most {MOST_GROUPS} subgroups, got {len(levels)}.",
        )
        place = list(columns).index(by)
        return cls(by=by, schema=schema, place=place, weights=weights, levels=levels)


def encode_table(
    model: PrivateLinearModel,
    opened: OpenedTable,
    max_weight: float,
    verbose: int = 0,
    schema: Schema | None = None,
) -> Records:
    """Encode a table as the model's ``fit`` does, but without class weights."""
    return opened.read(
        replace(model.schema_ if schema is None else schema, unit=opened.unit),
        class_weight=None,
        intercept=any(group.kind == "ones" for group in model._layout.groups),
        max_weight=max_weight,
        verbose=verbose,
    )


def release_scores(
    model: PrivateLinearModel,
    records: Records,
    wanted: Sequence[str],
    *,
    budget: float,
    n_rows: float | None,
    expected_rows: float,
    weighted: bool = False,
    scale: Scale,
    find_bounds: Sequence[str] = (),
    confidence: float,
    noise: Randomness,
    record: PrivacyRecord,
    grouping: Grouping | None = None,
) -> ReleasedScores:
    """Release the requested scores, and charge `budget` to the record.

    Parameters
    ----------
    model : PrivateLinearModel
        A fitted model.
    records : Records
        The rows, encoded with the model's schema.
    wanted : sequence of str
        Names of metrics, from `metrics.METRICS` or `metrics.TABLES`.
    budget : float
        The μ² to spend.
    n_rows : float, optional
        The number of rows, if it is public and rows have no weights.
    expected_rows : float
        A public guess of the number of rows. It determines the number of bins.
    weighted : bool
        Whether the user gave weights for the rows. Counts are then sums of weights.
    scale : Scale
        The units of scores, from `metrics.choose_scale`.
    find_bounds : sequence of {"largest", "deviance"}
        The bounds of `scale` to replace by released bounds.
    confidence : float
        The confidence level of the intervals.
    noise, record : Randomness, PrivacyRecord
        The source of the noise, and the record to charge.
    grouping : Grouping, optional
        The subgroups whose scores are released too. The scores of all rows are then
        computed from sums over subgroups, whose noises add up.
    """
    pieces = PredictedRows(records, model.weights_, weighted)
    n_groups = 1
    if grouping is not None:
        n_groups = len(grouping.levels)
        pieces = PredictedRows(records, grouping.weights, weighted, grouping.place)
    needed = list(
        dict.fromkeys(c for name in wanted for c in list_columns(name, model))
    )
    if formulas.CONFUSION in needed and formulas.RIGHT in needed:
        needed.remove(formulas.RIGHT)  # the confusion matrix has the right answers
    z = accountant.noise_multiplier(math.sqrt(budget), 1)
    bins, lines = None, np.zeros(0)
    if {formulas.SCORES, formulas.CURVE} & set(needed):
        z = accountant.noise_multiplier(math.sqrt(budget * (1 - BINS_SHARE)), 1)
        bins = release_bins(model, pieces, budget, expected_rows, noise, record)
        lines = _choose_lines(bins, z, len(needed) * n_groups, record.neighbours)
    elif find_bounds:
        z = accountant.noise_multiplier(math.sqrt(budget * (1 - BINS_SHARE)), 1)
        scale = release_bounds(model, pieces, scale, find_bounds, budget, noise, record)
    columns = make_columns(model, needed, bins, lines, scale)
    released = columns
    if grouping is not None:
        split = score_cells.split_by_group
        released = [split(column, n_groups, grouping.by) for column in columns]
    asked = score_cells.sum_columns(released, pieces, record.neighbours)
    answer = release(asked, z, noise, record)
    values = answer.values / score_cells.UNIT
    std = float(answer.noise_std.max()) / score_cells.UNIT
    # The cells of each group, one group per row.
    ends = np.cumsum([column.size for column in released])[:-1]
    parts = [part.reshape(n_groups, -1) for part in np.split(values, ends)]
    apart = np.concatenate(parts, axis=1)
    whole = std * math.sqrt(n_groups)
    known = PlausibleCounts(columns, apart.sum(axis=0), whole, n_rows)
    unit = records.max_weight if weighted else 1.0

    def list_scores(known: PlausibleCounts) -> dict[str, Score]:
        scores = {}
        for name in wanted:
            if name == "ece":
                scores[name] = score_calibration(known, confidence)
            elif name not in TABLES:
                scores[name] = known.score(find_metric(name, model), scale, confidence)
        return scores

    groups = []
    levels = () if grouping is None else grouping.levels
    for level, own in zip(levels, apart, strict=False):
        part = PlausibleCounts(columns, own, std, None)
        few = np.quantile(part.many_rows, (1.0 - confidence) / 2) <= 1.0
        own_scores = list_scores(part)
        if few and std > 0:  # there may be no row at all
            own_scores = {
                name: replace(one, too_noisy=True) for name, one in own_scores.items()
            }
        groups.append(
            Subgroup(
                level=level,
                n_rows=unit * part.released_rows,
                n_rows_std=unit * part.rows_std,
                scores=own_scores,
            )
        )
    calibration: tuple[Bin, ...] = ()
    if "calibration" in wanted:
        calibration = tuple(list_bins(known, lines, unit, confidence))
    return ReleasedScores(
        scores=list_scores(known),
        confusion=_make_confusion(model, known, unit)
        if "confusion" in wanted
        else None,
        calibration=calibration,
        roc=tuple(_list_roc(known)) if "auc" in wanted else (),
        groups=tuple(groups),
        n_rows=unit * known.n_rows,
        scale=scale,
    )


def make_columns(
    model: PrivateLinearModel,
    needed: Sequence[str],
    bins: Bins | None,
    lines: FloatArray,
    scale: Scale,
) -> list[score_cells.Column]:
    """Return the columns of cells that are named in `needed`.

    `bins` are the bins of the ROC curve. `lines` are the inner edges of the bins of the
    calibration curve.
    """
    link, loss = model.link, model._loss(model.schema_)
    part, deviance = scale.largest / scale.width, scale.deviance / scale.width
    make_moments = score_cells.make_moments
    made: dict[str, Callable[[str], score_cells.Column]] = {
        formulas.RIGHT: lambda name: score_cells.make_indicator(name, Rows.find_right),
        formulas.CONFUSION: lambda name: score_cells.make_confusion(
            name, loss.n_classes
        ),
        formulas.LOSS: lambda name: make_moments(
            name, lambda rows: rows.compute_log_loss(scale.largest)
        ),
        formulas.CURVE: lambda name: score_cells.make_curve(name, lines),
        formulas.RESIDUALS: lambda name: make_moments(
            name, lambda rows: rows.compute_residual(link, part), degree=4
        ),
        formulas.TARGET: lambda name: make_moments(
            name, lambda rows: rows.scale_target(*scale.target), degree=4
        ),
        formulas.DEVIANCE: lambda name: make_moments(
            name, lambda rows: rows.compute_deviance(deviance)
        ),
        formulas.ENTROPY: lambda name: make_moments(
            name, lambda rows: rows.compute_entropy(scale.target[1])
        ),
    }
    if bins is not None:
        made[formulas.SCORES] = lambda name: score_cells.make_histogram(
            name, len(bins.classes), bins.find_cells, bins.classes
        )
    return [made[name](name) for name in needed]


def _choose_lines(
    bins: Bins, noise_multiplier: float, n_columns: int, neighbours: Neighbours
) -> FloatArray:
    """Return the inner edges of the bins of a calibration table.

    More noise means fewer bins.
    """
    changes = count_changes(neighbours)
    std = noise_multiplier * math.sqrt(changes * n_columns)
    many = MOST_LINES if std == 0 else bins.n_rows / (ROWS_PER_LINE * std)
    return bins.merge(round(min(max(many, FEWEST_LINES), MOST_LINES)))


def _make_confusion(model: Any, known: PlausibleCounts, unit: float) -> Confusion:
    matrix = unit * np.maximum(formulas.split_confusion(known.counts), 0.0)
    return Confusion(
        classes=tuple(model.classes_.tolist()),
        counts=tuple(tuple(row) for row in matrix.tolist()),
        noise_std=unit * known.std,
    )


def _list_roc(known: PlausibleCounts) -> Iterator[tuple[float, float]]:
    """Yield the points of the ROC curve, from the highest margin to the lowest.

    Noise can make the cumulative shares decrease or leave [0, 1]. So they are replaced
    by their running maximum, clipped to [0, 1].
    """
    ends = []
    for counts in formulas.split_classes(known.counts[formulas.SCORES]):
        share = np.cumsum(counts[::-1]) / max(float(counts.sum()), 1.0)
        ends.append(np.clip(np.maximum.accumulate(share), 0.0, 1.0))
        ends[-1][-1] = 1.0
    yield 0.0, 0.0
    yield from zip(ends[0].tolist(), ends[1].tolist(), strict=True)


# ---- skdp.evaluate: score a model on a private table, within a privacy budget


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
    by: str | tuple[str, Categorical] | None = None,
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
    by : str or (str, Categorical), optional
        A column that divides the rows into subgroups, whose scores are released too.
        It is a column of categories or bins of the model's schema, or another column
        of the table with the description of its categories, as in ``by=("sex",
        Categorical(["female", "male"]))``. Each subgroup's sums have the noise that the
        sums of all rows would have without `by`. The scores of all rows are computed
        from the sums of the subgroups, so their noise grows with the root of the number
        of subgroups.
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
    grouping = None if by is None else Grouping.of(model, by)
    schema = model.schema_ if grouping is None else grouping.schema
    scale = choose_scale(model, model.schema_, max_loss, max_residual)
    check(0 < confidence < 1, f"confidence must be in (0, 1), got {confidence}.")
    asked = PrivacyRequest(
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        n_rows=n_rows,
        max_rows_per_unit=model.max_rows_per_unit,
        ledger=ledger,
        random_state=random_state,
    )
    noise = Randomness(random_state)
    check(
        not model._exposed or exposure is not None or offset is not None,
        "The model was fitted with exposures, so it predicts counts per unit of "
        "exposure. Pass the exposure or the offset of these rows too.",
    )
    if exposure is not None or offset is not None:
        sample_weight = accept_exposure(model, sample_weight, exposure, offset)
    unit = model.schema_.unit if unit is None else unit
    check(
        not (isinstance(unit, str) and unit == GIVEN),
        "The model was fitted to ids that were passed as an array. Pass the ids of "
        "this table as unit=.",
    )
    opened, _ = asked.open(
        table,
        y,
        sample_weight,
        unit,
        schema=schema,
        engine=model.engine if engine is None else engine,
        n_threads=model.n_threads,
    )
    opened.check_once("the scores", counts=neighbours != "add-remove")
    public_rows = asked.count_public(opened, verbose)
    public = [MODEL_IS_PUBLIC]
    if grouping is not None and grouping.by not in model.schema_.columns:
        public.append(f"The categories of {grouping.by!r} are public.")
    record = asked.open_record(public_rows, opened.unit_name, public)
    # The rows of a person together count as at most one row, and often as less. Their
    # sum over all persons is therefore not exactly the number of persons.
    weighted = sample_weight is not None or opened.ids is not None
    query = f"evaluation of a {type(model).__name__}"
    # A ledger knows the table by the schema that the model's user gave.
    described: Any = opened
    if model.profile_ is not None:
        described = replace(model.profile_.limits, unit=opened.unit)
    with reserve_budget(record, asked.ledger, query=query, described=described):
        records = encode_table(model, opened, max_weight, verbose, schema)
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
                grouping=grouping,
            )
    return Evaluation(
        scores=found.scores,
        confusion=found.confusion,
        calibration=found.calibration,
        roc=found.roc,
        by=None if grouping is None else grouping.by,
        groups=found.groups,
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
