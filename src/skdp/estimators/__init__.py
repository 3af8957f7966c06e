"""Estimators with scikit-learn's interface, and the warnings that a fit can raise."""

from skdp.estimators.additive import AdditiveClassifier, AdditiveRegressor
from skdp.estimators.classifiers import LinearSVC, LogisticRegression
from skdp.estimators.fit_warnings import (
    ConstantModelWarning,
    DoubtfulSchemaWarning,
    NotPrivateWarning,
    UnknownLabelsWarning,
)
from skdp.estimators.regressors import (
    HuberRegressor,
    LinearRegression,
    PoissonRegressor,
)

__all__ = [
    "AdditiveClassifier",
    "AdditiveRegressor",
    "ConstantModelWarning",
    "DoubtfulSchemaWarning",
    "HuberRegressor",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "NotPrivateWarning",
    "PoissonRegressor",
    "UnknownLabelsWarning",
]
