"""The scikit-learn face: parameters → Plan → attributes."""

from skdp.estimators.constant import ConstantModelWarning
from skdp.estimators.doubts import DoubtfulSchemaWarning
from skdp.estimators.huber import HuberRegressor
from skdp.estimators.labels import UnknownLabelsWarning
from skdp.estimators.linear import LinearRegression
from skdp.estimators.logistic import LogisticRegression
from skdp.estimators.poisson import PoissonRegressor
from skdp.estimators.svc import LinearSVC
from skdp.estimators.training_scores import NotPrivateWarning

__all__ = [
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
