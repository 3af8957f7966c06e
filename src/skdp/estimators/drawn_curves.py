"""Show the curves and surfaces of an additive model as values, frames and figures.

Everything here is computed from released values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.estimators.standard_errors import StandardErrors, compute_class_effects
from skdp.estimators.summary_lines import TermLine
from skdp.schema import Categorical, FloatArray, Numeric, Pair, check
from skdp.tables.readers import import_library

#: Half the width of a 95 % interval, in standard errors.
Z = 1.959963984540054
#: Number of points at which a curve is drawn between its ends.
POINTS = 200
#: Number of panels in a row of a figure.
ACROSS = 3


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
    """

    column: str
    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    numeric: tuple[bool, ...]
    effects: FloatArray
    std: FloatArray | None

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


def list_curves(model: Any) -> list[Curve]:
    """Return the effect of each column and pair. `Vector` columns are left out."""
    effects = compute_class_effects(model)[:-1]
    known, shares = model._standard_errors(), model._shares
    found = []
    for group in model._layout.groups:
        column = model.schema_.columns.get(group.name)
        if not isinstance(column, (Numeric, Categorical, Pair)) or group.kind == "ones":
            continue
        at = group.coordinates
        own = effects[at]
        std = known.effects_std[at] if isinstance(known, StandardErrors) else None
        if group.kind == "dense":
            middle = 0.5 if shares is None else float(shares[group.start])
            own, std = _draw_line(column, middle, own, std)
        parts: tuple[Numeric | Categorical, ...]
        names: tuple[str, ...]
        if isinstance(column, Pair):
            parts, names = column.parts, (column.first, column.second)
        else:
            parts, names = (column,), (group.name,)
        axes = tuple(
            (name, _list_values(part)) for name, part in zip(names, parts, strict=True)
        )
        numeric = tuple(
            isinstance(part, Numeric) and part.bins is None for part in parts
        )
        found.append(
            Curve(column=group.name, axes=axes, numeric=numeric, effects=own, std=std)
        )
    return found


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
        if group.kind != "ones"
    ]
    terms.append(collect("intercept", [-1], ("",)))
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
        at=", ".join(_write(value) for value in list(values)[place]),
        effect=float(effects[place]),
        std=float(std[place]),
        output=output,
        is_ratio=ratios,
    )


def _draw_line(
    column: Any, middle: float, effects: FloatArray, std: FloatArray | None
) -> tuple[FloatArray, FloatArray | None]:
    """Return a linear effect at both ends of its column's range, with standard errors.

    The effect is 0 at `middle`, where 0 and 1 are the ends of the range. If missing
    values have an indicator, the effect of a missing value comes third.
    """
    reach = (np.array([0.0, 1.0]) - middle) * column.span
    ends = np.vstack([reach[:, None] * effects[:1], effects[1:]])
    if std is None:
        return ends, None
    return ends, np.vstack([np.abs(reach)[:, None] * std[:1], std[1:]])


def _list_values(column: Numeric | Categorical) -> tuple[Any, ...]:
    """Return a column's levels, knots or bin middles, in the user's units."""
    if isinstance(column, Categorical):
        return tuple(column.levels)
    if column.bins is not None:
        scaled = (np.arange(column.bins) + 0.5) / column.bins
    else:
        scaled = column.place_knots()
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


def trace(column: Numeric, curve: Curve, k: int = 0) -> tuple[FloatArray, ...]:
    """Return arrays x, effect, low and high that trace the curve of output k.

    The numbers x are in the user's units.
    """
    n = len(curve.axes[0][1]) - column.indicator
    at = scaled = column.place_knots()
    if column.scale == "log":
        scaled = np.union1d(at, np.linspace(0.0, 1.0, POINTS))
    lines = (curve.effects[:n, k], curve.low[:n, k], curve.high[:n, k])
    return column.unscale(scaled), *(np.interp(scaled, at, line) for line in lines)


def draw_figure(model: Any, columns: Sequence[str] | None = None) -> Any:
    """Draw the curves with matplotlib, see `AdditiveClassifier.plot`."""
    curves = list_curves(model)
    known = [curve.column for curve in curves]
    columns = [columns] if isinstance(columns, str) else columns
    wanted = known if columns is None else list(columns)
    for name in wanted:
        check(name in known, f"columns must be among {known}, got {name!r}.")
    figure = _import_figures().Figure(layout="constrained")
    down = -(-max(1, len(wanted)) // ACROSS)
    across = min(ACROSS, max(1, len(wanted)))
    figure.set_size_inches(3.6 * across, 2.8 * down)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel in panels[len(wanted) :]:
        panel.set_axis_off()
    by_name = {curve.column: curve for curve in curves}
    for panel, name in zip(panels, wanted, strict=False):
        curve = by_name[name]
        if len(curve.axes) == 2:
            _draw_map(figure, panel, curve)
        else:
            _draw_curve(panel, model, curve)
        panel.set_title(name, fontsize="medium")
    return figure


def _draw_curve(panel: Any, model: Any, curve: Curve) -> None:
    column = model.schema_.columns[curve.column]
    several = curve.effects.shape[1] > 1
    panel.axhline(0.0, color="0.7", linewidth=0.8)
    for k in range(curve.effects.shape[1]):
        label = str(model.classes_[k]) if several else None
        if curve.numeric[0]:
            x, effect, low, high = trace(column, curve, k)
            known = np.isfinite(low) & np.isfinite(high)
            # Dotted where the error is unknown, because a plain line would look exact.
            style = {"color": f"C{k}", "label": label}
            panel.plot(x, effect, linestyle=":" if not known.all() else "-", **style)
            panel.plot(x, np.where(known, effect, math.nan), color=f"C{k}")
            panel.fill_between(x, low, high, where=known, alpha=0.25, linewidth=0)
        else:
            places = np.arange(len(curve.effects)) + 0.1 * k
            effect = curve.effects[:, k]
            reach = curve.high[:, k] - effect
            known = np.isfinite(reach)
            panel.plot(places, effect, "o", color=f"C{k}", fillstyle="none")
            panel.errorbar(
                places[known],
                effect[known],
                reach[known],
                fmt="o",
                color=f"C{k}",
                label=label,
            )
            panel.set_xticks(places, [str(v) for v in curve.axes[0][1]], rotation=60)
            panel.tick_params(axis="x", labelsize="small")
    panel.set_ylabel("effect")
    if several:
        panel.legend(fontsize="small")


def _draw_map(figure: Any, panel: Any, curve: Curve) -> None:
    (first, rows), (second, columns) = curve.axes
    table = curve.effects[:, 0].reshape(len(rows), len(columns))
    most = float(np.abs(table).max()) or 1.0
    shown = panel.imshow(
        table, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", origin="lower"
    )
    figure.colorbar(shown, ax=panel)
    panel.set_yticks(range(len(rows)), [_write(v) for v in rows], fontsize="small")
    panel.set_xticks(range(len(columns)), [_write(v) for v in columns], rotation=60)
    panel.set_ylabel(first)
    panel.set_xlabel(second)


def _write(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "missing" if math.isnan(value) else f"{value:.4g}"


def _import_figures() -> Any:
    try:
        from matplotlib import figure
    except ImportError:
        raise ImportError(
            "plot requires matplotlib: pip install 'skdp[report]'."
        ) from None
    return figure
