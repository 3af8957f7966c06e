"""Tabulate coefficients, their errors and tests, as statisticians expect them."""

from __future__ import annotations

import html
import itertools
import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr
from sklearn.utils.validation import check_is_fitted

from skdp.estimators.fit_warnings import describe_constant, describe_doubts
from skdp.estimators.standard_errors import (
    MOST_WITH_PAIRS,
    StandardErrors,
    compute_class_effects,
    find_computed,
    find_reference_rows,
)
from skdp.estimators.weights import describe_clipped
from skdp.schema import Numeric, check, count_in_words, name_record

# ---- Define the lines of a summary
#
# A line shows a coefficient, its exponential, the coefficients of all classes, or a
# term (column or pair) of an additive model.


#: The name of the intercept, in print and in frames.
INTERCEPT = "Intercept"
#: A standard normal lies within ±Z with a probability of 95 %.
Z = 1.959964


@dataclass(frozen=True)
class Line:
    """A line of a summary, about one coefficient.

    Unknown numbers are nan. The standard error is infinite if noise hides the effect.
    It covers sampling, privacy, shrinkage and capped slopes together. With three
    classes or more, `output` is the class.
    """

    column: str
    label: str
    coef: float
    sampling_std: float
    noise_std: float
    std: float
    output: str = ""

    @property
    def z(self) -> float:
        """The coefficient divided by its standard error, or nan if unknown."""
        return self.coef / self.std if 0 < self.std < math.inf else math.nan

    @property
    def p(self) -> float:
        """Probability of a larger |z| if the true coefficient were 0, or nan."""
        return float(2.0 * ndtr(-abs(self.z)))

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval."""
        return self.coef - Z * self.std, self.coef + Z * self.std

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers by name. Unknown and infinite numbers become None."""
        low, high = self.interval
        numbers = {
            "coef": self.coef,
            "sampling_std": self.sampling_std,
            "noise_std": self.noise_std,
            "std": self.std,
            "z": self.z,
            "p": self.p,
            "low": low,
            "high": high,
        }
        names = {"column": self.column, "label": self.label}
        own = {"class": self.output} if self.output else {}
        return own | names | _keep_finite(numbers)

    def list_numbers(self) -> dict[str, float]:
        """Return the numbers by the names that are printed above them."""
        stds = self.sampling_std, self.noise_std, self.std
        numbers = self.coef, *stds, self.z, self.p, *self.interval
        return dict(zip(HEAD, numbers, strict=True))

    def format_cells(self) -> list[str]:
        """Format the numbers. Unknown and infinite numbers become empty strings."""
        return [format_cell(*number) for number in self.list_numbers().items()]


class RatioLine(Line):
    """A line of a summary, about the exponential of a coefficient.

    z and p belong to the coefficient. A ratio whose interval is unknown is not shown.
    """

    @property
    def ratio(self) -> float:
        """The exponential of the coefficient, or nan if its interval is unknown."""
        return _exponentiate(self.coef) if math.isfinite(self.std) else math.nan

    @property
    def ratio_interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of the ratio."""
        low, high = self.interval
        return _exponentiate(low), _exponentiate(high)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the coefficient, and the ratio with its interval."""
        low, high = self.ratio_interval
        numbers = {"ratio": self.ratio, "ratio_low": low, "ratio_high": high}
        return super().to_dict() | _keep_finite(numbers)

    def list_numbers(self) -> dict[str, float]:
        """Return the ratio, z, p and the interval of the ratio."""
        numbers = self.ratio, self.z, self.p, *self.ratio_interval
        return dict(zip(("ratio", *HEAD[4:]), numbers, strict=True))


@dataclass(frozen=True)
class ClassLine:
    """A line of a summary: the coefficients of all classes, without standard errors."""

    column: str
    label: str
    coefs: tuple[float, ...]
    output: ClassVar[str] = ""

    def format_cells(self) -> list[str]:
        """Format the numbers."""
        return [_format_number(coef, None) for coef in self.coefs]

    def to_dict(self) -> dict[str, Any]:
        """Return the coefficients of all classes, in the order of the classes."""
        return {"column": self.column, "label": self.label, "coefs": list(self.coefs)}


@dataclass(frozen=True, kw_only=True)
class TermLine:
    """A line of the summary of an additive model: a column, a pair or the intercept.

    Attributes
    ----------
    column : str
        The name of the column or of the pair.
    points : int
        The number of knots or levels, or of their combinations in a pair. It is 1 for
        the intercept.
    lowest, highest : float
        The smallest and the largest effect.
    at : str
        The point with the largest absolute effect, among those whose standard error is
        known. If no standard error is known, all points are compared.
    effect, std : float
        The effect at this point and its standard error, which is nan or infinite if it
        is unknown.
    output : str
        With three classes or more, the class.
    is_ratio : bool
        Whether the exponentials of effects are shown.
    """

    column: str
    points: int
    lowest: float
    highest: float
    at: str
    effect: float
    std: float
    output: str = ""
    is_ratio: bool = False

    @property
    def label(self) -> str:
        """The name of the line, which is the name of the column or pair."""
        return self.column

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of the effect."""
        return self.effect - Z * self.std, self.effect + Z * self.std

    @property
    def is_told(self) -> bool:
        """Whether the effect has an interval."""
        return math.isfinite(self.std)

    def _list_numbers(self) -> tuple[float, ...]:
        """Return lowest, highest, effect and its interval.

        If `is_ratio`, the effect and its interval become ratios. The others have no
        interval of their own, so they become nan, and so do all of them if the effect
        has no interval.
        """
        numbers = (self.lowest, self.highest, self.effect, *self.interval)
        if not self.is_ratio:
            return numbers
        effect = _exponentiate(self.effect) if self.is_told else math.nan
        return math.nan, math.nan, effect, *map(_exponentiate, self.interval)

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name. Unknown and infinite numbers become None."""
        names = ["lowest", "highest", "effect", "low", "high"]
        numbers = [self.lowest, self.highest, self.effect, *self.interval]
        if self.is_ratio:
            names += [f"ratio_{name}" for name in names]
            numbers += self._list_numbers()
        kept = _keep_finite(dict(zip(names, numbers, strict=True)))
        about = {"column": self.column, "points": self.points, "at": self.at}
        return ({"class": self.output} if self.output else {}) | about | kept

    def format_cells(self) -> list[str]:
        """Format the values. Unknown and infinite numbers become empty strings."""
        lowest, highest, effect, low, high = (
            _format_number(value) for value in self._list_numbers()
        )
        if self.points == 1:
            return ["", "", "", "", effect, low, high]
        return [str(self.points), lowest, highest, self.at, effect, low, high]


def _keep_finite(numbers: dict[str, float]) -> dict[str, float | None]:
    return {name: v if math.isfinite(v) else None for name, v in numbers.items()}


def _exponentiate(value: float) -> float:
    return math.exp(min(value, 700.0)) if math.isfinite(value) else math.inf


def format_cell(name: str, value: float) -> str:
    """Format the number of a column. Unknown numbers become empty strings."""
    return _format_number(value, PLACES.get(name))


def _format_number(value: float, places: int | None = None) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.{places}f}" if places is not None else f"{value:.4g}"


# ---- Make the table of coefficients and intervals that `model.summary()` returns


#: The names of the numbers of a coefficient, in print and in frames.
HEAD = ("coef", "sampling", "privacy", "std err", "z", "p", "[0.025", "0.975]")
#: Numbers of decimal places. Other numbers have four significant digits.
PLACES = {"z": 2, "p": 3}
TERM_HEAD = ("points", "lowest", "highest", "largest at", "effect", *HEAD[-2:])
#: The name of exp(coefficient), for models in which it is a ratio.
RATIOS = {"logit": "odds ratio", "log": "rate ratio"}
ERRORS = (
    "The columns sampling and privacy are the errors from drawing the rows and from "
    "the noise. std err covers both. It also covers shrinkage, capped slopes and its "
    "own uncertainty due to noise. z and p use std err, so a large p may only mean "
    "noise."
)
#: Notes that explain ratios, for coefficients and for the terms of an additive model.
#: The braces are replaced by an entry of `CHANGES`.
RATIO = (
    "A ratio is the factor by which {} if the column rises by one unit. For a "
    "category, it compares the category with the mean of its column, or with its "
    "reference if it has one."
)
TERM_RATIO = (
    "Effects are shown as factors by which {}, compared with the mean. The lowest and "
    "the highest effect have no interval, so they are not shown as factors."
)
CHANGES = {"logit": "the odds of {} change", "log": "the expected count changes"}
RATIO_ERRORS = (
    "z and p test whether the ratio is 1, which means no effect. z, p and the "
    "intervals allow for sampling error and privacy noise together. The noise makes z "
    "smaller, so a large p may only mean noise."
)
CATEGORIES = (
    "Categories are relative to the mean of their column, which is in the intercept."
)
INTERVALS = (
    "Intervals assume that the model is true. They do not account for a wrong model, "
    "clipped values, selected records or repeated analyses of one table."
)
HIDDEN = (
    "There is no standard error where noise hides how much the column varies. Use more "
    "rows or, if public knowledge allows it, narrow the column's range or merge rare "
    "categories."
)
TERMS = (
    "Each line describes a curve, a column of categories or a pair. It shows the "
    "lowest and the highest effect over all points, and the largest effect in size "
    "with its 95 % interval. If only some points have an interval, the largest effect "
    "is chosen among these. Because it was chosen as the largest, its interval covers "
    "the true effect less often than 95 %. The mean effect over the rows is about 0. "
    "summary().to_frame() and --json have all {:,} coefficients."
)
NO_PAIRS = (
    f"Pairs have no intervals if a model has more than {MOST_WITH_PAIRS} coefficients."
)
CLASSES = "Coefficients of classes are relative to the mean over all classes."
#: Notes are printed at least this wide, even if the table is narrower.
LEAST_WIDTH = 79
#: Largest number of classes that are printed side by side. The others follow below.
MOST_COLUMNS = 6
#: Largest number of log-scale columns that a note names. The others are only counted.
MOST_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The summary of a model. Print it, show it in a notebook, or read its numbers.

    Attributes
    ----------
    title : str
        The name of the model's class, and the name of the target if there is one.
    facts, notes : tuple of str
        Sentences above and below the table.
    head : tuple of str
        The names of the columns.
    lines : tuple
        The coefficients, with one line for each.
    terms : tuple
        For an additive model, one line for each curve, column of categories and pair.
        These lines are then printed instead of the coefficients.
    """

    title: str
    facts: tuple[str, ...]
    head: tuple[str, ...] = HEAD
    lines: tuple[Line, ...] | tuple[ClassLine, ...]
    terms: tuple[TermLine, ...] = ()
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all texts and numbers as plain values."""
        return {
            "title": self.title,
            "facts": list(self.facts),
            "head": list(self.head),
            "coefficients": [line.to_dict() for line in self.lines],
            "terms": [line.to_dict() for line in self.terms],
            "notes": list(self.notes),
        }

    def to_frame(self) -> Any:
        """Return the lines as a pandas frame, with one row per coefficient.

        The columns have the names that are printed. The index has the name of the
        column and the label of the coefficient, such as a level. With three or more
        classes, the index starts with the class if there are standard errors. If there
        are none, the frame has one column for each of these classes. Unknown numbers
        are missing values, also where `str` leaves out a column of them.
        """
        from skdp.tables.readers import import_library

        rows: list[dict[str, Any]] = []
        for line in self.lines:
            own = {"class": line.output} if line.output else {}
            numbers = (
                line.coefs
                if isinstance(line, ClassLine)
                else _keep_finite(line.list_numbers()).values()
            )
            names = own | {"column": line.column, "label": line.label}
            rows.append(names | dict(zip(self.head, numbers, strict=True)))
        index = [name for name in ("class", "column", "label") if name in rows[0]]
        frame = import_library("pandas").DataFrame(rows).set_index(index)
        return frame.astype(float)

    def __str__(self) -> str:
        head, tables = self._make_tables()
        rows = [(name, [*head]) for name in tables]
        rows += [row for table in tables.values() for row in table]
        first = max(len(label) for label, _ in rows)
        widths = [
            max(len(cells[i]) for _, cells in rows if cells) for i in range(len(head))
        ]
        by_class = any(isinstance(line, ClassLine) for line in self._printed)
        many = MOST_COLUMNS if by_class else len(widths)
        parts = [slice(start, start + many) for start in range(0, len(widths), many)]
        total = first + max(sum(w + 2 for w in widths[part]) for part in parts)
        wide = max(total, LEAST_WIDTH)
        text = [self.title, *(w for f in self.facts for w in textwrap.wrap(f, wide))]
        for (output, table), part in itertools.product(tables.items(), parts):
            first_line, *body = (
                f"{label:<{first}}"
                + "".join(
                    f"  {cell:>{width}}"
                    for cell, width in zip(cells[part], widths[part], strict=False)
                )
                for label, cells in [(output, [*head]), *table]
            )
            text += ["=" * total, first_line, "-" * total, *map(str.rstrip, body)]
        notes = [line for note in self.notes for line in textwrap.wrap(note, wide)]
        return "\n".join([*text, "=" * total, *notes])

    @property
    def _outputs(self) -> list[str]:
        """The classes that lines belong to, or [""] if lines belong to no class."""
        return list(dict.fromkeys(line.output for line in self._printed))

    @property
    def _printed(self) -> tuple[Line | ClassLine | TermLine, ...]:
        """The lines that are printed: terms if there are any, else coefficients."""
        return self.terms or self.lines

    def _make_tables(
        self,
    ) -> tuple[list[str], dict[str, list[tuple[str, list[str]]]]]:
        """Return the names of the columns, and the rows of each class.

        Columns that are empty in every row, such as those of intervals that are not
        known, are left out.
        """
        head = self.head
        if self.terms:
            ratio = [self.head[0]] if self.terms[0].is_ratio else ["effect"]
            head = (*TERM_HEAD[:4], *ratio, *TERM_HEAD[5:])
        tables = {output: self._list_rows(output) for output in self._outputs}
        rows = [cells for table in tables.values() for _, cells in table if cells]
        kept = [i for i in range(len(head)) if any(cells[i] for cells in rows)]
        return [head[i] for i in kept], {
            output: [
                (label, [cells[i] for i in kept] if cells else [])
                for label, cells in table
            ]
            for output, table in tables.items()
        }

    def _list_rows(self, output: str) -> list[tuple[str, list[str]]]:
        """Return the label and the cells of each printed line of the class `output`.

        If a column has several lines, its name comes first, on a line without cells.
        """
        last, rows = None, list[tuple[str, list[str]]]()
        for line in self._printed:
            if line.output != output:
                continue
            inside = line.column != line.label
            if inside and line.column != last:
                rows.append((line.column, []))
            last = line.column
            rows.append((("  " if inside else "") + line.label, line.format_cells()))
        return rows

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head, by_output = self._make_tables()

        def row(tag: str, label: str, cells: list[str]) -> str:
            kept = cells or [""] * len(head)
            inner = "".join(
                f"<{tag} style='text-align:right'>{html.escape(c)}</{tag}>"
                for c in kept
            )
            name = html.escape(label).replace("  ", "&emsp;", 1)
            return f"<tr><th style='text-align:left'>{name}</th>{inner}</tr>"

        tables = "".join(
            f"<thead>{row('th', output, head)}</thead><tbody>"
            + "".join(row("td", *each) for each in rows)
            + "</tbody>"
            for output, rows in by_output.items()
        )
        words = "<br>".join(html.escape(n) for n in self.notes)
        facts = "<br>".join(html.escape(f) for f in self.facts)
        return (
            f"<table><caption><b>{html.escape(self.title)}</b><br>{facts}</caption>"
            f"{tables}</table>"
            f"<p><small>{words}</small></p>"
        )


def summarise(model: Any, ratios: bool = False) -> Summary:
    """Return the summary of a fitted model, with exp(coefficient) if `ratios`."""
    check_is_fitted(model, "weights_")
    several = model.weights_.shape[1] > 1
    check(
        not ratios or (model.link in RATIOS and not several),
        "ratios=True requires a model of two classes (odds ratios) or of counts (rate "
        f"ratios), got a {type(model).__name__}"
        + (" of several classes." if several else "."),
    )
    known, terms = model._standard_errors(), model._list_terms(ratios)
    check(
        not ratios or not isinstance(known, str),
        f"Ratios are shown only with intervals, which are not known here. {known}",
    )
    layout, record = model._layout, model.privacy_
    names = [
        (group.name, shorten_label(group.name, label))
        for group in layout.groups
        if group.kind != "ones"
        for label in group.labels
    ]
    names.append((INTERCEPT, INTERCEPT))
    plan = model.plan_
    n_rows = plan["n_rows"] if isinstance(plan, dict) else plan.n_rows
    epsilon = "∞" if math.isinf(record.epsilon) else f"{record.epsilon:g}"
    claim = f"ε {epsilon}, δ {record.delta:g}, {record.neighbours} neighbours"
    released = model.neighbours == "add-remove" and model.n_rows is None
    about = "about " if released else ""
    records = count_in_words(f"{n_rows:,}", name_record(layout.unit))
    steps = count_in_words(model.n_iter_, "step")
    facts = [
        describe_modelled(model, "Effects" if terms else "Coefficients"),
        f"{about}{records}; {claim}; {steps}.",
    ]
    if record.seeded or math.isinf(record.epsilon):
        facts.append(str(record).splitlines()[0])
    head: tuple[str, ...] = HEAD
    effects = compute_class_effects(model)
    outputs = [str(level) for level in model.classes_] if several else [""]
    shown = np.flatnonzero(~find_reference_rows(model)).tolist()
    lines: tuple[Line, ...] | tuple[ClassLine, ...]
    if isinstance(known, str) and several:
        head = tuple(outputs)
        lines = tuple(ClassLine(*names[j], tuple(effects[j].tolist())) for j in shown)
    else:
        unknown = np.full_like(effects, math.nan)
        sampling_std, noise_std, std = (
            (unknown, unknown, unknown)
            if isinstance(known, str)
            else (
                known.effects_sampling_std,
                known.effects_noise_std,
                known.effects_std,
            )
        )
        lines = tuple(
            Line(
                column=names[j][0],
                label=names[j][1],
                coef=float(effects[j, k]),
                sampling_std=float(sampling_std[j, k]),
                noise_std=float(noise_std[j, k]),
                std=float(std[j, k]),
                output=output,
            )
            for k, output in enumerate(outputs)
            for j in shown
        )
    if ratios:
        head = (RATIOS[model.link], *HEAD[4:])
        lines = tuple(RatioLine(*_list_line(line)) for line in lines)
    constant = describe_constant(model)
    notes = [] if constant is None else [constant]
    notes += [*describe_doubts(model)]
    clipped = describe_clipped(model)
    notes += [] if clipped is None else [clipped]
    if terms:
        notes.append(TERMS.format(len(lines)))
    if ratios:
        changes = CHANGES[model.link].format(*getattr(model, "classes_", [])[1:])
        notes.append((TERM_RATIO if terms else RATIO).format(changes))
    if isinstance(known, str):
        notes.append(known)
    elif not terms:
        notes.append(RATIO_ERRORS if ratios else ERRORS)
    units = [CLASSES] * several if terms else note_units(model)
    notes += [*note_hidden(model), *units]
    if not isinstance(known, str):
        notes.append(INTERVALS)
    target = model.schema_.target
    title = type(model).__name__ + (
        f" of {target[0]}" if isinstance(target, tuple) else ""
    )
    return Summary(
        title=title,
        facts=tuple(facts),
        head=head,
        lines=lines,
        terms=terms,
        notes=tuple(notes),
    )


def shorten_label(column: str, label: str) -> str:
    """Return the name of a coefficient inside its column, such as a level or a knot."""
    if label.startswith(f"{column}@"):
        return f"at {label.removeprefix(f'{column}@')}"
    return label.removeprefix(f"{column}=")


def describe_modelled(model: Any, numbers: str = "Coefficients") -> str:
    """Return a sentence that says which quantity the numbers of a summary describe."""
    levels = getattr(model, "classes_", None)
    if levels is None:
        what = "mean of the target"
        what = f"logarithm of the {what}" if model.link == "log" else what
        what += " per unit of exposure" if model._exposed else ""
        return f"{numbers} describe the {what}."
    if len(levels) > 2:
        return f"{numbers} describe the log-probability of each class."
    scale = "the log-odds of class" if model.link == "logit" else "the margin of class"
    return f"{numbers} describe {scale} {levels[1]} against {levels[0]}."


def _list_line(line: Any) -> tuple[Any, ...]:
    stds = line.sampling_std, line.noise_std, line.std
    return line.column, line.label, line.coef, *stds


def note_units(model: Any) -> Iterator[str]:
    """Yield notes on what coefficients are relative to, and on their units."""
    if model.weights_.shape[1] > 1:
        yield CLASSES
    groups = model._layout.groups
    references = model._references
    # Without an intercept categories are not centred.
    if groups[-1].kind == "ones" and any(
        g.kind in ("code", "hats") and g.name not in references for g in groups
    ):
        yield CATEGORIES
    for name, place in [*references.items()][:MOST_NAMES]:
        level = model.schema_.columns[name].levels[place]
        yield f"The other categories of {name} are relative to {level}."
    if len(references) > MOST_NAMES:
        yield f"{len(references) - MOST_NAMES} more columns have a reference category."
    columns = model.schema_.columns.items()
    on_log = [str(name) for name, column in columns if is_on_log_scale(column)]
    if on_log:
        more = len(on_log) - MOST_NAMES
        others = f" and {more} more" if more > 0 else ""
        named = ", ".join(on_log[:MOST_NAMES])
        yield (
            f"{named}{others}: per unit of log(1 + value - low), where low is the "
            "lower end of the range."
        )
    if any(g.kind == "dense" and g.labels[-1] == f"{g.name}?" for g in groups):
        yield (
            "A name with a question mark is the effect of a missing cell, compared "
            "with a cell at the lower end of the range."
        )


def note_hidden(model: Any) -> Iterator[str]:
    """Yield a note if noise hides some effects, and one if pairs have no errors."""
    known = model._standard_errors()
    if isinstance(known, StandardErrors):
        computed = find_computed(model)
        if math.isinf(known.effects_std[computed].max()):
            yield HIDDEN
        if not computed.all():
            yield NO_PAIRS


def is_on_log_scale(column: Any) -> bool:
    """Return whether a column's coefficient is per unit of log(1 + value - low)."""
    number = isinstance(column, Numeric) and column.scale == "log"
    return number and column.kind == "dense"
