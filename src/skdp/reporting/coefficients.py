"""The picture of a model's coefficients, and the table beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from skdp.estimators.summary import INTERVALS, on_log_scale, untold_notes
from skdp.reporting.drawing import Scale, around
from skdp.reporting.effects import Effect, Output, outputs
from skdp.reporting.words import fixed, plural
from skdp.schema import Categorical

#: Most coefficients in a picture, in the tables of all classes, and most classes.
MOST_MARKS, MOST_LINES, MOST_CLASSES = 30, 4000, 50
LOG = "The unit of a column on a log scale is one of log(1 + value - lowest value)."
#: A picture reaches so many times as far as its largest coefficient.
REACH = 2.0


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A coefficient in a picture: where it stands, and its intervals if known."""

    effect: Effect
    value: str
    at: float
    interval: tuple[float, float] | None
    noise: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Column:
    """Marks of one column: `heading` says that they are categories of it."""

    name: str
    heading: bool
    marks: tuple[Mark, ...]
    more: int


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Coefficients of one output; those that are not drawn are counted as `more`."""

    class_name: str
    scale: Scale
    columns: tuple[Column, ...]
    lines: tuple[Effect, ...]
    intercept: Effect | None
    n_all: int
    has_errors: bool

    @property
    def n_drawn(self) -> int:
        """How many coefficients are drawn."""
        return sum(len(column.marks) for column in self.columns)

    @property
    def label(self) -> str:
        """What the picture shows, for those who do not see it."""
        of = f" of class {self.class_name}" if self.class_name else ""
        drawn = plural(self.n_drawn, "coefficient")
        with_what = " with 95 % intervals" if self.has_errors else ""
        return f"{drawn}{of}{with_what}, by column. The table has the numbers."


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """Pictures of all outputs, what they are in, and what to know about them."""

    unit: str
    pictures: tuple[Picture, ...]
    n_outputs: int
    constant: bool
    notes: tuple[str, ...]


def coefficients(model: Any) -> Coefficients:
    """Draw the coefficients of a fitted model."""
    found = outputs(model)
    known = model._standard_errors()
    notes = [f"No intervals. {known}"] if isinstance(known, str) else [INTERVALS]
    notes += untold_notes(known)
    constant = all(e.effect == 0 for output in found for e in output.effects)
    columns = [] if constant else model.schema_.columns.values()
    if any(map(on_log_scale, columns)):
        notes.append(LOG)
    lines = MOST_LINES // min(len(found), MOST_CLASSES)
    return Coefficients(
        unit=_unit(model),
        pictures=tuple(
            _picture(output, lines, not isinstance(known, str))
            for output in found[:MOST_CLASSES]
        ),
        n_outputs=len(found),
        constant=constant,
        notes=tuple(notes),
    )


def _unit(model: Any) -> str:
    column = model.schema_.target_column
    kind = type(model).__name__
    if isinstance(column, Categorical):
        if len(column.levels) > 2:
            return "log-odds of a class against the mean of the classes"
        last, first = column.levels[1], column.levels[0]
        if kind == "LogisticRegression":
            return f"log-odds of “{last}” against “{first}”"
        return f"margin: above zero “{last}” is predicted, below it “{first}”"
    if kind == "PoissonRegressor":
        return "logarithm of the expected count"
    name = model.schema_.target_name
    return f"units of {name}" if name else "units of the target"


def _picture(output: Output, most_lines: int, has_errors: bool) -> Picture:
    ranked = sorted(output.effects, key=lambda e: e.clarity, reverse=True)
    shown = {id(effect) for effect in ranked[:MOST_MARKS]}
    listed = {id(effect) for effect in ranked[:most_lines]}
    scale = _scale([e for e in output.effects if id(e) in shown])
    # Digits after the point that tell neighbours in the picture apart.
    digits = 2 - math.floor(math.log10((scale.high - scale.low) / 2.0))
    columns: dict[str, list[Effect]] = {}
    for effect in output.effects:
        columns.setdefault(effect.column, []).append(effect)
    drawn = []
    for name, effects in columns.items():
        marks = tuple(
            _mark(e, scale, max(digits, 0)) for e in effects if id(e) in shown
        )
        heading = any(effect.label for effect in effects)
        if marks:
            more = len(effects) - len(marks)
            drawn.append(Column(name=name, heading=heading, marks=marks, more=more))
    return Picture(
        class_name=output.class_name,
        scale=scale,
        columns=tuple(drawn),
        lines=tuple(e for e in output.effects if id(e) in listed),
        intercept=output.intercept,
        n_all=len(output.effects),
        has_errors=has_errors,
    )


def _scale(effects: list[Effect]) -> Scale:
    """Hold all effects, and their intervals as far as that leaves room for them."""
    most = REACH * max((abs(e.effect) for e in effects), default=1.0)
    ends = [end for e in effects for end in e.interval if math.isfinite(end)]
    kept = [min(max(end, -most), most) for end in ends]
    return around([*(e.effect for e in effects), *kept])


def _mark(effect: Effect, scale: Scale, digits: int) -> Mark:
    def drawn(ends: tuple[float, float]) -> tuple[float, float] | None:
        if not all(map(math.isfinite, ends)):
            return None
        return scale(ends[0]), scale(ends[1])

    return Mark(
        effect=effect,
        value=fixed(effect.effect, digits),
        at=scale(effect.effect),
        interval=drawn(effect.interval),
        noise=drawn(effect.noise_interval),
    )
