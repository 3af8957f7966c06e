"""Release the sums that scores need, and compute scores and errors from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.preparation import OpenedTable, read_records
from skdp.evaluation import score_cells
from skdp.evaluation import score_formulas as formulas
from skdp.evaluation.margin_bins import (
    BINS_SHARE,
    Bins,
    release_bins,
    release_bounds,
)
from skdp.evaluation.metrics import TABLES, find_metric, list_columns
from skdp.evaluation.predictions import PredictedRows, Rows
from skdp.evaluation.results import Bin, Confusion, Score
from skdp.evaluation.score_formulas import Scale
from skdp.evaluation.uncertainty import (
    PlausibleCounts,
    list_bins,
    score_calibration,
)
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import release
from skdp.privacy.persons import RowCounts
from skdp.privacy.queries import Neighbours, count_changes
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray

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
    n_rows: float
    scale: Scale


def encode_table(
    model: PrivateLinearModel,
    table: Any,
    y: Any,
    sample_weight: Any,
    max_weight: float,
    opened: OpenedTable | None = None,
    row_counts: RowCounts | None = None,
    verbose: int = 0,
) -> Records:
    """Encode a table as the model's ``fit`` does, but without class weights.

    `opened` is the result of `open_table` for this table. It says which person each row
    belongs to. `row_counts` has the number of rows of each person, if it is known
    already.
    """
    schema, ids = model.schema_, None
    if opened is not None:
        schema, ids = replace(schema, unit=opened.unit), opened.ids
        if row_counts is None:
            row_counts = opened.count_rows_per_unit(model.max_rows_per_unit)
    return read_records(
        table,
        schema,
        target=y,
        sample_weight=sample_weight,
        class_weight=None,
        intercept=any(group.kind == "ones" for group in model._layout.groups),
        max_weight=max_weight,
        verbose=verbose,
        unit=ids,
        row_counts=row_counts,
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
    """
    pieces = PredictedRows(records, model.weights_, weighted)
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
        lines = _choose_lines(bins, z, len(needed), record.neighbours)
    elif find_bounds:
        z = accountant.noise_multiplier(math.sqrt(budget * (1 - BINS_SHARE)), 1)
        scale = release_bounds(model, pieces, scale, find_bounds, budget, noise, record)
    columns = make_columns(model, needed, bins, lines, scale)
    asked = score_cells.sum_columns(columns, pieces, record.neighbours)
    answer = release(asked, z, noise, record)
    values = answer.values / score_cells.UNIT
    std = float(answer.noise_std.max()) / score_cells.UNIT
    known = PlausibleCounts(columns, values, std, n_rows)
    unit = records.max_weight if weighted else 1.0
    scores = {}
    for name in wanted:
        if name == "ece":
            scores[name] = score_calibration(known, confidence)
        elif name not in TABLES:
            scores[name] = known.score(find_metric(name, model), scale, confidence)
    calibration: tuple[Bin, ...] = ()
    if "calibration" in wanted:
        calibration = tuple(list_bins(known, lines, unit, confidence))
    return ReleasedScores(
        scores=scores,
        confusion=_make_confusion(model, known, unit)
        if "confusion" in wanted
        else None,
        calibration=calibration,
        roc=tuple(_list_roc(known)) if "auc" in wanted else (),
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
