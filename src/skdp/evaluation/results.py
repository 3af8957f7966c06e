"""Hold and draw the results of an evaluation: scores, tables, errors and intervals."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from skdp.estimators import plots
from skdp.formatting import shorten
from skdp.ledger import released_digest
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import check, name_record

#: Printed instead of a number that is hidden by noise.
TOO_NOISY = "too noisy to say"
#: The name of the subgroup of rows whose cell is not among the categories.
NO_LEVEL = "(no category)"


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score of a model.

    Attributes
    ----------
    value : float
        The score, computed from released sums. It is in the score's range.
    noise_std : float
        The standard error that the privacy noise causes.
    sampling_std : float
        The standard error that arises because the rows are only a sample of a
        population.
    low, high : float
        A confidence interval for the model's true score. It allows for both errors.
    too_noisy : bool
        Whether the privacy noise is so large that `value` says little.
    """

    value: float
    noise_std: float
    sampling_std: float
    low: float
    high: float
    too_noisy: bool = False


@dataclass(frozen=True, kw_only=True)
class Bin:
    """The rows whose predicted probability of class 1 is in [low, high).

    Attributes
    ----------
    predicted : float
        The mean of the predicted probabilities.
    count, positives : float
        The number of rows and the number of rows of class 1, both with noise.
    rate, rate_std : float
        positives / count, and the standard error of this ratio.
    rate_low, rate_high : float
        A confidence interval for the rate.
    too_noisy : bool
        Whether the noise is so large that `rate` says little.
    """

    low: float
    high: float
    predicted: float
    count: float
    positives: float
    rate: float
    rate_std: float
    rate_low: float
    rate_high: float
    too_noisy: bool = False


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """The numbers of rows by true class and predicted class.

    Attributes
    ----------
    classes : tuple
        The classes, in the order of rows and columns.
    counts : tuple of tuples of float
        One row per true class, one column per predicted class. Negative counts, which
        noise can cause, are shown as 0.
    noise_std : float
        The standard error that the privacy noise causes in each count.
    """

    classes: tuple[Any, ...]
    counts: tuple[tuple[float, ...], ...]
    noise_std: float


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """The scores of the rows of one category.

    Attributes
    ----------
    level : any
        The category, or None for rows whose cell is not among the categories.
    n_rows, n_rows_std : float
        The released number of rows, and the standard error that the noise causes.
    scores : dict of str to Score
        The scores, by the name of the metric.
    """

    level: Any
    n_rows: float
    n_rows_std: float
    scores: dict[str, Score]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Released scores of a model on a table.

    Attributes
    ----------
    scores : dict of str to Score
        The scores, by the name of the metric.
    confusion : Confusion, optional
        The confusion matrix, if it was requested.
    calibration : tuple of Bin
        The calibration table. It is empty unless ``"calibration"`` was requested.
    roc : tuple of (float, float)
        Points of the ROC curve: the shares of class 0 and of class 1 that are above a
        margin. It is empty unless ``"auc"`` was requested.
    by : str, optional
        The column that divides the rows into subgroups, if one was requested.
    groups : tuple of Subgroup
        The scores of each subgroup, in the order of the column's categories.
    n_rows : float
        The number of rows if it is public. Otherwise the released number, or the
        released sum of the rows' weights.
    rows_released : bool
        Whether `n_rows` was released with noise.
    model : str
        The name of the model's class.
    target : str, optional
        The name of the target, if the model's schema has one.
    classes : tuple
        The classes of a classifier, in the order of the model's ``classes_``.
    confidence : float
        The confidence level of the intervals.
    notes : tuple of str
        Sentences that say what was clipped, and at which value.
    privacy_ : PrivacyRecord
        The privacy record, with the budget spent and all releases.
    """

    scores: dict[str, Score]
    confusion: Confusion | None = None
    calibration: tuple[Bin, ...] = ()
    roc: tuple[tuple[float, float], ...] = ()
    by: str | None = None
    groups: tuple[Subgroup, ...] = ()
    n_rows: float
    rows_released: bool = True
    model: str = "model"
    target: str | None = None
    classes: tuple[Any, ...] = ()
    confidence: float
    notes: tuple[str, ...]
    privacy_: PrivacyRecord

    def __getitem__(self, metric: str) -> float:
        return self.scores[metric].value

    @property
    def values(self) -> dict[str, float]:
        """The value of each score, by the name of the metric."""
        return {name: score.value for name, score in self.scores.items()}

    def to_frame(self) -> Any:
        """Return the scores as a pandas frame with one row per metric.

        If there are subgroups, their scores follow. The index then has two levels: the
        category, or "all rows", and the metric.
        """
        from skdp.tables.readers import import_library

        DataFrame = import_library("pandas").DataFrame
        rows = {name: asdict(score) for name, score in self.scores.items()}
        if self.by is None:
            return DataFrame.from_dict(rows, orient="index")
        many = {("all rows", name): row for name, row in rows.items()}
        for one in self.groups:
            level = NO_LEVEL if one.level is None else one.level
            many |= {(level, name): asdict(s) for name, s in one.scores.items()}
        frame = DataFrame(list(many.values()))
        index = import_library("pandas").MultiIndex.from_tuples(list(many))
        return frame.set_index(index.set_names([self.by, "metric"]))

    def plot(self, axes: Any = None) -> Any:
        """Draw the ROC and calibration curves, and return matplotlib's figure.

        Everything that is drawn was released. `axes` may be a list of two axes.
        """
        return draw_scores(self, axes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the record's transcript, as plain values."""
        record = self.privacy_
        confusion = None
        if self.confusion is not None:
            classes = [_plain_label(level) for level in self.confusion.classes]
            confusion = asdict(self.confusion) | {"classes": classes}
        return {
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "confusion": confusion,
            "calibration": [asdict(one) for one in self.calibration],
            "roc": [list(point) for point in self.roc],
            "by": self.by,
            "groups": [
                asdict(one) | {"level": _plain_label(one.level)} for one in self.groups
            ],
            "n_rows": self.n_rows,
            "rows_released": self.rows_released,
            "model": self.model,
            "target": self.target,
            "classes": [_plain_label(level) for level in self.classes],
            "confidence": self.confidence,
            "notes": list(self.notes),
            "privacy": {
                "claim": str(record).partition("\n")[0],
                "epsilon": record.epsilon,
                "delta": record.delta,
                "spent_epsilon": record.spent_epsilon,
                "neighbours": record.neighbours,
                "unit": record.unit,
                "released": released_digest(record),
                "releases": [
                    asdict(event) | {"times": times}
                    for event, times in record.events.items()
                ],
            },
        }

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # for notebooks

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [
            *self._list_scores(),
            *self._list_confusion(),
            *self._list_calibration(),
            *self._list_groups(),
        ]
        return "\n".join([*lines, *self.notes, str(self.privacy_)])

    def _list_scores(self) -> Iterator[str]:
        level, first = f"{self.confidence:.0%}", max(map(len, self.scores), default=0)
        for name, score in self.scores.items():
            shown = TOO_NOISY if score.too_noisy else f"{score.value:8.4f}"
            yield (
                f"{name:<{first}}  {shown:<8}  {level} in [{score.low:.4f}, "
                f"{score.high:.4f}]  (noise ±{score.noise_std:.2g}, sampling "
                f"±{score.sampling_std:.2g})"
            )

    def _list_confusion(self) -> Iterator[str]:
        if self.confusion is None:
            return
        names = [str(level) for level in self.confusion.classes]
        first = max(len("true class"), *map(len, names))
        widths = [max(len(name), 9) for name in names]
        yield (
            "confusion matrix (columns: predicted class), each count with noise "
            f"±{self.confusion.noise_std:.0f}"
        )
        yield f"{'true class':<{first}}" + "".join(
            f"  {name:>{width}}" for name, width in zip(names, widths, strict=True)
        )
        for name, counts in zip(names, self.confusion.counts, strict=True):
            yield f"{name:<{first}}" + "".join(
                f"  {count:>{width}.0f}"
                for count, width in zip(counts, widths, strict=True)
            )

    def _list_calibration(self) -> Iterator[str]:
        if not self.calibration:
            return
        level = f"{self.confidence:.0%}"
        counted = name_record(self.privacy_.unit)
        yield f"predicted  observed  {level:<16}  {counted}s"
        for one in self.calibration:
            rate = "-" if one.too_noisy else f"{one.rate:.3f}"
            between = f"[{one.rate_low:.3f}, {one.rate_high:.3f}]"
            yield f"{one.predicted:9.3f}  {rate:>8}  {between:<16}  {one.count:.0f}"
        if any(one.too_noisy for one in self.calibration):
            yield f"-: {TOO_NOISY}"

    def _list_groups(self) -> Iterator[str]:
        if self.by is None:
            return
        level, counted = f"{self.confidence:.0%}", name_record(self.privacy_.unit)
        levels = [NO_LEVEL if g.level is None else str(g.level) for g in self.groups]
        first = max(len(self.by), *map(len, levels))
        many = [f"{g.n_rows:,.0f} ±{g.n_rows_std:.0f}" for g in self.groups]
        wide = max(len(counted) + 1, *map(len, many))
        for name in self.scores:
            yield f"{self.by:<{first}}  {counted + 's':>{wide}}  {name}"
            for shown, count, group in zip(levels, many, self.groups, strict=True):
                score = group.scores[name]
                value = TOO_NOISY if score.too_noisy else f"{score.value:8.4f}"
                yield (
                    f"{shown:<{first}}  {count:>{wide}}  {value:<8}  {level} in "
                    f"[{score.low:.4f}, {score.high:.4f}]"
                )


def _plain_label(level: Any) -> Any:
    """Return a class label as one of Python's own types."""
    return level.item() if hasattr(level, "item") else level


def draw_scores(found: Evaluation, axes: Any = None) -> Any:
    """Draw the curves of an evaluation, each on axes of its own; return the figure."""
    drawings = [draw_roc] if found.roc else []
    drawings += [draw_calibration] if found.calibration else []
    check(
        bool(drawings),
        "There is nothing to draw. Request the metrics 'auc' or 'calibration', which "
        "classifiers of two classes have.",
    )
    if axes is None:
        with plots.drawing():
            figure = plots.make_figure(10.0 + 290.0 * len(drawings), 290.0)
            for place, draw in enumerate(drawings):
                left = 50.0 + 290.0 * place
                size = 220.0, 210.0
                draw(found, plots.add_panel(figure, left, 34.0, *size, has_axes=True))
        return figure
    flat = np.atleast_1d(axes).ravel()
    check(
        len(flat) >= len(drawings),
        f"axes must have one entry per curve ({len(drawings)}), got {len(flat)}.",
    )
    for draw, ax in zip(drawings, flat, strict=False):
        draw(found, plots.use_axes(ax))
    return flat[0].figure


def draw_roc(found: Evaluation, panel: plots.Panel) -> None:
    """Draw the released points of the ROC curve on axes from 0 to 1."""
    names = (f"share of {_name_class(found, k)} above the margin" for k in (0, 1))
    _draw_square(panel, plots.scale_linearly(0.0, 1.0, 6), *names)
    panel.draw_lines([found.roc], plots.ACCENT, 1.4)
    _write_title(panel, "ROC curve", "AUC", found.scores.get("auc"))


def draw_calibration(found: Evaluation, panel: plots.Panel) -> None:
    """Draw the observed share of each bin, with its interval, over the predicted one.

    Both axes start at 0 and end at 1 or, if all rows are below .6, earlier.
    """
    kept = found.calibration
    top = max([0.05, *(v for one in kept for v in (one.predicted, one.rate_high))])
    scale = plots.scale_linearly(0.0, 1.0 if top > 0.6 else 1.1 * top, 6)
    name = _name_class(found, 1)
    _draw_square(panel, scale, f"predicted probability of {name}", f"share of {name}")
    for one in kept:
        color = plots.SOFT if one.too_noisy else plots.ACCENT
        x = scale(one.predicted)
        ends = [(x, scale(value)) for value in (one.rate_low, one.rate_high)]
        panel.draw_lines([ends], color, 1.4)
        panel.draw_dot(x, scale(one.rate), color, hollow=one.too_noisy)
    _write_title(panel, "Calibration", "ECE", found.scores.get("ece"))


def _draw_square(panel: plots.Panel, scale: plots.Axis, across: str, up: str) -> None:
    """Draw the grid of a square with a diagonal, and the names of both axes."""
    plots.draw_heights(panel, scale)
    plots.draw_heights(panel, scale, upright=False)
    panel.draw_lines([[(0.0, 0.0), (1.0, 1.0)]], plots.SOFT, 0.7)
    style = {"ha": "center", "color": plots.INK}
    panel.write(0.5, -0.14, across, **style)
    panel.write(-0.16, 0.5, up, rotation=90, **style)


def _write_title(
    panel: plots.Panel, title: str, name: str, score: Score | None
) -> None:
    if score is not None:
        shown = TOO_NOISY if score.too_noisy else f"{score.value:.3f}"
        title += f": {name} {shown} [{score.low:.3f}, {score.high:.3f}]"
    style = {"color": plots.INK, "fontsize": plots.LARGE, "weight": "bold"}
    panel.write(0.0, 1.06, title, **style)


def _name_class(found: Evaluation, code: int) -> str:
    """Return the label of a class, or its code if the labels are not known."""
    label = found.classes[code] if found.classes else code
    return shorten(label, 24) if isinstance(label, str) else f"class {label}"
