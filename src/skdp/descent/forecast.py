"""Forecast what privacy will cost a fit, from public facts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdp.descent import algorithm1
from skdp.descent.bounds import Rate
from skdp.descent.geometry import RESIDUAL_VARIANCE, SIGNAL_VARIANCE, PriorRun
from skdp.descent.matrix import Matrix
from skdp.descent.plan import EffectOutlook, Plan
from skdp.descent.rule import TOO_FEW, replan
from skdp.descent.samplings import Full, ShuffledBlocks
from skdp.engines.choice import name_engine
from skdp.models.losses import LOSSES
from skdp.privacy import accountant
from skdp.privacy.look import LOOK_SHARE, TARGET_SHARE
from skdp.privacy.queries import Neighbours, count_changes
from skdp.schema import count_in_words, name_record
from skdp.schema.validation import fact

# ---- Define measured constants, which turn linearised costs into costs of real fits
#
# `descent.forecast` computes the linearised costs. ``make bench NAME=forecasts``
# compares plans with fits and derives all numbers here. The page
# docs/evidence/utility/forecasts.md shows how often the forecast ranges hold on tables
# that were left out of the measurement.


#: The sampling error, multiplied by the number of rows per coefficient. With n rows and
#: d coefficients, the sampling error is d/(2n) in log-loss. In R² it is (1 - R²) d/n,
#: and 1 - R² is often about a half. Hinge loss and deviance are assumed to be similar.
SAMPLING = 0.5
#: Ranges are widened by this share of the sampling error. A private fit and a fit
#: without privacy may differ by that much, although neither is better.
SLACK = 0.5


@dataclass(frozen=True, kw_only=True)
class ForecastConstants:
    """The measured cost of privacy for a loss, and words to describe it.

    The typical cost is ``factor * linearised**power``. In 80 % of the fits, the cost
    lies between `below` and `above` times the typical cost. This range is widened on
    both sides by `SLACK` times the sampling error.

    Attributes
    ----------
    score : str
        The score in which the cost is measured.
    constant : str
        What a constant model predicts, in words.
    clipped : str
        The targets that may be under-predicted because gradients are capped, in words.
    factor, power, below, above : float
        The numbers in the formula above.
    gain : float
        How much better a fit without privacy is than a constant model, on the median
        table.
    n_tables : int
        Number of tables that were fitted.
    """

    score: str
    constant: str
    clipped: str
    factor: float
    power: float
    below: float
    above: float
    gain: float
    n_tables: int

    def range(self, linearised: float, size: float) -> tuple[float, float, float]:
        """Return the low end of the range, the typical cost and the high end.

        `size` is the number of coefficients divided by the number of rows. A low end of
        0 means that privacy may cost nothing, or may even improve the fit.
        """
        typical = self.factor * linearised**self.power
        slack = SLACK * SAMPLING * size
        low = max(0.0, self.below * typical - slack)
        return low, typical, self.above * typical + slack


_MEASURED = {
    "logistic": ForecastConstants(
        score="log-loss",
        constant="the base rate",
        clipped="Rare classes",
        factor=0.96,
        power=0.76,
        below=0.33,
        above=2.8,
        gain=0.16,
        n_tables=13,
    ),
    "linear": ForecastConstants(
        score="R²",
        constant="the mean",
        clipped="Extreme values",
        factor=65,
        power=0.87,
        below=0.18,
        above=3.6,
        gain=0.4,
        n_tables=11,
    ),
    "svc": ForecastConstants(
        score="hinge loss",
        constant="the larger class",
        clipped="Rare classes",
        factor=0.26,
        power=0.39,
        below=0,
        above=3,
        gain=0.041,
        n_tables=4,
    ),
    "poisson": ForecastConstants(
        score="D² (deviance explained)",
        constant="the mean",
        clipped="Large counts",
        factor=3.5,
        power=0.54,
        below=0,
        above=9.7,
        gain=0.21,
        n_tables=6,
    ),
}
#: The constants for each score. A loss names its score as `Loss.score`.
FORECAST_CONSTANTS = {known.score: known for known in _MEASURED.values()}


# ---- Forecast the cost of a plan, from public facts and from measured fits
#
# A linearised calculation gives the cost of noise and shrinkage for a table that
# follows a prior. Real tables are harder, and gradients are capped. Therefore
# `descent.forecast` turns the linearised cost into a range that holds for four of five
# fits. The range is not a bound. `skdp.descent.geometry` states the prior.


#: Caps on gradients may be the largest cost if the signal nν is below this multiple of
#: `TOO_FEW`, the smallest signal that supports a model. Here nν is the number of rows
#: divided by the noise of a sum.
FEW = 10.0
#: An effect is likely to be told if it is told with at least this share of the noises
#: that were tried, and unlikely if with at most one minus this share.
LIKELY = 0.8
#: A description never suggests more than this many times as many rows.
MOST_FACTOR = 1e4


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The expected cost of a fit, measured in a well-known score.

    Attributes
    ----------
    score : str
        The score in which costs are measured: "log-loss", "R²", …
    privacy_excess : float
        Median cost of noise, shrinkage and caps, compared with a fit of the same rows
        without privacy.
    low, high : float
        The range that contains the cost of privacy for 80 % of the tables.
    sampling_excess : float
        The cost of having only this number of rows, with or without privacy.
    """

    score: str
    privacy_excess: float
    low: float
    high: float
    sampling_excess: float
    #: The sum of the costs of privacy and of sampling.
    excess: float = fact()

    def __post_init__(self) -> None:
        vars(self).update(excess=self.privacy_excess + self.sampling_excess)


def forecast(plan: Plan) -> Forecast:
    """Forecast the cost of a plan. Raise if its geometry has no forecast."""
    known = FORECAST_CONSTANTS[plan.loss.score]
    size = plan.layout.n_features * plan.loss.n_outputs / plan.n_rows
    sampling = SAMPLING * size
    if plan.epsilon == math.inf:
        privacy = low = high = 0.0
    else:
        cost = linearise_cost(plan)
        if cost is None:
            raise ValueError(explain_no_forecast(plan))
        low, privacy, high = known.range(cost, size)
    return Forecast(
        score=known.score,
        privacy_excess=privacy,
        low=low,
        high=high,
        sampling_excess=sampling,
    )


def linearise_cost(plan: Plan) -> float | None:
    """Return the cost of noise and shrinkage under the prior, in units of the loss.

    Most real tables cost more. Their columns are correlated and their values unevenly
    distributed, and caps on gradients add to the cost. `forecast` corrects for this.
    The cost is None if the geometry has no forecast.
    """
    loss, mu = plan.loss, accountant.gdp_mu(plan.epsilon, plan.delta)
    squared = loss.target_law == "normal"
    curved = loss.curvature * (1.0 if squared else 0.5)
    variance = RESIDUAL_VARIANCE if squared else SIGNAL_VARIANCE
    run = PriorRun(
        layout=plan.layout,
        n_rows=plan.n_rows,
        n_outputs=loss.n_outputs,
        slope_bound=loss.slope_bound,
        curvature=curved,
        signal=0.5 * curved * loss.n_outputs * variance,
        noise=plan.noise_multiplier(mu**2) * count_changes(plan.neighbours),
        n_steps=plan.n_steps,
        n_averaged=float(1.0 / np.square(plan.average(plan.n_steps)).sum()),
        probabilities=plan.sampling.probabilities,
    )
    return plan.geometry.linearise_cost(run)


def find_rows_to_halve(plan: Plan) -> float | None:
    """Return how many times as many rows are needed to halve the forecast excess.

    Return None if the factor would be above 10⁴.
    """
    goal = forecast(plan).excess / 2.0

    def excess(factor: float) -> float:
        n_rows = round(plan.n_rows * factor)
        delta = min(plan.delta, 0.1 / n_rows)
        return forecast(replan(plan, delta=delta, n_rows=n_rows)).excess

    low, high = 1.0, 2.0
    while excess(high) > goal:
        low, high = high, 2.0 * high
        if high > MOST_FACTOR:
            return None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excess(middle) <= goal else (middle, high)
    return high


def describe_plan(plan: Plan) -> str:
    """Describe a plan and its expected cost in words."""
    columns = sum(group.kind != "ones" for group in plan.layout.groups)
    lines = [
        f"{plan.loss.kind} model of {count_in_words(columns, 'column')}, "
        f"{count_in_words(plan.layout.n_features, 'coefficient')}, "
        f"{count_in_words(f'{plan.n_rows:,}', name_record(plan.layout.unit))}",
        f"budget: ε = {plan.epsilon:g}, δ = {plan.delta:g}, "
        f"{plan.neighbours} neighbours",
        *plan.reasons,
    ]
    if plan.layout.unit is not None:
        lines.append(
            f"unit: {plan.layout.unit}; all rows of a person count as one record. With "
            "max_rows_per_unit=m, a row counts as 1/m of a record, and m or more rows "
            "of a person count as one record"
        )
    lines.append(f"geometry: {plan.geometry.describe()}")
    full = isinstance(plan.sampling, Full)
    moved = "all coordinates" if full else f"coordinates drawn by {plan.sampling!r}"
    lines.append(f"steps: {plan.n_steps * plan.n_restarts:,}; each updates {moved}")
    mu = accountant.gdp_mu(plan.epsilon, plan.delta)
    if mu < math.inf:
        z = plan.noise_multiplier(mu**2)
        lines.append(f"noise: {z:.4g} times the influence of one record, in each step")
        n_steps = plan.n_steps * plan.n_restarts
        if plan.expected_visits < n_steps:
            lines.append(
                f"visits: one {name_record(plan.layout.unit)} takes part in at most "
                f"about {plan.expected_visits:,.0f} of these steps, and pays for those"
            )
    engine = name_engine(plan.engine).partition("://")[0]
    small = " (for small tables: reference)" if plan.engine == "auto" else ""
    lines.append(f"engine: {engine}{small}; all engines give the same result")
    if plan.rate is not None:
        lines.append(describe_bound(plan, plan.rate))
    lines.append(describe_outlook(plan))
    if plan.outlook is not None and not plan.geometry.is_constant:
        lines += describe_outlooks(plan.outlook(), plan.layout.counted)
    return "\n".join(lines)


#: What effects of a model with each link are.
EFFECTS_ON = {
    "logit": "the log-odds",
    "log": "the logarithm of the mean",
    "identity": "the mean",
}


def describe_outlooks(outlook: EffectOutlook | str, counted: str) -> list[str]:
    """Return lines that say which effects a fit is likely to tell, and how closely."""
    if isinstance(outlook, str):
        return [f"intervals: {outlook}"]
    lines = [
        f"95 % intervals of effects on {EFFECTS_ON[outlook.link]}, if {counted} fill a "
        "third of each range like a bell, columns are independent, and the k-th level "
        "is a k-th as frequent as the first. The effect of a number is that of all it "
        "fills:"
    ]
    width = max(len(one.column) for one in outlook.effects)
    for one in outlook.effects:
        words = "no interval, because noise hides the effect"
        if one.told >= LIKELY:
            words = f"± {one.width / 2:.2g}"
        elif one.told > 1 - LIKELY:
            words = f"± {one.width / 2:.2g}, or none, because noise may hide the effect"
        lines.append(f"  {one.column:<{width}}  {words}")
    times, epsilon = outlook.times_to_tell_all, outlook.epsilon_to_tell_all
    if times > 1:
        ways = [f"{format_factor(times)} times as many {counted}"] * (times < math.inf)
        ways += [f"ε = {epsilon:g}"] * (epsilon < math.inf)
        lines.append(
            f"For all of these intervals, use about {' or '.join(ways)}."
            if ways
            else "Narrower ranges, fewer columns or merged levels would help most."
        )
    return lines


def describe_bound(plan: Plan, rate: Rate) -> str:
    """State the bound that determined the number of steps, and what it assumes."""
    theorem, _, condition = rate.theorem.partition("; ")
    own = plan.average is algorithm1.mean or rate.decay > 0
    average = "average" if own else "plain average (this plan returns another average)"
    assumed = f", {condition}. This is assumed, not known" if condition else ""
    if isinstance(plan.sampling, ShuffledBlocks):
        return (
            "bound: none is proved for shuffled blocks. If blocks were drawn "
            f"independently, the expected excess loss of the {average} would be at "
            f"most {rate.bound:.3g} by {theorem}{assumed}"
        )
    return (
        f"bound: the expected excess loss of the {average} is at most "
        f"{rate.bound:.3g} by {theorem}{assumed}"
    )


def describe_outlook(plan: Plan) -> str:
    """Describe the expected cost of a plan.

    The description also says what limits the result, and how to halve the error.
    """
    counted = plan.layout.counted
    if plan.geometry.is_constant:
        return explain_constant(
            loss=plan.loss.kind,
            n_rows=plan.n_rows,
            epsilon=plan.epsilon,
            delta=plan.delta,
            neighbours=plan.neighbours,
            unit=plan.layout.unit,
        )
    if plan.epsilon < math.inf and linearise_cost(plan) is None:
        return explain_no_forecast(plan)
    seen, known = forecast(plan), FORECAST_CONSTANTS[plan.loss.score]
    records = count_in_words(f"{plan.n_rows:,}", name_record(plan.layout.unit))
    sampling = f"{seen.sampling_excess:.1g} from sampling error, with {records}"
    if plan.epsilon == math.inf:
        return f"Expected cost in {seen.score}: {sampling}. There is no noise."
    text = [
        f"Expected cost of privacy: {format_cost(seen)} in {seen.score} (80 % "
        f"range, from {known.n_tables} tables). Any fit loses about {sampling}."
    ]
    private = seen.privacy_excess > seen.sampling_excess
    if seen.privacy_excess > known.gain / 2:
        text.append(
            f"Noise may hide the model: this budget and these {counted} hardly support "
            f"{count_in_words(plan.layout.n_features, 'coefficient')}."
        )
    elif private:
        text.append("The budget limits the result.")
    else:
        text.append(f"The number of {counted}, not privacy, limits the result.")
    rows = find_rows_to_halve(plan)
    if rows is not None:
        fewer = ", or half as many coefficients" if private else ""
        text.append(
            f"To halve the error, use {format_factor(rows)} times as many "
            f"{counted}{fewer}."
        )
    if not isinstance(plan.geometry, Matrix):
        text.append(
            "The range was measured for the matrix geometry, so it is only rough here."
        )
    elif (
        plan.geometry.level_share == 0
        and _signal(plan.n_rows, plan.epsilon, plan.delta, plan.neighbours)
        < FEW * TOO_FEW
    ):
        text.append(f"{known.clipped} may be under-predicted.")
    return " ".join(text)


def explain_no_forecast(plan: Plan) -> str:
    """Say that a plan's geometry has no forecast."""
    name = type(plan.geometry).__name__
    return f"The cost of privacy is not forecast for the geometry {name}."


def format_cost(seen: Forecast) -> str:
    """Format the range of the cost of privacy."""
    if seen.low == 0:
        return f"at most {seen.high:.1g}"
    return f"{seen.low:.1g} to {seen.high:.1g}"


def format_factor(factor: float) -> str:
    """Format a factor with two significant digits, such as 2.2, 22 or 2,200."""
    rounded = float(f"{factor:.2g}")
    return f"{rounded:g}" if rounded < 10 else f"{rounded:,.0f}"


def explain_constant(
    *,
    loss: str,
    n_rows: int,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    unit: str | None,
) -> str:
    """Explain why a plan fits only a constant, and how many rows a model requires.

    With a unit, the explanation is about persons instead of rows.
    """
    constant = FORECAST_CONSTANTS[LOSSES[loss].score].constant
    # Part of the budget may have been spent on ranges or the number of rows. Where rows
    # are few, a numeric target takes the most of it.
    classes = LOSSES[loss].score in ("log-loss", "hinge loss")
    spent = 0.0 if classes else LOOK_SHARE + 2.0 * TARGET_SHARE
    factor = max(TOO_FEW / _signal(n_rows, epsilon, delta, neighbours), 1.1)
    factor /= math.sqrt(1.0 - spent)
    record = name_record(unit)
    return (
        f"Only a constant is fitted ({constant}), because "
        f"{count_in_words(f'{n_rows:,}', record)} cannot support a single coefficient "
        f"at ε = {epsilon:g}. All coefficients are zero. About "
        f"{format_factor(factor)} times as many {record}s would support a model."
    )


def _signal(
    n_rows: float, epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """Return nν, the signal-to-noise ratio of a sum over n rows.

    As in `descent.rule`, ν is the Gaussian-DP parameter μ of the budget, or μ/2 if a
    record may be replaced.
    """
    mu = accountant.gdp_mu(epsilon, delta)
    return n_rows * mu / count_changes(neighbours)
