"""Compute scores from released counts, with intervals that allow for all errors.

The noise in each cell has a known normal distribution. Plausible counts are therefore
the released values minus noise of that distribution. A score is computed for many
plausible counts, and a sampling error is added to each result. The interval contains as
large a share of the results as the confidence level says. This is exact for scores that
are linear in the counts. For ratios it allows for noise in the numerator and in the
denominator. If noise hides the denominator, the interval is as wide as the range of the
score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from skdp.evaluation.metrics import CURVE, METRICS, Scale, ScoreMetric
from skdp.evaluation.results import Bin, Score
from skdp.evaluation.score_cells import Column, estimate_counts
from skdp.schema import FloatArray

#: Number of plausible counts for which a score is computed.
DRAWS = 1000
#: Approximate probability that a standard normal lies within ±1.
ONE_STD = 0.6826895


class PlausibleCounts:
    """Released counts, and other counts that are equally plausible.

    Parameters
    ----------
    columns : list of Column
        The columns of cells.
    values : float64 (cells,)
        The released cells.
    std : float
        The standard deviation of the noise in each cell.
    n_rows : float, optional
        The number of rows, if it is public.
    """

    def __init__(
        self,
        columns: list[Column],
        values: FloatArray,
        std: float,
        n_rows: float | None,
    ) -> None:
        self.std = std
        self.counts, n = estimate_counts(columns, values, n_rows)
        self.n_rows = max(float(n), 1.0)
        self.released_rows = max(float(n), 0.0)
        edges = np.cumsum([column.size for column in columns])[:-1]
        parts = np.split(values, edges)
        self.released = dict(zip([c.name for c in columns], parts, strict=True))
        others = values[None]
        if std > 0:
            others = values - std * draw_normals(len(values))
        self.others, many = estimate_counts(columns, others, n_rows)
        self.many_rows = np.maximum(many, 1.0)
        self.rows_std = float(np.std(many)) if len(many) > 1 else 0.0

    def score(self, metric: ScoreMetric, scale: Scale, confidence: float) -> Score:
        """Return a score with its errors and its interval."""
        return make_score(
            float(metric.value(self.counts, self.n_rows, scale)),
            np.asarray(metric.value(self.others, self.many_rows, scale)),
            float(metric.spread(self.counts, self.n_rows, scale)),
            metric,
            confidence,
            largest=metric.limit(scale),
        )


def make_score(
    value: float,
    others: FloatArray,
    sampling_std: float,
    metric: ScoreMetric,
    confidence: float,
    largest: float = math.inf,
) -> Score:
    """Return a score with its interval.

    Parameters
    ----------
    value : float
        The score of the released counts.
    others : float64 (m,)
        The scores of equally plausible counts. If m is 1, there is no noise.
    sampling_std : float
        The sampling error.
    metric : ScoreMetric
        The metric, which limits the score and the width of its interval.
    confidence : float
        The confidence level.
    largest : float
        The largest possible score, if the metric alone does not say it.
    """
    top = min(metric.high, largest)
    found = min(max(value, metric.low), top)
    ends = np.quantile(others, [(1 - ONE_STD) / 2, (1 + ONE_STD) / 2])
    noise_std = min(float(ends[1] - ends[0]) / 2, top - metric.low)
    tail = (1.0 - confidence) / 2
    noisy, both = (
        np.clip(np.quantile(moved, [tail, 1.0 - tail]), metric.low, metric.high)
        for moved in (others, others + sampling_std * _draw_errors())
    )
    low, high = np.minimum(both, top).tolist()
    # If noise moved a score out of its range, the part of the interval inside the range
    # may be too narrow. So make the interval at least `noise_std` wide.
    low = max(metric.low, min(low, high - noise_std))
    high = min(top, max(high, low + noise_std))
    width = found if metric.width is None else metric.width
    return Score(
        value=found,
        noise_std=noise_std,
        sampling_std=sampling_std,
        low=min(low, found),
        high=max(high, found),
        too_noisy=bool(noisy[1] - noisy[0] > width),
    )


def draw_normals(n_cells: int) -> FloatArray:
    """Return numbers (DRAWS, n_cells) with a standard normal distribution.

    They are the same every time, so results can be reproduced. They are not the noise
    of a release, so they may be predictable. Each row occurs with both signs, so the
    means of linear functions are exact.
    """
    half = _draw_half(n_cells)
    return np.concatenate([half, -half])


@lru_cache(maxsize=4)
def _draw_half(n_cells: int) -> FloatArray:
    """Return normal quantiles of the hashes of 1, 2, 3 ... (SplitMix64)."""
    with np.errstate(over="ignore"):
        words = np.arange(1, DRAWS // 2 * n_cells + 1, dtype=np.uint64)
        words *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
        words ^= words >> np.uint64(31)
    shares = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    normals: FloatArray = ndtri(shares).reshape(DRAWS // 2, n_cells)
    normals.flags.writeable = False
    return normals


def _draw_errors() -> FloatArray:
    """Return `DRAWS` evenly spaced normal quantiles, in a shuffled order."""
    at = (np.arange(DRAWS) * 0.6180339887498949) % 1.0
    return np.asarray(ndtri((np.argsort(np.argsort(at)) + 0.5) / DRAWS))


# ---- calibration


def split_curve(cells: FloatArray) -> FloatArray:
    """Return the cells (..., bins, 4) of a calibration curve.

    The four cells hold the sums of 1 - p and p over rows of class 0, then of class 1.
    """
    return cells[..., :-1].reshape(*cells.shape[:-1], -1, 4)


def score_calibration(known: PlausibleCounts, confidence: float) -> Score:
    """Return the expected calibration error Σ_b |γ_b|/n, with its interval.

    The sum is over bins b, and n is the number of rows. In each bin, γ is the number of
    rows of class 1 minus the sum of the predicted probabilities of all rows. The
    estimate g of γ has an error of standard deviation s, which is due to noise and
    sampling.

    Notes
    -----
    Absolute values of noisy numbers are too large on average, so each |g| is replaced
    by √(g² - s²), or by 0 if |g| < s. Let 1 - 2a be the confidence level, and let z be
    the 1 - a quantile of the standard normal distribution. The interval covers the true
    value with at least this confidence, because each of its ends fails with probability
    at most a:

    - *Upper end.* Let c be the sign of γ in each bin, which is a fixed number. Then
      Σ|γ| = Σcγ = Σcg - Σc·error, where Σcg ≤ Σ|g|. Except with probability a,
      -Σc·error is at most z √(Σs²).
    - *Lower end.* Σ|γ| ≥ Σ|g| - Σ|error|, and the 1 - a quantile of Σ|error| is known.
    """
    cells = split_curve(known.released[CURVE])
    gaps = np.abs(cells[:, 2] - cells[:, 1])
    rows = np.maximum(cells.sum(axis=1), 0.0)
    rate = np.clip(cells[:, 2:].sum(axis=1) / np.maximum(rows, 1.0), 0.0, 1.0)
    sampling = rows * rate * (1.0 - rate)
    stds = np.sqrt(2 * known.std**2 + sampling)
    tail = (1.0 - confidence) / 2
    reach = float(ndtri(1.0 - tail))
    total = np.abs(draw_normals(len(gaps))) @ stds
    n = known.n_rows
    noise_std = min(known.std * math.sqrt(2 * len(gaps)) / n, 1.0)
    high = min(1.0, float(gaps.sum() + reach * np.linalg.norm(stds)) / n)
    low = float(gaps.sum() - np.quantile(total, 1.0 - tail)) / n
    # With few rows, noise can move the lower end above 1. As in `make_score`, the
    # interval is then at least `noise_std` wide.
    low = max(0.0, min(low, high - noise_std))
    value = float(np.sqrt(np.maximum(gaps**2 - stds**2, 0.0)).sum()) / n
    return Score(
        value=min(max(value, low), high),
        noise_std=noise_std,
        sampling_std=math.sqrt(float(sampling.sum())) / n,
        low=low,
        high=high,
        too_noisy=2 * reach * noise_std > 0.1,
    )


def list_bins(
    known: PlausibleCounts, edges: FloatArray, unit: float, confidence: float
) -> Iterator[Bin]:
    """Yield the lines of the calibration table, one per bin of the margin.

    The counts in the table are multiplied by `unit`, which is the largest allowed
    weight if the rows have weights, and 1 otherwise.
    """
    limits = [0.0, *expit(edges).tolist(), 1.0]
    cells, others = split_curve(known.counts[CURVE]), split_curve(known.others[CURVE])
    for b, own in enumerate(cells):
        rows, positives = float(own.sum()), float(own[2:].sum())
        rate = float(_compute_rate(own))
        inside = min(1.0, max(0.0, rate))
        score = make_score(
            rate,
            _compute_rate(others[:, b]),
            math.sqrt(inside * (1 - inside) / max(rows, 1.0)),
            METRICS["recall"],  # a share
            confidence,
        )
        many = others[:, b].sum(axis=-1)
        hidden = bool(np.quantile(many, (1.0 - confidence) / 2) < 1.0)
        predicted = float(own[[1, 3]].sum()) / max(rows, 1.0)
        yield Bin(
            low=limits[b],
            high=limits[b + 1],
            predicted=min(max(predicted, limits[b]), limits[b + 1]),
            count=unit * max(rows, 0.0),
            positives=unit * min(max(positives, 0.0), max(rows, 0.0)),
            rate=score.value,
            rate_std=math.hypot(score.noise_std, score.sampling_std),
            rate_low=score.low,
            rate_high=score.high,
            too_noisy=score.too_noisy or (hidden and known.std > 0),
        )


def _compute_rate(cells: FloatArray) -> Any:
    rows = np.maximum(cells.sum(axis=-1), 1.0)
    return cells[..., 2:].sum(axis=-1) / rows
