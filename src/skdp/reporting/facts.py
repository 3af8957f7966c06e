"""Collect the facts that a report lists: what was fitted or scored, and what it cost.

All of these facts are public or released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skdp.descent import level
from skdp.estimators import balanced, record_weights
from skdp.estimators.formatting import format_number, shorten
from skdp.evaluation.results import Evaluation
from skdp.planning.plan import Plan, name_row_count
from skdp.planning.plan_files import find_geometry, plan_summary
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.reporting.statement import describe_neighbours
from skdp.schema import Column, Numeric, check, count_in_words, name_record

#: The purposes of releases, in the order in which a fit makes them. Each purpose has a
#: test that recognises it by the description of the query.
PURPOSES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("Number of rows", lambda query: query == name_row_count("rows")),
    ("Number of persons", lambda query: query == name_row_count("persons")),
    ("Ranges, found in the table", lambda query: query.startswith("magnitudes of")),
    ("Categories, found in the table", lambda query: query.startswith("categories of")),
    ("Knots, placed where the rows are", lambda query: query.startswith("shares of")),
    ("Weights of the classes", lambda query: query.endswith(balanced.QUERY_END)),
    ("Weights of the rows", lambda query: query == record_weights.QUERY),
    ("Gram matrix of the columns", lambda query: query.endswith("Gram matrix")),
    (
        "Histogram of the target",
        lambda query: query.startswith(("counts of", "histogram of the target")),
    ),
    ("Gradients, the steps of the fit", lambda query: query.startswith("gradient")),
    ("Correction of the intercept", lambda query: query == level.QUERY),
    ("Scores", lambda query: query.startswith("scores (")),
)
UNSPENT = "Not spent"
#: Kinds of columns that are named by adjectives, which have no plural.
ADJECTIVES = ("numeric", "categorical")
#: A remaining share of the budget is listed only if it is larger than this.
LITTLE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """The releases for one purpose, and their cost.

    `share` is the share of the budget that the releases cost together, or nan if the
    budget is infinite.
    """

    name: str
    times: int
    mu_squared: float
    delta: float
    share: float
    spent: bool = True


def name_purpose(query: str) -> str:
    """Return the purpose of a release, given the description of its query."""
    for name, fits in PURPOSES:
        if fits(query):
            return name
    return query[:1].upper() + query[1:]


def group_by_purpose(record: PrivacyRecord) -> list[Purpose]:
    """Group a record's releases by purpose, and list the unspent budget last."""
    groups: dict[str, list[tuple[Event, int]]] = {}
    for event, times in record.events.items():
        groups.setdefault(name_purpose(event.query), []).append((event, times))
    found = []
    for name, events in groups.items():
        cost = math.fsum(times * event.mu_squared for event, times in events)
        found.append(
            Purpose(
                name=name,
                times=sum(times for _, times in events),
                mu_squared=cost,
                delta=math.fsum(times * event.delta for event, times in events),
                share=cost / record.budget if record.budget < math.inf else math.nan,
            )
        )
    left = 1.0 - math.fsum(one.share for one in found)
    if left > LITTLE:
        found.append(
            Purpose(
                name=UNSPENT,
                times=0,
                mu_squared=left * record.budget,
                delta=0.0,
                share=left,
                spent=False,
            )
        )
    return found


#: Parameters that are listed if they differ from their defaults. The page states all
#: others elsewhere.
SETTINGS = (
    *("alpha", "l1_ratio", "fit_intercept", "class_weight", "max_weight", "sampling"),
    *("geometry", "n_steps", "slope_bound", "calibration"),
)
#: Largest number of characters that describe a column, and of columns on a page.
LONGEST, MOST_COLUMNS = 500, 500


def describe_fit(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each fact about a fit."""
    schema, record = model.schema_, model.privacy_
    yield "Model", f"{model.title} ({type(model).__name__})"
    target = f"{schema.target_name}: " if schema.target_name else ""
    yield "Target", target + describe_column(schema.target_column)
    kinds = Counter(_kind(column) for column in schema.columns.values())
    each = ", ".join(
        count_in_words(f"{times:,}", name, name if name in ADJECTIVES else None)
        for name, times in kinds.items()
    )
    n = sum(group.kind != "ones" for group in model._layout.groups)
    weights = model.weights_.size
    coefficients = count_in_words(f"{weights:,}", "coefficient")
    yield "Columns", f"{n:,} ({each}); {coefficients}"
    if schema.unit is not None:
        yield "Unit", describe_unit(model)
    yield name_record(record.unit).title() + "s", ", ".join(describe_rows(model))
    yield (
        "Budget",
        f"ε = {format_number(record.epsilon)}, δ = {format_number(record.delta)}",
    )
    yield "Neighbouring tables", f"{record.neighbours}: {describe_neighbours(record)}"
    yield "Method", _method(model)
    settings = _settings(model)
    if settings:
        yield "Settings that differ from the default", settings
    if model.ledger is not None:
        yield "Ledger", "charged to a ledger, which keeps the data set's total budget"


def describe_unit(model: Any) -> str:
    """Describe how the rows of a person are weighted."""
    most = model.max_rows_per_unit
    if most == 1:
        return (
            f"{model.privacy_.unit}; every person counts as one record, with any "
            "number of rows"
        )
    return (
        f"{model.privacy_.unit}; every row counts as at most 1/{most} of a record, and "
        "every person as at most one record"
    )


def describe_rows(model: Any) -> tuple[str, str]:
    """Return the number of rows or persons, and the reason why it may be shown."""
    plan, record = model.plan_, model.privacy_
    count = plan.n_rows if isinstance(plan, Plan) else plan.get("n_rows")
    check(
        isinstance(count, int),
        f"n_rows of the model's plan must be an integer, got {count!r}.",
    )
    if record.neighbours != "add-remove":
        return f"{count:,}", "a public number"
    counted = f"Number of {name_record(record.unit)}s"
    if any(one.name == counted for one in group_by_purpose(record)):
        return f"{count:,}", "approximate, because released with noise"
    return f"{count:,}", "given as public"


def describe_column(column: Column) -> str:
    """Describe a column in at most `LONGEST` characters."""
    return shorten(f"{column.title}: {column.describe()}", LONGEST)


def describe_columns(model: Any) -> list[tuple[str, str]]:
    """Return the name and description of each of the first `MOST_COLUMNS` columns."""
    listed = list(model.schema_.columns.items())
    return [
        (str(name), describe_column(column)) for name, column in listed[:MOST_COLUMNS]
    ]


def _kind(column: Column) -> str:
    curve = isinstance(column, Numeric) and column.n_knots is not None
    return "curve" if curve else column.title


def _method(model: Any) -> str:
    plan = plan_summary(model.plan_)
    steps = count_in_words(f"{model.n_iter_:,}", "step")
    if "solver" in plan:
        return f"solver {plan['solver']!r}, {steps}"
    for name in ("l2", "l1"):
        strength = plan.get(name)
        if isinstance(strength, float) and strength:
            steps += f"; penalty {name} {format_number(strength)}"
    return f"DP-SkGD {find_geometry(plan).title}; {steps}"


def _settings(model: Any) -> str:
    default, listed = type(model)(), []
    for name in SETTINGS:
        value = getattr(model, name)
        if value is getattr(default, name) or value == getattr(default, name):
            continue
        plain = isinstance(value, (str, int, float, Mapping))
        listed.append(f"{name} = {shorten(str(value)) if plain else 'an object'}")
    return ", ".join(listed)


def describe_evaluation_rows(found: Evaluation) -> tuple[str, str]:
    """Return the number of rows, and the reason why it may be shown."""
    count = f"{found.n_rows:,.0f}"
    if found.rows_released:
        return count, "approximate, because released with noise"
    given = found.privacy_.neighbours == "add-remove"
    return count, "given as public" if given else "a public number"


def title_evaluation(found: Evaluation) -> str:
    """Return the title of a page about an evaluation."""
    target = f" of {found.target}" if found.target else ""
    return f"Evaluation of {found.model}{target}"


def describe_evaluation(found: Evaluation) -> list[tuple[str, str]]:
    """Return the name and the value of each fact about an evaluation."""
    record = found.privacy_
    target = [("Target", found.target)] if found.target else []
    listed = [
        ("Model", found.model),
        *target,
        ("Scores", ", ".join(found.scores) or "calibration alone"),
        (
            name_record(record.unit).title() + "s",
            ", ".join(describe_evaluation_rows(found)),
        ),
        (
            "Budget",
            f"ε = {format_number(record.epsilon)}, δ = {format_number(record.delta)}",
        ),
        (
            "Neighbouring tables",
            f"{record.neighbours}: {describe_neighbours(record)}",
        ),
    ]
    return listed + [("Note", note) for note in found.notes]
