"""Convert a model's parameters, plan, weights and classes to model.json and back."""

from __future__ import annotations

import hashlib
import math
import os
import platform
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
import sklearn
from msgspec import Meta

import skdp
from skdp.estimators import standard_errors
from skdp.estimators.preparation import sort_target
from skdp.schema import Categorical, Schema, check, toml_files
from skdp.typed_files import Count, Epsilon, Form, Value, convert, to_json

if TYPE_CHECKING:
    from skdp.estimators.base import PrivateLinearModel

#: Types that classes may have. Texts have at most 99,999 letters, because numpy
#: allocates as much memory as a type asks for.
DTYPE = r"^([<>|][biuf][1248]|[<>]f16|[<>]U[0-9]{1,5}|[|]O)\Z"
#: Parameters that are converted to be saved, and the types of the saved values.
SAVED_AS: dict[str, Any] = {
    "epsilon": Epsilon,
    "max_weight": Epsilon,
    "schema": str | None,
    "class_weight": list[tuple[bool | int | float | str, int | float]] | None,
}
Size = Annotated[float, Meta(ge=0, le=1e100)]


class PlanNumbers(msgspec.Struct):
    """The numbers of a plan's summary that are used in computations.

    A summary has further keys, which are not checked.
    """

    n_rows: Count = 0
    n_steps: Count = 0
    n_restarts: Count = 0
    slope_bound: Size = 0.0
    radius: Size | None = None
    level_share: Size = 0.0
    level_cap: Size | None = None


class ModelForm(Form, frozen=True, kw_only=True):
    """The content of model.json."""

    format: Literal["skdp model"]
    format_version: Literal[1]
    versions: dict[str, str]
    estimator: str
    parameters: dict[str, Value]
    parameters_left_out: list[str]
    named: bool
    classes_dtype: Annotated[str, Meta(pattern=DTYPE)] | None
    n_iter: Count
    plan: dict[str, Value]
    weights: list[list[float]]
    uncertainty: standard_errors.ErrorsForm | str

    def __post_init__(self) -> None:
        msgspec.convert(self.plan, PlanNumbers)


def make_form(model: PrivateLinearModel) -> ModelForm:
    """Return a fitted model as the content of model.json."""
    classes = getattr(model, "classes_", None)
    parameters, left_out = list_parameters(model)
    return ModelForm(
        format="skdp model",
        format_version=1,
        versions={
            "skdp": skdp.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        estimator=type(model).__name__,
        parameters=parameters,
        parameters_left_out=left_out,
        named=hasattr(model, "feature_names_in_"),
        classes_dtype=None if classes is None else classes.dtype.str,
        n_iter=int(model.n_iter_),
        plan=plan_summary(model.plan_),
        weights=model.weights_.tolist(),
        uncertainty=standard_errors.make_form(model),
    )


def list_parameters(model: PrivateLinearModel) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters as JSON values, and the names of those left out.

    A `sampling` or `geometry` is left out if it is an object and not a name. The
    parameter `random_state` is never saved.
    """
    given = model.get_params(deep=False)
    del given["random_state"]
    if given["ledger"] is not None:  # a loaded model charges the same file
        given["ledger"] = os.path.abspath(os.fsdecode(given["ledger"]))
    if given["schema"] is not None:
        # For a path, save the fitted schema, because the file may have changed since.
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
    kept = {name: to_json(v) for name, v in given.items() if name not in left_out}
    return kept, left_out


def plan_digest(plan: Any) -> str | None:
    """Return the SHA-256 of a plan's JSON, or None if the plan cannot be written.

    It cannot if it is only a summary, or has parts that a user defined.
    """
    if isinstance(plan, dict):
        return None
    try:
        return hashlib.sha256(plan.to_json().encode()).hexdigest()
    except ValueError:
        return None


def plan_summary(plan: Any) -> dict[str, Any]:
    """Summarise a plan in numbers and names.

    A loaded model has this summary instead of a plan. The value of ``digest`` is the
    digest of the plan in the ledger's entry.
    """
    if isinstance(plan, dict):
        return plan
    penalty, level_cap = plan.penalty, getattr(plan.geometry, "level_cap", math.inf)
    return {
        "n_rows": int(plan.n_rows),
        "epsilon": to_json(plan.epsilon),
        "delta": plan.delta,
        "neighbours": plan.neighbours,
        "calibration": plan.calibration,
        "loss": plan.loss.name,
        "slope_bound": plan.loss.slope_bound,
        "sampling": type(plan.sampling).__name__,
        "geometry": type(plan.geometry).__name__,
        "radius": getattr(plan.geometry, "radius", None),
        "level_share": getattr(plan.geometry, "level_share", 0.0),
        "level_cap": None if level_cap == math.inf else level_cap,
        "n_steps": int(plan.n_steps),
        "n_restarts": int(plan.n_restarts),
        "average": getattr(plan.average, "__name__", "average"),
        "penalty": type(penalty).__name__,
        "l1": getattr(penalty, "l1", None),
        "l2": getattr(penalty, "l2", None),
        "digest": plan_digest(plan),
    }


def read_parameters(
    given: dict[str, Any], kind: type[PrivateLinearModel]
) -> dict[str, Any]:
    """Return saved parameters as an estimator's constructor takes them.

    Their names and types are checked here, because the constructor accepts anything.
    """
    known = kind().get_params(deep=False)
    for name in given:
        check(
            name in known and name != "random_state",
            f"model.json has a parameter {name!r}, which {kind.__name__} has not.",
        )
    typed = {
        name: convert(given[name], form, f"model.json has a wrong parameter {name}")
        for name, form in SAVED_AS.items()
        if name in given
    }
    for name in ("epsilon", "max_weight"):
        if name in typed:
            typed[name] = float(typed[name])
    if typed.get("schema") is not None:
        typed["schema"] = toml_files.loads(typed["schema"])
    if typed.get("class_weight") is not None:
        typed["class_weight"] = dict(typed["class_weight"])
    return given | typed


def read_weights(given: list[Any], schema: Schema, model: PrivateLinearModel) -> Any:
    """Return weights (d, k); refuse a size that contradicts the schema or the loss."""
    loss = model._loss(schema)
    shape = (schema.layout(model.fit_intercept).n_features, loss.n_outputs)
    check(
        len(given) == shape[0] and all(len(row) == shape[1] for row in given),
        f"model.json must have {shape[0]} rows of {shape[1]} weights, as its schema "
        "says.",
    )
    return np.array(given, dtype=np.float64).reshape(shape)


def read_classes(dtype: str | None, schema: Schema) -> Any:
    """Return the labels of the schema with the numpy type that was saved."""
    column = schema.target_column
    assert isinstance(column, Categorical)  # the loss has checked it
    check(
        sort_target(column) == column,
        "The classes of a saved model must be sorted, but those of its schema are not.",
    )
    labels, typed = np.array(column.levels), None
    if dtype is not None:
        try:
            typed = labels.astype(dtype)
        except (TypeError, ValueError, OverflowError):
            typed = None
    check(
        typed is not None
        and all(a == b for a, b in zip(typed.tolist(), column.levels, strict=True)),
        f"model.json says that classes are of type {dtype!r}, which those of "
        "schema.toml are not.",
    )
    return typed
