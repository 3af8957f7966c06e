"""Compare what a saved model states twice: in its parameters and in its privacy record.

Parameters are what a user asked for, and the record, the plan and the schema are what
was done. People read either. Without a ledger, nothing else shows that a parameter was
changed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skdp.estimators.other_solvers import OWN
from skdp.estimators.preparation import SCHEMA_IS_PUBLIC, describe_public
from skdp.estimators.unit import assume_given_count, check_unit, count_given
from skdp.privacy.selection import describe_scope, find_held_out
from skdp.schema import Categorical, Numeric
from skdp.verification.given import Given


def find_differences(given: Given) -> list[str]:
    """Return sentences about parameters that contradict the record or the plan."""
    return [
        f"{name} = {str(asked)[:99]!r}, but {done} was done"
        for name, asked, done in _compare(given)
    ]


def _compare(given: Given) -> Iterator[tuple[str, Any, Any]]:
    """Yield each parameter that differs from what was done, with both values."""
    asked, plan, record = given.parameters, given.plan, given.record
    unit, own = given.layout.unit, plan.get("solver", OWN)
    done: dict[str, Any] = {"neighbours": record.neighbours, "solver": own}
    if asked.get("delta") is not None:  # otherwise the fit chooses it
        done["delta"] = record.delta
    if given.search is None:  # a trial gets a part of ε
        done["epsilon"] = record.epsilon
    elif own == OWN:
        done["epsilon"] = plan.get("epsilon")
    if own == OWN:
        done["calibration"] = plan.get("calibration")
        if plan.get("penalty") == "ElasticNet":
            yield from _compare_penalty(given)
    if own == OWN and asked.get("n_steps") != "auto":
        done["n_steps"] = plan.get("n_steps")
    for name, value in done.items():
        if asked.get(name) != value:
            yield name, asked.get(name), value
    most, rows = asked.get("max_rows_per_unit", 1), asked.get("n_rows")
    try:
        check_unit(unit, max_rows_per_unit=most, neighbours=record.neighbours)
    except ValueError:
        yield "max_rows_per_unit", most, 1
        return
    if rows is not None and own == OWN:
        right = isinstance(rows, int) and rows >= 1
        if not right or count_given(rows, unit, most) != plan.get("n_rows"):
            yield "n_rows", rows, plan.get("n_rows")
    target = given.schema.target_column
    classes, ends = asked.get("classes"), asked.get("target_bounds")
    if classes is not None:
        levels = target.levels if isinstance(target, Categorical) else ()
        named = classes if isinstance(classes, list) else [classes]
        if sorted(map(repr, named)) != sorted(map(repr, _to_python(levels))):
            yield "classes", classes, list(levels)
    if isinstance(target, Numeric) and ends not in (None, [target.low, target.high]):
        yield "target_bounds", ends, [target.low, target.high]


def _to_python(levels: Any) -> list[Any]:
    """Return levels with Python's own types."""
    return [getattr(level, "item", lambda level=level: level)() for level in levels]


def _compare_penalty(given: Given) -> Iterator[tuple[str, Any, Any]]:
    """Yield `alpha` if it and `l1_ratio` do not give the plan's penalty."""
    found = given.plan.get("l1"), given.plan.get("l2")
    asked = given.parameters.get("alpha"), given.parameters.get("l1_ratio")
    try:
        net = given.penalty
    except (TypeError, ValueError):
        yield "alpha and l1_ratio", asked, found
        return
    if (net.l1, net.l2) != found:
        yield "alpha and l1_ratio", asked, found


def are_assumptions_right(given: Given) -> bool:
    """Return whether the record states the assumptions that follow from the fit."""
    asked, record, search = given.parameters, given.record, given.search
    unit = given.layout.unit
    bounds = asked.get("bounds") is not None
    first = [SCHEMA_IS_PUBLIC]
    if asked.get("schema") is None:
        first = [describe_public(categories, bounds) for categories in (False, True)]
    rest = assume_given_count(asked.get("n_rows"), record.neighbours, unit)
    if search is not None:
        rest += (find_held_out(unit), describe_scope(search.n_trials, search.stop))
    return any(record.assumptions == [one, *rest] for one in first)
