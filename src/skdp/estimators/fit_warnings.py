"""Define every warning that a fit or a score can raise.

A warning must not depend on a single cell, because it would reveal something about the
person whose cell it is. So unexpected cells are handled silently. A cell that is not a
number or not a level counts as missing, a number outside its range counts as the end of
the range, and a row without a known label adds nothing to any sum. All warnings follow
from public facts and released sums, so they cost no further budget. There is a warning
if

- the plan fits only a constant, because there are too few rows for the budget;
- the released counts of the classes add up to far less than the number of rows, or a
  look at a text file shows many rows without a target;
- a look shows that a number's range misses the rows, or the released Gram matrix shows
  a mistake in the schema (the matrix contains the mean and mean square of every number
  and the count of every level);
- a score is computed on the table that the model was fitted to.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from skdp.descent import forecast
from skdp.descent.matrix import fill_gram
from skdp.descent.plan import Plan
from skdp.descent.plan_files import find_geometry
from skdp.engines.choice import is_dask
from skdp.estimators.opening import accept_column, accept_table
from skdp.privacy.look import Profile, find_zero
from skdp.privacy.queries import GramPattern, Kind
from skdp.schema import Categorical, FloatArray, Group, Numeric, Pair, check, split_hats
from skdp.tables import readers

#: The directory of this package. Warnings point to the first caller outside of it.
PACKAGE = str(Path(__file__).parents[1])

#: Warn if the share of cells or labels that are among the levels is below this.
EXPECTED = 0.5
#: Thresholds below which a column is in doubt, for values scaled to [0, 1].
#: AT_END: mean distance from an end of the range, or share of rows that do not have the
#: most frequent level. AT_DEFAULT: share of a curve's rows that are not at the value
#: that stands for missing cells. STILL: variance, or mean square distance from the
#: value that stands for missing cells. (For comparison, a standard normal variable with
#: the range [-5, 5] has the variance 0.01 after scaling. On a log scale, a variable
#: that mostly varies by a factor of three either way may have 0.002.)
AT_END, AT_DEFAULT, STILL = 0.02, 0.008, 0.0008
#: FALSE_ALARM: if all columns are above these thresholds, the probability that noise
#: causes any doubt in a fit is at most this. SURELY: smallest number of standard
#: deviations of the noise that counts as a real difference.
FALSE_ALARM, SURELY = 1e-3, 4.0
#: LIKELY: standard deviations of the noise by which a share may miss one. At ε = 1 and
#: 2,000 rows, a range that misses the rows is then found in nine of ten fits.
LIKELY = 2.0
#: TORN: share of the rows of a text file without a known target, above which its lines
#: may not be records.
TORN = 0.05
#: Allowance for the rounding of cells to the grid.
EXACT = 1e-6
#: Largest number of sentences in a warning. The others are only counted.
MOST = 3


class DoubtfulSchemaWarning(UserWarning):
    """Released sums show that the schema describes a column wrongly."""


@dataclass(frozen=True)
class _Sums:
    """Released sums divided by the number of rows, and the noise of these means.

    `centred` is nonzero for numbers that are measured from the middle of their range.
    `count_noise` is the noise of the row count, divided by the number of rows.
    Differences of up to `surely` standard deviations may be noise, so they cause no
    doubt.
    """

    gram: FloatArray
    noise: FloatArray
    centred: FloatArray
    count_noise: float
    surely: float

    def is_negligible(self, value: float, noise: float, most: float) -> bool:
        """Return whether a noisy value may be zero and is surely below `most`."""
        room = self.surely * math.hypot(noise, self.count_noise) + EXACT
        return value < room and value + room < most


def describe_doubts(model: Any) -> list[str]:
    """Return a sentence for each column whose schema contradicts released sums."""
    found, profile = _find_released_sums(model), model.profile_
    limits = model.schema_ if profile is None else profile.limits
    doubts = {} if profile is None else dict(_doubt_profile(profile))
    if found is not None:
        for group in model.plan_.layout.groups:
            name, doubt = group.name, None
            if group.kind == "ones" or name in doubts:
                continue
            column = limits.columns.get(name, model.schema_.columns[name])
            if profile is None or name not in profile.numbers:
                doubt = _doubt_column(group, column, found)
            elif group.kind == "dense" and not column.indicator:
                doubt = _doubt_spread(group, column, found)
            if doubt is not None:
                doubts[name] = doubt
    return [
        f"Column {name!r}: {doubt}" if name else f"The target: {doubt}"
        for name, doubt in doubts.items()
    ]


def _doubt_profile(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield each number whose range misses (nearly) all of its rows, and a sentence."""
    for name, found in profile.numbers.items():
        column = profile.limits.columns.get(name, profile.limits.target_column)
        assert isinstance(column, Numeric)
        noise, zero = found.error, find_zero(column)
        ends = {
            end: found.get(end)
            for end in ("low", "high")
            if _is_nearly_all(found.get(end), noise)
        }
        # Cells at an end that is zero count as zeros. In many good columns most cells
        # are zero, so nearly all must surely be. Targets may count rare events.
        surely = found.get("zero") - SURELY * noise > 1.0 - AT_END
        if name and zero in (0.0, 1.0) and surely:
            ends["low" if zero == 0.0 else "high"] = found.get("zero")
        if _is_nearly_all(found.get("missing"), noise):
            yield name, "(nearly) all cells are missing or not numbers."
        elif ends:
            end = max(ends, key=lambda end: ends[end])
            yield (
                name,
                f"(nearly) all values are at or beyond the {end} end of its range "
                f"[{column.low:g}, {column.high:g}]. Check its unit.",
            )


def _is_nearly_all(share: float, noise: float) -> bool:
    """Return whether a noisy share may be one, and is surely more than a half.

    Shares are divided by a noisy number of rows, so they have more noise than `noise`.
    In good columns four of five rows may be at an end, such as those that stand for
    "never". So a share must be close to one.
    """
    close = share > 1.0 - max(AT_END, LIKELY * noise)
    return close and share - SURELY * noise > 0.5


def warn_of_doubts(said: list[str]) -> None:
    """Warn about the first few columns in doubt, if there are any."""
    if said:
        more = (
            f" Further columns in doubt: {len(said) - MOST}."
            if len(said) > MOST
            else ""
        )
        text = " ".join(said[:MOST]) + more
        warnings.warn(text, DoubtfulSchemaWarning, stacklevel=find_caller())


def _find_released_sums(model: Any) -> _Sums | None:
    """Return the moments that a fit released.

    Return None if the fit released no moments, or released them without noise.
    """
    plan = model.plan_
    if not isinstance(plan, Plan):
        return None
    pattern = GramPattern.of(plan.layout, plan.neighbours, centred=True)
    record = model.privacy_
    one = record.find_released(Kind.GRAM, len(pattern.rows))
    if one is None or not np.any(one.noise_std):
        return None
    counts = [r.noise_std for r in record.transcript if r.kind == Kind.ROW_COUNT]
    if plan.neighbours == "add-remove" and model.n_rows is None:  # it comes last
        counts += [r.noise_std[-1:] for r in record.transcript if r.kind == Kind.LOOK]
    std = np.broadcast_to(one.noise_std, one.values.shape)
    n_tests = 4 * len(plan.layout.groups)
    return _Sums(
        gram=fill_gram(plan.layout, pattern, one.values, plan.n_rows) / plan.n_rows,
        noise=fill_gram(plan.layout, pattern, std, 0.0) / plan.n_rows,
        centred=pattern.shift,
        count_noise=max((float(np.max(s)) for s in counts), default=0.0) / plan.n_rows,
        surely=max(SURELY, float(ndtri(1.0 - FALSE_ALARM / n_tests))),
    )


def _doubt_column(group: Group, column: Any, found: _Sums) -> str | None:
    """Return a sentence about a column if released sums put it in doubt."""
    if isinstance(column, Pair):
        return None
    if group.kind == "code":
        return _doubt_levels(group, column, found)
    if group.kind == "hats":
        return _doubt_curve(group, column, found)
    if isinstance(column, Numeric) and column.indicator:
        return _doubt_missing(group, found)
    if isinstance(column, Numeric):
        return _doubt_numbers(group, column, found)
    return None


def _doubt_levels(group: Group, column: Any, found: _Sums) -> str | None:
    shares = np.diag(found.gram)[group.coordinates]
    noise = float(np.diag(found.noise)[group.coordinates].max())
    wide = noise * math.sqrt(group.width)
    known = float(shares.sum())
    # In another encoding than its own, a level with letters beyond ASCII never matches.
    strange = [
        level
        for level, share in zip(getattr(column, "levels", ()), shares, strict=False)
        if isinstance(level, str)
        and not level.isascii()
        and found.is_negligible(float(share), noise, AT_END)
    ]
    encoding = (
        "the encoding of the file, as in skdp.tables.CSV(path, encoding='latin-1') or "
        "--encoding."
    )
    if isinstance(column, Categorical):
        room = found.surely * math.hypot(wide, found.count_noise)
        if known + room < EXPECTED:
            more = f", and {encoding}" if strange else "."
            return (
                f"only about {max(0.0, known):.0%} of the cells match its levels, and "
                f"the others are ignored. Check how the levels are written{more}"
            )
        if column.other is not None:
            listed = known - float(shares[column.default_code])
            if group.width > 1 and found.is_negligible(listed, wide, AT_END):
                return (
                    f"(nearly) all cells count as {column.other!r}. Check how the "
                    "levels are written."
                )
    most = int(np.argmax(shares))
    if group.width > 1 and found.is_negligible(
        1.0 - float(shares[most]), noise, AT_END
    ):
        return f"(nearly) all rows have {group.labels[most]!r}."
    if strange:
        return f"(nearly) no row has {strange[0]!r}. Check {encoding}"
    return None


def _doubt_missing(group: Group, found: _Sums) -> str | None:
    absent = group.start + group.width - 1
    share, noise = found.gram[absent, absent], found.noise[absent, absent]
    if found.is_negligible(1.0 - float(share), float(noise), AT_END):
        return "(nearly) all cells are missing or not numbers."
    return None


def _doubt_curve(group: Group, column: Numeric, found: _Sums) -> str | None:
    at = group.coordinates
    if not found.centred[at].any():  # no intercept, or rows are shortened
        return None
    shares = found.gram[at, -1] + found.centred[at] / 2.0
    noise = float(found.noise[at, -1].max())
    position = column.compute_features([math.nan])
    places, parts = split_hats(position, group.axes)
    lost = float(1.0 - shares[places[0]] @ parts[0])
    if found.is_negligible(lost, 2.0 * noise, AT_DEFAULT):
        return "(nearly) all cells seem to be missing or not numbers."
    ends = {"low": shares[0], "high": shares[(column.n_knots or 1) - 1]}
    for end, share in ends.items():
        if found.is_negligible(1.0 - float(share), noise, AT_END):
            return (
                f"(nearly) all values are at or beyond the {end} end of its range "
                f"[{column.low:g}, {column.high:g}]. Check its unit."
            )
    return None


def _doubt_numbers(group: Group, column: Numeric, found: _Sums) -> str | None:
    at = group.start
    if not found.centred[at]:  # no intercept, or rows are shortened
        return None
    first = float(found.gram[at, -1])  # mean of the scaled values, less ½
    second, spread = float(found.gram[at, at]), float(found.noise[at, at])
    noise = float(found.noise[at, -1])
    for end, distance in (("low", 0.5 + first), ("high", 0.5 - first)):
        if found.is_negligible(distance, noise, AT_END):
            return (
                f"(nearly) all values are at or beyond the {end} end of its range "
                f"[{column.low:g}, {column.high:g}]. Check its unit."
            )
    default = float(column.rescale(np.array([math.nan]))[0][0]) - 0.5
    square = second - 2.0 * default * first + default**2
    near = abs(first - default) < found.surely * noise + EXACT
    noise_of_square = math.hypot(spread, 2.0 * default * noise)
    # Cells that are all near `missing` look as if they were missing. A column that is
    # spread as little as that is in doubt anyway, so its own spread is the threshold.
    if near and found.is_negligible(square, noise_of_square, STILL):
        return "(nearly) all cells seem to be missing or not numbers."
    return _doubt_spread(group, column, found)


def _doubt_spread(group: Group, column: Any, found: _Sums) -> str | None:
    """Doubt a number whose values hardly differ on the scale of what rows fill."""
    at = group.start
    if not found.centred[at]:
        return None
    first, second = float(found.gram[at, -1]), float(found.gram[at, at])
    spread, noise = float(found.noise[at, at]), float(found.noise[at, -1])
    # A number with an inner part is measured from the middle of that part.
    square = group.scale**2
    noise_of_variance = square * math.hypot(spread, 2.0 * first * noise)
    if found.is_negligible(square * (second - first**2), noise_of_variance, STILL):
        return (
            "(nearly) all values seem to be the same, or its range "
            f"[{column.low:g}, {column.high:g}] is far wider than their spread."
        )
    return None


class UnknownLabelsWarning(UserWarning):
    """Released counts show that most labels are not among the classes.

    Or that many rows of a text file have no target, as if quoted cells held line ends.
    """


def describe_unknown_labels(model: Any) -> str | None:
    """Return a sentence if released sums show that too few rows have a known target.

    The released class counts must cover half of the rows. In a text file nearly all
    rows must have a target, because a line end in a quoted cell makes two rows of one,
    of which at least one has none. Weighted fits are not checked, because a weight of
    zero excludes a row on purpose.
    """
    if model._weighted:
        return None
    lines = _explain_lines(_FITTED_TO.get(model, lambda: None)())
    unknown, noise, row_noise = _find_unknown_targets(model)
    if hasattr(model, "classes_") and 1.0 - unknown + SURELY * noise < EXPECTED:
        rows = f"{model.plan_.n_rows:,} {model.plan_.layout.counted}"
        return (
            "The released counts of the classes add up to about "
            f"{max(0.0, 1.0 - unknown):.0%} of {rows}. Most labels are not among the "
            "classes and are ignored. Check how they are written ('no' is not 'No', 0 "
            "is not 'no'), and that the file is UTF-8." + (f" {lines}" if lines else "")
        )
    if lines and unknown - SURELY * math.hypot(noise, row_noise) > TORN:
        what = "targets" if hasattr(model, "classes_") else "cells of each column"
        return f"About {unknown:.0%} of the {what} are missing or unknown. {lines}"
    return None


def _find_unknown_targets(model: Any) -> tuple[float, float, float]:
    """Return the released share of rows without a known target.

    Then follow its noise, and the noise of the number of rows, relative to it. A
    missing number as a target counts as another number, so for numbers the share is
    that of the column with the fewest missing cells.
    """
    if isinstance(model.plan_, dict):  # a plan of another solver
        return 0.0, 0.0, 0.0
    rows, levels = model.plan_.n_rows, getattr(model, "classes_", ())
    profile, row_noise = model.profile_, 0.0
    if profile is not None and "" in profile.numbers:
        shares = [
            (found.get("missing"), found.error)
            for name, found in profile.numbers.items()
            if name
        ]
        shares += [
            (float(found.values[-1]), found.error) for found in profile.levels.values()
        ]
        return (*min(shares, default=(0.0, 0.0)), 0.0)
    for released in model.privacy_.transcript:
        if released.kind in (Kind.LOOK, Kind.ROW_COUNT):
            row_noise = float(np.max(released.noise_std)) / rows
        if released.kind == Kind.CLASS_COUNTS and len(released.values) == len(levels):
            noise = float(np.max(released.noise_std)) * math.sqrt(len(levels))
            known = float(released.values.sum()) / rows
            return 1.0 - known, noise / rows, row_noise
    return 0.0, 0.0, 0.0


def _explain_lines(table: Any) -> str:
    """Return what to do if quoted cells of a table hold line ends, or nothing."""
    if not readers.is_text_file(table) or getattr(table, "multiline", False):
        return ""
    return (
        "If quoted cells of the file hold line ends, each of its lines counts as a "
        "row: use --multiline, or skdp.tables.CSV(path, multiline=True)."
    )


def warn_if_labels_unknown(model: Any) -> None:
    """Warn if most labels are not among the classes."""
    said = describe_unknown_labels(model)
    if said is not None:
        warnings.warn(said, UnknownLabelsWarning, stacklevel=find_caller())


def find_caller() -> int:
    """Return the stack level of the first caller outside skdp, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


class ConstantModelWarning(UserWarning):
    """Only a constant was fitted, because the rows are too few for the privacy budget.

    All coefficients are zero, and every row gets the same prediction. The plan decides
    this before a record is read.
    """


def describe_constant(model: Any) -> str | None:
    """Return a sentence if a fitted model is a constant."""
    plan = model.plan_
    if not isinstance(plan, dict):
        constant = plan.geometry.is_constant
        return forecast.describe_outlook(plan) if constant else None
    if not find_geometry(plan).is_constant:  # a loaded model
        return None
    facts = ("loss", "n_rows", "epsilon", "delta", "neighbours")
    known = {name: plan[name] for name in facts}
    return forecast.explain_constant(**known, unit=model.privacy_.unit)


def warn_if_constant(model: Any) -> None:
    """Warn if a fitted model is a constant."""
    said = describe_constant(model)
    if said is not None:
        warnings.warn(said, ConstantModelWarning, stacklevel=find_caller())


class NotPrivateWarning(UserWarning):
    """A score was computed on the private table that the model was fitted to.

    The model is private but the score is not, because it is computed from the records
    without noise. Score on rows that need no protection.
    """


# For each model, a function that returns the table it was fitted to, or its path. The
# reference to the table is weak. Models do not contain it, and nothing is copied.
_FITTED_TO: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def remember_table(model: Any, table: Any) -> None:
    """Remember which table a model was fitted to, without keeping the table alive."""
    _FITTED_TO.pop(model, None)
    if isinstance(table, (str, PathLike)):
        _FITTED_TO[model] = lambda: table
        return
    try:
        _FITTED_TO[model] = ref(table)
    except TypeError:  # dicts and lists cannot be referred to weakly
        return


class ScoreMixin:
    """Warn about scores that are not private.

    This class must come before scikit-learn's mixin in the list of bases.
    """

    def _compute_score(self, X: Any, y: Any, sample_weight: Any) -> float:
        raise NotImplementedError

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of classes, the R² of numbers or the D² of counts.

        The scores are those of scikit-learn. Labels are compared with classes as in a
        fit, so 1, "1" and True may be the same label. A label that is not among the
        classes counts as a wrong answer.

        A score is computed without noise, so use rows that need no protection. A score
        on the table that the model was fitted to is not private. A `NotPrivateWarning`
        says so, once per fit.

        Rows and `y` are matched by position, so a query or a stream, whose rows have no
        fixed order, is refused. Beside a Dask data frame, `y` and `sample_weight` are
        series or columns of that frame.
        """
        _warn_if_training(self, X)
        check_is_fitted(self, "weights_")
        inputs = self.schema_.inputs  # type: ignore[attr-defined]
        if is_dask(X) and hasattr(X, "columns"):
            from skdp.engines.dask_table import collect_rows

            X, y, sample_weight = collect_rows(X, inputs, y, sample_weight)
        X = accept_table(X)
        check(
            readers.open_source(X, inputs).ordered,
            "score matches rows with y by position, but the rows of a query or a "
            "stream have no fixed order. Read the table into memory first, or release "
            "a score with skdp.evaluate, where the target is a column of the table.",
        )
        return float(self._compute_score(X, accept_column(y), sample_weight))


def _warn_if_training(model: Any, table: Any) -> None:
    """Warn, once per fit, if the model was fitted to this table."""
    fitted_to = _FITTED_TO.get(model, lambda: None)()
    same = fitted_to is table
    if isinstance(fitted_to, (str, PathLike)) and isinstance(table, (str, PathLike)):
        same = str(fitted_to) == str(table)
    if fitted_to is None or not same:
        return
    del _FITTED_TO[model]
    warnings.warn(
        "The score on the table that the model was fitted to is not private, because "
        "no budget pays for it. Score on rows that need no protection.",
        NotPrivateWarning,
        stacklevel=find_caller(),
    )
