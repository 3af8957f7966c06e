"""A fit of a file, and what may be said of it afterwards: released values only."""

from __future__ import annotations

import math
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skdp.estimators import storage
from skdp.estimators.base import ESTIMATORS, PrivateLinearModel
from skdp.estimators.fit_warnings import (
    describe_constant,
    describe_doubts,
    describe_unknown_labels,
)
from skdp.ledger import Ledger
from skdp.schema import Schema, check


def fitted(
    file: PathLike[str],
    schema: Schema,
    *,
    model: str,
    ledger: Ledger | None,
    **options: Any,
) -> PrivateLinearModel:
    """Fit a file and save the model.

    Parameters
    ----------
    file : path
        The table.
    schema : Schema
        What is public about it, the target's name included.
    model : str
        One of `skdp.estimators.base.ESTIMATORS`.
    ledger : Ledger, optional
        What is charged.
    **options
        Further parameters of the estimator: ``seed`` stands for ``random_state``,
        ``out`` is where the model is saved.
    """
    out, seed = options.pop("out"), options.pop("seed")
    check(
        not out.exists() or storage.is_model(out),
        f"{str(out)!r} is no saved model, and --force replaces nothing else: choose "
        "another --out.",
    )
    check(
        ledger is None or seed is None,
        "A seeded fit claims no privacy, and a ledger refuses it: leave --seed out, or "
        "--ledger for data that is public.",
    )
    made = ESTIMATORS[model](
        schema=schema,
        random_state=seed,
        ledger=ledger,
        **options,
    )
    made.fit(file)
    try:
        made.save(out)
    except (OSError, KeyboardInterrupt) as error:
        error.add_note(
            f"The model could not be saved in {str(out)!r} and is lost; what it "
            f"spent stays spent:\n{made.privacy_}"
        )
        raise
    return made


def note(model: PrivateLinearModel) -> str | None:
    """Return what limits a fresh fit: labels, columns of the schema, or its budget."""
    said = [
        describe_unknown_labels(model),
        *describe_doubts(model),
        describe_constant(model),
    ]
    return next((one for one in said if one is not None), None)


def summary(model: PrivateLinearModel, out: Path) -> dict[str, Any]:
    """Return what a script wants to know of a fitted model."""
    record = model.privacy_
    claims = not record.seeded and record.budget < math.inf
    names = [str(name) for name in model.get_feature_names_out()]
    coef = np.atleast_2d(model.coef_)
    intercept = np.atleast_1d(np.asarray(model.intercept_))
    return {
        "model": type(model).__name__,
        "out": str(out),
        "claim": "differential privacy" if claims else "none",
        "seeded": record.seeded,
        "epsilon": record.epsilon,
        "delta": record.delta,
        "spent_epsilon": record.spent_epsilon if claims else None,
        "neighbours": record.neighbours,
        "note": note(model),
        "assumptions": list(record.assumptions),
        "coefficients": [
            dict(zip(names, map(float, row), strict=True)) for row in coef
        ],
        "intercept": intercept.tolist(),
    }
