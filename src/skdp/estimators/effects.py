"""Compute the effects that pictures, tables and frames of a model show.

Effects can be compared across columns. The effect of a number is the change from the
lowest to the highest value of its public range, and the effect of a category is
relative to the mean of its column. An additive model has an effect at each knot of a
curve and in each cell of a pair. With more than two classes, each effect is also
relative to the mean over classes, which does not change any prediction.

Everything here is computed from released values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from skdp.estimators.standard_errors import (
    StandardErrors,
    compute_class_effects,
    find_reference_rows,
)
from skdp.estimators.summary import INTERCEPT, TermLine, Z
from skdp.formatting import format_number, format_range
from skdp.schema import Categorical, FloatArray, Group, Numeric, Pair, Schema, Vector
from skdp.tables.readers import import_library

#: The probability with which a column or pair without any effect is taken for one that
#: has an effect.
FALSE_ALARM = 0.05
#: Noise also makes the errors themselves uncertain. In models of 900 coefficients,
#: columns without any effect came up to three times above the limit that known errors
#: would give.
ALLOWANCE = 3.0


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One coefficient, shown as an effect.

    Attributes
    ----------
    column, label : str
        The name of the column, and the category or part of the column. The label is
        empty for a plain number.
    span : str
        The public range of a number, in words. It is empty for a category.
    unit : float
        The factor that turns a coefficient in the user's units into an effect.
    effect, noise_std, std : float
        The effect, the standard deviation of its privacy noise, and its total standard
        error. The last two are nan if they are not known.
    """

    column: str
    label: str
    span: str
    unit: float
    effect: float
    noise_std: float
    std: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval, which covers both sampling error and privacy noise."""
        return self.effect - Z * self.std, self.effect + Z * self.std

    @property
    def noise_interval(self) -> tuple[float, float]:
        """The 95 % interval that covers the privacy noise alone."""
        return self.effect - Z * self.noise_std, self.effect + Z * self.noise_std

    def in_units(self) -> list[float]:
        """Return the coefficient and its uncertainty in the user's units.

        The five numbers are the coefficient, the standard deviation of its noise, its
        standard error, and the two ends of its interval.
        """
        return [
            value / self.unit
            for value in (self.effect, self.noise_std, self.std, *self.interval)
        ]


@dataclass(frozen=True, kw_only=True)
class Output:
    """The effects on one output of the model.

    With more than two classes, each class has an output. Otherwise there is only one,
    and `class_name` is empty.
    """

    class_name: str
    effects: tuple[Effect, ...]
    intercept: Effect | None


def compute_effects(model: Any) -> list[Output]:
    """Compute the effects on each output of a fitted model."""
    layout, schema = model._layout, model.schema_
    errors = model._standard_errors()
    coefficients = compute_class_effects(model)
    several = coefficients.shape[1] > 1
    lengths = [
        _find_lengths(schema.columns[group.name])
        for group in layout.groups
        if group.kind != "ones"
    ]
    units = 1.0 / np.concatenate(lengths)
    width = len(units)
    fixed = find_reference_rows(model)
    noise, std = np.full((2, width + 1, coefficients.shape[1]), math.nan)
    if isinstance(errors, StandardErrors):
        noise, std = errors.effects_noise_std, errors.effects_std
    names = list(_list_names(schema, layout.groups))
    has_intercept = layout.groups[-1].kind == "ones"
    found = []
    for k in range(coefficients.shape[1]):
        effects = tuple(
            Effect(
                column=column,
                label=label,
                span=span,
                unit=1.0 / float(units[j]),
                effect=float(coefficients[j, k] / units[j]),
                noise_std=float(noise[j, k] / units[j]),
                std=float(std[j, k] / units[j]),
            )
            for j, (column, label, span) in enumerate(names)
            if not fixed[j]
        )
        intercept = Effect(
            column=INTERCEPT,
            label="",
            span="",
            unit=1.0,
            effect=float(coefficients[-1, k]),
            noise_std=float(noise[-1, k]),
            std=float(std[-1, k]),
        )
        name = str(model.classes_[k]) if several else ""
        found.append(
            Output(
                class_name=name,
                effects=effects,
                intercept=intercept if has_intercept else None,
            )
        )
    return found


def _find_lengths(column: Any) -> FloatArray:
    """Return the change of each coordinate's cell that an effect describes."""
    lengths: FloatArray = column.find_units()[1]
    if isinstance(column, Numeric):
        lengths = lengths * (column.inner[1] - column.inner[0])
    return lengths


def _list_names(
    schema: Schema, groups: tuple[Group, ...]
) -> Iterator[tuple[str, str, str]]:
    """Yield the column, label and span (as in `Effect`) of each coordinate.

    The intercept is left out.
    """
    for group in groups:
        if group.kind == "ones":
            continue
        column = schema.columns[group.name]
        for place, label in enumerate(group.labels):
            if isinstance(column, Vector):
                yield group.name, label, f"0 to {format_number(float(column.norm))}"
            elif not isinstance(column, Numeric):
                yield group.name, label.removeprefix(f"{group.name}="), ""
            elif column.indicator and place == group.width - 1:
                yield group.name, "missing", ""
            elif column.bins is not None:
                yield group.name, _describe_bin(column, place), ""
            elif column.n_knots is not None:
                yield group.name, label.removeprefix(f"{group.name}@"), ""
            else:
                ends = format_range(*map(float, column.ends))
                name = group.name if column.indicator else ""
                yield group.name, name, ends


def _describe_bin(column: Numeric, place: int) -> str:
    assert column.bins is not None
    ends = []
    for share in (place / column.bins, (place + 1) / column.bins):
        span = column.high - column.low
        above = math.expm1(share * math.log1p(span))
        ends.append(column.low + (above if column.scale == "log" else share * span))
    return format_range(*ends)


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The effect of one column, or of a pair of columns, on the margin.

    Attributes
    ----------
    column : str
        The name of the column or of the pair.
    axes : tuple of (name, values)
        The name of each column, and its levels or its knots in the user's units.
    numeric : tuple of bool
        Whether each column is numeric and has no bins.
    effects : float64 (m, k)
        The effect at each knot or level, or at each combination of them, for each
        output. The mean over the rows of the table is about zero.
    std : float64 (m, k), optional
        The standard error of the effects, from sampling and privacy. It is infinite
        where noise hides the effect.
    likely_std, least_std : float64 (m, k), optional
        The standard error, and the part of it that is due to sampling and privacy,
        without shrinkage, capped slopes and the uncertainty of the errors themselves.
        Where noise hides them, they are guesses from the error due to privacy, times
        its median ratio to them elsewhere in the model. They are infinite if errors
        were not computed.
    shares : float64 (m,), optional
        The share of the rows at each knot or level, from released values. None stands
        for equal shares.
    """

    column: str
    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    numeric: tuple[bool, ...]
    effects: FloatArray
    std: FloatArray | None
    likely_std: FloatArray | None = None
    least_std: FloatArray | None = None
    shares: FloatArray | None = None

    @property
    def low(self) -> FloatArray:
        """The lower ends of 95 % intervals (m, k), nan if they are not known."""
        return self.effects - self._reach

    @property
    def high(self) -> FloatArray:
        """The upper ends of 95 % intervals (m, k), nan if they are not known."""
        return self.effects + self._reach

    @property
    def _reach(self) -> FloatArray:
        if self.std is None:
            return np.full_like(self.effects, math.nan)
        return Z * self.std

    @property
    def size(self) -> float:
        """The mean square of the effects over the rows, by which curves are ordered.

        The part that is expected from errors is taken off if the errors are known.
        """
        square = float((self._shares @ self.effects**2).sum())
        ratio = self._compare_with_errors()
        return square if ratio is None else square * max(0.0, 1.0 - 1.0 / ratio)

    @property
    def is_told(self) -> bool | None:
        """Whether the effects are larger than noise can explain.

        None means that their errors were not computed. The test compares z², averaged
        over the rows, with a χ² quantile whose degrees of freedom are the effective
        number of points, times `ALLOWANCE`. It is about noise alone: the interval of an
        effect that passes may contain 0, as it allows for more.
        """
        ratio = self._compare_with_errors()
        if ratio is None:
            return None
        shares = self._shares / (self._shares.sum() or 1.0)
        freedom = max(1.0, 1.0 / max(float(shares @ shares), 1e-9) - 1.0)
        return ratio > ALLOWANCE * float(chi2.isf(FALSE_ALARM, freedom)) / freedom

    def _compare_with_errors(self) -> float | None:
        """Return z², averaged over the rows, or None if errors were not computed.

        The result is at least a tiny positive number.
        """
        std = self.least_std
        if std is None or not np.isfinite(std).all():
            return None
        z = np.divide(self.effects, std, out=np.zeros_like(std), where=std > 0)
        shares = self._shares / (self._shares.sum() or 1.0)
        return max(float((shares @ z**2).mean()), 1e-9)

    @property
    def _shares(self) -> FloatArray:
        if self.shares is None:
            return np.full(len(self.effects), 1.0 / len(self.effects))
        return self.shares


def list_curves(model: Any) -> list[Curve]:
    """Return the effect of each column and pair. `Vector` columns are left out."""
    effects = compute_class_effects(model)[:-1]
    errors, shares = _guess_errors(model._standard_errors()), model._shares
    found = []
    for group in model._layout.groups:
        column = model.schema_.columns.get(group.name)
        if not isinstance(column, (Numeric, Categorical, Pair)) or group.kind == "ones":
            continue
        if group.name in model._absorbed:
            continue
        at = group.coordinates
        own = effects[at]
        stds = [None if one is None else one[at] for one in errors]
        weights = None if shares is None else shares[at]
        if group.kind == "dense" and isinstance(column, Numeric):
            middle = sum(column.inner) / 2 if weights is None else float(weights[0])
            own, *stds = _find_end_effects(column, middle, own, *stds)
            # Rows that are spread evenly have a third of the variance of the ends.
            above = (middle - column.inner[0]) / (column.inner[1] - column.inner[0])
            ends = np.array([1.0 - above, above]) / 3.0
            weights = np.append(ends, [] if weights is None else weights[1:])
        parts: tuple[Numeric | Categorical, ...]
        names: tuple[str, ...]
        if isinstance(column, Pair):
            parts, names = column.parts, (column.first, column.second)
        else:
            parts, names = (column,), (group.name,)
        axes = tuple(
            (name, _list_places(part)) for name, part in zip(names, parts, strict=True)
        )
        numeric = tuple(
            isinstance(part, Numeric) and part.bins is None for part in parts
        )
        found.append(
            Curve(
                column=group.name,
                axes=axes,
                numeric=numeric,
                effects=own,
                std=stds[0],
                likely_std=stds[1],
                least_std=stds[2],
                shares=weights,
            )
        )
    return found


def _guess_errors(known: StandardErrors | str) -> tuple[FloatArray | None, ...]:
    """Return the standard errors of all effects, and the two guesses of `Curve`."""
    if isinstance(known, str):
        return None, None, None
    noise, guesses = known.effects_noise_std, []
    for whole in (known.effects_std, np.hypot(noise, known.effects_sampling_std)):
        there = np.isfinite(whole) & (noise > 0)
        ratios = np.divide(whole, noise, out=np.ones_like(whole), where=there)
        ratio = float(np.median(ratios[there])) if there.any() else 1.0
        guesses.append(np.where(np.isfinite(whole), whole, ratio * noise))
    return known.effects_std, *guesses


def list_terms(model: Any, ratios: bool = False) -> tuple[TermLine, ...]:
    """Return a line of the summary for each column and pair, and for the intercept."""
    effects, known = compute_class_effects(model), model._standard_errors()
    curves = {curve.column: curve for curve in list_curves(model)}

    errors = known.effects_std if isinstance(known, StandardErrors) else None

    def collect(name: str, at: Any, labels: tuple[str, ...]) -> Curve:
        return Curve(
            column=name,
            axes=((name, labels),),
            numeric=(False,),
            effects=effects[at],
            std=None if errors is None else errors[at],
        )

    terms = [
        curves.get(group.name) or collect(group.name, group.coordinates, group.labels)
        for group in model._layout.groups
        if group.kind != "ones" and group.name not in model._absorbed
    ]
    terms.append(collect(INTERCEPT, [-1], ("",)))
    classes = model.classes_ if effects.shape[1] > 1 else [""]
    return tuple(
        _summarise_term(term, k, str(output), ratios)
        for k, output in enumerate(classes)
        for term in terms
    )


def _summarise_term(curve: Curve, k: int, output: str, ratios: bool) -> TermLine:
    """Return the line of the summary about one curve or surface, for output k."""
    effects = curve.effects[:, k]
    std = np.full_like(effects, math.nan) if curve.std is None else curve.std[:, k]
    told = np.isfinite(std) if np.isfinite(std).any() else np.isfinite(effects)
    place = int(np.argmax(np.where(told, np.abs(effects), -1.0)))
    values = itertools.product(*(values for _, values in curve.axes))
    return TermLine(
        column=curve.column,
        points=len(effects),
        lowest=float(effects.min()),
        highest=float(effects.max()),
        at=", ".join(write_value(value) for value in list(values)[place]),
        effect=float(effects[place]),
        std=float(std[place]),
        output=output,
        is_ratio=ratios,
    )


def _find_end_effects(
    column: Any, middle: float, effects: FloatArray, *stds: FloatArray | None
) -> list[Any]:
    """Return a linear effect at both ends of what rows fill, with its errors.

    The effect is 0 at `middle`, where 0 and 1 are the ends of the range. If missing
    values have an indicator, the effect of a missing value comes third.
    """
    reach = ((np.array(column.inner) - middle) * column.span)[:, None]
    found = [np.vstack([reach * effects[:1], effects[1:]])]

    def stretch(std: FloatArray) -> FloatArray:
        # If all rows seem to be at one end, its effect is 0, even if none can be told.
        known = np.where(reach == 0, 0.0, std[:1])
        return np.vstack([np.abs(reach) * known, std[1:]])

    return found + [None if std is None else stretch(std) for std in stds]


def _list_places(column: Numeric | Categorical) -> tuple[Any, ...]:
    """Return a column's levels, knots or bin middles, in the user's units."""
    if isinstance(column, Categorical):
        return tuple(column.levels)
    if column.bins is not None:
        scaled = (np.arange(column.bins) + 0.5) / column.bins
    else:
        scaled = column.place_knots() if column.n_knots else np.array(column.inner)
    values = tuple(column.unscale(scaled).tolist())
    return (*values, math.nan) if column.indicator else values


def make_frame(model: Any) -> Any:
    """Return the curves as a frame, see `AdditiveClassifier.curves_`."""
    return _make_frame(model, [c for c in list_curves(model) if len(c.axes) == 1])


def make_pairs_frame(model: Any) -> Any:
    """Return the surfaces as a frame, see `AdditiveClassifier.surfaces_`."""
    return _make_frame(model, [c for c in list_curves(model) if len(c.axes) == 2])


def _make_frame(model: Any, curves: Sequence[Curve]) -> Any:
    lines = [line for curve in curves for line in _list_lines(model, curve)]
    pairs = bool(curves) and len(curves[0].axes) == 2
    values = ["first_value", "second_value"] if pairs else ["value"]
    names = ["column", *values, "effect", "low", "high"]
    if model.weights_.shape[1] > 1:
        names.insert(1, "class")
    return import_library("pandas").DataFrame(lines, columns=names)


def _list_lines(model: Any, curve: Curve) -> Iterator[list[Any]]:
    several = curve.effects.shape[1] > 1
    grid = list(itertools.product(*(values for _, values in curve.axes)))
    for k in range(curve.effects.shape[1]):
        own = [model.classes_[k]] if several else []
        for i, values in enumerate(grid):
            ends = float(curve.low[i, k]), float(curve.high[i, k])
            yield [curve.column, *own, *values, float(curve.effects[i, k]), *ends]


def write_value(value: Any) -> str:
    """Write a level or a knot. nan stands for missing values."""
    if not isinstance(value, float):
        return str(value)
    return "missing" if math.isnan(value) else f"{value:.4g}"
