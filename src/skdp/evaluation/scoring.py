"""Release the sums that scores need, and compute scores and errors from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.preparation import OpenedTable, read_records
from skdp.evaluation import metrics, score_cells
from skdp.evaluation.metrics import CALIBRATION
from skdp.evaluation.predictions import Rows, bound_margins, predict_rows
from skdp.evaluation.results import Bin, Score
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.privacy.units import RowCounts
from skdp.schema import FloatArray

#: Share of μ² that is spent on choosing bins of the margin, each with about as many
#: rows as the others.
BINS_SHARE = 0.1
#: Fewest and most bins of the margin, and most lines of a calibration table.
FEWEST_BINS, MOST_BINS, CALIBRATION_BINS = 8, 512, 10


@dataclass(frozen=True, eq=False)
class ReleasedScores:
    """The scores, the calibration table, and the number of rows or sum of weights."""

    scores: dict[str, Score]
    calibration: tuple[Bin, ...]
    n_rows: float


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of the margin.

    Attributes
    ----------
    edges : float64 (b - 1,)
        The inner edges of the b bins.
    predicted : float64 (b,)
        The approximate mean of the predicted probabilities in each bin.
    """

    edges: FloatArray
    predicted: FloatArray

    def find_cells(self, rows: Rows) -> Any:
        """Return the cell that each row is counted in.

        The cell is twice the index of the bin plus the class, 0 or 1. Rows of unknown
        class are counted in the last cell.
        """
        at = np.searchsorted(self.edges, rows.margin[:, 0], side="right")
        last = 2 * len(self.predicted)
        return np.where(rows.known, 2 * at + rows.target, last)


def encode_table(
    model: PrivateLinearModel,
    table: Any,
    y: Any,
    sample_weight: Any,
    max_weight: float,
    opened: OpenedTable | None = None,
    row_counts: RowCounts | None = None,
) -> Records:
    """Encode a table as the model's ``fit`` does, but without class weights.

    `opened` is the result of `open_table` for this table. It says whose rows they are.
    `row_counts` are those of its persons, if they have been counted already.
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
        verbose=0,
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
    scale: metrics.Scale,
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
        Names of metrics, from `metrics.METRICS` or ``"calibration"``.
    budget : float
        The μ² to spend.
    n_rows : float, optional
        The number of rows, if it is public and rows have no weights.
    expected_rows : float
        A public guess of the number of rows. It determines the number of bins.
    weighted : bool
        Whether the user gave weights for the rows.
    scale : metrics.Scale
        The units of scores, from `metrics.choose_scale`.
    confidence : float
        The confidence level of the intervals.
    noise, record : Randomness, PrivacyRecord
        The source of the noise, and the record to charge.
    """

    def pieces() -> Iterator[Rows]:
        return predict_rows(records, model.weights_, weighted)

    bins = None
    if {"auc", CALIBRATION} & set(wanted):
        bins = _release_bins(model, pieces(), budget, expected_rows, noise, record)
        budget *= 1.0 - BINS_SHARE
    columns = _list_columns(model, wanted, bins, scale)
    asked = score_cells.sum_columns(columns, pieces(), record.neighbours)
    z = accountant.noise_multiplier(math.sqrt(budget), 1)
    answer = release(asked, z, noise, record)
    values = answer.values / score_cells.UNIT
    std = float(answer.noise_std.max()) / score_cells.UNIT
    reach = float(ndtri((1 + confidence) / 2))
    scores = {}
    for name in wanted:
        if name == CALIBRATION:
            continue
        metric = metrics.METRICS[name]

        def value(raw: FloatArray, metric: metrics.Metric = metric) -> float:
            return metric.value(*_compute_counts(columns, raw, n_rows), scale)

        found = value(values)
        noise_std = std * _measure_slope(value, values)
        sampling_std = metric.spread(*_compute_counts(columns, values, n_rows), scale)
        wide = reach * math.hypot(noise_std, sampling_std)
        low, high = max(metric.low, found - wide), min(metric.high, found + wide)
        scores[name] = Score(
            value=found,
            noise_std=noise_std,
            sampling_std=sampling_std,
            low=min(low, metric.high),
            high=max(high, metric.low),
        )
    counts, n = score_cells.estimate_counts(columns, values, n_rows)
    table: tuple[Bin, ...] = ()
    if bins is not None and CALIBRATION in wanted:
        table = tuple(_calibrate(bins, counts[metrics.SCORES], std))
    return ReleasedScores(scores, table, n)


def _compute_counts(
    columns: list[score_cells.Column], values: FloatArray, n_rows: float | None
) -> tuple[Mapping[str, FloatArray], float]:
    """Return the estimated counts, and the number of rows to divide by (at least 1)."""
    counts, n = score_cells.estimate_counts(columns, values, n_rows)
    return counts, max(n, 1.0)


def _measure_slope(function: Callable[[FloatArray], float], at: FloatArray) -> float:
    """Return the norm of the function's gradient at a point.

    The gradient is computed by central differences, with a step of half a row.
    """
    moves = 0.5 * np.eye(len(at))
    slopes = [function(at + move) - function(at - move) for move in moves]
    return float(np.linalg.norm(slopes))


def _list_columns(
    model: PrivateLinearModel,
    wanted: Sequence[str],
    bins: Bins | None,
    scale: metrics.Scale,
) -> list[score_cells.Column]:
    """Return the columns of cells that the scores need, without repetitions."""
    link = model.link
    part = scale.largest / scale.width
    made: dict[str, Callable[[], score_cells.Column]] = {
        metrics.RIGHT: lambda: score_cells.make_indicator(
            metrics.RIGHT, Rows.find_right
        ),
        metrics.LOSS: lambda: score_cells.make_moments(
            metrics.LOSS, lambda rows: rows.compute_log_loss(scale.largest)
        ),
        metrics.SQUARES: lambda: score_cells.make_moments(
            metrics.SQUARES, lambda rows: rows.compute_residual(link, part) ** 2
        ),
        metrics.SIZES: lambda: score_cells.make_moments(
            metrics.SIZES, lambda rows: rows.compute_residual(link, part)
        ),
        metrics.TARGET: lambda: score_cells.make_moments(
            metrics.TARGET, Rows.scale_target, degree=4
        ),
    }
    if bins is not None:
        size = 2 * len(bins.predicted) + 1
        made[metrics.SCORES] = lambda: score_cells.make_histogram(
            metrics.SCORES, size, bins.find_cells
        )
    needed = [
        column
        for name in wanted
        for column in (
            (metrics.SCORES,) if name == CALIBRATION else metrics.METRICS[name].columns
        )
    ]
    return [made[name]() for name in dict.fromkeys(needed)]


def _release_bins(
    model: PrivateLinearModel,
    pieces: Iterator[Rows],
    budget: float,
    expected_rows: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> Bins:
    """Release a histogram of margins, and return bins with about equal counts."""
    power = expected_rows * math.sqrt(budget)
    n_bins = round(min(max(power**0.4, FEWEST_BINS), MOST_BINS))
    low, high = bound_margins(model._layout, model.weights_)
    edges = np.linspace(low, high, 4 * n_bins + 1)
    column = score_cells.make_histogram(
        "margins",
        len(edges) - 1,
        lambda rows: np.searchsorted(edges[1:-1], rows.margin[:, 0], side="right"),
    )
    asked = score_cells.sum_columns([column], pieces, record.neighbours)
    z = accountant.noise_multiplier(math.sqrt(budget * BINS_SHARE), 1)
    answer = release(asked, z, noise, record)
    kept = np.maximum(answer.values / score_cells.UNIT, 0.0) + 1e-6 / len(answer.values)
    reached = np.concatenate([[0.0], np.cumsum(kept)]) / kept.sum()
    cuts = np.interp(np.arange(1, n_bins) / n_bins, reached, edges)
    inside = (np.arange(n_bins)[:, None] + (np.arange(8) + 0.5) / 8) / n_bins
    chance = expit(np.interp(inside, reached, edges)).mean(axis=1)
    return Bins(edges=cuts, predicted=chance)


def _calibrate(bins: Bins, counts: FloatArray, std: float) -> Iterator[Bin]:
    """Merge neighbouring bins into the few lines of a calibration table.

    `std` is the standard deviation of the noise in each count.
    """
    zeros, ones = metrics.split_classes(counts)
    shares = np.array_split(np.arange(len(zeros)), min(CALIBRATION_BINS, len(zeros)))
    limits = [0.0, *expit(bins.edges).tolist(), 1.0]
    for part in shares:
        positives, count = float(ones[part].sum()), float((zeros + ones)[part].sum())
        rate = rate_std = math.nan
        if count > 0:
            rate = positives / count
            inside = min(1.0, max(0.0, rate))
            own = std**2 * len(part) * ((1 - rate) ** 2 + rate**2) / count**2
            rate_std = math.sqrt(own + inside * (1 - inside) / max(count, 1.0))
        yield Bin(
            low=limits[part[0]],
            high=limits[part[-1] + 1],
            predicted=float(bins.predicted[part].mean()),
            count=count,
            positives=positives,
            rate=rate,
            rate_std=rate_std,
        )
