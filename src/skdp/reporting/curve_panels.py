"""Draw the curves and pairs of an additive model for the report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.estimators.drawn_curves import Curve, list_curves, trace
from skdp.reporting.formatting import Axis, format_number
from skdp.schema import FloatArray, Numeric

#: Maximum number of curves and of maps on the page.
MOST_CURVES, MOST_MAPS = 60, 24
#: Highest and lowest position of a curve in its panel, in percent.
TOP, BOTTOM = 6.0, 92.0


@dataclass(frozen=True, kw_only=True)
class CurvePanel:
    """One curve. `line` and `band` list the corners of SVG shapes, in percent."""

    name: str
    across: Axis
    up: Axis
    line: str
    band: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a map: its corner and size in percent, its sign and its strength."""

    x: float
    y: float
    width: float
    height: float
    positive: bool
    strength: float
    text: str


@dataclass(frozen=True, kw_only=True)
class MapPanel:
    """The effects of a pair of columns, drawn as a map."""

    name: str
    first: str
    second: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The drawings of all curves and pairs.

    `banded` says whether any curve is drawn with a band that shows its uncertainty.
    """

    curves: tuple[CurvePanel, ...]
    maps: tuple[MapPanel, ...]
    banded: bool


def draw_curves(model: Any) -> Curves | None:
    """Draw the curves and the pairs of a model with one output, if it has any."""
    kinds = [group.kind for group in model._layout.groups]
    if "hats" not in kinds or model.weights_.shape[1] > 1 or not hasattr(model, "plot"):
        return None
    found = list_curves(model)
    numbers = [c for c in found if len(c.axes) == 1 and c.numeric[0]][:MOST_CURVES]
    pairs = [c for c in found if len(c.axes) == 2][:MOST_MAPS]
    up = _choose_heights(numbers)
    return Curves(
        curves=tuple(
            _draw_curve(model.schema_.columns[c.column], c, up) for c in numbers
        ),
        maps=tuple(_draw_map(curve) for curve in pairs),
        banded=any(np.isfinite(c.low).any() for c in numbers),
    )


def _choose_heights(curves: list[Curve]) -> Axis:
    """Choose one vertical scale for all curves.

    The scale also covers the bands around the curves, up to twice the largest effect.
    """
    effects = [0.0, *(float(e) for c in curves for e in c.effects[:, 0])]
    reach = max(1e-9, 2.0 * max(map(abs, effects)))
    ends = [float(e) for c in curves for e in (*c.low[:, 0], *c.high[:, 0])]
    kept = [min(max(e, -reach), reach) for e in ends if math.isfinite(e)]
    low, high = min(*effects, *kept, -1e-9), max(*effects, *kept, 1e-9)
    return Axis(low=low, high=high, start=BOTTOM, end=TOP)


def _draw_curve(column: Numeric, curve: Curve, up: Axis) -> CurvePanel:
    x, effect, low, high = trace(column, curve)
    across = Axis(low=float(x[0]), high=float(x[-1]), start=0.0, end=100.0)
    seen = np.isfinite(low) & np.isfinite(high)
    inside = [np.clip(line, up.low, up.high) for line in (low, high)]
    band = ""
    if seen.any():
        there = _corners(across, up, x[seen], inside[1][seen])
        back = _corners(across, up, x[seen][::-1], inside[0][seen][::-1])
        band = f"{there} {back}"
    line = _corners(across, up, x, np.clip(effect, up.low, up.high))
    return CurvePanel(name=curve.column, across=across, up=up, line=line, band=band)


def _corners(across: Axis, up: Axis, x: FloatArray, y: Iterable[float]) -> str:
    points = zip(x.tolist(), y, strict=True)
    return " ".join(f"{across(a):.2f},{up(float(b)):.2f}" for a, b in points)


def _draw_map(curve: Curve) -> MapPanel:
    (first, rows), (second, columns) = curve.axes
    most = float(np.abs(curve.effects).max()) or 1.0
    width, height = 100.0 / len(columns), 100.0 / len(rows)
    cells = []
    for place, effect in enumerate(curve.effects[:, 0].tolist()):
        i, j = divmod(place, len(columns))
        cells.append(
            Cell(
                x=j * width,
                y=100.0 - (i + 1) * height,
                width=width,
                height=height,
                positive=effect > 0,
                strength=abs(effect) / most,
                text=f"{_write(rows[i])}, {_write(columns[j])}: "
                + format_number(effect),
            )
        )
    return MapPanel(
        name=curve.column,
        first=first,
        second=second,
        rows=tuple(map(_write, rows)),
        columns=tuple(map(_write, columns)),
        cells=tuple(cells),
    )


def _write(value: Any) -> str:
    if isinstance(value, float):
        return "missing" if math.isnan(value) else format_number(value)
    return str(value)
