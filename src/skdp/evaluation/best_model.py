"""Predict with the best model of a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted


def _delegate(name: str) -> Callable[[Any], Any]:
    """Make a search have the method `name` only if the best model has this method.

    Before the search is fitted, `estimator` is used in place of the best model.
    """

    def has_method(search: Any) -> bool:
        return hasattr(getattr(search, "best_estimator_", search.estimator), name)

    decorator: Callable[[Any], Any] = available_if(has_method)
    return decorator


class BestModelMixin:
    """The methods that a search passes on to the best model."""

    estimator: Any
    best_estimator_: Any

    def _get_best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @_delegate("predict")
    def predict(self, X: Any) -> Any:
        """Return the predictions of the best model."""
        return self._get_best().predict(X)

    @_delegate("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the best model."""
        return self._get_best().predict_proba(X)

    @_delegate("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of the probabilities of the best model."""
        return self._get_best().predict_log_proba(X)

    @_delegate("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Return the margins of the best model."""
        return self._get_best().decision_function(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the best model's score without noise.

        Use it only on rows that need no protection.
        """
        return float(self._get_best().score(X, y, sample_weight))

    @property
    def classes_(self) -> Any:
        """The class labels of the best model."""
        return self._get_best().classes_

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the table that was fitted."""
        return int(self._get_best().n_features_in_)

    def __sklearn_tags__(self) -> Any:
        above: Any = super()
        tags = above.__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags = inner.input_tags
        return tags
