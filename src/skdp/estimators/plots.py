"""Draw fitted models with matplotlib. Everything that is drawn was released.

A picture consists of panels of a fixed size in points, and everything in a panel has a
fixed place. The same panel stands in a figure of `plot` and alone on the page of a
report, where panels stand side by side or below each other as the screen allows. Grids
and ticks are drawn here, which is faster than matplotlib's own and makes them the same
in all panels.

Names of columns and levels may come from strangers. All text goes through
`Panel.write`, which does not interpret it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.estimators.effects import (
    Curve,
    Effect,
    compute_effects,
    list_curves,
)
from skdp.estimators.standard_errors import StandardErrors
from skdp.estimators.summary import Z
from skdp.formatting import (
    escape_unprintable,
    format_fixed,
    format_number,
    shorten,
)
from skdp.privacy.look import SEEN, Profile
from skdp.schema import Categorical, FloatArray, Numeric, check

#: Colours. The page of a report replaces them if the screen is dark.
INK, SOFT, GRID, PAPER = "#1c1e21", "#5a6068", "#e6e8eb", "#ffffff"
ACCENT, PALE = "#0a6566", "#4f9d99"
MORE, LESS = "#2166ac", "#b2182b"
#: Colours of classes, which colour-blind people can tell apart.
CLASSES = ("#0072b2", "#c04f00", "#007f5c", "#a8487f", "#8f6400", "#757b84")
#: Sizes of letters in points.
LARGE, MEDIUM, SMALL = 9.0, 8.0, 7.5

#: Largest number of panels and of coefficients in a figure.
MOST_PANELS, MOST_MARKS = 24, 30
#: Largest number of levels in a panel, and along each side of a map.
MOST_LEVELS, MOST_CELLS = 10, 16
#: Width and height of a panel of an additive model in points, and the margins left,
#: right, above and below of what is drawn in it. Names of levels need a wider margin.
PANEL = (220.0, 146.0)
MARGINS, NAMED = (30.0, 8.0, 22.0, 18.0), (84.0, 8.0, 22.0, 18.0)
#: Panels side by side, and the distance between them in points.
ACROSS, GAP = 3, 14.0
#: Height of a line with a coefficient. Widths of its name, its interval and its number.
LINE, NAME_WIDTH, INTERVAL_WIDTH, NUMBER_WIDTH = 15.0, 165.0, 235.0, 40.0
#: Panels reach up to this multiple of the largest effect, to show intervals.
REACH = 1.5
#: The axis of a column is not linear if the middle half of the rows fills less than
#: `SQUEEZED` of its range. It is logarithmic if the median is in the part `FIRST`.
SQUEEZED, FIRST = 0.1, 0.2
#: Opacity of bands, and of bands that are a guess.
SHADE, FAINT = 0.24, 0.09
#: Height of the highest bar that shows how rows spread, as a share of its panel.
DENSITY = 0.22
DASHES = (0, (2.0, 2.0))
#: The largest number that is drawn.
HUGE = 1e200
#: What is said of terms that are left out.
UNTOLD = "cannot be told from noise"
UNCOMPUTED = (
    "is left out, because its error was not computed",
    "are left out, because their errors were not computed",
)


@contextmanager
def drawing(**settings: Any) -> Iterator[None]:
    """Draw with matplotlib's default settings, whatever the user's own are.

    Models that others saved may have any numbers, so overflows are not reported.
    """
    library = import_matplotlib()
    defaults = {
        name: value
        for name, value in library.rcParamsDefault.items()
        if not name.startswith("backend")
    }
    with library.rc_context(defaults | settings), np.errstate(all="ignore"):
        yield


def import_matplotlib() -> Any:
    """Return matplotlib. Raise ImportError that names the extra if it is missing."""
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError:
        raise ImportError(
            "Drawing requires matplotlib: pip install 'skdp[report]'."
        ) from None
    return matplotlib


def make_figure(width: float, height: float) -> Any:
    """Return an empty figure, with sizes in points."""
    return import_matplotlib().figure.Figure(figsize=(width / 72.0, height / 72.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """A part of a picture, in which positions go from 0 to 1 in both directions.

    Attributes
    ----------
    target : figure or axes
        What to draw into. Figures without axes are made several times as fast.
    transform : matplotlib transform
        Maps positions to the figure.
    width, height : float
        The size in points.
    """

    target: Any
    transform: Any
    width: float
    height: float

    def write(self, x: float, y: float, text: Any, **style: Any) -> None:
        """Write text that may have any characters. None of them are interpreted."""
        given = {"fontsize": SMALL, "color": SOFT, "va": "center"} | style
        self.target.text(
            x,
            y,
            escape_unprintable(str(text)),
            transform=self.transform,
            parse_math=False,
            usetex=False,
            **given,
        )

    def draw_lines(
        self, lines: Sequence[Any], color: str, width: float = 0.7, **style: Any
    ) -> None:
        """Draw lines, each through a list of points."""
        self._add_shape(lines, {"edgecolor": color, "linewidth": width} | style, False)

    def fill(self, corners: Any, color: str, opacity: float) -> None:
        """Fill the shape with these corners."""
        style = {"facecolor": color, "alpha": opacity, "linewidth": 0.0}
        self._add_shape([corners], style, True)

    def _add_shape(self, lines: Sequence[Any], style: Any, filled: bool) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        arrays = [np.asarray(line, float).reshape(-1, 2) for line in lines]
        if not arrays:
            return
        codes = np.full(sum(map(len, arrays)), Path.LINETO)
        codes[np.cumsum([0, *map(len, arrays[:-1])])] = Path.MOVETO
        path = Path(np.concatenate(arrays), codes)
        given = {"fill": filled, "transform": self.transform, "clip_on": False}
        self.target.add_artist(PathPatch(path, **given, **style))

    def draw_dot(self, x: float, y: float, color: str, hollow: bool = False) -> None:
        """Draw a dot, which is hollow if its error is not known."""
        from matplotlib.lines import Line2D

        self.target.add_artist(
            Line2D(
                [x],
                [y],
                marker="o",
                linestyle="none",
                markersize=4.2,
                markerfacecolor=PAPER if hollow else color,
                markeredgecolor=color,
                markeredgewidth=0.9,
                transform=self.transform,
                clip_on=False,
            )
        )


def add_panel(
    figure: Any,
    left: float,
    top: float,
    width: float,
    height: float,
    has_axes: bool = False,
) -> Panel:
    """Return a panel of a figure, with sizes in points from the left upper corner.

    If `has_axes` is true, the panel has axes of its own, which users may add to.
    """
    across, up = figure.get_size_inches() * 72.0
    corner = left / across, 1.0 - (top + height) / up
    if has_axes:
        ax = figure.add_axes((*corner, width / across, height / up))
        return use_axes(ax)
    from matplotlib.transforms import Affine2D

    place = Affine2D().scale(width / across, height / up).translate(*corner)
    transform = place + figure.transSubfigure
    return Panel(target=figure, transform=transform, width=width, height=height)


def use_axes(ax: Any) -> Panel:
    """Return a panel that fills axes, and hide what matplotlib draws around them."""
    ax.set_axis_off()
    size = ax.get_position().size * ax.figure.get_size_inches() * 72.0
    width, height = map(float, size)
    return Panel(target=ax, transform=ax.transAxes, width=width, height=height)


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """Where numbers stand on an axis of a panel, and which of them are written there.

    Attributes
    ----------
    low, high : float
        The ends of the axis.
    place : callable
        Maps numbers to positions from 0 to 1.
    ticks : tuple of (number, text)
        The numbers to write.
    """

    low: float
    high: float
    place: Callable[[Any], FloatArray]
    ticks: tuple[tuple[float, str], ...]

    def __call__(self, value: float) -> float:
        """Return the position of a number. Those beyond the axis are at its ends."""
        return float(self.place(np.clip(value, self.low, self.high)))


def scale_linearly(low: float, high: float, most: int = 5) -> Axis:
    """Return a linear axis with up to `most` round numbers."""
    span = high - low
    step = 10.0 ** math.floor(math.log10(span) - 1.0)
    step *= next(f for f in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0) if span / step / f < most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    numbers = [float(f"{i * step:.12g}") for i in range(first, last + 1)]
    return Axis(
        low=low,
        high=high,
        place=lambda v: (np.asarray(v, float) - low) / span,
        ticks=tuple((v, format_tick(v)) for v in numbers),
    )


def scale_bent(
    low: float,
    high: float,
    place: Callable[[Any], FloatArray],
    candidates: Sequence[float] = (),
    apart: float = 0.17,
) -> Axis:
    """Return an axis that is not linear, with round numbers that are far enough apart.

    By default the numbers are 0, the powers of ten, and 3, 2 and 5 times these powers.
    """
    if not candidates:
        last = math.floor(math.log10(max(abs(low), abs(high))))
        powers = [10.0**p for p in range(last, last - 12, -1)]
        scaled = [f * p for f in (1.0, 3.0, 2.0, 5.0) for p in powers]
        candidates = [0.0, *scaled, *(-v for v in scaled)]
    kept: list[tuple[float, float]] = []
    for i, value in enumerate((*candidates, low, high)):
        needed = i < len(candidates) or len(kept) < 2
        if needed and low <= value <= high:
            at = float(place(value))
            if all(abs(at - other) >= apart for _, other in kept):
                kept.append((value, at))
    return Axis(
        low=low,
        high=high,
        place=place,
        ticks=tuple((v, format_tick(v)) for v, _ in sorted(kept)),
    )


def scale_log(low: float, high: float, apart: float = 0.17) -> Axis:
    """Return a logarithmic axis."""
    span = math.log(high / low)
    return scale_bent(low, high, lambda v: np.log(v / low) / span, apart=apart)


def format_tick(value: float) -> str:
    """Write a number on an axis. Large numbers have commas."""
    if 1e3 <= abs(value) < 1e7 and value == round(value):
        return f"{value:,.0f}".replace("-", "−")
    return format_number(value)


def choose_axis(column: Numeric, curve: Curve) -> Axis:
    """Choose the horizontal axis of a curve, from the schema and released values.

    The axis is that of the column if it is on a log scale. Otherwise it is linear,
    unless most of the rows stand in a small part of it. Then it is a logarithm if these
    are the smallest values, which must not be negative, and else each knot gets the
    same room.
    """
    low, high = map(float, column.ends)
    if column.scale == "log":
        return scale_bent(low, high, lambda v: np.log1p(v - low) / column.span)
    n = len(curve.axes[0][1]) - column.indicator
    knots = np.array(curve.axes[0][1][:n])
    at = (knots - low) / (high - low)
    shares = None if curve.shares is None else curve.shares[:n]
    if n < 3 or (shares is None and not isinstance(column.knots, tuple)):
        return scale_linearly(low, high)
    if shares is None or not shares.sum():
        shares = np.ones(n)
    ranks = (np.cumsum(shares) - shares / 2.0) / shares.sum()
    lower, half, upper = np.interp([0.25, 0.5, 0.75], ranks, at)
    if upper - lower >= SQUEEZED:
        return scale_linearly(low, high)
    if low >= 0 and half < FIRST:
        # The logarithm starts a decade below the median of the rows or, if most of
        # them are at the lowest value, of the others.
        others = np.where(shares[0] > 0.5, np.append(0.0, shares[1:]), shares)
        ranks = np.cumsum(others) / (others.sum() or 1.0)
        typical = max(float(np.interp(0.5, ranks, knots)), knots[1]) - low
        unit = 10.0 ** (math.floor(math.log10(typical)) - 1)
        span = math.log1p((high - low) / unit)
        return scale_bent(low, high, lambda v: np.log1p((v - low) / unit) / span)
    even = np.linspace(0.0, 1.0, n)
    rounded = [float(f"{knot:.2g}") for knot in knots]
    order = [0, n - 1, n // 2, *range(n)]
    return scale_bent(
        low, high, lambda v: np.interp(v, knots, even), [rounded[i] for i in order]
    )


# ---- additive models


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnTerms:
    """The curves and pairs that a picture shows, and what all its panels share.

    Attributes
    ----------
    shown : tuple of Curve
        What is drawn, in this order.
    heights : Axis
        The scale of the effects, for all panels.
    darkest : float
        The effect that the darkest cells of maps stand for.
    known : bool
        Whether the model has standard errors.
    classes : tuple of str
        The classes with curves of their own, if the model has more than two classes.
    notes : tuple of str
        Sentences on what is drawn and on what is left out.
    has_density : bool
        Whether how the rows spread is drawn below curves.
    """

    shown: tuple[Curve, ...]
    heights: Axis
    darkest: float
    known: bool
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    has_density: bool


def choose_terms(
    model: Any, columns: Sequence[str] | None = None, most: int = MOST_PANELS
) -> DrawnTerms:
    """Choose what to draw of an additive model, in order of what it explains.

    By default, what noise could explain as well is left out, and so are pairs whose
    errors were not computed. `columns` names what to draw instead.
    """
    curves = list_curves(model)
    known = isinstance(model._standard_errors(), StandardErrors)
    notes: list[str] = []
    if columns is not None:
        by_name = {curve.column: curve for curve in curves}
        for name in columns:
            check(
                name in by_name,
                f"columns must be among {list(by_name)}, got {name!r}.",
            )
        shown = [by_name[name] for name in columns]
    else:
        ranked = sorted(curves, key=lambda curve: -curve.size)
        shown = [c for c in ranked if not known or c.is_told]
        smaller, shown = len(shown) - most, shown[:most]
        told = [curve.is_told for curve in curves if known]
        left = (
            (smaller, "explains less", "explain less"),
            (told.count(False), UNTOLD, UNTOLD),
            (told.count(None), *UNCOMPUTED),
        )
        more = " more" if shown else ""
        for n, one, several in left:
            if n > 0:
                word = f"term {one}" if n == 1 else f"terms {several}"
                notes.append(f"{n:,}{more} {word}.")
    has_classes = model.weights_.shape[1] > 1
    classes = tuple(map(str, model.classes_)) if has_classes else ()
    lines = [c for c in shown if len(c.axes) == 1]
    maps = [c.effects for c in shown if len(c.axes) == 2]
    if not known and shown:
        notes.insert(0, "The errors are not known.")
    elif any(_is_guess(c).any() for c in lines):
        notes.insert(
            0,
            "Paler where noise hides how many rows there are: these intervals are only "
            "a guess from the noise.",
        )
    if len(classes) > len(CLASSES):
        notes.append(f"Only the first {len(CLASSES)} classes are drawn.")
    return DrawnTerms(
        shown=tuple(shown),
        heights=_choose_heights(lines),
        darkest=max((float(np.abs(one).max()) for one in maps), default=0.0) or 1.0,
        known=known,
        classes=classes[: len(CLASSES)],
        notes=tuple(notes),
        has_density=model.profile_ is not None and any(c.numeric[0] for c in lines),
    )


def _is_guess(curve: Curve) -> Any:
    """Return where the interval that is drawn is a guess."""
    if curve.std is None or curve.likely_std is None:
        return np.zeros(curve.effects.shape, bool)
    return ~np.isfinite(curve.std) & np.isfinite(curve.likely_std)


def _find_reach(curve: Curve) -> FloatArray:
    """Return half the lengths of the intervals, as drawn; nan if nothing is known."""
    if curve.likely_std is None:
        return np.full_like(curve.effects, math.nan)
    return np.where(np.isfinite(curve.likely_std), Z * curve.likely_std, math.nan)


def _choose_heights(curves: Sequence[Curve]) -> Axis:
    """Choose one scale for the effects of all curves.

    It also covers intervals that are known, up to `REACH` times the largest effect.
    """
    effects = np.concatenate([np.zeros(1), *(c.effects.ravel() for c in curves)])
    most = min(HUGE, REACH * float(np.abs(effects).max())) or 1.0
    ends = [end.ravel() for c in curves for end in (c.low, c.high)]
    both = np.concatenate([effects, *ends])
    kept = np.clip(both[np.isfinite(both)], -most, most)
    low, high = float(kept.min()), float(kept.max())
    room = 0.04 * (high - low) or 1.0
    return scale_linearly(low - room, high + room)


@drawing()
def draw_terms(model: Any, columns: Sequence[str] | None = None) -> Any:
    """Draw an additive model, see `AdditiveClassifier.plot`. Return the figure."""
    terms = choose_terms(model, columns)
    across = max(1, min(ACROSS, len(terms.shown)))
    down = -(-len(terms.shown) // across)
    width = GAP + max(across, 2) * (PANEL[0] + GAP)
    head = [describe_effects(model), *wrap(describe_terms(terms), width)]
    foot = wrap(" ".join(terms.notes), width)
    top = 16.0 + 12.0 * len(head) + (14.0 if terms.classes else 0.0)
    height = top + down * (PANEL[1] + GAP) + 12.0 * len(foot) + 8.0
    figure = make_figure(width, height)
    page = add_panel(figure, 0.0, 0.0, width, height)
    write_head(page, head, height)
    if terms.classes:
        key = add_panel(figure, GAP, top - 12.0, width - 2 * GAP, 10.0)
        draw_key(key, terms.classes)
    for i, curve in enumerate(terms.shown):
        row, place = divmod(i, across)
        corner = GAP + place * (PANEL[0] + GAP), top + row * (PANEL[1] + GAP)
        draw_term(figure, model, terms, curve, corner, has_axes=True)
    for i, line in enumerate(foot):
        at = GAP / width, (8.0 + 12.0 * (len(foot) - 1 - i)) / height
        page.write(*at, line)
    return figure


def wrap(text: str, width: float) -> list[str]:
    """Break text into lines for a picture of this width in points."""
    return textwrap.wrap(text, int(width / 4.0))


def describe_effects(model: Any) -> str:
    """Return what effects are measured in, as a title."""
    column = model.schema_.target_column
    if isinstance(column, Categorical):
        if len(column.levels) > 2:
            return "Effect on the log-odds of a class against the mean of the classes"
        last, first = (shorten(str(level)) for level in column.levels[1::-1])
        if model.link == "logit":
            return f"Effect on the log-odds of “{last}” against “{first}”"
        return f"Effect on the margin (above zero “{last}”, below “{first}”)"
    name = model.schema_.target_name
    target = f"“{shorten(str(name))}”" if name else "the target"
    if model.link == "log":
        return f"Effect on the logarithm of the expected {target}"
    return f"Effect on {target}, in its units"


def describe_terms(terms: DrawnTerms) -> str:
    """Return sentences that explain the panels."""
    if not terms.shown:
        return ""
    found = "Panels are ordered by what they explain and share one scale."
    if len(terms.shown) == 1:
        found = ""
    if terms.has_density:
        found += " Grey bars show how the rows spread, as a look released it."
    if terms.known and any(len(c.axes) == 1 for c in terms.shown):
        found += (
            " Shaded areas and bars are 95 % intervals for sampling error and privacy "
            "noise together."
        )
    if any(len(c.axes) == 2 for c in terms.shown):
        found += (
            " Maps show what a pair adds to its two columns. Blue raises and red "
            "lowers, and the darkest colour stands for an effect of "
            f"±{format_number(terms.darkest, 2)}."
        )
    return found.strip()


def draw_key(panel: Panel, classes: Sequence[str]) -> None:
    """Write the names of the classes in a row, each with its colour."""
    at = 0.0
    for color, name in zip(CLASSES, classes, strict=False):
        short = shorten(name, 24)
        panel.draw_lines([[(at, 0.5), (at + 12.0 / panel.width, 0.5)]], color, 1.6)
        panel.write(at + 16.0 / panel.width, 0.5, short, color=INK)
        at += (30.0 + 4.6 * len(short)) / panel.width


def draw_term(
    figure: Any,
    model: Any,
    terms: DrawnTerms,
    curve: Curve,
    corner: tuple[float, float] = (0.0, 0.0),
    has_axes: bool = False,
) -> None:
    """Draw the panel of a curve, of categories or of a pair into a figure.

    `corner` is the left upper corner of the panel in points.
    """
    column = model.schema_.columns[curve.column]
    bent = curve.numeric[0] and len(curve.axes) == 1
    names = () if bent else curve.axes[0][1]
    longest = max((len(_label(name)) for name in names), default=0)
    left, right, above, below = NAMED if longest > 5 else MARGINS
    width, height = PANEL[0] - left - right, PANEL[1] - above - below
    panel = add_panel(
        figure, corner[0] + left, corner[1] + above, width, height, has_axes
    )
    title = shorten(str(curve.column), 38)
    if len(curve.axes) == 2:
        first, second = (shorten(str(name), 17) for name, _ in curve.axes)
        title = f"{first} ↑ × {second} →"
        title += _draw_map(panel, terms, curve)
    elif bent:
        _draw_curve(panel, terms, column, curve, model.profile_)
    else:
        title += _draw_levels(panel, terms, column, curve)
    panel.write(
        -left / width,
        1.0 + 12.0 / height,
        title,
        color=INK,
        fontsize=LARGE,
        weight="bold",
    )


def draw_heights(
    panel: Panel, scale: Axis, upright: bool = True, below: float = -0.045
) -> None:
    """Draw the grid of the effects, which go up or, if not `upright`, to the right."""
    ticks = [(scale(value), value, text) for value, text in scale.ticks]

    def line(at: float) -> list[tuple[float, float]]:
        return [(0.0, at), (1.0, at)] if upright else [(at, 0.0), (at, 1.0)]

    panel.draw_lines([line(at) for at, value, _ in ticks if value], GRID)
    panel.draw_lines([line(at) for at, value, _ in ticks if not value], SOFT)
    for at, _, text in ticks:
        if upright:
            panel.write(-0.025, at, text, ha="right")
        else:
            panel.write(at, below, text, ha="center", va="top")


def draw_ticks(panel: Panel, scale: Axis) -> None:
    """Write the numbers of a horizontal axis, each below a small mark."""
    for value, text in scale.ticks:
        at = scale(value)
        side = "left" if at < 0.05 else "right" if at > 0.95 else "center"
        side = side if len(text) > 3 else "center"
        panel.draw_lines([[(at, 0.0), (at, -0.025)]], SOFT)
        panel.write(at, -0.045, text, ha=side, va="top")


def _color(terms: DrawnTerms, k: int) -> str:
    return CLASSES[k] if terms.classes else ACCENT


def _outputs(terms: DrawnTerms, curve: Curve) -> range:
    return range(min(curve.effects.shape[1], len(CLASSES)))


def _draw_curve(
    panel: Panel,
    terms: DrawnTerms,
    column: Numeric,
    curve: Curve,
    profile: Profile | None,
) -> None:
    scale, up = choose_axis(column, curve), terms.heights
    draw_heights(panel, up)
    if profile is not None and curve.column in profile.numbers:
        draw_density(panel, scale, profile, curve.column)
    draw_ticks(panel, scale)
    shade = 1.0 if not terms.classes else 0.5
    for k in _outputs(terms, curve):
        color = _color(terms, k)
        x, effect, reach, guess = trace(column, curve, scale, k)
        clipped = [
            up.place(np.clip(effect + s * reach, up.low, up.high)) for s in (-1, 1)
        ]
        known = bool(np.isfinite(reach).all())
        if known:
            panel.fill(_outline(x, *clipped), color, FAINT * shade)
            for run in _find_runs(~guess):
                corners = _outline(x[run], *(line[run] for line in clipped))
                panel.fill(corners, color, (SHADE - FAINT) * shade)
        y = up.place(np.clip(effect, up.low, up.high))
        dashes = "-" if known else DASHES
        panel.draw_lines([np.column_stack([x, y])], color, 1.4, linestyle=dashes)
    if column.indicator:
        for k in _outputs(terms, curve):
            at = 1.03 + 0.02 * k
            ends = _find_interval(curve, terms, len(curve.effects) - 1, k)
            _draw_mark(panel, *ends, at, _color(terms, k), upright=True)
        panel.write(1.05, 1.04, "missing", ha="right")


def draw_density(panel: Panel, scale: Axis, profile: Profile, name: str) -> None:
    """Draw how the rows spread over a number, as released: bars from the bottom up.

    The height of a bar is the share of the rows in it per width on the axis. Rows that
    are exactly zero have a bar of their own, which is as high as their share is of the
    largest. Rows beyond the ends of the axis count there.
    """
    found, limits = profile.numbers[name], profile.limits.columns[name]
    assert isinstance(limits, Numeric)
    edges = np.clip(limits.unscale(found.scaled), scale.low, scale.high)
    at = np.asarray(scale.place(edges), np.float64)
    wide = np.diff(at) > 1e-3
    shares = found.find_visible()
    if not wide.any() or not shares[wide].any():
        return
    heights = np.where(wide, shares / np.where(wide, np.diff(at), 1.0), 0.0)
    heights *= DENSITY / heights.max()
    for left, right, height in zip(at[:-1], at[1:], heights, strict=True):
        if height > 0:
            corners = [(left, 0.0), (left, height), (right, height), (right, 0.0)]
            panel.fill(np.array(corners), SOFT, 0.35)
    if scale.low <= 0 <= scale.high and found.zeros > SEEN * found.error:
        place = float(scale.place(np.zeros(1))[0])
        height = DENSITY * min(1.0, found.zeros / max(float(shares.max()), 1e-9))
        panel.draw_lines([[(place, 0.0), (place, height)]], SOFT, 2.0)


def trace(
    column: Numeric, curve: Curve, scale: Axis, k: int = 0
) -> tuple[FloatArray, FloatArray, FloatArray, Any]:
    """Return the points of the curve of output k.

    They are the positions on the axis, the effects, half the lengths of the intervals,
    and whether an interval next to the point is a guess.
    """
    n = len(curve.axes[0][1]) - column.indicator
    knots = np.array(curve.axes[0][1][:n])
    values = knots
    middle = np.asarray(scale.place((knots[1:] + knots[:-1]) / 2.0))
    ends = np.asarray(scale.place(knots))
    if np.abs(middle - (ends[1:] + ends[:-1]) / 2.0).max() > 1e-6:
        # The curve is straight between knots, but not on this axis.
        fine = column.unscale(np.linspace(0.0, 1.0, 4001))
        even = np.interp(np.linspace(0.0, 1.0, 81), scale.place(fine), fine)
        values = np.union1d(knots, even)
    at = column.rescale(values)[0], column.rescale(knots)[0]
    guess = _is_guess(curve)[:n, k].astype(float)
    lines = curve.effects[:n, k], _find_reach(curve)[:n, k], guess
    effect, reach, near = (np.interp(*at, line) for line in lines)
    return np.asarray(scale.place(values)), effect, reach, near > 0


def _outline(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the corners of a band."""
    there, back = np.column_stack([x, low]), np.column_stack([x, high])[::-1]
    return np.concatenate([there, back])


def _find_runs(mask: Any) -> Iterator[slice]:
    """Yield the longest runs of true entries, of at least two each."""
    start = None
    for i, one in enumerate([*mask, False]):
        if one and start is None:
            start = i
        if not one and start is not None:
            if i - start > 1:
                yield slice(start, i)
            start = None


def _find_interval(
    curve: Curve, terms: DrawnTerms, i: int, k: int
) -> tuple[float, tuple[float, float] | None, bool]:
    """Return the positions of an effect and its interval, and whether it is a guess."""
    effect = float(curve.effects[i, k])
    reach = float(_find_reach(curve)[i, k])
    scale = terms.heights
    ends = None if math.isnan(reach) else (scale(effect - reach), scale(effect + reach))
    return scale(effect), ends, bool(_is_guess(curve)[i, k])


def _draw_mark(
    panel: Panel,
    at: float,
    ends: tuple[float, float] | None,
    guess: bool,
    across: float,
    color: str,
    upright: bool = False,
) -> None:
    """Draw an effect and its interval, which lie in a row or, if `upright`, go up."""
    if ends is not None:
        line = [(end, across) for end in ends]
        line = [(y, x) for x, y in line] if upright else line
        panel.draw_lines([line], color, 1.4, alpha=0.4 if guess else 1.0)
    x, y = (across, at) if upright else (at, across)
    panel.draw_dot(x, y, color, hollow=guess or ends is None)


def _draw_levels(panel: Panel, terms: DrawnTerms, column: Any, curve: Curve) -> str:
    """Draw categories or bins below each other, and return what the title must add."""
    labels = [_label(value) for value in curve.axes[0][1]]
    shares = np.ones(len(labels)) if curve.shares is None else curve.shares
    weight = shares * (curve.effects**2).sum(axis=1)
    kept = sorted(np.argsort(-weight, kind="stable")[:MOST_LEVELS].tolist())
    if isinstance(column, Categorical):
        kept.sort(key=lambda i: -curve.effects[i, 0])
    else:
        kept.reverse()
    draw_heights(panel, terms.heights, upright=False)
    outputs = _outputs(terms, curve)
    for row, i in enumerate(kept):
        step = min(1.0 / len(kept), 0.2)
        middle = 0.5 + ((len(kept) - 1) / 2.0 - row) * step
        panel.write(-0.04, middle, shorten(labels[i], 17), color=INK, ha="right")
        for k in outputs:
            shift = 0.7 * step * (k - (len(outputs) - 1) / 2) / len(outputs)
            ends = _find_interval(curve, terms, i, k)
            _draw_mark(panel, *ends, middle - shift, _color(terms, k))
    left = len(labels) - len(kept)
    return f" (and {left:,} smaller)" if left > 0 else ""


def _draw_map(panel: Panel, terms: DrawnTerms, curve: Curve) -> str:
    """Draw the effects of a pair, and return what the title must add.

    Of several classes, the one with the largest effects is drawn.
    """
    labels = [[_label(value) for value in values] for _, values in curve.axes]
    k = int(np.argmax((curve.effects**2).mean(axis=0)))
    table = curve.effects[:, k].reshape(len(labels[0]), len(labels[1]))
    kept = [
        np.sort(np.argsort(-(table**2).sum(axis=1 - side))[:MOST_CELLS])
        for side in (0, 1)
    ]
    table = table[np.ix_(*kept)]
    n, m = table.shape
    for i, j in np.ndindex(n, m):
        (left, right), (low, high) = (j / m, (j + 1) / m), (i / n, (i + 1) / n)
        corners = [(left, low), (right, low), (right, high), (left, high)]
        effect = float(table[i, j])
        strength = 0.9 * min(1.0, abs(effect) / terms.darkest)
        panel.fill(corners, MORE if effect > 0 else LESS, round(strength, 3))
    frame = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]
    panel.draw_lines([frame], GRID)
    for i in range(0, n, -(-n // 8)):
        text = shorten(labels[0][kept[0][i]], 17)
        panel.write(-0.04, (i + 0.5) / n, text, color=INK, ha="right")
    longest = max(len(labels[1][j]) for j in kept[1])
    for j in range(0, m, max(1, -(-m * min(longest, 12) // 28))):
        text = shorten(labels[1][kept[1][j]], 12)
        panel.write((j + 0.5) / m, -0.045, text, color=INK, ha="center", va="top")
    return f", {shorten(terms.classes[k], 12)}" if terms.classes else ""


def _label(value: Any) -> str:
    """Write a level, or a knot with three digits. nan stands for missing values."""
    if not isinstance(value, float):
        return str(value)
    return "missing" if math.isnan(value) else format_number(value, 3)


# ---- coefficients

#: A column of a picture: its name, the effects that are drawn, and the number of those
#: that are not. The name is empty if the effect has the name of the column.
Rows = list[tuple[str, tuple[Effect, ...], int]]


def choose_rows(
    effects: Sequence[Effect], sizes: Sequence[float] | None = None
) -> Rows:
    """Choose the largest effects, in the order of the columns.

    `sizes` has the size of each effect, and is by default its absolute value.
    """
    if sizes is None:
        sizes = [abs(effect.effect) for effect in effects]
    ranked = sorted(range(len(effects)), key=lambda i: -sizes[i])
    shown = set(ranked[:MOST_MARKS])
    columns: dict[str, list[int]] = {}
    for i, effect in enumerate(effects):
        columns.setdefault(effect.column, []).append(i)
    found = []
    for name, own in columns.items():
        kept = tuple(effects[i] for i in own if i in shown)
        if kept:
            heading = name if any(effects[i].label for i in own) else ""
            found.append((heading, kept, len(own) - len(kept)))
    return found


def count_lines(rows: Rows) -> int:
    """Return the number of lines in a picture of these effects."""
    return sum(len(effects) + bool(heading) for heading, effects, _ in rows)


def describe_marks(effects: Sequence[Effect], n_effects: int) -> str:
    """Return sentences that explain the dots and lines of these effects.

    `n_effects` is the number of all effects, drawn or not.
    """
    found = ""
    if len(effects) < n_effects:
        found = f"The {len(effects)} of {n_effects:,} effects that are largest. "
    if all(math.isnan(effect.std) for effect in effects):
        return found + "Hollow dot: estimate. Its error is not known."
    found += (
        "Dot: estimate. Thick line: 95 % interval of the privacy noise. Thin line: "
        "95 % interval of sampling error and privacy noise together."
    )
    if any(math.isinf(effect.std) for effect in effects):
        found += (
            " Hollow dot: no interval, because noise hides how much the column varies."
        )
    return found


@drawing()
def draw_coefficients(model: Any, axes: Any = None) -> Any:
    """Draw the effects of a linear model, and return the figure.

    Each class has a panel of its own if there are more than two.
    """
    outputs = compute_effects(model)[: len(CLASSES)]
    each = zip(*(output.effects for output in outputs), strict=True)
    sizes = [max(abs(effect.effect) for effect in one) for one in each]
    rows = [choose_rows(output.effects, sizes) for output in outputs]
    marks = [e for found in rows for _, kept, _ in found for e in kept]
    scale = choose_widths(marks)
    if axes is not None:
        flat = np.atleast_1d(axes).ravel()
        check(
            len(flat) >= len(outputs),
            f"axes must have one entry per class ({len(outputs)}), got {len(flat)}.",
        )
        for ax, output, found in zip(flat, outputs, rows, strict=False):
            panel = use_axes(ax)
            draw_rows(panel, found, scale)
            panel.write(0.0, 1.05, output.class_name, color=INK, weight="bold")
        return flat[0].figure
    wide = INTERVAL_WIDTH / (1.0 if len(outputs) == 1 else 1.6)
    width = 2 * GAP + NAME_WIDTH + len(outputs) * (wide + NUMBER_WIDTH + 10.0)
    words = describe_marks(marks, len(outputs) * len(sizes))
    head = [describe_effects(model), *wrap(words, width)]
    top = 22.0 + 13.0 * len(head) + (14.0 if len(outputs) > 1 else 0.0)
    lines = count_lines(rows[0])
    height = top + lines * LINE + 30.0
    figure = make_figure(width, height)
    write_head(add_panel(figure, 0.0, 0.0, width, height), head, height)
    for k, (output, found) in enumerate(zip(outputs, rows, strict=True)):
        left = GAP + NAME_WIDTH + k * (wide + NUMBER_WIDTH + 10.0)
        panel = add_panel(figure, left, top, wide, lines * LINE, has_axes=True)
        draw_rows(panel, found, scale, named=k == 0)
        name = shorten(output.class_name, 30)
        up = 1.0 + 8.0 / (lines * LINE)
        panel.write(0.0, up, name, color=INK, fontsize=MEDIUM, weight="bold")
    return figure


def draw_rows(panel: Panel, rows: Rows, scale: Axis, named: bool = True) -> None:
    """Draw effects below each other.

    Their names stand left of the axes if `named` is true, and numbers right of them.
    """
    width = panel.width
    digits = max(0, 2 - math.floor(math.log10((scale.high - scale.low) / 2.0)))
    lines = max(1, count_lines(rows))
    draw_heights(panel, scale, upright=False, below=-0.35 / lines)
    row = 0.0
    for heading, kept, more in rows:
        if heading:
            y = 1.0 - (row + 0.62) / lines
            name = shorten(heading, 30) + (f" (and {more:,} more)" if more else "")
            if named:
                style = {"color": INK, "fontsize": MEDIUM, "weight": "bold"}
                panel.write(-NAME_WIDTH / width, y, name, **style)
            row += 1.0
        for effect in kept:
            y = 1.0 - (row + 0.5) / lines
            known = math.isfinite(effect.std)
            if known:
                panel.draw_lines([[(scale(v), y) for v in effect.interval]], SOFT, 0.9)
            if math.isfinite(effect.noise_std):
                ends = [(scale(v), y) for v in effect.noise_interval]
                panel.draw_lines([ends], PALE, 3.6)
            panel.draw_dot(scale(effect.effect), y, ACCENT, hollow=not known)
            name = shorten(effect.label or effect.column, 32)
            if named:
                indent = 10.0 if heading else 0.0
                at = (indent - NAME_WIDTH) / width
                panel.write(at, y, name, color=INK, fontsize=MEDIUM)
            if named and effect.span and len(name) + len(effect.span) < 34:
                panel.write(-6.0 / width, y, effect.span, ha="right")
            number, end = format_fixed(effect.effect, digits), 1.0 + 36.0 / width
            panel.write(end, y, number, color=INK, fontsize=MEDIUM, ha="right")
            row += 1.0


def choose_widths(effects: Sequence[Effect]) -> Axis:
    """Choose a scale for effects and their intervals, up to twice the largest."""
    most = min(HUGE, 2.0 * max((abs(e.effect) for e in effects), default=0.0)) or 1.0
    ends = [end for e in effects for end in (*e.interval, *e.noise_interval)]
    kept = [min(max(end, -most), most) for end in ends if math.isfinite(end)]
    values = [0.0, *(min(max(e.effect, -most), most) for e in effects), *kept]
    low, high = min(values), max(values)
    room = 0.03 * (high - low) or 1.0
    return scale_linearly(low - room, high + room, 6)


def write_head(page: Panel, lines: Sequence[str], height: float) -> None:
    """Write a title and the sentences below it at the top of a figure."""
    for i, line in enumerate(lines):
        style = {"color": INK, "fontsize": LARGE + 1} if i == 0 else {}
        page.write(GAP / page.width, 1.0 - (16.0 + 13.0 * i) / height, line, **style)
