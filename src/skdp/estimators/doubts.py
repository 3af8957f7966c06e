"""A word about columns that a schema describes wrongly, from released sums alone.

A cell that is no number or no level counts as missing, one outside its range as the end
of it, and nothing may be said of either: its owner would be found out. The Gram matrix,
however, is released in most fits. It has the mean and the mean square of every number
and the count of every level. Where these leave no room for anything but a mistake,
saying so costs no more.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from skdp.descent.gram import fill_gram
from skdp.planning.plan import Plan
from skdp.privacy.queries import GramPattern
from skdp.schema import Categorical, FloatArray, Group, IntArray, Numeric

#: Share of the cells below which most match nothing.
EXPECTED = 0.5
#: Mean distance from an end of the range (or share of rows without the one level), mean
#: square distance from what stands for missing cells, and variance, below which a
#: column is in doubt. A standard normal in a range of ±5 has a variance of 0.01.
AT_END, AT_DEFAULT, STILL = 0.02, 0.008, 0.0008
#: Chance that noise alone casts a doubt in a fit, and the least standard deviations.
FALSE_ALARM, SURELY = 1e-3, 4.0
#: Rounding of cells to the grid.
EXACT = 1e-6
#: Sentences in a warning; more are counted.
MOST = 3


class DoubtfulSchemaWarning(UserWarning):
    """Released sums say that the schema describes a column wrongly."""


@dataclass(frozen=True)
class _Sums:
    """Released moments over n, their noise, and how many standard deviations count."""

    gram: FloatArray
    noise: FloatArray
    centred: IntArray
    count_noise: float
    surely: float

    def is_nothing(self, value: float, noise: float, most: float) -> bool:
        """Whether a quantity may be zero, and cannot be as large as `most`."""
        room = self.surely * math.hypot(noise, self.count_noise) + EXACT
        return value < room and value + room < most


def doubts(model: Any) -> list[str]:
    """Return a sentence for each column that a fit's released sums cast a doubt on."""
    found = _released(model)
    if found is None:
        return []
    return [
        f"Column {group.name!r}: {said}"
        for group in model.plan_.layout.groups
        if group.kind != "ones"
        for said in _said(group, model.schema_.columns[group.name], found)
    ]


def warn_of_doubts(said: list[str]) -> None:
    """Warn where there is something to say."""
    if said:
        more = f" {len(said) - MOST} more columns." if len(said) > MOST else ""
        text = " ".join(said[:MOST]) + more
        warnings.warn(text, DoubtfulSchemaWarning, stacklevel=3)


def _released(model: Any) -> _Sums | None:
    """The moments that a fit released; None if there are none, or without noise."""
    plan = model.plan_
    if not isinstance(plan, Plan):
        return None
    pattern = GramPattern.of(plan.layout, plan.neighbours, centred=True)
    query = f"{len(pattern.rows)} entries of the Gram matrix"
    transcript = model.privacy_.transcript
    one = next((r for r in transcript if r.query == query), None)
    if one is None or not np.any(one.noise_std):
        return None
    counts = [r.noise_std for r in transcript if r.query == "number of rows"]
    std = np.broadcast_to(one.noise_std, one.values.shape)
    n_tests = 4 * len(plan.layout.groups)
    return _Sums(
        gram=fill_gram(plan.layout, pattern, one.values, plan.n_rows) / plan.n_rows,
        noise=fill_gram(plan.layout, pattern, std, 0.0) / plan.n_rows,
        centred=pattern.shift,
        count_noise=max((float(np.max(s)) for s in counts), default=0.0) / plan.n_rows,
        surely=max(SURELY, float(ndtri(1.0 - FALSE_ALARM / n_tests))),
    )


def _said(group: Group, column: Any, found: _Sums) -> Iterator[str]:
    """Yield at most one sentence about a column."""
    if group.kind == "code":
        said = _of_levels(group, column, found)
    elif isinstance(column, Numeric) and column.indicator:
        said = _of_missing(group, found)
    elif isinstance(column, Numeric):
        said = _of_numbers(group, column, found)
    else:
        return
    if said is not None:
        yield said


def _of_levels(group: Group, column: Any, found: _Sums) -> str | None:
    shares = np.diag(found.gram)[group.coordinates]
    noise = float(np.diag(found.noise)[group.coordinates].max())
    wide = noise * math.sqrt(group.width)
    known = float(shares.sum())
    if isinstance(column, Categorical):
        room = found.surely * math.hypot(wide, found.count_noise)
        if known + room < EXPECTED:
            return (
                f"about {max(0.0, known):.0%} of the cells are one of its levels, and "
                "the others count for nothing. Compare how they are written."
            )
        if column.other is not None:
            listed = known - float(shares[column.default_code])
            if group.width > 1 and found.is_nothing(listed, wide, AT_END):
                return (
                    f"(nearly) all cells count as {column.other!r}. Compare how the "
                    "levels are written."
                )
    most = int(np.argmax(shares))
    if group.width > 1 and found.is_nothing(1.0 - float(shares[most]), noise, AT_END):
        return f"(nearly) all rows have {group.labels[most]!r}."
    return None


def _of_missing(group: Group, found: _Sums) -> str | None:
    absent = group.start + group.width - 1
    share, noise = found.gram[absent, absent], found.noise[absent, absent]
    if found.is_nothing(1.0 - float(share), float(noise), AT_END):
        return "(nearly) all cells are missing or no numbers."
    return None


def _of_numbers(group: Group, column: Numeric, found: _Sums) -> str | None:
    at = group.start
    if not found.centred[at]:  # no intercept, or rows are shortened
        return None
    first = float(found.gram[at, -1])  # mean of the scaled values, less ½
    second, spread = float(found.gram[at, at]), float(found.noise[at, at])
    noise = float(found.noise[at, -1])
    for end, distance in (("low", 0.5 + first), ("high", 0.5 - first)):
        if found.is_nothing(distance, noise, AT_END):
            return (
                f"(nearly) all values are at or beyond the {end} end of its range "
                f"[{column.low:g}, {column.high:g}]. Check its unit."
            )
    default = float(column.scaled(np.array([math.nan]))[0][0]) - 0.5
    square = second - 2.0 * default * first + default**2
    near = abs(first - default) < found.surely * noise + EXACT
    noise_of_square = math.hypot(spread, 2.0 * default * noise)
    if near and found.is_nothing(square, noise_of_square, AT_DEFAULT):
        return "(nearly) all cells seem to be missing or no numbers."
    noise_of_variance = math.hypot(spread, 2.0 * first * noise)
    if found.is_nothing(second - first**2, noise_of_variance, STILL):
        return (
            "(nearly) all values seem to be the same, or its range "
            f"[{column.low:g}, {column.high:g}] is far wider than they are."
        )
    return None
