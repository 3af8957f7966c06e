"""Save fitted models as directories of text files, and load them, without pickle.

A saved model is a directory of three files:

``model.json``
    Format and versions, the estimator's name and parameters, the weights in full
    precision, their standard errors, and a summary of the plan.
``schema.toml``
    The public description that was used, as `skdp.schema.toml_files` writes it.
``privacy.json``
    The privacy record: budget, neighbouring relation, assumptions, every release, and
    the digest of the plan.

Loading executes nothing. It reads numbers and strings through typed forms
(`skdp.typed_files`), and recomputes the ε that the releases add up to. A seed is never
written.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
import sklearn
from msgspec import Meta

import skdp
from skdp.estimators import privacy_json, standard_errors
from skdp.estimators.base import ESTIMATORS, PrivateLinearModel
from skdp.estimators.classifiers import PrivateClassifier
from skdp.estimators.labels import sort_target
from skdp.estimators.privacy_json import RecordForm, Size
from skdp.planning.plan_files import plan_summary
from skdp.schema import Categorical, Schema, check, toml_files
from skdp.typed_files import (
    Count,
    Epsilon,
    Form,
    Value,
    convert,
    parse_json,
    read_file,
    to_json,
    write_json,
)

F = TypeVar("F")
#: The files of a saved model, and the largest size of each in bytes.
FILES = {
    "model.json": 1 << 30,
    "schema.toml": toml_files.LARGEST,
    "privacy.json": 1 << 24,
}
#: Types that classes may have. Strings have at most 99,999 characters, because numpy
#: allocates as much memory as a type asks for.
DTYPE = r"^([<>|][biuf][1248]|[<>]f16|[<>]U[0-9]{1,5}|[|]O)\Z"
#: Parameters that are converted to be saved, and the types of the saved values.
SAVED_AS: dict[str, Any] = {
    "epsilon": Epsilon,
    "max_weight": Epsilon,
    "schema": str | None,
    "class_weight": list[tuple[bool | int | float | str, int | float]] | str | None,
}


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
    shares: list[Annotated[float, Meta(ge=0, le=1)]] | None = None
    exposed: bool = False

    def __post_init__(self) -> None:
        msgspec.convert(self.plan, PlanNumbers)


def save(model: PrivateLinearModel, directory: str | PathLike[str]) -> None:
    """Write a fitted model; see `PrivateLinearModel.save`."""
    target = Path(directory)
    # Another process may replace the model between two of these looks at it.
    check(
        is_model(target) or not target.exists() or is_model(target),
        f"{str(target)!r} exists and is not a saved model. Choose another name.",
    )
    about = make_form(model)
    record = privacy_json.make_form(model.privacy_, about.plan)
    texts = {
        "model.json": write_json(about, "The model cannot be saved"),
        "schema.toml": toml_files.dumps(model.schema_),
        "privacy.json": write_json(record, "The privacy record cannot be saved"),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    # Write to a temporary directory and rename it, so `target` is never half a model.
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        made = beside / "new"
        made.mkdir()
        for name, text in texts.items():
            with (made / name).open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        if target.exists():
            target.rename(beside / "old")
        made.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load(directory: str | PathLike[str]) -> PrivateLinearModel:
    """Read a model that ``save`` wrote.

    Parameters
    ----------
    directory : path
        The directory that ``save`` wrote.

    Returns
    -------
    estimator
        A fitted estimator whose predictions are the same, bit for bit. Its ``plan_`` is
        a dict that summarises the plan, its ``privacy_`` recomputes the ε that was
        spent, and its ``random_state`` is None.

    Raises
    ------
    ValueError
        If a file is missing, has another format or was changed. The message is one
        sentence.
    """
    source = Path(directory)
    check_files(source)
    about = read_form(source, "model.json", ModelForm)
    record = read_form(source, "privacy.json", RecordForm)
    schema = toml_files.read(source / "schema.toml")
    model = make_estimator(about)
    model._loss(schema)  # refuses a target that the estimator cannot have
    weights = read_weights(about.weights, schema, model)
    model._set_fitted(weights, schema, about.named)
    model._known_shares = read_shares(about.shares, weights)
    model._exposed = about.exposed
    if isinstance(model, PrivateClassifier):
        model.classes_ = read_classes(about.classes_dtype, schema)
    model.plan_ = about.plan
    model.privacy_ = privacy_json.read_form(record, about.plan)
    model.n_iter_ = about.n_iter
    model._errors = standard_errors.read_form(about.uncertainty, model)
    return model


def check_files(source: Path) -> None:
    """Refuse a directory in which a file is missing or too large."""
    check(os.path.isdir(source), f"There is no saved model {str(source)!r}.")
    check(
        os.path.lexists(source / "model.json"),
        f"{str(source)!r} is not a saved model, because it has no file 'model.json'.",
    )
    for name, largest in FILES.items():
        path = source / name
        check(
            path.is_file() and path.stat().st_size <= largest,
            f"{str(path)!r} is missing or larger than {largest >> 20} MiB.",
        )


def read_form(source: Path, name: str, form: type[F]) -> F:
    """Read a file of a saved model as a typed form."""
    text = read_file(source / name, FILES[name])
    return parse_json(text, form, f"{name} is not part of a saved skdp model")


def make_estimator(about: ModelForm) -> PrivateLinearModel:
    """Make the estimator that model.json names. It is not fitted yet."""
    known = {kind.__name__: kind for kind in ESTIMATORS.values()}
    check(
        about.estimator in known,
        f"The estimator in model.json must be one of {sorted(known)}, got "
        f"{about.estimator[:99]!r}.",
    )
    kind = known[about.estimator]
    return kind(**read_parameters(about.parameters, kind))


class _Format(msgspec.Struct):
    """The key that model.json has in every version of the format."""

    format: Literal["skdp model"]


def is_model(target: Path) -> bool:
    """Return whether a directory contains a saved model and nothing else."""
    if not target.is_dir() or {p.name for p in target.iterdir()} != set(FILES):
        return False
    try:
        check_files(target)
        read_form(target, "model.json", _Format)
    except ValueError:
        return False
    return True


def make_form(model: PrivateLinearModel) -> ModelForm:
    """Return a fitted model as the content of model.json."""
    classes = getattr(model, "classes_", None)
    parameters, left_out = list_parameters(model)
    shares = getattr(model, "_shares", None)
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
        shares=None if shares is None else shares.tolist(),
        exposed=model._exposed,
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
        # If a path was given, save the fitted schema, because the file may have
        # changed.
        own = isinstance(given["schema"], Schema)
        given["schema"] = toml_files.dumps(given["schema"] if own else model.schema_)
    if isinstance(given["class_weight"], Mapping):
        given["class_weight"] = [list(pair) for pair in given["class_weight"].items()]
    for name in ("bounds", "classes", "target_bounds"):
        if given[name] is not None:
            given[name] = [np.asarray(part).tolist() for part in given[name]]
    left_out = [
        name for name in ("sampling", "geometry") if not isinstance(given[name], str)
    ]
    kept = {name: to_json(v) for name, v in given.items() if name not in left_out}
    return kept, left_out


def read_parameters(
    given: dict[str, Any], kind: type[PrivateLinearModel]
) -> dict[str, Any]:
    """Return saved parameters as an estimator's constructor takes them.

    Names and types are checked here, because the constructor accepts anything.
    """
    known = kind().get_params(deep=False)
    for name in given:
        check(
            name in known and name != "random_state",
            f"model.json must not have a parameter {name!r}.",
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
    if isinstance(typed.get("class_weight"), list):
        typed["class_weight"] = dict(typed["class_weight"])
    return given | typed


def read_weights(given: list[Any], schema: Schema, model: PrivateLinearModel) -> Any:
    """Return weights (d, k). Refuse a shape that contradicts the schema or the loss."""
    loss = model._loss(schema)
    shape = (schema.layout(model.fit_intercept).n_features, loss.n_outputs)
    check(
        len(given) == shape[0] and all(len(row) == shape[1] for row in given),
        f"The weights in model.json must have shape {shape}, as schema.toml says.",
    )
    return np.array(given, dtype=np.float64).reshape(shape)


def read_shares(given: list[float] | None, weights: Any) -> Any:
    """Return the shares of rows at categories and knots, or None."""
    check(
        given is None or len(given) == len(weights),
        f"The shares in model.json must have length {len(weights)}, like its weights.",
    )
    return None if given is None else np.array(given)


def read_classes(dtype: str | None, schema: Schema) -> Any:
    """Return the labels of the schema with the numpy type that was saved."""
    column = schema.target_column
    assert isinstance(column, Categorical)  # the loss has checked it
    check(
        sort_target(column) == column,
        "The classes in schema.toml must be sorted, but they are not.",
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
        f"model.json says that classes have type {dtype!r}, but the classes in "
        "schema.toml have another type.",
    )
    return typed
