"""Parameters, plan, weights and classes of a model as JSON, and back."""

from __future__ import annotations

import hashlib
import math
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from skdp.estimators.plain import number, read_number
from skdp.estimators.preparation import sort_target
from skdp.schema import Categorical, Schema, check, toml_files

if TYPE_CHECKING:
    from skdp.estimators.base import PrivateLinearModel

#: Types that classes may have, texts of up to 99,999 letters.
_DTYPE = re.compile("[<>|][biuf][1248]|[<>]f16|[<>]U[0-9]{1,5}|[|]O")


def parameters(model: PrivateLinearModel) -> tuple[dict[str, Any], list[str]]:
    """Parameters as JSON, and the names of those that are objects of the user's."""
    given = model.get_params(deep=False)
    del given["random_state"]
    if given["ledger"] is not None:  # a loaded model charges the same file
        given["ledger"] = os.path.abspath(os.fsdecode(given["ledger"]))
    if given["schema"] is not None:
        # Of a path what was fitted is kept: its file may have changed since.
        own = isinstance(given["schema"], Schema)
        given["schema"] = toml_files.dumps(given["schema"] if own else model.schema_)
    if given["class_weight"] is not None:
        given["class_weight"] = [list(pair) for pair in given["class_weight"].items()]
    for name in ("bounds", "classes", "target_bounds"):
        if given[name] is not None:
            given[name] = [np.asarray(part).tolist() for part in given[name]]
    left_out = [
        name for name in ("sampling", "geometry") if not isinstance(given[name], str)
    ]
    kept = {name: number(v) for name, v in given.items() if name not in left_out}
    return kept, left_out


def plan_digest(plan: Any) -> str | None:
    """SHA-256 of a plan's JSON; None if it has parts of a user's own, or is none."""
    if isinstance(plan, dict):
        return None
    try:
        return hashlib.sha256(plan.to_json().encode()).hexdigest()
    except ValueError:
        return None


def plan_summary(plan: Any) -> dict[str, Any]:
    """Sum a plan up in numbers and names; a loaded model has nothing else.

    Its digest is the one that a ledger's entry has.
    """
    if isinstance(plan, dict):
        return plan
    penalty = plan.penalty
    return {
        "n_rows": int(plan.n_rows),
        "epsilon": number(plan.epsilon),
        "delta": plan.delta,
        "neighbours": plan.neighbours,
        "calibration": plan.calibration,
        "loss": plan.loss.name,
        "slope_bound": plan.loss.slope_bound,
        "sampling": type(plan.sampling).__name__,
        "geometry": type(plan.geometry).__name__,
        "radius": getattr(plan.geometry, "radius", None),
        "n_steps": int(plan.n_steps),
        "n_restarts": int(plan.n_restarts),
        "average": getattr(plan.average, "__name__", "average"),
        "penalty": type(penalty).__name__,
        "l1": getattr(penalty, "l1", None),
        "l2": getattr(penalty, "l2", None),
        "digest": plan_digest(plan),
    }


def check_plan(summary: dict[str, Any]) -> None:
    """Refuse a summary of a plan whose numbers are none, or are negative."""
    for name in ("n_rows", "n_steps", "n_restarts", "slope_bound", "radius"):
        value = summary.get(name, 0)
        whole = isinstance(value, int) and not isinstance(value, bool)
        real = isinstance(value, float) and name in ("slope_bound", "radius")
        check(
            ((whole or real) and 0 <= value <= 1e100)
            or (name == "radius" and value is None),
            f"model.json has a plan whose {name} is no such number: it was changed.",
        )


def read_parameters(
    given: dict[str, Any], kind: type[PrivateLinearModel]
) -> dict[str, Any]:
    """Parameters for an estimator's constructor, which takes anything."""
    known = kind().get_params(deep=False)
    read: dict[str, Any] = {}
    for name, value in given.items():
        check(
            name in known and name != "random_state",
            f"model.json has no parameter {name!r} of {kind.__name__}: take it out.",
        )
        check(
            value is None or isinstance(value, (bool, int, float, str, list)),
            f"model.json needs a plain value of {name!r}: it was changed.",
        )
        read[name] = value
    if read.get("schema") is not None:
        check(isinstance(read["schema"], str), "model.json needs the schema as a text.")
        read["schema"] = toml_files.loads(read["schema"])
    if read.get("class_weight") is not None:
        check(
            isinstance(read["class_weight"], list)
            and all(
                isinstance(pair, list)
                and len(pair) == 2
                and isinstance(pair[0], (str, int, float))
                and isinstance(pair[1], (int, float))
                for pair in read["class_weight"]
            ),
            "model.json needs class_weight as pairs of a level and a number.",
        )
        read["class_weight"] = dict(map(tuple, read["class_weight"]))
    for name in ("epsilon", "max_weight"):
        if name in read:
            read[name] = read_number(read[name], name)
    return read


def read_weights(given: list[Any], schema: Schema, model: PrivateLinearModel) -> Any:
    """Weights (d, k) of the size that schema and loss ask for."""
    loss = model._loss(schema)
    shape = (schema.layout(model.fit_intercept).n_features, loss.n_outputs)
    rows = all(isinstance(row, list) and len(row) == shape[1] for row in given)
    check(
        len(given) == shape[0] and rows,
        f"model.json needs {shape[0]} rows of {shape[1]} weights, as its schema says: "
        "it was changed.",
    )
    numbers = all(
        isinstance(w, (int, float)) and not isinstance(w, bool) and math.isfinite(w)
        for row in given
        for w in row
    )
    check(numbers, "model.json needs weights that are finite numbers: it was changed.")
    return np.array(given, dtype=np.float64).reshape(shape)


def read_classes(dtype: str | None, schema: Schema) -> Any:
    """The labels with the type that they had."""
    column = schema.target_column
    assert isinstance(column, Categorical)  # a classifier's loss has seen it
    check(
        sort_target(column) == column,
        "The classes of this model are not sorted: it was saved by an earlier version. "
        "Load it with that version, or fit it again.",
    )
    labels = np.array(column.levels)
    typed = None
    if _DTYPE.fullmatch(str(dtype)):  # numpy would make room for what it is told
        try:
            typed = labels.astype(str(dtype))
        except (TypeError, ValueError, OverflowError):
            typed = None
    check(
        typed is not None
        and all(a == b for a, b in zip(typed.tolist(), column.levels, strict=True)),
        f"model.json needs a type of the classes. Got {dtype!r}: it was changed.",
    )
    return typed
