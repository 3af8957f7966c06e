"""Refuse options of scikit-learn that have another name or meaning here."""

from __future__ import annotations

import difflib
import inspect
from typing import Any, NoReturn, Self

#: Parameters of scikit-learn's linear models, and what replaces each of them.
REPLACEMENTS = {
    "C": "Use alpha, which multiplies the penalty that is added to the mean loss. For "
    "n rows, alpha = 1 / (C n).",
    "penalty": "Use l1_ratio: 0 is a ridge penalty, 1 is L1. alpha=0 disables both.",
    "n_jobs": "Use n_threads.",
    "max_iter": "Use n_steps. More steps need more noise, so leave it at 'auto'.",
    "tol": "The number of steps is fixed in advance, because a stopping rule would "
    "read records. Omit it, or set n_steps.",
    "warm_start": "Every fit starts from zero and is charged in full. Omit it.",
    "dual": "The same solver serves tables of every shape. Omit it.",
    "multi_class": "Three classes or more are fitted by one softmax model. Omit it.",
    "intercept_scaling": "The intercept is not penalised. Omit it.",
    "normalize": "Columns are scaled by their public ranges. Omit it.",
    "copy_X": "The table is never changed. Omit it.",
    "positive": "Signs of coefficients cannot be constrained. Omit it.",
    "loss": "The class determines the loss: LogisticRegression, LinearSVC, "
    "LinearRegression, HuberRegressor or PoissonRegressor.",
    "data_norm": "Use bounds=(low, high) or a schema, which bound each column.",
    "accountant": "Use ledger, which keeps the total budget of a table.",
}


class ForeignOptionsMixin:
    """Refuse scikit-learn's options and methods that are not supported, and say why.

    In the order of inheritance, this class must come after the class that defines
    ``__init__``. Otherwise ``inspect.signature`` does not show the parameters.
    """

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Refuse an unknown option, and say what to use instead."""
        known: list[str] = getattr(cls, "_get_param_names", list)()
        parameters = inspect.signature(cls.__init__).parameters.values()
        open_ = any(one.kind == one.VAR_KEYWORD for one in parameters)
        for name in options:
            if name in known or (open_ and name not in REPLACEMENTS):
                continue
            close = difflib.get_close_matches(name, known, 1)
            remedy = f"Did you mean {close[0]!r}?" if close else "See help({})."
            remedy = REPLACEMENTS.get(name, remedy.format(cls.__name__))
            raise TypeError(f"{cls.__name__} has no parameter {name!r}. {remedy}")
        return super().__new__(cls)

    @property
    def partial_fit(self) -> NoReturn:
        """Raise an AttributeError that says why there is no such method."""
        raise AttributeError(
            "There is no partial_fit. The noise of a fit is chosen for all rows before "
            "any is read, and later rows would need a budget of their own. Pass the "
            "path of a file to fit (it may be larger than memory), or fit all rows "
            "again and charge a ledger."
        )
