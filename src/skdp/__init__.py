"""skdp: differentially private linear and additive models.

Sums over records are computed exactly before noise is added.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skdp.datasets import Dataset, make_hospital
    from skdp.descent.algorithm1 import History
    from skdp.descent.descend import descend
    from skdp.descent.plan import Fit, Plan, run
    from skdp.descent.rule import make_default_plan, preset
    from skdp.estimators.additive import AdditiveClassifier, AdditiveRegressor
    from skdp.estimators.classifiers import LinearSVC, LogisticRegression
    from skdp.estimators.discover import Discovery, discover
    from skdp.estimators.model_formula import fit
    from skdp.estimators.plan_fit import plan
    from skdp.estimators.regressors import (
        HuberRegressor,
        LinearRegression,
        PoissonRegressor,
    )
    from skdp.estimators.saving import load
    from skdp.evaluation.evaluate import evaluate
    from skdp.evaluation.folds import RandomFolds
    from skdp.evaluation.results import Evaluation
    from skdp.evaluation.search import PrivateSearchCV
    from skdp.ledger import Ledger
    from skdp.models.losses import (
        Huber,
        Logistic,
        Poisson,
        SmoothedHinge,
        Softmax,
        Squared,
    )
    from skdp.models.penalties import ElasticNet
    from skdp.privacy.budget import BudgetError, PrivacyRecord
    from skdp.privacy.encoding import Batch, Coded, Records, encode
    from skdp.reporting.report import report
    from skdp.reporting.statement import statement
    from skdp.schema import Categorical, Numeric, Pair, Schema, Vector
    from skdp.tables.template import schema_template
    from skdp.verification.verify import Verification, verify

__version__ = "0.1.0"

__all__ = [
    "AdditiveClassifier",
    "AdditiveRegressor",
    "Batch",
    "BudgetError",
    "Categorical",
    "Coded",
    "Dataset",
    "Discovery",
    "ElasticNet",
    "Evaluation",
    "Fit",
    "History",
    "Huber",
    "HuberRegressor",
    "Ledger",
    "LinearRegression",
    "LinearSVC",
    "Logistic",
    "LogisticRegression",
    "Numeric",
    "Pair",
    "Plan",
    "Poisson",
    "PoissonRegressor",
    "PrivacyRecord",
    "PrivateSearchCV",
    "RandomFolds",
    "Records",
    "Schema",
    "SmoothedHinge",
    "Softmax",
    "Squared",
    "Vector",
    "Verification",
    "descend",
    "discover",
    "encode",
    "evaluate",
    "fit",
    "load",
    "make_default_plan",
    "make_hospital",
    "plan",
    "preset",
    "report",
    "run",
    "schema_template",
    "statement",
    "verify",
]

# The module of each public name. A module is imported when one of its names is first
# used.
_HOME = {
    name: module
    for module, names in {
        "skdp.datasets": "Dataset make_hospital",
        "skdp.descent.algorithm1": "History",
        "skdp.descent.descend": "descend",
        "skdp.descent.plan": "Fit Plan run",
        "skdp.descent.rule": "make_default_plan preset",
        "skdp.estimators.additive": "AdditiveClassifier AdditiveRegressor",
        "skdp.estimators.classifiers": "LinearSVC LogisticRegression",
        "skdp.estimators.discover": "Discovery discover",
        "skdp.estimators.model_formula": "fit",
        "skdp.estimators.plan_fit": "plan",
        "skdp.estimators.regressors": (
            "HuberRegressor LinearRegression PoissonRegressor"
        ),
        "skdp.estimators.saving": "load",
        "skdp.evaluation.evaluate": "evaluate",
        "skdp.evaluation.results": "Evaluation",
        "skdp.evaluation.search": "PrivateSearchCV",
        "skdp.evaluation.folds": "RandomFolds",
        "skdp.models.losses": "Huber Logistic Poisson SmoothedHinge Softmax Squared",
        "skdp.models.penalties": "ElasticNet",
        "skdp.ledger": "Ledger",
        "skdp.privacy.budget": "BudgetError PrivacyRecord",
        "skdp.privacy.encoding": "Batch Coded Records encode",
        "skdp.schema": "Categorical Numeric Pair Schema Vector",
        "skdp.tables.template": "schema_template",
        "skdp.reporting.report": "report",
        "skdp.reporting.statement": "statement",
        "skdp.verification.verify": "Verification verify",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name in ("audit", "solvers"):  # sub-packages
        return import_module(f"skdp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__", "audit", "solvers"]
