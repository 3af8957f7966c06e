"""Make the pictures of a report, as SVG inside its page.

matplotlib draws them with the functions that also draw `plot`. `embed` makes its SVG
small and puts it into HTML: the page's policy allows no style in an element, and its
style sheet replaces the colours on a dark screen. Text stays text, in the fonts of the
page. Each picture has a name for screen readers, and a table has its numbers.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from dataclasses import dataclass
from typing import Any, cast
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from skdp.descent.forecast import forecast, format_cost, linearise_cost
from skdp.descent.plan import Plan
from skdp.descent.rule import replan
from skdp.estimators import plots
from skdp.estimators.effects import Effect, compute_effects
from skdp.estimators.summary import INTERVALS, TermLine, is_on_log_scale, note_hidden
from skdp.evaluation.results import Evaluation, draw_calibration
from skdp.formatting import escape_unprintable, format_percent, shorten
from skdp.schema import Vector, count_in_words

#: Limits on the coefficients in all tables together, on the classes that are shown, on
#: those that have a picture, and on the panels of an additive model.
MOST_LINES, MOST_CLASSES, MOST_DRAWN, MOST_PANELS = 4000, 50, 6, 12
LOG = (
    "For a column on a log scale, one unit is an increase of 1 in "
    "log(1 + value - lowest value)."
)
#: Attributes of matplotlib's SVG that the page needs.
KEPT = (
    *("d", "x", "y", "transform", "fill", "fill-opacity", "opacity", "stroke"),
    *("stroke-opacity", "stroke-width", "stroke-dasharray", "font-size", "text-anchor"),
    "font-weight",
)
NUMBER = re.compile(r"-?\d+\.\d+")
#: Factors by which the number of rows or the budget is multiplied in forecasts.
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)


class Markup(str):
    """HTML that templates do not escape."""

    def __html__(self) -> str:
        return self


def embed(figure: Any, label: str) -> Markup:
    """Return a figure as an SVG element with the name `label` for screen readers."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    written, canvas = io.StringIO(), cast("Any", FigureCanvasSVG(figure))
    figure.patch.set_visible(False)
    with warnings.catch_warnings():
        # The browser may have the letters that matplotlib's font does not have.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.print_svg(
            written, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    root = ElementTree.fromstring(written.getvalue())
    plain = escape_unprintable(label)
    return Markup(
        f'<svg class="drawn" viewBox="{root.get("viewBox")}" role="img" '
        f"aria-label={quoteattr(plain + '. The table has the numbers.')}>"
        f"<title>{escape(plain)}</title>{''.join(_shrink(root))}</svg>"
    )


def _shrink(element: Any) -> str:
    """Return what the page needs of the parts of an element of matplotlib's SVG."""
    return "".join(
        _shrink(part) if part.tag.endswith("}g") else _shrink_shape(part)
        for part in element
        if not part.tag.endswith(("}metadata", "}defs"))
    )


def _shrink_shape(shape: Any) -> str:
    tag, found = shape.tag.rpartition("}")[2], dict(shape.attrib)
    for rule in found.pop("style", "").split(";"):
        name, _, value = rule.partition(":")
        found[name.strip()] = value.strip()
    found = {name: found[name] for name in KEPT if name in found}
    if found.get("transform", "").startswith("rotate(-0 "):
        del found["transform"]
    if tag == "use":  # all marks are dots
        tag = "circle"
        found = {"r": "2.1", "cx": found.pop("x"), "cy": found.pop("y")} | found
    written = "".join(
        f" {name}={quoteattr(_round(value))}" for name, value in found.items()
    )
    text = escape(shape.text.strip() if shape.text else "")
    return f"<{tag}{written}>{text}</{tag}>" if text else f"<{tag}{written}/>"


def _round(text: str) -> str:
    """Shorten the numbers and the white space in an attribute."""
    short = NUMBER.sub(lambda found: f"{float(found.group()):.4g}", text)
    return re.sub(r"\s*([MLCZz])\s*", r"\1", short.strip())


# ---- what limits accuracy


@dataclass(frozen=True, kw_only=True)
class Point:
    """The forecast for one number of rows, or for one ε.

    Attributes
    ----------
    value : float
        The number of rows, or ε.
    privacy, sampling : float
        The expected cost of privacy, and the expected cost of having only this many
        rows.
    range : str
        The likely range of the cost of privacy.
    constant : bool
        Whether only a constant would be fitted, because the noise would hide anything
        else.
    here : bool
        Whether this point has the rows and the budget of the fit itself.
    """

    value: float
    privacy: float
    range: str
    sampling: float
    constant: bool
    here: bool

    @property
    def both(self) -> float:
        """The cost of privacy plus the cost of sampling."""
        return self.privacy + self.sampling


@dataclass(frozen=True, kw_only=True)
class Forecasts:
    """Forecasts of the cost over ε, or over the number of rows."""

    what: str
    score: str
    points: tuple[Point, ...]

    @property
    def drawn(self) -> list[Point]:
        """The points of the curves, except those at which only a constant is fitted."""
        return [point for point in self.points if not point.constant]

    @property
    def here(self) -> Point | None:
        """The point of the fit itself, or None if it is not on the curves."""
        return next((point for point in self.drawn if point.here), None)

    @property
    def first_constant(self) -> float | None:
        """The largest ε or number of rows that allows only a constant, or None."""
        return max((p.value for p in self.points if p.constant), default=None)


def make_forecasts(plan: Plan) -> list[Forecasts]:
    """Return forecasts over ε and over the number of rows.

    They use public facts and experience with other tables. No record is read. Forecasts
    for fewer than two points are left out. There are none if the plan has no noise or
    no forecast.
    """
    if plan.epsilon == math.inf or linearise_cost(plan) is None:
        return []
    # Show values around the values of the plan. If its rows and budget allow only a
    # constant model, show larger values.
    lift = FACTORS[-1] if plan.geometry.is_constant else 1
    factors = [factor * lift for factor in FACTORS]
    asked = {
        "ε": [(plan.epsilon * f, plan.n_rows) for f in factors],
        "rows": [(plan.epsilon, round(plan.n_rows * f)) for f in factors],
    }
    score, found = forecast(plan).score, []
    for what, facts in asked.items():
        made = [_make_point(plan, what, *fact) for fact in facts if fact[1] >= 1]
        points = tuple(point for point in made if point is not None)
        one = Forecasts(what=what, score=score, points=points)
        if len(one.drawn) > 1:
            found.append(one)
    return found


def _make_point(plan: Plan, what: str, epsilon: float, rows: int) -> Point | None:
    delta = min(plan.delta, 0.1 / rows)
    try:
        made = replan(plan, epsilon=epsilon, n_rows=rows, delta=delta)
    except ValueError:  # the paper's formula needs a small ε
        return None
    seen = forecast(made)
    return Point(
        value=epsilon if what == "ε" else rows,
        privacy=seen.privacy_excess,
        range=format_cost(seen),
        sampling=seen.sampling_excess,
        constant=made.geometry.is_constant,
        here=(epsilon, rows) == (plan.epsilon, plan.n_rows),
    )


def draw_forecasts(forecasts: list[Forecasts]) -> list[Markup]:
    """Draw each of the forecasts, on one scale of the cost."""
    points = [point for one in forecasts for point in one.drawn]
    if not points:
        return []
    # Cut off values near zero. On a log scale they would flatten all other curves.
    most = max(p.both for p in points)
    least = max(min(min(p.privacy, p.sampling) for p in points), most * 1e-5)
    up = plots.scale_log(least / 1.1, most * 1.1)
    return [_draw_forecasts(one, up) for one in forecasts]


def _draw_forecasts(one: Forecasts, up: plots.Axis) -> Markup:
    values = [point.value for point in one.points]
    across = plots.scale_log(values[0], values[-1], apart=0.27)
    figure = plots.make_figure(*plots.PANEL)
    left, right, above, below = plots.MARGINS
    size = plots.PANEL[0] - left - right - 46.0, plots.PANEL[1] - above - below
    panel = plots.add_panel(figure, left, above, *size)
    plots.draw_heights(panel, up)
    plots.draw_ticks(panel, across)
    names = {"both": "total", "privacy": "privacy", "sampling": "sampling"}
    last, lowest = one.drawn[-1], 2.0
    ends = sorted(names, key=lambda name: -float(getattr(last, name)))
    for name in ends:
        color = {"both": plots.INK, "privacy": plots.ACCENT}.get(name, plots.SOFT)
        line = [(across(p.value), up(getattr(p, name))) for p in one.drawn]
        style: Any = {"linestyle": plots.DASHES} if name == "sampling" else {}
        panel.draw_lines([line], color, 1.4, **style)
        lowest = min(line[-1][1], lowest - 0.09)
        at = line[-1][0] + 0.03, lowest
        panel.write(*at, names[name], color=color)
    here = one.here
    if here is not None:
        at = across(here.value), up(here.both)
        panel.draw_lines([[(at[0], 0.0), at]], plots.SOFT)
        panel.draw_dot(*at, plots.ACCENT)
        style = {"color": plots.INK, "va": "bottom"}
        panel.write(at[0] + 0.02, at[1] + 0.03, "this fit", **style)
    over = "the budget ε" if one.what == "ε" else "the number of rows"
    up_title = 1.0 + 12.0 / size[1]
    style = {"color": plots.INK, "fontsize": plots.LARGE, "weight": "bold"}
    panel.write(-left / size[0], up_title, f"Over {over}", **style)
    return embed(figure, f"Expected cost in {one.score} over {over}")


# ---- budget and scores


def draw_shares(purposes: list[Any]) -> Markup:
    """Draw the share of the budget of each purpose as a bar."""
    height = plots.LINE * len(purposes)
    figure = plots.make_figure(440.0, height)
    panel = plots.add_panel(figure, plots.NAME_WIDTH, 0.0, plots.INTERVAL_WIDTH, height)
    for row, one in enumerate(purposes):
        y = 1.0 - (row + 0.5) / len(purposes)
        panel.draw_lines([[(0.0, y), (1.0, y)]], plots.GRID, 9.0)
        color = plots.ACCENT if one.spent else plots.SOFT
        panel.draw_lines([[(0.0, y), (min(1.0, one.share), y)]], color, 9.0)
        style = {"color": plots.INK, "fontsize": plots.MEDIUM}
        at = -plots.NAME_WIDTH / plots.INTERVAL_WIDTH
        panel.write(at, y, shorten(one.name, 36), **style)
        panel.write(1.16, y, format_percent(one.share), ha="right", **style)
    return embed(figure, "Share of the budget by purpose")


def draw_bins(found: Evaluation) -> Markup:
    """Draw the calibration of an evaluation."""
    figure = plots.make_figure(300.0, 250.0)
    draw_calibration(found, plots.add_panel(figure, 44.0, 24.0, 240.0, 186.0))
    return embed(figure, "Observed rate with its interval, over the predicted rate")


# ---- coefficients, curves and pairs


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The panels of an additive model, what explains them, and a key of the classes."""

    caption: str
    key: Markup | None
    panels: tuple[Markup, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The picture and the table of the coefficients of one output.

    Effects that curves and maps already show are not drawn. The table lists the effects
    in `lines`. `n_all` is the number of all effects, listed or not. `terms` has one
    entry for each curve and each pair of an additive model.
    """

    class_name: str
    drawn: Markup | None
    caption: str
    lines: tuple[Effect, ...]
    intercept: Effect | None
    terms: tuple[TermLine, ...]
    n_all: int
    has_errors: bool


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """The pictures of all outputs, the unit of the effects, and notes on the pictures.

    `constant` says whether all effects are zero.
    """

    unit: str
    curves: Curves | None
    pictures: tuple[Picture, ...]
    n_outputs: int
    constant: bool
    notes: tuple[str, ...]


def picture_coefficients(model: Any) -> Coefficients:
    """Return the pictures and tables of a fitted model's coefficients."""
    found = compute_effects(model)
    known = model._standard_errors()
    has_errors = not isinstance(known, str)
    notes = [INTERVALS] if has_errors else [f"There are no intervals. {known}"]
    notes += note_hidden(model)
    constant = all(e.effect == 0 for output in found for e in output.effects)
    columns = [] if constant else model.schema_.columns.values()
    if any(map(is_on_log_scale, columns)):
        notes.append(LOG)
    most = MOST_LINES // min(len(found), MOST_CLASSES)
    terms = [] if constant else model._list_terms()
    pictures = []
    for place, output in enumerate(found[:MOST_CLASSES]):
        candidates = output.effects
        if terms:  # the others are panels
            vectors = {n for n, c in model.schema_.columns.items() if type(c) is Vector}
            candidates = tuple(e for e in candidates if e.column in vectors)
        drawn, caption = None, ""
        if candidates and not constant and place < MOST_DRAWN:
            drawn, caption = _draw_effects(candidates, output.class_name)
        ranked = sorted(output.effects, key=lambda e: -abs(e.effect))
        listed = set(map(id, ranked[:most]))
        pictures.append(
            Picture(
                class_name=output.class_name,
                drawn=drawn,
                caption=caption,
                lines=tuple(e for e in output.effects if id(e) in listed),
                intercept=output.intercept,
                terms=tuple(t for t in terms if t.output == output.class_name),
                n_all=len(output.effects),
                has_errors=has_errors,
            )
        )
    return Coefficients(
        unit=plots.describe_effects(model),
        curves=_draw_curves(model) if terms else None,
        pictures=tuple(pictures),
        n_outputs=len(found),
        constant=constant,
        notes=tuple(notes),
    )


def _draw_effects(effects: tuple[Effect, ...], class_name: str) -> tuple[Markup, str]:
    """Return a picture of the largest effects on one output, and what explains it."""
    rows = plots.choose_rows(effects)
    marks = [effect for _, kept, _ in rows for effect in kept]
    lines = plots.count_lines(rows)
    wide = plots.INTERVAL_WIDTH
    width = plots.NAME_WIDTH + wide + plots.NUMBER_WIDTH
    figure = plots.make_figure(width, lines * plots.LINE + 16.0)
    panel = plots.add_panel(figure, plots.NAME_WIDTH, 0.0, wide, lines * plots.LINE)
    plots.draw_rows(panel, rows, plots.choose_widths(marks))
    of = f" of class {class_name}" if class_name else ""
    intervals = "" if all(math.isnan(e.std) for e in marks) else " with 95 % intervals"
    label = f"{count_in_words(len(marks), 'coefficient')}{of}{intervals}, by column"
    return embed(figure, label), plots.describe_marks(marks, len(effects))


def _draw_curves(model: Any) -> Curves:
    """Draw the panels of an additive model."""
    terms = plots.choose_terms(model, most=MOST_PANELS)
    panels, key = [], None
    for curve in terms.shown:
        figure = plots.make_figure(*plots.PANEL)
        plots.draw_term(figure, model, terms, curve)
        names = [name for name, _ in curve.axes]
        kind = "Map" if len(names) == 2 else "Curve" if curve.numeric[0] else "Effects"
        panels.append(embed(figure, f"{kind} of {' and '.join(map(str, names))}"))
    if terms.classes and panels:
        figure = plots.make_figure(440.0, 12.0)
        plots.draw_key(plots.add_panel(figure, 0.0, 0.0, 440.0, 12.0), terms.classes)
        key = embed(figure, "Colours of the classes")
    return Curves(
        caption=plots.describe_terms(terms),
        key=key,
        panels=tuple(panels),
        notes=terms.notes,
    )
