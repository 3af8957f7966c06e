"""skdp.plan: what a fit will do, before anybody touches a record."""

from __future__ import annotations

from os import PathLike
from typing import Any

from skdp.estimators.base import COUNT_SHARE, PrivateLinearModel
from skdp.estimators.huber import HuberRegressor
from skdp.estimators.linear import LinearRegression
from skdp.estimators.logistic import LogisticRegression
from skdp.estimators.poisson import PoissonRegressor
from skdp.estimators.preparation import SCHEMA_IS_PUBLIC
from skdp.estimators.spending import refuse_no_budget
from skdp.estimators.svc import LinearSVC
from skdp.planning.plan import Plan, default_delta
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import Schema, check, toml_files

MODELS: dict[str, type[PrivateLinearModel]] = {
    "logistic": LogisticRegression,
    "linear": LinearRegression,
    "huber": HuberRegressor,
    "svc": LinearSVC,
    "poisson": PoissonRegressor,
}


def plan(
    schema: Schema | str | PathLike[str],
    n_rows: int,
    epsilon: float = 1.0,
    delta: float | None = None,
    model: str = "logistic",
    **parameters: Any,
) -> Plan:
    """Plan the fit that an estimator makes of a table with so many rows.

    Parameters
    ----------
    schema : Schema or path
        The whole public description, the target included.
    n_rows : int
        Number of rows, a guess if it is private. Under add-remove, the default, the
        plan is for a fit that releases the number: a hundredth of the budget is left
        out for it, and δ is 1e-9 by default.
    epsilon, delta : float
        The budget.
    model : {"logistic", "linear", "huber", "svc", "poisson"}
        Which estimator.
    **parameters
        Its other parameters.

    Returns
    -------
    plan : Plan
        Print it to see what it decides and expects; ``to_json`` writes it; `skdp.run`
        runs it on encoded records.

    Examples
    --------
    >>> import skdp
    >>> schema = skdp.Schema({"age": skdp.Numeric(0, 100)},
    ...                      target=("ill", skdp.Categorical([0, 1])))
    >>> print(skdp.plan(schema, 10_000, epsilon=0.5).n_steps)
    80
    """
    check(
        model in MODELS,
        f"model must be one of {sorted(MODELS)}. Got {model!r}: choose one.",
    )
    refuse_no_budget(epsilon, delta)
    described = toml_files.given(schema)
    if described is None:
        raise ValueError("A plan needs a schema: pass it, or the path of its file.")
    estimator = MODELS[model](
        schema=described, epsilon=epsilon, delta=delta, n_rows=n_rows, **parameters
    )
    check(
        estimator.solver == "skgd",
        "Only solver='skgd' is planned beforehand. Got "
        f"{estimator.solver!r}: its settings are in plan_ after the fit.",
    )
    private_rows = estimator.neighbours == "add-remove"
    usual = default_delta(None if private_rows else n_rows)
    record = PrivacyRecord(
        epsilon=epsilon,
        delta=usual if delta is None else delta,
        neighbours=estimator.neighbours,  # type: ignore[arg-type]  # checked inside
        assumptions=(SCHEMA_IS_PUBLIC, *estimator._row_assumption()),
    )
    record.budget *= 1.0 - COUNT_SHARE if private_rows else 1.0
    return estimator._plan(described, n_rows, record)
