"""Fitted models in directories of text files: saved and loaded without pickle.

A saved model is a directory of three files:

``model.json``
    Format and versions, the estimator's name and parameters, the weights in full
    precision, and what was planned.
``schema.toml``
    The public description that was used, as `skdp.schema_files` writes it.
``privacy.json``
    The privacy record: budget, relation, assumptions and every release.

Loading executes nothing: it reads numbers and texts, checks their types and sizes, and
recomputes what the releases add up to. A seed is never written.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

import skdp
from skdp import schema_files
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.huber import HuberRegressor
from skdp.estimators.linear import LinearRegression
from skdp.estimators.logistic import LogisticRegression, PrivateClassifier
from skdp.estimators.poisson import PoissonRegressor
from skdp.estimators.svc import LinearSVC
from skdp.privacy.record import Event, PrivacyRecord
from skdp.schema import Categorical, Schema, check

FORMAT, VERSION = "skdp model", 1
ESTIMATORS: dict[str, type[PrivateLinearModel]] = {
    kind.__name__: kind
    for kind in (
        LogisticRegression,
        LinearSVC,
        LinearRegression,
        HuberRegressor,
        PoissonRegressor,
    )
}
FILES = ("model.json", "schema.toml", "privacy.json")
#: Largest file that is read, in bytes.
LARGEST = 1 << 30


def save(model: PrivateLinearModel, directory: str | PathLike[str]) -> None:
    """Write a fitted model; see `PrivateLinearModel.save`."""
    target = Path(directory)
    check(
        not target.exists() or _is_model(target),
        f"{str(target)!r} exists and is no saved model: choose another name.",
    )
    texts = {
        "model.json": _dumps(_described(model)),
        "schema.toml": schema_files.dumps(model.schema_),
        "privacy.json": _dumps(_record(model.privacy_)),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside, then renamed: there is never half a model under its name.
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
        What ``save`` was given.

    Returns
    -------
    estimator
        A fitted one that predicts the same bits. Its ``plan_`` is a dict that sums the
        plan up, its ``privacy_`` recomputes the ε that was spent, and its
        ``random_state`` is None.

    Raises
    ------
    ValueError
        In one sentence, if a file is missing, is of another format or was changed.
    """
    source = Path(directory)
    for name in FILES:
        path = source / name
        check(
            path.is_file() and path.stat().st_size <= LARGEST,
            f"A saved model has a file {name}, of at most 1 GiB. {str(source)!r} has "
            "none: save the model again.",
        )
    about = _loads(source / "model.json")
    _check_keys(about, MODEL_KEYS, "model.json")
    check(
        about["format"] == FORMAT and about["format_version"] == VERSION,
        f"model.json needs format {FORMAT!r}, version {VERSION}. Got "
        f"{about['format']!r}, {about['format_version']!r}: load it with the skdp "
        "that wrote it.",
    )
    check(
        about["estimator"] in ESTIMATORS,
        f"model.json needs an estimator of {sorted(ESTIMATORS)}. Got "
        f"{about['estimator']!r}: save the model again.",
    )
    schema = schema_files.read(source / "schema.toml")
    record = _read_record(_loads(source / "privacy.json"))
    kind = ESTIMATORS[about["estimator"]]
    model = kind(**_read_parameters(about["parameters"], kind))
    model._loss(schema)  # refuses a target that is not the estimator's
    weights = _read_weights(about["weights"], schema, model)
    model._set_fitted(weights, schema, about["named"])
    if isinstance(model, PrivateClassifier):
        model.classes_ = _read_classes(about["classes_dtype"], schema)
    model.plan_ = about["plan"]
    model.privacy_ = record
    model.n_iter_ = about["n_iter"]
    return model


def _described(model: PrivateLinearModel) -> dict[str, Any]:
    classes = getattr(model, "classes_", None)
    parameters, left_out = _parameters(model)
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "versions": {
            "skdp": skdp.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "estimator": type(model).__name__,
        "parameters": parameters,
        "parameters_left_out": left_out,
        "named": hasattr(model, "feature_names_in_"),
        "classes_dtype": None if classes is None else classes.dtype.str,
        "n_iter": int(model.n_iter_),
        "plan": _plan(model.plan_),
        "weights": model.weights_.tolist(),
    }


def _parameters(model: PrivateLinearModel) -> tuple[dict[str, Any], list[str]]:
    """Parameters as JSON, and the names of those that are objects of the user's."""
    given = model.get_params(deep=False)
    del given["random_state"]
    if given["schema"] is not None:
        given["schema"] = schema_files.dumps(given["schema"])
    if given["class_weight"] is not None:
        given["class_weight"] = [list(pair) for pair in given["class_weight"].items()]
    for name in ("bounds", "classes", "target_bounds"):
        if given[name] is not None:
            given[name] = [np.asarray(part).tolist() for part in given[name]]
    left_out = [
        name for name in ("sampling", "geometry") if not isinstance(given[name], str)
    ]
    kept = {name: _number(v) for name, v in given.items() if name not in left_out}
    return kept, left_out


def _plan(plan: Any) -> dict[str, Any]:
    """Sum a plan up in numbers and names; a loaded model has nothing else."""
    if isinstance(plan, dict):
        return plan
    penalty = plan.penalty
    return {
        "n_rows": int(plan.n_rows),
        "epsilon": _number(plan.epsilon),
        "delta": plan.delta,
        "relation": plan.relation,
        "calibration": plan.calibration,
        "loss": plan.loss.name,
        "slope_bound": plan.loss.slope_bound,
        "sampling": type(plan.sampling).__name__,
        "geometry": type(plan.geometry).__name__,
        "n_steps": int(plan.n_steps),
        "n_restarts": int(plan.n_restarts),
        "average": getattr(plan.average, "__name__", "average"),
        "penalty": type(penalty).__name__,
        "l1": getattr(penalty, "l1", None),
        "l2": getattr(penalty, "l2", None),
    }


def _record(record: PrivacyRecord) -> dict[str, Any]:
    return {
        "epsilon": _number(record.epsilon),
        "delta": record.delta,
        "relation": record.relation,
        "reserved_delta": record.reserved_delta,
        "seeded": bool(record.seeded),
        "assumptions": list(record.assumptions),
        "releases": [
            {
                "query": event.query,
                "times": times,
                "sensitivity": event.sensitivity,
                "noise_multiplier": event.noise_multiplier,
                "n_draws": event.n_draws,
                "delta": event.delta,
            }
            for event, times in record.events.items()
        ],
        "spent_epsilon": _number(record.spent_epsilon),
    }


MODEL_KEYS: dict[str, Any] = {
    "format": str,
    "format_version": int,
    "versions": dict,
    "estimator": str,
    "parameters": dict,
    "parameters_left_out": list,
    "named": bool,
    "classes_dtype": (str, type(None)),
    "n_iter": int,
    "plan": dict,
    "weights": list,
}
RECORD_KEYS: dict[str, Any] = {
    "epsilon": (float, int, str),
    "delta": float,
    "relation": str,
    "reserved_delta": (float, int),
    "seeded": bool,
    "assumptions": list,
    "releases": list,
    "spent_epsilon": (float, int, str),
}
RELEASE_KEYS: dict[str, Any] = {
    "query": str,
    "times": int,
    "sensitivity": (float, int),
    "noise_multiplier": (float, int),
    "n_draws": int,
    "delta": (float, int),
}


def _read_record(about: Any) -> PrivacyRecord:
    """Make a record whose releases add up to what the file says."""
    _check_keys(about, RECORD_KEYS, "privacy.json")
    check(
        all(isinstance(line, str) for line in about["assumptions"]),
        "privacy.json needs assumptions that are texts: save the model again.",
    )
    record = PrivacyRecord(
        epsilon=_read_number(about["epsilon"], "epsilon"),
        delta=about["delta"],
        relation=about["relation"],
        assumptions=tuple(about["assumptions"]),
        seeded=about["seeded"],
        reserved_delta=float(about["reserved_delta"]),
    )
    for release in about["releases"]:
        _check_keys(release, RELEASE_KEYS, "A release of privacy.json")
        times = release.pop("times")
        check(
            times >= 1
            and release["n_draws"] >= 0
            and min(release["noise_multiplier"], release["sensitivity"]) >= 0
            and 0 <= release["delta"] < 1,
            "A release of privacy.json has a negative number: save the model again.",
        )
        record.events[Event(**release)] = times
    claimed = _read_number(about["spent_epsilon"], "spent_epsilon")
    check(
        record.spent_epsilon == claimed,
        f"privacy.json says that ε = {claimed:g} was spent, but its releases add up to "
        f"{record.spent_epsilon:g}: it was changed.",
    )
    return record


def _read_parameters(
    given: dict[str, Any], kind: type[PrivateLinearModel]
) -> dict[str, Any]:
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
        read["schema"] = schema_files.loads(read["schema"])
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
            read[name] = _read_number(read[name], name)
    return read


def _read_weights(given: list[Any], schema: Schema, model: PrivateLinearModel) -> Any:
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


def _read_classes(dtype: str | None, schema: Schema) -> Any:
    """The labels with the type that they had."""
    column = schema.target_column
    assert isinstance(column, Categorical)  # a classifier's loss has seen it
    labels = np.array(column.levels)
    try:
        typed = labels.astype(str(dtype))
    except (TypeError, ValueError):
        typed = None
    check(
        typed is not None
        and typed.dtype.kind in "biufUO"
        and all(a == b for a, b in zip(typed.tolist(), column.levels, strict=True)),
        f"model.json needs a type of the classes. Got {dtype!r}: it was changed.",
    )
    return typed


def _is_model(target: Path) -> bool:
    """Whether a directory holds a saved model and nothing else."""
    if not target.is_dir() or {p.name for p in target.iterdir()} != set(FILES):
        return False
    try:
        about = _loads(target / "model.json")
    except ValueError:
        return False
    return isinstance(about, dict) and about.get("format") == FORMAT


def _dumps(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError):
        raise ValueError(
            "A parameter of the model is no number, text or list, and cannot be "
            "saved: set it to its name or to None first."
        ) from None


def _loads(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError(
            f"{path.name} is not the JSON that was saved: save the model again."
        ) from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _check_keys(given: Any, keys: dict[str, Any], where: str) -> None:
    check(
        isinstance(given, dict) and set(given) == set(keys),
        f"{where} needs exactly the keys {sorted(keys)}: it was changed.",
    )
    for key, kinds in keys.items():
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        wrong = isinstance(given[key], bool) and bool not in listed
        check(
            isinstance(given[key], listed) and not wrong,
            f"{where} has a {key} of the wrong type: it was changed.",
        )


def _number(value: Any) -> Any:
    """JSON has no infinity, and no numbers of numpy's."""
    if isinstance(value, np.generic):
        value = value.item()
    return "inf" if isinstance(value, float) and value == math.inf else value


def _read_number(value: Any, name: str) -> float:
    check(
        value == "inf" or (isinstance(value, (int, float)) and value == value),
        f"The saved model needs a number as {name}. Got {value!r}: it was changed.",
    )
    return math.inf if value == "inf" else float(value)
