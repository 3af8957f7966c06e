"""What was fitted, from public and released facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from skdp.estimators import stored_model
from skdp.planning.plan import Plan
from skdp.reporting.purposes import purposes
from skdp.reporting.statement import RELATIONS
from skdp.reporting.words import number, plural, shortened
from skdp.schema import Categorical, Column, Numeric, Vector, check

#: In words, what each estimator is.
MODELS = {
    "LogisticRegression": "Logistic regression",
    "LinearSVC": "Linear support vector classifier",
    "LinearRegression": "Linear regression by least squares",
    "HuberRegressor": "Linear regression by Huber's loss",
    "PoissonRegressor": "Poisson regression of counts",
}
GEOMETRIES = {
    "Matrix": "DP-SkGD in the metric of a released Gram matrix",
    "Diagonal": "DP-SkGD in a diagonal metric from public bounds",
    "InterceptOnly": "DP-SkGD on the intercept alone: a constant model",
}
#: Parameters that are told where they are not the default; other facts say the rest.
SETTINGS = (
    *("alpha", "l1_ratio", "fit_intercept", "class_weight", "max_weight", "sampling"),
    *("geometry", "n_steps", "slope_bound", "calibration"),
)
#: Most categories that are listed of a column, and most columns.
MOST_LEVELS, MOST_COLUMNS = 12, 500


def fitted(model: Any) -> list[tuple[str, str]]:
    """Names and values of what was fitted."""
    return list(_fitted(model))


def _fitted(model: Any) -> Iterator[tuple[str, str]]:
    schema, record = model.schema_, model.privacy_
    kind = type(model).__name__
    yield "Model", f"{MODELS[kind]} ({kind})"
    target = f"{schema.target_name}: " if schema.target_name else ""
    yield "Target", target + described(schema.target_column)
    kinds = Counter(_kind(column) for column in schema.columns.values())
    told = ", ".join(f"{times:,} {name}" for name, times in kinds.items())
    n = sum(group.kind != "ones" for group in model._layout.groups)
    weights = model.weights_.size
    yield "Columns", f"{n:,} ({told}); {plural(weights, 'coefficient')}"
    yield "Rows", ", ".join(rows(model))
    yield "Budget", f"ε = {number(record.epsilon)}, δ = {number(record.delta)}"
    yield "Neighbouring tables", f"{record.relation}: {RELATIONS[record.relation]}"
    yield "Method", _method(model)
    settings = _settings(model)
    if settings:
        yield "Settings that are not the default", settings
    if model.ledger is not None:
        yield "Ledger", "charged to a ledger, the data set's total budget"


def rows(model: Any) -> tuple[str, str]:
    """The number of rows, and why it may be told."""
    plan, record = model.plan_, model.privacy_
    count = plan.n_rows if isinstance(plan, Plan) else plan.get("n_rows")
    check(
        isinstance(count, int),
        f"The model's plan needs a number of rows. Got {count!r}: it was changed.",
    )
    if record.relation != "add-remove":
        return f"{count:,}", "a public number"
    if any(one.name == "Number of rows" for one in purposes(record)):
        return f"{count:,}", "roughly: released with noise"
    return f"{count:,}", "given as public"


def described(column: Column) -> str:
    """A column in words."""
    if isinstance(column, Categorical):
        levels = [shortened(str(level)) for level in column.levels[:MOST_LEVELS]]
        if len(column.levels) > MOST_LEVELS:
            levels.append(f"and {len(column.levels) - MOST_LEVELS:,} more")
        return "one of " + ", ".join(levels)
    if isinstance(column, Vector):
        return (
            f"{plural(len(column.names), 'number')} of joint norm at most "
            f"{number(float(column.norm))}"
        )
    text = f"number from {number(float(column.low))} to {number(float(column.high))}"
    text += ", on a log scale" if column.scale == "log" else ""
    text += f", in {column.bins:,} bins" if column.bins is not None else ""
    return text + (", missing values apart" if column.indicator else "")


def columns(model: Any) -> list[tuple[str, str]]:
    """Every column with its description, up to many."""
    listed = list(model.schema_.columns.items())
    return [(str(name), described(column)) for name, column in listed[:MOST_COLUMNS]]


def _kind(column: Column) -> str:
    kinds = {Numeric: "numeric", Categorical: "categorical", Vector: "vector"}
    return kinds[type(column)]


def _method(model: Any) -> str:
    plan = stored_model.plan_summary(model.plan_)
    steps = plural(int(model.n_iter_), "step")
    if "solver" in plan:
        return f"solver {plan['solver']!r}, {steps}"
    method = GEOMETRIES.get(str(plan.get("geometry")), str(plan.get("geometry")))
    for name in ("l2", "l1"):
        strength = plan.get(name)
        if isinstance(strength, float) and strength:
            steps += f"; penalty {name} {number(strength)}"
    return f"{method}; {steps}"


def _settings(model: Any) -> str:
    usual, told = type(model)(), []
    for name in SETTINGS:
        value = getattr(model, name)
        if value is getattr(usual, name) or value == getattr(usual, name):
            continue
        plain = isinstance(value, (str, int, float, Mapping))
        told.append(f"{name} = {shortened(str(value)) if plain else 'an object'}")
    return ", ".join(told)
