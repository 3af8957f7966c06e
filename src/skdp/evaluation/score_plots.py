"""Draw the ROC curve and the calibration curve of an evaluation."""

from __future__ import annotations

from typing import Any

from skdp.estimators.coefficient_plots import BLUE, GREY, make_axes
from skdp.schema import check


def plot_evaluation(found: Any, axes: Any = None) -> Any:
    """Draw the curves of an evaluation, each on axes of its own.

    Parameters
    ----------
    found : Evaluation
        The evaluation. Only the curves that it has are drawn.
    axes : matplotlib axes or sequence of them, optional
        Where to draw. By default a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Save it with ``savefig``.
    """
    import numpy as np

    drawings = [_draw_roc] if found.roc else []
    drawings += [_draw_calibration] if found.calibration else []
    check(
        bool(drawings),
        "There is nothing to draw. Request the metrics 'auc' or 'calibration', which "
        "classifiers of two classes have.",
    )
    if axes is None:
        axes = make_axes(len(drawings))
    flat = np.atleast_1d(axes).ravel()
    check(
        len(flat) >= len(drawings),
        f"axes must have one entry per curve ({len(drawings)}), got {len(flat)}.",
    )
    for draw, ax in zip(drawings, flat, strict=False):
        draw(found, ax)
    return flat[0].figure


def _draw_roc(found: Any, ax: Any) -> None:
    score = found.scores.get("auc")
    x, y = zip(*found.roc, strict=True)
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    ax.plot(x, y, color=BLUE)
    title = "ROC curve"
    if score is not None:
        shown = "too noisy to say" if score.too_noisy else f"{score.value:.3f}"
        title += f": AUC {shown} [{score.low:.3f}, {score.high:.3f}]"
    ax.set(
        xlabel=f"share of {_name_class(found, 0)} above the margin",
        ylabel=f"share of {_name_class(found, 1)} above the margin",
        title=title,
        xlim=(-0.01, 1.01),
        ylim=(-0.01, 1.01),
        aspect="equal",
    )


def _draw_calibration(found: Any, ax: Any) -> None:
    kept = found.calibration
    x = [one.predicted for one in kept]
    below = [max(0.0, one.rate - one.rate_low) for one in kept]
    above = [max(0.0, one.rate_high - one.rate) for one in kept]
    top = max([0.05, *x, *(one.rate_high for one in kept)])
    end = 1.0 if top > 0.6 else 1.1 * top
    ax.plot([0, end], [0, end], color=GREY, linestyle=":", linewidth=1)
    for one, down, up in zip(kept, below, above, strict=True):
        colour = GREY if one.too_noisy else BLUE
        ax.errorbar(
            [one.predicted],
            [one.rate],
            [[down], [up]],
            color=colour,
            marker="o",
            capsize=3,
            markersize=5,
        )
    score = found.scores.get("ece")
    title = "Calibration"
    if score is not None:
        shown = "too noisy to say" if score.too_noisy else f"{score.value:.3f}"
        title += f": ECE {shown} [{score.low:.3f}, {score.high:.3f}]"
    ax.set(
        xlabel=f"predicted probability of {_name_class(found, 1)}",
        ylabel=f"observed share, {found.confidence:.0%} interval",
        title=title,
        xlim=(-0.01 * end, 1.01 * end),
        ylim=(-0.01 * end, 1.01 * end),
        aspect="equal",
    )


def _name_class(found: Any, code: int) -> str:
    """Return the label of a class, or its code if the labels are not known."""
    label = found.classes[code] if found.classes else code
    return label if isinstance(label, str) else f"class {label}"
