"""What a page is about: a model and its record, checked before a word is said."""

from __future__ import annotations

import math
import platform
from copy import copy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

import skdp
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.plain import loads
from skdp.estimators.storage import load
from skdp.estimators.stored_model import plan_summary
from skdp.evaluation.results import Evaluation
from skdp.evaluation.search import PrivateSearchCV
from skdp.planning.plan import Plan
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.selection import SearchRecord
from skdp.reporting.purposes import purpose
from skdp.schema import check
from skdp.verification.verify import Verification, verify

#: What a plan that was made again must have in common with the one that was run.
KEPT = (
    *("n_rows", "geometry", "sampling", "n_steps", "n_restarts", "calibration"),
    *("loss", "penalty", "l1", "l2"),
)
#: Relative difference of caps that a slightly different budget may cause.
NEAR = 0.01
#: Releases that come before a plan is made.
BEFORE = ("Number of rows", "Ranges, found", "Categories, found")


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A model or an evaluation, with what was found out about it.

    Attributes
    ----------
    model : estimator or Evaluation
        What was fitted or released.
    record : PrivacyRecord
        What it cost.
    place : str
        Name of the directory that it was read from; empty if it was none.
    versions : dict of str to str
        Of the programs that made it.
    found : Verification, optional
        What `verify` says; an evaluation has no plan to compare with.
    """

    model: Any
    record: PrivacyRecord
    place: str
    versions: dict[str, str]
    found: Verification | None

    @property
    def claims(self) -> bool:
        """Whether privacy is claimed."""
        noisy = all(event.noise_multiplier for event in self.record.events)
        return not self.record.seeded and self.record.budget < math.inf and noisy


def subject(model: Any, ledger: Any = None) -> Subject:
    """Read what a page is to be about; refuse a record that does not hold."""
    if isinstance(model, PrivateSearchCV):
        check(
            hasattr(model, "best_estimator_"),
            "A report needs a fitted search: fit it first.",
        )
        model = model.best_estimator_
    if isinstance(model, Evaluation):
        return Subject(
            model=model,
            record=model.privacy_,
            place="",
            versions=_versions(),
            found=None,
        )
    place, versions, asked = "", _versions(), model
    if isinstance(model, (str, PathLike)):
        source = Path(model)
        model, place = load(source), source.resolve().name
        stored = loads(source / "model.json")["versions"]
        versions = {str(name): str(version) for name, version in stored.items()}
    check(
        isinstance(model, PrivateLinearModel) and hasattr(model, "privacy_"),
        "A report is of a fitted model, its directory, a search or an evaluation. Got "
        f"{type(model).__name__}: fit a model first.",
    )
    found = verify(asked, ledger)
    failed = [one for one in found.checks if one.passed is False]
    check(
        not failed,
        "The privacy record does not hold, and a page would repeat what it says: "
        + "; ".join(f"{one.name}: {one.found}" for one in failed)
        + ". `skdp verify` shows every check.",
    )
    return Subject(
        model=model,
        record=model.privacy_,
        place=place,
        versions=versions,
        found=found,
    )


def _versions() -> dict[str, str]:
    return {
        "skdp": skdp.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def planned(model: Any) -> Plan | None:
    """The plan that was run, made again for a model that was loaded; None if not known.

    It is made from the schema, the number of rows and the budget: no record is read.
    """
    plan = model.plan_
    if isinstance(plan, Plan):
        return plan
    own = not (isinstance(model.sampling, str) and isinstance(model.geometry, str))
    if "solver" in plan or own:
        return None
    left = copy(model.privacy_)
    left.events = {
        event: times
        for event, times in left.events.items()
        if purpose(event.query).startswith(BEFORE)
    }
    if isinstance(left, SearchRecord):  # a trial has a part of it, which the plan says
        left.budget = accountant.gdp_mu(model.epsilon, left.delta) ** 2
    try:
        made: Plan = model._plan(model.schema_, plan["n_rows"], left)
    except (ValueError, KeyError, TypeError):
        return None
    again = plan_summary(made)
    same = all(again[name] == plan.get(name) for name in KEPT)
    caps = again["radius"] or 0.0, plan.get("radius") or 0.0
    return made if same and math.isclose(*caps, rel_tol=NEAR) else None
