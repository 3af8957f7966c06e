"""Draw fitted models with matplotlib. Everything that is drawn was released."""

from __future__ import annotations

import math
from typing import Any

from skdp.estimators.summary import summarise
from skdp.estimators.summary_lines import ClassLine

#: Colours that colour-blind people can tell apart.
BLUE, GREY = "#0072b2", "#999999"
#: Largest number of coefficients to draw. More would not be readable.
MOST_LINES = 60


def make_axes(n_axes: int = 1, width: float = 4.6, height: float = 4.2) -> Any:
    """Return new axes side by side. Raise ImportError if matplotlib is missing."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(
            "plot requires matplotlib: pip install 'skdp[report]'."
        ) from None
    _, axes = pyplot.subplots(
        1, n_axes, figsize=(width * n_axes, height), squeeze=False, layout="constrained"
    )
    return axes[0]


def plot_coefficients(model: Any, ax: Any = None) -> Any:
    """Draw the coefficients of a model's summary, from top to bottom.

    Each dot is a coefficient, and the line through the dot is its 95 % interval. A grey
    dot is a coefficient without an interval. Intercepts are left out, because their
    size would hide the other coefficients.
    """
    found = summarise(model)
    kept = [line for line in found.lines if line.column != "intercept"]
    more, kept = len(kept) - MOST_LINES, kept[:MOST_LINES]
    if ax is None:
        ax = make_axes(width=6.4, height=1.2 + 0.26 * max(len(kept), 3))[0]
    names = []
    for place, line in enumerate(kept):
        inside = line.column != line.label
        name = f"{line.column}: {line.label}" if inside else line.label
        names.append(f"{line.output}, {name}" if line.output else name)
        if isinstance(line, ClassLine):
            for k, (coef, level) in enumerate(zip(line.coefs, found.head, strict=True)):
                legend = level if place == 0 else None
                ax.plot([coef], [place], "o", color=f"C{k}", markersize=5, label=legend)
            continue
        low, high = line.interval
        known = math.isfinite(low)
        if known:
            ax.plot([low, high], [place, place], color=BLUE, linewidth=1.4)
        ax.plot([line.coef], [place], "o", color=BLUE if known else GREY, markersize=5)
    ax.axvline(0.0, color=GREY, linestyle=":", linewidth=1)
    if kept and isinstance(kept[0], ClassLine):
        ax.legend(fontsize=7)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_title(found.title + (f" ({more} more not shown)" if more > 0 else ""))
    ax.set_xlabel(found.facts[0], fontsize=8)
    return ax.figure
