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

Loading executes nothing. It reads numbers and texts through typed forms
(`skdp.typed_files`), and recomputes the ε that the releases add up to. A seed is never
written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from os import PathLike
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from skdp.estimators import base, standard_errors, stored_model, stored_record
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.classifiers import PrivateClassifier
from skdp.estimators.stored_model import ModelForm
from skdp.estimators.stored_record import RecordForm
from skdp.schema import check, toml_files
from skdp.typed_files import parse_json, read_file, write_json

F = TypeVar("F")
ESTIMATORS: dict[str, type[PrivateLinearModel]] = {
    kind.__name__: kind for kind in base.ESTIMATORS.values()
}
#: The files of a saved model, and the largest size of each in bytes.
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
        f"{str(target)!r} exists and is not a saved model. Choose another name.",
    )
    about = stored_model.make_form(model)
    record = stored_record.make_form(model.privacy_, about.plan)
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
    weights = stored_model.read_weights(about.weights, schema, model)
    model._set_fitted(weights, schema, about.named)
    model._known_shares = stored_model.read_shares(about.shares, weights)
    if isinstance(model, PrivateClassifier):
        model.classes_ = stored_model.read_classes(about.classes_dtype, schema)
    model.plan_ = about.plan
    model.privacy_ = stored_record.read_form(record, about.plan)
    model.n_iter_ = about.n_iter
    model._errors = standard_errors.read_form(about.uncertainty, model)
    return model


def check_files(source: Path) -> None:
    """Refuse a directory in which a file is missing or too large."""
    check(os.path.isdir(source), f"There is no saved model {str(source)!r}.")
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
    check(
        about.estimator in ESTIMATORS,
        f"model.json must have an estimator of {sorted(ESTIMATORS)}, got "
        f"{about.estimator[:99]!r}.",
    )
    kind = ESTIMATORS[about.estimator]
    return kind(**stored_model.read_parameters(about.parameters, kind))


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
