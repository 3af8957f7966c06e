"""The look that all figures share: colours that everybody can tell apart, one width.

Lines carry their names at their ends; a legend is for figures with no room for them.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by people who see few of them; ours is first.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C6D1F",
)
#: Beyond eight lines colours repeat with another dash.
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)))
#: Inches: the width of the page's text, and the height of a panel.
WIDTH, HEIGHT = 9.0, 2.8
LOOK = {
    "font.size": 9,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "skdp",  # the same numbers give the same file
}
mpl.rcParams.update(LOOK)


def panels(rows: int, columns: int, height: float = HEIGHT, **options: Any) -> Any:
    """Return a figure of the page's width and its axes, shape (rows, columns)."""
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def style(index: int) -> dict[str, Any]:
    """Colour and dash of the line with this number: 0 is ours, and thicker."""
    look = {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index // len(COLOURS) % len(DASHES)],
    }
    return look | ({"linewidth": 2.4, "zorder": 5} if index == 0 else {})


def line(
    axes: Axes,
    x: Sequence[float],
    intervals: Sequence[tuple[float, float, float]],
    **look: Any,
) -> None:
    """Draw means as a line in the band of their intervals.

    Parameters
    ----------
    axes : Axes
        Where.
    x : sequence of float
        Places.
    intervals : sequence of Interval
        Mean, low and high end at each; on a logarithmic axis a low end that is not
        positive is drawn at a thousandth of the mean.
    **look
        As for `Axes.plot`.
    """
    mean, low, high = np.array(intervals, dtype=np.float64).T
    if axes.get_yscale() == "log":
        low = np.maximum(low, mean / 1000)
    (drawn,) = axes.plot(x, mean, **look)
    band = {"color": drawn.get_color(), "linewidth": 0, "alpha": 0.15}
    axes.fill_between(x, low, high, **band)


def label_ends(axes: Axes, gap: float = 0.062, size: float = 7.5) -> None:
    """Write each line's label beside its last point, pushed apart where they meet.

    A dash before it says that the line has some: colours are used more than once.

    Call it when scales and limits are final. `gap` is the least distance of two
    labels as a part of the axes' height.
    """
    lines = [ln for ln in axes.get_lines() if not ln.get_label().startswith("_")]
    ends = []
    for drawn in lines:
        at = drawn.get_xydata()[-1]
        _, height = axes.transAxes.inverted().transform(axes.transData.transform(at))
        ends.append((float(np.clip(height, 0.0, 1.0)), drawn))
    ends.sort(key=lambda pair: pair[0])
    places = spread([height for height, _ in ends], gap)
    for place, (_, drawn) in zip(places, ends, strict=True):
        dash = "" if drawn.get_linestyle() == "-" else "┄ "
        axes.text(
            1.02,
            place,
            dash + drawn.get_label(),
            color=drawn.get_color(),
            transform=axes.transAxes,
            fontsize=size,
            fontweight="bold" if drawn.get_zorder() == 5 else "normal",
            verticalalignment="center",
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move rising heights as little as needed for them to be `gap` apart.

    Heights that meet become a block around their mean: pooling of adjacent blocks.
    """
    blocks: list[list[float]] = []  # [sum of height - index·gap, count]
    for index, height in enumerate(heights):
        blocks.append([height - index * gap, 1.0])
        while len(blocks) > 1:
            (total, count), (before, many) = blocks[-1], blocks[-2]
            if before / many <= total / count:
                break
            blocks[-2:] = [[total + before, count + many]]
    bases = [total / count for total, count in blocks for _ in range(int(count))]
    return [base + index * gap for index, base in enumerate(bases)]
