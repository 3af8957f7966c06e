"""Means over seeds with their 95 % confidence intervals, and rows in groups."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"


def mean_interval(values: Iterable[float]) -> Interval:
    """Mean and Student's interval; of a single value that value, without a width."""
    seen = np.asarray(list(values), dtype=np.float64)
    centre = float(seen.mean())
    if len(seen) < 2:
        return Interval(centre, centre, centre)
    error = float(seen.std(ddof=1)) / np.sqrt(len(seen))
    half = error * float(student.ppf((1 + CONFIDENCE) / 2, len(seen) - 1))
    return Interval(centre, centre - half, centre + half)


def geometric_interval(values: Iterable[float]) -> Interval:
    """Geometric mean of positive values, its interval that of their logarithms."""
    logs = mean_interval(np.log(np.asarray(list(values), dtype=np.float64)))
    return Interval(*(float(np.exp(each)) for each in logs))


def ratio_interval(ones: Iterable[float], others: Iterable[float]) -> Interval:
    """Geometric mean of the ratios of positive values that are paired by seed."""
    pairs = zip(ones, others, strict=True)
    return geometric_interval(one / other for one, other in pairs)


def slope_interval(x: Iterable[float], y: Iterable[float]) -> Interval:
    """Slope of log y over log x by least squares, with its interval.

    It is nan where all x are the same.
    """
    logs = [np.log(np.asarray(list(each), dtype=np.float64)) for each in (x, y)]
    away = logs[0] - logs[0].mean()
    if not away.any():
        return Interval(np.nan, np.nan, np.nan)
    slope = float(away @ logs[1] / (away @ away))
    free = len(away) - 2
    if free < 1:
        return Interval(slope, slope, slope)
    left = logs[1] - logs[1].mean() - slope * away
    error = np.sqrt(float(left @ left) / free / float(away @ away))
    half = float(error * student.ppf((1 + CONFIDENCE) / 2, free))
    return Interval(slope, slope - half, slope + half)


Rows = list[dict[str, Any]]


def grouped(rows: Rows, *keys: str) -> dict[tuple[Any, ...], Rows]:
    """Rows by the values of some of their keys, groups in order of appearance."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def column(rows: Rows, key: str) -> list[Any]:
    """One value per row."""
    return [row[key] for row in rows]
