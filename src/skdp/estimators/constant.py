"""A word about fits of a constant: public facts, or a released number of rows, say so.

Where rows and budget cannot support a single coefficient, the plan fits the base rate
or the mean alone. It decides so before a record is read, so saying it costs nothing.
"""

from __future__ import annotations

import warnings
from typing import Any

from skdp.descent.intercept import InterceptOnly
from skdp.planning.forecast import describe_constant, describe_outlook


class ConstantModelWarning(UserWarning):
    """Only a constant was fitted: the rows are too few for the privacy budget.

    All coefficients are zero, and every row gets the same prediction.
    """


def constant_model(model: Any) -> str | None:
    """Return a sentence if a fitted model is a constant."""
    plan = model.plan_
    if not isinstance(plan, dict):
        constant = isinstance(plan.geometry, InterceptOnly)
        return describe_outlook(plan) if constant else None
    if plan.get("geometry") != InterceptOnly.__name__:  # of a model that was loaded
        return None
    facts = ("loss", "n_rows", "epsilon", "delta", "neighbours")
    return describe_constant(**{name: plan[name] for name in facts})


def warn_of_a_constant(model: Any) -> None:
    """Warn where there is something to say."""
    said = constant_model(model)
    if said is not None:
        warnings.warn(said, ConstantModelWarning, stacklevel=3)
