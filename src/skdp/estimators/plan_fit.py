"""Plan a fit without a table. This is the function `skdp.plan`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

from skdp.descent.plan import Plan
from skdp.estimators.additive import find_estimator
from skdp.estimators.expected_effects import forecast_effects
from skdp.estimators.fit import COUNT_SHARE, ESTIMATORS, KNOTS_SHARE
from skdp.estimators.model_formula import read_formula
from skdp.estimators.opening import SCHEMA_IS_PUBLIC, PrivacyRequest, count_given
from skdp.estimators.other_solvers import OWN
from skdp.estimators.weights import BALANCED, BALANCED_SHARE
from skdp.privacy.look import LOOK_SHARE
from skdp.schema import Schema, check, toml_files

#: What a plan says of a look that comes before it is carried out.
LOOK_COMES = (
    f"look: first, for {LOOK_SHARE:.0%} of the budget at most, noisy histograms of all "
    "columns find the number of rows and the part of each range that they fill (more "
    "for a numeric target, if rows turn out to be too few to find what it fills)"
)


def plan(
    schema: Schema | str | PathLike[str],
    n_rows: int,
    epsilon: float = 1.0,
    delta: float | None = None,
    model: str = "logistic",
    formula: str | None = None,
    **parameters: Any,
) -> Plan:
    """Plan the fit of an estimator to a table with the given number of rows.

    Parameters
    ----------
    schema : Schema or path
        The complete public description of the table, including the target.
    n_rows : int
        Number of rows, or a guess if the number is private. If the schema has a unit,
        `n_rows` is the number of persons, or of rows if ``max_rows_per_unit`` is set.
        Under add-remove, which is the default, the plan is for a fit that releases the
        number of rows, and δ is 1e-9 by default. A twentieth of the budget is set aside
        for a look at the table, which finds that number, the part of each range that
        rows fill, and the places of knots. The plan shows the limits of the schema, and
        equally spaced knots.
    epsilon, delta : float
        The privacy budget.
    model : str
        Short name of the estimator: "logistic", "linear", "huber", "svc", "poisson",
        "additive" or "additive-regressor". "additive" is a classifier or a regressor,
        depending on the target. "additive-regressor" is always a regressor.
    formula : str, optional
        The terms of the model, as for `skdp.fit`. By default all columns of the schema
        are used.
    **parameters
        Other parameters of the estimator.

    Returns
    -------
    plan : Plan
        The plan. Print it to see its decisions, the expected result, and which effects
        are likely to get an interval of which width. ``plan.outlook()`` returns these
        forecasts. The method ``to_json`` writes the plan as text, and `skdp.run` runs
        it on encoded records.

    Examples
    --------
    >>> import skdp
    >>> schema = skdp.Schema({"age": skdp.Numeric(0, 100)},
    ...                      target=("ill", skdp.Categorical([0, 1])))
    >>> print(skdp.plan(schema, 10_000, epsilon=0.5).n_steps)
    80
    """
    check(
        model in ESTIMATORS,
        f"model must be one of {sorted(ESTIMATORS)}, got {model!r}.",
    )
    check(
        not hasattr(schema, "get_params"),
        "The first argument of skdp.plan must be a schema, and model= names the "
        "estimator, as in skdp.plan(schema, 10_000, model='linear'). Got "
        f"{type(schema).__name__}.",
    )
    described = toml_files.accept_schema(schema)
    if described is None:
        raise ValueError("schema must be a Schema or the path of its file, got None.")
    if formula is not None:
        described, parameters["fit_intercept"] = read_formula(formula, described)
    estimator = find_estimator(model, described)(
        schema=described, epsilon=epsilon, delta=delta, n_rows=n_rows, **parameters
    )
    check(
        estimator.solver == OWN,
        f"Only solver='skgd' has a plan before the fit, got {estimator.solver!r}.",
    )
    most, unit = estimator.max_rows_per_unit, described.unit_name
    asked = PrivacyRequest(
        epsilon=epsilon,
        delta=delta,
        neighbours=estimator.neighbours,
        n_rows=estimator.n_rows,
        max_rows_per_unit=most,
        calibration=estimator.calibration,
    )
    asked.check_unit(unit)
    estimator._check_options(described.target_column)
    n_rows = count_given(n_rows, unit, most) or 0
    private_rows = asked.neighbours == "add-remove"
    public_rows = None if private_rows else n_rows
    record = asked.open_record(public_rows, unit, [SCHEMA_IS_PUBLIC])
    looks = estimator._looks(described)
    share = COUNT_SHARE if private_rows else 0.0
    share = LOOK_SHARE if looks else share
    share += BALANCED_SHARE if estimator.class_weight == BALANCED else 0.0
    whole, chosen = record.budget, described
    record.budget = whole * (1.0 - share)
    reasons: tuple[str, ...] = ()
    if not estimator._is_described(described):
        chosen, reasons = estimator._describe(described, n_rows, record)
        if estimator._places_knots(described, chosen) and not looks:
            record.budget = whole * (1.0 - share - KNOTS_SHARE)
            chosen, reasons = estimator._describe(described, n_rows, record)
    if looks:
        reasons = (LOOK_COMES, *reasons)
    made = estimator._plan(chosen, n_rows, record, reasons)
    outlook = partial(forecast_effects, estimator, chosen, made, record.remaining)
    return replace(made, outlook=outlook)
