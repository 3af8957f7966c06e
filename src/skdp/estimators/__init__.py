"""The scikit-learn face: parameters → Plan → attributes."""

from skdp.estimators.huber import HuberRegressor
from skdp.estimators.labels import UnknownLabelsWarning
from skdp.estimators.linear import LinearRegression
from skdp.estimators.logistic import LogisticRegression
from skdp.estimators.poisson import PoissonRegressor
from skdp.estimators.svc import LinearSVC
from skdp.estimators.training_scores import NotPrivateWarning

__all__ = [
    "HuberRegressor",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "NotPrivateWarning",
    "PoissonRegressor",
    "UnknownLabelsWarning",
]
