"""A fitted model as a table: what statisticians look at first."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from skdp.estimators.constant import constant_model
from skdp.estimators.doubts import doubts
from skdp.estimators.standard_errors import StandardErrors, class_effects, effects
from skdp.schema import Numeric

#: Of a standard normal: 95 % lie within.
Z = 1.959964
HEAD = ("coef", "privacy", "std err", "z", "[0.025", "0.975]")
ERRORS = (
    "std err: sampling and privacy together; privacy: noise of the mechanism alone."
)
CATEGORIES = (
    "Categories are relative to the mean of their column, which the intercept holds."
)
INTERVALS = (
    "Intervals take the model as true: they do not cover a wrong form, values clipped "
    "to their ranges, records that were chosen, nor several looks at one table."
)
UNTOLD = (
    "No standard error: the effect cannot be told, because noise hides how much the "
    "column varies. Where public knowledge allows it, narrow the column's range or "
    "merge rare categories; or use more rows."
)
CLASSES = "Classes are relative to their mean, which changes no prediction."
#: Classes beside each other; more of them follow below.
MOST_COLUMNS = len(HEAD)
#: Columns on a log scale that a note names; more are counted.
MOST_NAMES = 4


@dataclass(frozen=True)
class Line:
    """One coefficient; numbers that are not known are nan.

    The standard error is infinite where the effect cannot be told.
    """

    column: str
    label: str
    coef: float
    noise_std: float
    std: float

    @property
    def z(self) -> float:
        """The coefficient over its standard error."""
        return self.coef / self.std if 0 < self.std < math.inf else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval."""
        return self.coef - Z * self.std, self.coef + Z * self.std

    def cells(self) -> list[str]:
        """Return the numbers as they are printed; one that is not known is empty."""
        numbers = [self.coef, self.noise_std, self.std, self.z, *self.interval]
        return [_written(v, 2 if i == 3 else None) for i, v in enumerate(numbers)]


@dataclass(frozen=True)
class ClassLine:
    """The coefficients of all classes; their errors are not known."""

    column: str
    label: str
    coefs: tuple[float, ...]

    def cells(self) -> list[str]:
        """Return the numbers as they are printed."""
        return [_written(coef, None) for coef in self.coefs]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What `summary()` returns: lines by column, and text or HTML made of them."""

    title: str
    facts: tuple[str, ...]
    head: tuple[str, ...] = HEAD
    lines: tuple[Line, ...] | tuple[ClassLine, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        rows = [("", [*self.head]), *self._table()]
        first = max(len(label) for label, _ in rows)
        widths = [
            max(len(cells[i]) for _, cells in rows if cells)
            for i in range(len(self.head))
        ]
        starts = range(0, len(widths), MOST_COLUMNS)
        parts = [slice(start, start + MOST_COLUMNS) for start in starts]
        total = first + max(sum(w + 2 for w in widths[part]) for part in parts)
        text = [self.title, *(w for f in self.facts for w in textwrap.wrap(f, total))]
        for part in parts:
            head, *body = (
                f"{label:<{first}}"
                + "".join(
                    f"  {cell:>{width}}"
                    for cell, width in zip(cells[part], widths[part], strict=False)
                )
                for label, cells in rows
            )
            text += ["=" * total, head, "-" * total, *map(str.rstrip, body)]
        notes = [line for note in self.notes for line in textwrap.wrap(note, total)]
        return "\n".join([*text, "=" * total, *notes])

    def _table(self) -> Iterator[tuple[str, list[str]]]:
        """Label and cells of each printed line; a column's name has no cells."""
        last = None
        for line in self.lines:
            if line.column != line.label and line.column != last:
                yield line.column, []
            last = line.column
            inside = line.column != line.label
            yield ("  " if inside else "") + line.label, line.cells()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def row(tag: str, label: str, cells: list[str] | tuple[str, ...]) -> str:
            kept = [*cells] or [""] * len(self.head)
            inner = "".join(
                f"<{tag} style='text-align:right'>{html.escape(c)}</{tag}>"
                for c in kept
            )
            name = html.escape(label).replace("  ", "&emsp;", 1)
            return f"<tr><th style='text-align:left'>{name}</th>{inner}</tr>"

        body = "".join(row("td", label, cells) for label, cells in self._table())
        words = "<br>".join(html.escape(n) for n in self.notes)
        facts = "<br>".join(html.escape(f) for f in self.facts)
        return (
            f"<table><caption><b>{html.escape(self.title)}</b><br>{facts}</caption>"
            f"<thead>{row('th', '', self.head)}</thead><tbody>{body}</tbody></table>"
            f"<p><small>{words}</small></p>"
        )


def summary(model: Any) -> Summary:
    """Return the table of a fitted model."""
    check_is_fitted(model, "weights_")
    known = model._standard_errors()
    layout, record = model._layout, model.privacy_
    names = [
        (group.name, label.removeprefix(f"{group.name}="))
        for group in layout.groups
        for label in group.labels
    ]
    if layout.groups[-1].kind != "ones":
        names.append(("intercept", "intercept"))
    plan = model.plan_
    n_rows = plan["n_rows"] if isinstance(plan, dict) else plan.n_rows
    epsilon = "∞" if math.isinf(record.epsilon) else f"{record.epsilon:g}"
    claim = f"ε {epsilon}, δ {record.delta:g}, {record.neighbours} neighbours"
    released = model.neighbours == "add-remove" and model.n_rows is None
    about = "about " if released else ""
    facts = [f"{about}{n_rows:,} rows; {claim}; {model.n_iter_} steps."]
    if record.seeded or math.isinf(record.epsilon):
        facts.append(str(record).splitlines()[0])
    head: tuple[str, ...] = HEAD
    lines: tuple[Line, ...] | tuple[ClassLine, ...]
    if isinstance(known, StandardErrors):
        columns = (known.effects, known.effects_noise_std, known.effects_std)
        lines = tuple(
            Line(*name, *map(float, numbers))
            for name, *numbers in zip(names, *columns, strict=True)
        )
    elif model.weights_.shape[1] == 1:
        lines = tuple(
            Line(*name, coef, math.nan, math.nan)
            for name, coef in zip(names, effects(model).tolist(), strict=True)
        )
    else:
        head = tuple(str(level) for level in model.classes_)
        lines = tuple(
            ClassLine(*name, tuple(coefs))
            for name, coefs in zip(names, class_effects(model).tolist(), strict=True)
        )
    before, after = ([known], []) if isinstance(known, str) else ([ERRORS], [INTERVALS])
    constant = constant_model(model)
    first = () if constant is None else (constant,)
    first = (*first, *doubts(model), *before)
    notes = (*first, *untold_notes(known), *unit_notes(model), *after)
    target = model.schema_.target
    title = type(model).__name__ + (
        f" of {target[0]}" if isinstance(target, tuple) else ""
    )
    return Summary(title=title, facts=tuple(facts), head=head, lines=lines, notes=notes)


def unit_notes(model: Any) -> Iterator[str]:
    """Say what coefficients are relative to, and per unit of, as far as it applies."""
    if model.weights_.shape[1] > 1:
        yield CLASSES
    groups = model._layout.groups
    # Without an intercept nothing holds their mean, and they stand as they are.
    if groups[-1].kind == "ones" and any(group.kind == "code" for group in groups):
        yield CATEGORIES
    columns = model.schema_.columns.items()
    on_log = [str(name) for name, column in columns if on_log_scale(column)]
    if on_log:
        more = len(on_log) - MOST_NAMES
        others = f" and {more} more" if more > 0 else ""
        named = ", ".join(on_log[:MOST_NAMES])
        yield f"{named}{others}: per unit of log(1 + value - low), low of the schema."


def untold_notes(known: StandardErrors | str) -> Iterator[str]:
    """Say what it means that some effects cannot be told."""
    if isinstance(known, StandardErrors) and math.isinf(known.effects_std.max()):
        yield UNTOLD


def on_log_scale(column: Any) -> bool:
    """Whether a column's coefficient is per unit of a logarithm."""
    return isinstance(column, Numeric) and column.scale == "log" and not column.bins


def _written(value: float, places: int | None) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.{places}f}" if places is not None else f"{value:.4g}"
