"""Fitted models in directories of text files: saved and loaded without pickle.

A saved model is a directory of three files:

``model.json``
    Format and versions, the estimator's name and parameters, the weights in full
    precision, their standard errors, and what was planned.
``schema.toml``
    The public description that was used, as `skdp.schema.toml_files` writes it.
``privacy.json``
    The privacy record: budget, relation, assumptions, every release, and the digest
    of the plan.

Loading executes nothing: it reads numbers and texts, checks their types and sizes, and
recomputes what the releases add up to. A seed is never written.
"""

from __future__ import annotations

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
from skdp.estimators import base, standard_errors, stored_model, stored_record
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.classifiers import PrivateClassifier
from skdp.estimators.plain import check_keys, dumps, loads
from skdp.schema import check, toml_files

FORMAT, VERSION = "skdp model", 1
ESTIMATORS: dict[str, type[PrivateLinearModel]] = {
    kind.__name__: kind for kind in base.ESTIMATORS.values()
}
#: The files, and the most bytes of each that are read.
FILES = {
    "model.json": 1 << 30,
    "schema.toml": toml_files.LARGEST,
    "privacy.json": 1 << 24,
}


def save(model: PrivateLinearModel, directory: str | PathLike[str]) -> None:
    """Write a fitted model; see `PrivateLinearModel.save`."""
    target = Path(directory)
    check(
        not target.exists() or is_model(target),
        f"{str(target)!r} exists and is no saved model: choose another name.",
    )
    about = _described(model)
    texts = {
        "model.json": dumps(about),
        "schema.toml": toml_files.dumps(model.schema_),
        "privacy.json": dumps(stored_record.described(model.privacy_, about["plan"])),
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
    check_files(source)
    about = loads(source / "model.json")
    if isinstance(about, dict):  # files of earlier versions have no standard errors
        about.setdefault("uncertainty", None)
    check_keys(about, MODEL_KEYS, "model.json")
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
    schema = toml_files.read(source / "schema.toml")
    record = stored_record.read(loads(source / "privacy.json"), about["plan"])
    kind = ESTIMATORS[about["estimator"]]
    model = kind(**stored_model.read_parameters(about["parameters"], kind))
    model._loss(schema)  # refuses a target that is not the estimator's
    weights = stored_model.read_weights(about["weights"], schema, model)
    model._set_fitted(weights, schema, about["named"])
    if isinstance(model, PrivateClassifier):
        model.classes_ = stored_model.read_classes(about["classes_dtype"], schema)
    model.plan_ = about["plan"]
    model.privacy_ = record
    model.n_iter_ = about["n_iter"]
    model._errors = standard_errors.read(about["uncertainty"], model)
    return model


def check_files(source: Path) -> None:
    """Refuse a directory that lacks a file, or has one that nobody wants to read."""
    check(
        os.path.isdir(source),
        f"There is no saved model {str(source)!r}: correct its path.",
    )
    for name, largest in FILES.items():
        path = source / name
        check(
            path.is_file() and path.stat().st_size <= largest,
            f"A saved model has a file {name}, of at most {largest >> 20} MiB. "
            f"{str(source)!r} has none: save the model again.",
        )


def _described(model: PrivateLinearModel) -> dict[str, Any]:
    classes = getattr(model, "classes_", None)
    parameters, left_out = stored_model.parameters(model)
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
        "plan": stored_model.plan_summary(model.plan_),
        "weights": model.weights_.tolist(),
        "uncertainty": standard_errors.described(model),
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
    "uncertainty": (dict, type(None)),
}


def is_model(target: Path) -> bool:
    """Whether a directory holds a saved model and nothing else."""
    if not target.is_dir() or {p.name for p in target.iterdir()} != set(FILES):
        return False
    try:
        check_files(target)
        about = loads(target / "model.json")
    except ValueError:
        return False
    return isinstance(about, dict) and about.get("format") == FORMAT
