"""Forecast the cost of a plan, from public facts and from measured fits.

A linearised calculation gives the cost of noise and shrinkage for a table that follows
the prior below. Real tables are harder, and gradients are capped. Therefore
`planning.forecast_constants` turns the linearised cost into a range that holds for four
of five fits. The range is not a bound.

The prior assumes that

* columns are independent, numeric columns are uniform on their range, and the
  categories of a column are equally frequent;
* the curvature of the loss is half of its largest value, or equal to its largest value
  for squared losses;
* the residuals of squared losses have a standard deviation of a fifth of the
  half-range of the target;
* the margins of the best model vary around a constant with variance 3, like the
  log-odds of common tables, or with the variance of the residuals for squared losses;
* this variance is spread evenly over all directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdp.descent import averages
from skdp.descent.geometry import Diagonal
from skdp.descent.intercept import InterceptOnly
from skdp.descent.matrix import Matrix
from skdp.descent.samplings import Full, ShuffledBlocks
from skdp.descent.sketches import Sketched
from skdp.descent.target import USUAL_SCALE
from skdp.engines.choice import name_engine
from skdp.models.losses import LOSSES
from skdp.planning.decide import replan
from skdp.planning.forecast_constants import FORECAST_CONSTANTS, SAMPLING
from skdp.planning.plan import Plan
from skdp.planning.rule import TOO_FEW
from skdp.planning.theory import Rate
from skdp.privacy import accountant
from skdp.privacy.queries import Neighbours, count_changes, count_in_words
from skdp.schema import FloatArray, Group, Layout

#: Residual variance of a target in [-1, 1], under the prior.
RESIDUAL_VARIANCE = 0.04
#: Variance of x·w* under the prior, for losses that are not squared.
SIGNAL_VARIANCE = 3.0
#: Caps on gradients may be the largest cost if the signal nν is below this multiple of
#: `TOO_FEW`, the smallest signal that supports a model. Here nν is the number of rows
#: divided by the noise of a sum.
FEW = 10.0
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

    @property
    def excess(self) -> float:
        """The sum of the costs of privacy and of sampling."""
        return self.privacy_excess + self.sampling_excess


def prior_moments(group: Group) -> tuple[float, float]:
    """Return E[x] and E[x²] of each coordinate of a group, under the prior."""
    if group.kind in ("code", "hats"):
        return 1.0 / group.width, 1.0 / group.width
    if group.kind == "ones":
        return 1.0, 1.0
    return (0.0, 1.0 / group.width) if group.signed else (0.5, 1.0 / 3.0)


def prior_spectrum(layout: Layout) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues of E[x xᵀ] under the prior, and their multiplicities.

    The coordinates of a group have equal moments and are orthogonal, so contrasts
    between them have the eigenvalue E[x²]. One direction per group remains, the sum of
    its coordinates. If these sums have means z and second moments s, the remaining
    matrix is diag(s - z²) + zzᵀ. The entries of s - z² take few distinct values. Among
    the groups that share a value, every direction orthogonal to z has this value as its
    eigenvalue, and one direction is left. So only a matrix with one row per distinct
    value must be decomposed, and a thousand columns take hardly any time.
    """
    widths = np.array([group.width for group in layout.groups], dtype=np.float64)
    moments = np.array([prior_moments(group) for group in layout.groups])
    mean, second = moments[:, 0] * np.sqrt(widths), moments[:, 1]
    own, kind = np.unique(np.round(second - mean**2, 12), return_inverse=True)
    joint = np.sqrt(np.bincount(kind, mean**2))
    left = np.linalg.eigvalsh(np.diag(own) + np.outer(joint, joint))
    values = np.concatenate([second, own, left])
    counts = np.concatenate([widths - 1, np.bincount(kind) - 1.0, np.ones(len(own))])
    return np.maximum(values, 0.0)[counts > 0], counts[counts > 0]


def forecast(plan: Plan) -> Forecast:
    """Forecast the cost of a plan."""
    known = FORECAST_CONSTANTS[plan.loss.score]
    size = plan.layout.n_features * plan.loss.n_outputs / plan.n_rows
    sampling = SAMPLING * size
    if plan.epsilon == math.inf:
        privacy = low = high = 0.0
    else:
        low, privacy, high = known.range(linearise_cost(plan), size)
    return Forecast(
        score=known.score,
        privacy_excess=privacy,
        low=low,
        high=high,
        sampling_excess=sampling,
    )


def linearise_cost(plan: Plan) -> float:
    """Return the cost of noise and shrinkage under the prior, in units of the loss.

    Most real tables cost more. Their columns are correlated and their values unevenly
    distributed, and caps on gradients add to the cost. `forecast` corrects for this.
    """
    layout, loss = plan.layout, plan.loss
    k, n = loss.n_outputs, plan.n_rows
    squared = loss.target_law == "normal"
    curved = loss.curvature * (1.0 if squared else 0.5)
    signal = 0.5 * curved * k * (RESIDUAL_VARIANCE if squared else SIGNAL_VARIANCE)
    mu = accountant.gdp_mu(plan.epsilon, plan.delta)
    difference = count_changes(plan.neighbours)
    z = plan.noise_multiplier(mu**2)
    averaged = float(1.0 / np.square(plan.average(plan.n_steps)).sum())
    if isinstance(plan.geometry, InterceptOnly):
        variance = (z * difference * plan.geometry.radius / n) ** 2 / averaged
        variance /= (curved + plan.geometry.shrinkage) ** 2
        return 0.5 * curved * k * variance
    if isinstance(plan.geometry, Matrix):
        # In the basis in which the released metric A is the identity, a step is
        # u_j ← u_j - ((c s_j + λ) u_j + ζ_j)/β. Here c is the curvature, β its bound, λ
        # the ridge, ζ_j noise of variance σ², and s_j the share of A that comes from
        # the Gram matrix. The rest of A is the floor. The average of m iterates
        # therefore has variance σ²/((c s_j + λ)² m).
        matrix = plan.geometry
        values, counts = prior_spectrum(layout)
        # Directions in which rows do not vary cost nothing.
        values, counts = (
            part[values > 1e-9 * values.max()] for part in (values, counts)
        )
        share = values / (values + matrix.floor)
        radius = matrix.radius
        if matrix.scaled:
            radius *= USUAL_SCALE * math.sqrt(float(counts @ share))
        std = z * difference * radius / n
        ridge = matrix.shrinkage * radius
        variances = std**2 / averaged / (curved * share + ridge) ** 2
        lost = ridge / (curved * share + ridge)
        noise = 0.5 * curved * k * float(counts @ (share * variances))
        return noise + signal * float(counts @ lost**2 / counts.sum())
    assert isinstance(plan.geometry, Diagonal)
    p = plan.sampling.probabilities
    reach = loss.slope_bound * difference / n
    seconds = [prior_moments(group)[1] for group in layout.groups]
    curves = curved * np.array(seconds)[layout.group_of]
    # Once a weight has converged, it has the noise of an averaged gradient. Before
    # that, it has the sum of the noise of all steps.
    learnt = z * reach / np.sqrt(plan.n_steps * p) / curves
    walked = z * reach * np.sqrt(plan.n_steps * p) / plan.geometry.smoothness
    noise = 0.5 * k * float((curves * np.minimum(learnt, walked) ** 2).sum())
    reached = np.minimum(1.0, plan.n_steps * p * curves / plan.geometry.smoothness)
    return noise + signal * float(np.mean((1.0 - reached) ** 2))


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
    counted = plan.layout.counted
    lines = [
        f"{plan.loss.name} model of {count_in_words(columns, 'column')}, "
        f"{count_in_words(plan.layout.n_features, 'coefficient')}, {plan.n_rows:,} "
        f"{counted[:-1] if plan.n_rows == 1 else counted}",
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
    if isinstance(plan.geometry, Matrix):
        matrix = plan.geometry
        cap = f"{matrix.radius:.3g}"
        cap += " times its usual length" if matrix.scaled else ""
        lines.append(
            f"geometry: Gram matrix for {matrix.gram_share:.0%} of the budget, "
            f"{matrix.floor:.3g} added to its eigenvalues, a record's gradient capped "
            f"at {cap}"
        )
        if matrix.target_share:
            lines.append(
                f"start: a constant model, from a histogram of the target for "
                f"{matrix.target_share:.1%} of the budget"
            )
        if matrix.level_share:
            lines.append(
                f"end: for {matrix.level_share:.1%} of the budget, the intercept is "
                "corrected so that predictions are right on average"
            )
    elif isinstance(plan.geometry, InterceptOnly):
        lines.append("geometry: a constant model, with an intercept only")
    elif isinstance(plan.geometry, Sketched):
        lines.append(f"geometry: {plan.geometry.describe()}")
    else:
        elliptical = getattr(plan.geometry, "elliptical", False)
        shape = "elliptical" if elliptical else "isotropic"
        lines.append(f"geometry: diagonal, from public bounds, {shape} noise")
    full = isinstance(plan.sampling, Full)
    moved = "all coordinates" if full else f"coordinates drawn by {plan.sampling!r}"
    lines.append(f"steps: {plan.n_steps * plan.n_restarts:,}; each updates {moved}")
    mu = accountant.gdp_mu(plan.epsilon, plan.delta)
    if mu < math.inf:
        z = plan.noise_multiplier(mu**2)
        lines.append(f"noise: {z:.4g} times the influence of one record, in each step")
    engine = name_engine(plan.engine).partition("://")[0]
    lines.append(f"engine: {engine} (all engines give the same result)")
    if plan.rate is not None:
        lines.append(describe_bound(plan, plan.rate))
    return "\n".join([*lines, describe_outlook(plan)])


def describe_bound(plan: Plan, rate: Rate) -> str:
    """State the bound that determined the number of steps, and what it assumes."""
    theorem, _, condition = rate.theorem.partition("; ")
    own = plan.average is averages.mean or rate.decay > 0
    average = "average" if own else "plain average (this plan returns another average)"
    drawn = ", independent draws" if isinstance(plan.sampling, ShuffledBlocks) else ""
    assumed = f", {condition}. This is assumed, not known" if condition else ""
    return (
        f"bound: the expected excess loss of the {average} is at most "
        f"{rate.bound:.3g} by {theorem}{drawn}{assumed}"
    )


def describe_outlook(plan: Plan) -> str:
    """Describe the expected cost of a plan.

    The description also says what limits the result, and how to halve the error.
    """
    counted = plan.layout.counted
    if isinstance(plan.geometry, InterceptOnly):
        return describe_constant(
            loss=plan.loss.kind,
            n_rows=plan.n_rows,
            epsilon=plan.epsilon,
            delta=plan.delta,
            neighbours=plan.neighbours,
        )
    if isinstance(plan.geometry, Sketched):
        return "The cost of privacy is not forecast for sketches."
    seen, known = forecast(plan), FORECAST_CONSTANTS[plan.loss.score]
    sampling = f"{seen.sampling_excess:.1g} from sampling error"
    sampling += f", with {plan.n_rows:,} {counted}"
    if plan.epsilon == math.inf:
        return f"Expected cost in {seen.score}: {sampling}. There is no noise."
    text = [
        f"Expected cost of privacy: {format_range(seen)} in {seen.score} (80 % "
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
            f"To halve the error, use {rows:.2g} times as many {counted}{fewer}."
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


def format_range(seen: Forecast) -> str:
    """Format the range of the cost of privacy."""
    if seen.low == 0:
        return f"at most {seen.high:.1g}"
    return f"{seen.low:.1g} to {seen.high:.1g}"


def describe_constant(
    *, loss: str, n_rows: int, epsilon: float, delta: float, neighbours: Neighbours
) -> str:
    """Explain why a plan fits only a constant, and how many rows a model requires."""
    constant = FORECAST_CONSTANTS[LOSSES[loss].score].constant
    # Part of the budget may have been spent on ranges or the number of rows.
    factor = max(TOO_FEW / _signal(n_rows, epsilon, delta, neighbours), 1.1)
    return (
        f"Only a constant is fitted ({constant}), because {n_rows:,} "
        f"{'row' if n_rows == 1 else 'rows'} cannot support a single coefficient at "
        f"ε = {epsilon:g}. All coefficients are zero. About {factor:.2g} times as many "
        "rows would support a model."
    )


def _signal(
    n_rows: float, epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """Return nν, the signal-to-noise ratio of a sum over n rows.

    As in `planning.rule`, ν is the Gaussian-DP parameter μ of the budget, or μ/2 if a
    record may be replaced.
    """
    mu = accountant.gdp_mu(epsilon, delta)
    return n_rows * mu / count_changes(neighbours)
