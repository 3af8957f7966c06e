"""Release bins of the margin and bounds on residuals, before scores are computed.

Both are found from histograms with public bins, for a tenth of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from skdp.estimators.base import PrivateLinearModel
from skdp.evaluation import score_cells
from skdp.evaluation.predictions import PredictedRows, Rows, bound_margins
from skdp.evaluation.score_formulas import Scale
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released, release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray

#: Share of μ² that is spent on choosing bins of the margin, or bounds on residuals.
BINS_SHARE = 0.1
#: Smallest and largest number of bins of the margin.
FEWEST_BINS, MOST_BINS = 8, 512
#: Residuals are counted in this many bins, each of which spans a factor of two. Targets
#: are counted in this many bins of equal width.
SIZES, TARGETS = 20, 64
#: A bound is not doubled if noise can hide less than this share of all rows in a bin.
FEW_ROWS = 0.01
#: The range of the target is found from bins that stand out from the noise. Together,
#: these bins must hold at least this share of the rows.
MOST_ROWS = 0.75
#: The quantity that each bound of a `Scale` limits.
NAMES = {"largest": "residuals", "deviance": "deviances", "target": "targets"}
#: Probability that noise alone makes a bound larger than necessary.
FALSE_ALARM = 0.01


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of the margin, each with about as many rows as the others.

    Attributes
    ----------
    edges : float64 (b - 1,)
        The inner edges of the b bins.
    n_rows : float
        The released number of rows, at least 1.
    """

    edges: FloatArray
    n_rows: float

    @property
    def classes(self) -> IntArray:
        """The class of each cell that `find_cells` returns."""
        return np.append(np.tile([0, 1], len(self.edges) + 1), 2)

    def find_cells(self, rows: Rows) -> IntArray:
        """Return the cell that each row is counted in.

        The cell is twice the index of the bin plus the class, 0 or 1. Rows of unknown
        class are counted in the last cell.
        """
        at = np.searchsorted(self.edges, rows.margin[:, 0], side="right")
        return np.where(rows.known, 2 * at + rows.target, 2 * len(self.edges) + 2)

    def merge(self, n_bins: int) -> FloatArray:
        """Merge bins until at most `n_bins` are left, and return their inner edges."""
        parts = np.array_split(np.arange(len(self.edges) + 1), n_bins)
        return self.edges[[part[-1] for part in parts[:-1] if len(part)]]


def release_bins(
    model: PrivateLinearModel,
    pieces: PredictedRows,
    budget: float,
    expected_rows: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> Bins:
    """Release a histogram of margins, and return bins with about equal counts.

    The number of bins grows with (n μ)^0.4, where n is the released number of rows.
    """
    low, high = bound_margins(model._layout, model.weights_)
    edges = np.linspace(low, high, 4 * _count_bins(expected_rows, budget) + 1)
    column = score_cells.make_histogram(
        "margins",
        len(edges) - 1,
        lambda rows: np.searchsorted(edges[1:-1], rows.margin[:, 0], side="right"),
    )
    found = _release([column], pieces, budget, noise, record)
    counts = found.values / score_cells.UNIT
    n_rows = max(float(counts.sum()), 1.0)
    kept = np.maximum(counts, 0.0) + 1e-6 / len(counts)
    reached = np.concatenate([[0.0], np.cumsum(kept)]) / kept.sum()
    n_bins = _count_bins(n_rows, budget)
    return Bins(np.interp(np.arange(1, n_bins) / n_bins, reached, edges), n_rows)


def _count_bins(n_rows: float, budget: float) -> int:
    power = n_rows * math.sqrt(budget)
    return round(float(min(max(power**0.4, FEWEST_BINS), MOST_BINS)))


def release_bounds(
    model: PrivateLinearModel,
    pieces: PredictedRows,
    scale: Scale,
    wanted: Sequence[str],
    budget: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> Scale:
    """Release histograms of residuals, deviances or targets, to find tighter bounds.

    The noise of a score is proportional to the bound on a row's residual, deviance or
    target, but few rows come near the largest possible value. So rows are counted in
    public bins, and bounds follow from the bins whose counts stand out from the noise.
    The bound on residuals is the upper end of the last such bin. It is doubled if noise
    may hide many rows. The square roots of deviances are bounded in the same way.
    `_find_range` bounds the target. If no bin stands out, the bounds are not changed.

    Parameters
    ----------
    model, pieces : PrivateLinearModel, PredictedRows
        The model and its predictions.
    scale : Scale
        The units of scores, with the largest possible bounds.
    wanted : sequence of {"largest", "deviance", "target"}
        The bounds of the scale to replace.
    budget, noise, record : float, Randomness, PrivacyRecord
        The μ² of the whole evaluation, the source of the noise, and the record to
        charge.

    Returns
    -------
    Scale
        The scale with the new bounds.
    """
    link = model.link
    part, deviance = scale.largest / scale.width, scale.deviance / scale.width
    steps = 2.0 ** -np.arange(SIZES, 0.0, -1)
    cells: dict[str, Callable[[Rows], IntArray]] = {
        "largest": lambda rows: np.searchsorted(
            steps, rows.compute_residual(link, part)
        ),
        "deviance": lambda rows: np.searchsorted(
            steps, np.sqrt(rows.compute_deviance(deviance))
        ),
        "target": lambda rows: np.floor(TARGETS * rows.scale_target()).astype(np.int64),
    }
    sizes = [TARGETS if name == "target" else SIZES + 1 for name in wanted]
    columns = [
        score_cells.make_histogram(f"sizes of {NAMES[name]}", size, cells[name])
        for name, size in zip(wanted, sizes, strict=True)
    ]
    found = _release(columns, pieces, budget, noise, record)
    values, std = found.values / score_cells.UNIT, float(found.noise_std.max())
    std /= score_cells.UNIT
    _, n_rows = score_cells.estimate_counts(columns, values, None)
    for name, counts in zip(
        wanted, np.split(values, np.cumsum(sizes)[:-1]), strict=True
    ):
        if name == "target":
            # Clip targets no more than residuals, or R² and D² would be too low.
            reach = scale.largest / scale.width
            low, high = _find_range(counts, std, float(n_rows), reach)
            low = 0.0 if link == "log" else low  # counts start at 0
            scale = replace(scale, target=(low, high))
        elif len(frequent := _find_frequent(counts, std)):
            # Double the bound if noise can hide many rows in later bins.
            reach = 1.0 if _find_threshold(counts, std) < FEW_ROWS * n_rows else 2.0
            share = min(1.0, reach * 2.0 ** float(frequent[-1] - SIZES))
            power = 2 if name == "deviance" else 1
            scale = replace(scale, **{name: share**power * getattr(scale, name)})
    return scale


def _find_threshold(counts: FloatArray, std: float) -> float:
    """Return the count that noise alone is unlikely to reach in any bin."""
    return max(std * float(ndtri(1.0 - FALSE_ALARM / len(counts))), 0.5)


def _find_frequent(counts: FloatArray, std: float) -> IntArray:
    """Return the bins whose counts are unlikely to be noise alone."""
    return np.flatnonzero(counts > _find_threshold(counts, std))


def _find_range(
    counts: FloatArray, std: float, n_rows: float, reach: float
) -> tuple[float, float]:
    """Return a part of [0, 1] that has nearly all rows, given counts in equal bins.

    Adjacent bins are merged until the frequent bins have most of the rows. The range
    from the first to the last frequent bin is extended by its width at both ends. It
    is then extended, if necessary, to contain the mean ± `reach`.
    """
    merged, n_bins = counts, len(counts)
    while n_bins >= 4:
        frequent = _find_frequent(merged, std * math.sqrt(len(counts) / n_bins))
        if merged[frequent].sum() >= MOST_ROWS * n_rows and len(frequent):
            low, high = frequent[0] / n_bins, (frequent[-1] + 1) / n_bins
            wide, kept = high - low, merged[frequent]
            middle = float(kept @ (frequent + 0.5) / kept.sum() / n_bins)
            low, high = (
                min(low - wide, middle - reach),
                max(high + wide, middle + reach),
            )
            return max(0.0, float(low)), min(1.0, float(high))
        merged, n_bins = merged.reshape(-1, 2).sum(axis=1), n_bins // 2
    return 0.0, 1.0


def _release(
    columns: list[score_cells.Column],
    pieces: PredictedRows,
    budget: float,
    noise: Randomness,
    record: PrivacyRecord,
) -> Released:
    """Release the cells of all columns, using the share `BINS_SHARE` of the budget."""
    asked = score_cells.sum_columns(columns, pieces, record.neighbours)
    z = accountant.noise_multiplier(math.sqrt(budget * BINS_SHARE), 1)
    return release(asked, z, noise, record)
