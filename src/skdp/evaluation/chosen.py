"""A search predicts as the model that it chose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted


def _available(name: str) -> Callable[[Any], Any]:
    """Show a method if the chosen model, or the one to be fitted, has it."""

    def has(search: Any) -> bool:
        return hasattr(getattr(search, "best_estimator_", search.estimator), name)

    decorator: Callable[[Any], Any] = available_if(has)
    return decorator


class Chosen(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Methods that are those of ``best_estimator_``."""

    estimator: Any
    best_estimator_: Any

    def _best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @_available("predict")
    def predict(self, X: Any) -> Any:
        """Predictions of the chosen model."""
        return self._best().predict(X)

    @_available("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Probabilities by the chosen model."""
        return self._best().predict_proba(X)

    @_available("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of probabilities by the chosen model."""
        return self._best().predict_log_proba(X)

    @_available("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Margins of the chosen model."""
        return self._best().decision_function(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score of the chosen model on rows that need no protection."""
        return float(self._best().score(X, y, sample_weight))

    @property
    def classes_(self) -> Any:
        """Labels of the chosen model."""
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        """Columns of the table."""
        return int(self._best().n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = (
            inner.classifier_tags,
            inner.regressor_tags,
        )
        tags.input_tags = inner.input_tags
        return tags
