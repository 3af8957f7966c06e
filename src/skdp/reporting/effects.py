"""Coefficients of a model as effects that can stand in one picture.

A number's effect is what changes from the lowest to the highest value of its public
range; a category's is relative to the mean of its column. With several classes each
effect is relative to the mean of the classes, which changes no prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.estimators.standard_errors import StandardErrors, class_effects
from skdp.estimators.summary import Z
from skdp.estimators.units import user_units
from skdp.reporting.words import number, shortened
from skdp.schema import Group, Numeric, Schema, Vector


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One coefficient; errors that are not known are nan.

    Attributes
    ----------
    column, label : str
        The column, and the category in it; no label where the column is a number.
    unit : float
        The effect over the coefficient in the user's units.
    effect, noise_std, std : float
        The effect, its privacy noise and its standard error.
    span : str
        What the effect is of, for a number: from low to high.
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
        """How it is called beside a picture."""
        return shortened(self.label or self.column)

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval, of sampling and privacy."""
        return self.effect - Z * self.std, self.effect + Z * self.std

    @property
    def noise_interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval of the privacy noise alone."""
        return self.effect - Z * self.noise_std, self.effect + Z * self.noise_std

    @property
    def clarity(self) -> float:
        """How many standard errors it is from zero; how far, if there are none."""
        return abs(self.effect) / self.std if self.std > 0 else abs(self.effect)

    def in_units(self) -> list[float]:
        """Coefficient, noise, standard error and interval in the user's units."""
        return [
            value / self.unit
            for value in (self.effect, self.noise_std, self.std, *self.interval)
        ]


@dataclass(frozen=True, kw_only=True)
class Output:
    """What one output of a model adds up: `class_name` is empty if there is one."""

    class_name: str
    effects: tuple[Effect, ...]
    intercept: Effect | None


def outputs(model: Any) -> list[Output]:
    """Effects of each output of a fitted model."""
    layout, schema = model._layout, model.schema_
    errors = model._standard_errors()
    coefficients = class_effects(model)
    several = coefficients.shape[1] > 1
    ones = np.ones((layout.n_features, 1))
    units = user_units(schema, layout, ones)[0][0]
    width = len(units)
    noise, std = np.full(width + 1, math.nan), np.full(width + 1, math.nan)
    if isinstance(errors, StandardErrors):
        noise, std = errors.effects_noise_std, errors.effects_std
    names = list(_names(schema, layout.groups))
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
                noise_std=float(noise[j] / units[j]),
                std=float(std[j] / units[j]),
            )
            for j, (column, label, span) in enumerate(names)
        )
        intercept = Effect(
            column="intercept",
            label="",
            span="",
            unit=1.0,
            effect=float(coefficients[-1, k]),
            noise_std=float(noise[-1]),
            std=float(std[-1]),
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


def _names(schema: Schema, groups: tuple[Group, ...]) -> Iterator[tuple[str, str, str]]:
    """Column, label and span of each coordinate but the intercept's."""
    for group in groups:
        if group.kind == "ones":
            continue
        column = schema.columns[group.name]
        for place, label in enumerate(group.labels):
            if isinstance(column, Vector):
                yield group.name, label, f"0 to {number(float(column.norm))}"
            elif not isinstance(column, Numeric):
                yield group.name, label.removeprefix(f"{group.name}="), ""
            elif column.indicator and place == group.width - 1:
                yield group.name, "missing", ""
            elif column.bins is not None:
                yield group.name, _bin(column, place), ""
            else:
                ends = f"{number(float(column.low))} to {number(float(column.high))}"
                name = group.name if column.indicator else ""
                yield group.name, name, ends


def _bin(column: Numeric, place: int) -> str:
    """The part of its range that a bin of a number stands for."""
    assert column.bins is not None
    ends = []
    for share in (place / column.bins, (place + 1) / column.bins):
        span = column.high - column.low
        above = math.expm1(share * math.log1p(span))
        ends.append(column.low + (above if column.scale == "log" else share * span))
    return f"{number(ends[0])} to {number(ends[1])}"
