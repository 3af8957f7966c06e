"""A reminder that scores on the training table are not private."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any
from weakref import WeakKeyDictionary, ref


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


def warn_if_training(model: Any, table: Any) -> None:
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
