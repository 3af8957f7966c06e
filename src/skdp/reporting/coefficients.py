"""Make the pictures and tables of a model's coefficients.

Pictures show effects, which can be compared across columns. The effect of a number is
the change from the lowest to the highest value of its public range. The effect of a
category is relative to the mean of its column. With more than two classes, each effect
is also relative to the mean over classes, which does not change any prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.estimators.feature_map import convert_to_user_units
from skdp.estimators.standard_errors import StandardErrors, compute_class_effects
from skdp.estimators.summary import INTERVALS, is_on_log_scale, note_hidden
from skdp.estimators.summary_lines import TermLine, Z
from skdp.reporting.formatting import (
    Axis,
    format_fixed,
    format_number,
    format_range,
    make_axis,
    shorten,
)
from skdp.schema import Categorical, Group, Numeric, Schema, Vector, count_in_words

#: Limits on the coefficients in one picture, on the coefficients in all tables
#: together, and on the classes that are shown.
MOST_MARKS, MOST_LINES, MOST_CLASSES = 30, 4000, 50
LOG = (
    "For a column on a log scale, one unit is an increase of 1 in "
    "log(1 + value - lowest value)."
)
#: A picture shows intervals up to this multiple of its largest effect.
REACH = 2.0


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
    def name(self) -> str:
        """The shortened label that is written next to the picture."""
        return shorten(self.label or self.column)

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
    ones = np.ones((layout.n_features, 1))
    units = convert_to_user_units(schema, layout, ones)[0][0]
    width = len(units)
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
        )
        intercept = Effect(
            column="intercept",
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
                ends = format_range(float(column.low), float(column.high))
                name = group.name if column.indicator else ""
                yield group.name, name, ends


def _describe_bin(column: Numeric, place: int) -> str:
    """Describe the range of the values in a bin of a numeric column."""
    assert column.bins is not None
    ends = []
    for share in (place / column.bins, (place + 1) / column.bins):
        span = column.high - column.low
        above = math.expm1(share * math.log1p(span))
        ends.append(column.low + (above if column.scale == "log" else share * span))
    return format_range(*ends)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The positions of an effect and its intervals in a picture.

    An interval that is not known is None.
    """

    effect: Effect
    value: str
    at: float
    interval: tuple[float, float] | None
    noise: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class ColumnMarks:
    """The marks of one column in a picture.

    If `heading` is true, the column's name is written above the marks, and each mark
    has its own label, such as a category. `more` is the number of the column's
    coefficients that are not drawn.
    """

    name: str
    heading: bool
    marks: tuple[Mark, ...]
    more: int


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The picture and the table of the coefficients of one output.

    Effects that curves and maps already show are not drawn. `n_candidates` is the
    number of the other effects, and the picture shows the largest of them. The table
    lists the effects in `lines`. `n_all` is the number of all effects, listed or not.
    `terms` has one entry for each curve and each pair of an additive model.
    """

    class_name: str
    scale: Axis
    columns: tuple[ColumnMarks, ...]
    lines: tuple[Effect, ...]
    intercept: Effect | None
    terms: tuple[TermLine, ...]
    n_candidates: int
    n_all: int
    has_errors: bool

    @property
    def n_drawn(self) -> int:
        """The number of coefficients that are drawn."""
        return sum(len(column.marks) for column in self.columns)

    @property
    def label(self) -> str:
        """A description of the picture for screen readers."""
        of = f" of class {self.class_name}" if self.class_name else ""
        drawn = count_in_words(f"{self.n_drawn:,}", "coefficient")
        intervals = " with 95 % intervals" if self.has_errors else ""
        return f"{drawn}{of}{intervals}, by column. The table has the numbers."


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """The pictures of all outputs, the unit of the effects, and notes on the pictures.

    `constant` says whether all effects are zero.
    """

    unit: str
    pictures: tuple[Picture, ...]
    n_outputs: int
    constant: bool
    notes: tuple[str, ...]


def draw_coefficients(model: Any) -> Coefficients:
    """Return the pictures and tables of a fitted model's coefficients."""
    found = compute_effects(model)
    known = model._standard_errors()
    notes = (
        [f"There are no intervals. {known}"] if isinstance(known, str) else [INTERVALS]
    )
    notes += note_hidden(model)
    constant = all(e.effect == 0 for output in found for e in output.effects)
    columns = [] if constant else model.schema_.columns.values()
    if any(map(is_on_log_scale, columns)):
        notes.append(LOG)
    lines = MOST_LINES // min(len(found), MOST_CLASSES)
    terms = [] if constant else model._list_terms()
    bent = {g.name for g in model._layout.groups if terms and g.kind == "hats"}
    return Coefficients(
        unit=_describe_unit(model),
        pictures=tuple(
            _draw_output(
                output,
                lines,
                not isinstance(known, str),
                tuple(term for term in terms if term.output == output.class_name),
                bent,
            )
            for output in found[:MOST_CLASSES]
        ),
        n_outputs=len(found),
        constant=constant,
        notes=tuple(notes),
    )


def _describe_unit(model: Any) -> str:
    column = model.schema_.target_column
    if isinstance(column, Categorical):
        if len(column.levels) > 2:
            return "log-odds of a class against the mean of the classes"
        last, first = column.levels[1], column.levels[0]
        if model.link == "logit":
            return f"log-odds of “{last}” against “{first}”"
        return f"margin (“{last}” is predicted above zero, “{first}” below)"
    if model.link == "log":
        return "logarithm of the expected count"
    name = model.schema_.target_name
    return f"units of {name}" if name else "units of the target"


def _draw_output(
    output: Output,
    most_lines: int,
    has_errors: bool,
    terms: tuple[TermLine, ...],
    bent: set[str],
) -> Picture:
    ranked = sorted(output.effects, key=lambda e: abs(e.effect), reverse=True)
    candidates = [effect for effect in ranked if effect.column not in bent]
    shown = {id(effect) for effect in candidates[:MOST_MARKS]}
    listed = {id(effect) for effect in ranked[:most_lines]}
    scale = _choose_scale([e for e in output.effects if id(e) in shown])
    # Use enough digits to distinguish neighbouring values in the picture.
    digits = 2 - math.floor(math.log10((scale.high - scale.low) / 2.0))
    columns: dict[str, list[Effect]] = {}
    for effect in output.effects:
        columns.setdefault(effect.column, []).append(effect)
    drawn = []
    for name, effects in columns.items():
        marks = tuple(
            _draw_mark(e, scale, max(digits, 0)) for e in effects if id(e) in shown
        )
        heading = any(effect.label for effect in effects)
        if marks:
            more = len(effects) - len(marks)
            drawn.append(
                ColumnMarks(name=name, heading=heading, marks=marks, more=more)
            )
    return Picture(
        class_name=output.class_name,
        scale=scale,
        columns=tuple(drawn),
        lines=tuple(e for e in output.effects if id(e) in listed),
        intercept=output.intercept,
        terms=terms,
        n_candidates=len(candidates),
        n_all=len(output.effects),
        has_errors=has_errors,
    )


def _choose_scale(effects: list[Effect]) -> Axis:
    """Choose an axis that covers all effects.

    The axis also covers the intervals, up to `REACH` times the largest effect.
    """
    most = REACH * max((abs(e.effect) for e in effects), default=1.0)
    both = [end for e in effects for end in (*e.interval, *e.noise_interval)]
    ends = [end for end in both if math.isfinite(end)]
    kept = [min(max(end, -most), most) for end in ends]
    return make_axis([*(e.effect for e in effects), *kept])


def _draw_mark(effect: Effect, scale: Axis, digits: int) -> Mark:
    def place(ends: tuple[float, float]) -> tuple[float, float] | None:
        if not all(map(math.isfinite, ends)):
            return None
        return scale(ends[0]), scale(ends[1])

    return Mark(
        effect=effect,
        value=format_fixed(effect.effect, digits),
        at=scale(effect.effect),
        interval=place(effect.interval),
        noise=place(effect.noise_interval),
    )
