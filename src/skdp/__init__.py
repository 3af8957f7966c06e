"""skdp: differentially private linear models, exact down to the last bit."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skdp.datasets import Dataset, make_hospital
    from skdp.descent.history import History
    from skdp.descent.plan import Fit, Plan, run
    from skdp.descent.presets import preset
    from skdp.descent.rule import default_plan
    from skdp.estimators.huber import HuberRegressor
    from skdp.estimators.linear import LinearRegression
    from skdp.estimators.logistic import LogisticRegression
    from skdp.estimators.planning import plan
    from skdp.estimators.poisson import PoissonRegressor
    from skdp.estimators.storage import load
    from skdp.estimators.svc import LinearSVC
    from skdp.evaluation.evaluate import evaluate
    from skdp.evaluation.result import Evaluation
    from skdp.evaluation.search import PrivateSearchCV
    from skdp.evaluation.split import RandomFolds
    from skdp.losses import Huber, Logistic, Poisson, SmoothedHinge, Softmax, Squared
    from skdp.penalties import ElasticNet
    from skdp.privacy.ledger import Ledger
    from skdp.privacy.record import BudgetError, PrivacyRecord
    from skdp.privacy.records import Batch, Coded, Records, encode
    from skdp.reporting.report import report
    from skdp.schema import Categorical, Numeric, Schema, Vector
    from skdp.statements import statement
    from skdp.verification.model import Verification, verify

__version__ = "0.1.0.dev0"

__all__ = [
    "Batch",
    "BudgetError",
    "Categorical",
    "Coded",
    "Dataset",
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
    "default_plan",
    "encode",
    "evaluate",
    "load",
    "make_hospital",
    "plan",
    "preset",
    "report",
    "run",
    "statement",
    "verify",
]

# Where each public name lives: it is imported when it is first asked for.
_HOME = {
    name: module
    for module, names in {
        "skdp.datasets": "Dataset make_hospital",
        "skdp.descent.history": "History",
        "skdp.descent.plan": "Fit Plan run",
        "skdp.descent.presets": "preset",
        "skdp.descent.rule": "default_plan",
        "skdp.estimators.huber": "HuberRegressor",
        "skdp.estimators.linear": "LinearRegression",
        "skdp.estimators.logistic": "LogisticRegression",
        "skdp.estimators.planning": "plan",
        "skdp.estimators.poisson": "PoissonRegressor",
        "skdp.estimators.storage": "load",
        "skdp.estimators.svc": "LinearSVC",
        "skdp.evaluation.evaluate": "evaluate",
        "skdp.evaluation.result": "Evaluation",
        "skdp.evaluation.search": "PrivateSearchCV",
        "skdp.evaluation.split": "RandomFolds",
        "skdp.losses": "Huber Logistic Poisson SmoothedHinge Softmax Squared",
        "skdp.penalties": "ElasticNet",
        "skdp.privacy.ledger": "Ledger",
        "skdp.privacy.record": "BudgetError PrivacyRecord",
        "skdp.privacy.records": "Batch Coded Records encode",
        "skdp.schema": "Categorical Numeric Schema Vector",
        "skdp.reporting.report": "report",
        "skdp.statements": "statement",
        "skdp.verification.model": "Verification verify",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name in ("audit", "solvers"):  # packages, with names of their own
        return import_module(f"skdp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
