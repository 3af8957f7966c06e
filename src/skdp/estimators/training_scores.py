"""A reminder that scores on the training table are not private."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any
from weakref import WeakKeyDictionary, ref

from skdp.estimators.inputs import as_column


class NotPrivateWarning(UserWarning):
    """A score was computed on the private table that the model was fitted to.

    The model is private, the score is not: it is computed from the records without
    noise, and no budget pays for it. Score on rows that need no protection.
    """


# What each model was fitted to, by identity: a weak reference to the table, or the
# path of a file. Nothing is stored with the model, and nothing of the table.
_FITTED_TO: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def remember(model: Any, table: Any) -> None:
    """Note which table a model was fitted to."""
    _FITTED_TO.pop(model, None)
    if isinstance(table, (str, PathLike)):
        path = str(table)
        _FITTED_TO[model] = lambda: path
        return
    try:
        _FITTED_TO[model] = ref(table)
    except TypeError:  # dicts and lists cannot be referred to weakly
        return


class Scored:
    """Scores that say when they are not private; comes before scikit-learn's mixin."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score on rows that need no protection: accuracy, or R² of a regressor.

        A score is computed without noise. On the very table that the model was fitted
        to it is not private, and a `NotPrivateWarning` says so, once a fit.
        """
        _warn_if_training(self, X)
        score: Any = super().score  # type: ignore[misc]  # of the mixin that follows
        return float(score(X, as_column(y), sample_weight))


def _warn_if_training(model: Any, table: Any) -> None:
    """Warn, once a fit, if the very table that the model was fitted to is scored."""
    fitted_to = _FITTED_TO.get(model, lambda: None)()
    if isinstance(table, PathLike):
        table = str(table)
    same = fitted_to is table
    if isinstance(fitted_to, str) and isinstance(table, str):
        same = fitted_to == table
    if fitted_to is None or not same:
        return
    del _FITTED_TO[model]
    warnings.warn(
        "The score on the table that the model was fitted to is not private: no "
        "budget pays for it. Score on rows that need no protection.",
        NotPrivateWarning,
        stacklevel=3,
    )
