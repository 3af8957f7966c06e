"""What a plan may be expected to give, from public facts and a stated prior.

A forecast is a linearised calculation of what noise, shrinkage and the number of rows
cost, not a bound: what caps cost depends on the data and comes on top. The prior:
columns are independent, numeric ones uniform on their range, categories equally
frequent, and the loss curves by half of its largest curvature (all of it for squared
losses, whose residuals have a standard deviation of a fifth of the half-range). What
the best model adds to a constant has a variance of 3, as log-odds of common tables have
(for squared losses that of the residuals), spread evenly over all directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from skdp.descent.geometry import Diagonal
from skdp.descent.intercept import InterceptOnly
from skdp.descent.matrix import Matrix
from skdp.descent.samplings import Full
from skdp.descent.target import USUAL_SCALE
from skdp.planning.decide import replan
from skdp.planning.plan import Plan
from skdp.planning.rule import TOO_FEW
from skdp.privacy import accountant
from skdp.schema import FloatArray, Layout

#: Variance of what a regression leaves of a target in [-1, 1], under the prior.
RESIDUAL_VARIANCE = 0.04
#: Variance of x·w* for other losses, under the prior.
SIGNAL_VARIANCE = 3.0
#: Times the rows that support a model at all, below which caps may cost the most.
FEW = 10.0
#: Factors of rows or budget beyond which "how much more" is not worth answering.
MOST_FACTOR = 1e4


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Expected excess of the mean loss, and noise in each weight.

    Attributes
    ----------
    privacy_excess, sampling_excess : float
        What noise and shrinkage cost, and what any fit to so few rows costs.
    weight_noise : float64 (d,)
        Standard deviation of the privacy noise in each weight of scaled features.
    """

    privacy_excess: float
    sampling_excess: float
    weight_noise: FloatArray

    @property
    def excess(self) -> float:
        """Both together."""
        return self.privacy_excess + self.sampling_excess


def prior_moments(layout: Layout) -> tuple[FloatArray, FloatArray]:
    """E[x] and E[x²] of each coordinate, under the prior."""
    mean, second = np.zeros(layout.n_features), np.zeros(layout.n_features)
    for group in layout.groups:
        at = group.coordinates
        if group.kind == "code":
            mean[at] = second[at] = 1.0 / group.width
        elif group.kind == "ones":
            mean[at] = second[at] = 1.0
        else:
            mean[at] = 0.0 if group.signed else 0.5
            second[at] = 1.0 / group.width if group.signed else 1.0 / 3.0
    return mean, second


@lru_cache(maxsize=2)
def prior_spectrum(layout: Layout) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of E[x xᵀ] under the prior; a plan asks often."""
    mean, second = prior_moments(layout)
    gram = np.outer(mean, mean)
    for group in layout.groups:
        at = group.coordinates
        gram[np.ix_(at, at)] = np.diag(second[at])
    values, vectors = np.linalg.eigh(gram)
    return np.maximum(values, 0.0), vectors


def forecast(plan: Plan) -> Forecast:
    """Forecast a plan."""
    layout, loss = plan.layout, plan.loss
    d, k, n = layout.n_features, loss.n_outputs, plan.n_rows
    curved = loss.curvature * (1.0 if loss.name in ("squared", "huber") else 0.5)
    squared = curved == loss.curvature
    spread = RESIDUAL_VARIANCE if squared else 1.0
    signal = 0.5 * curved * k * (RESIDUAL_VARIANCE if squared else SIGNAL_VARIANCE)
    sampling = spread * d * k / (2.0 * n)
    mu = accountant.gdp_mu(plan.epsilon, plan.delta)
    if mu == math.inf:
        return Forecast(
            privacy_excess=0.0, sampling_excess=sampling, weight_noise=np.zeros(d)
        )
    difference = 2.0 if plan.relation == "replace-one" else 1.0
    z = plan.noise_multiplier(mu**2)
    averaged = float(1.0 / np.square(plan.average(plan.n_steps)).sum())
    if isinstance(plan.geometry, InterceptOnly):
        variance = (z * difference * plan.geometry.radius / n) ** 2 / averaged
        variance /= (curved + plan.geometry.shrinkage) ** 2
        noise = np.append(np.zeros(d - 1), math.sqrt(variance))
        privacy = 0.5 * curved * k * variance
    elif isinstance(plan.geometry, Matrix):
        # u ← u - ((c s_j + λ) u + ζ)/β in whitened space, s_j the share of A that is
        # the Gram matrix: the average of m iterates has variance σ²/((c s_j + λ)² m).
        matrix = plan.geometry
        values, vectors = prior_spectrum(layout)
        share = values / (values + matrix.floor)
        radius = matrix.radius
        if matrix.scaled:
            radius *= USUAL_SCALE * math.sqrt(float(share.sum()))
        std = z * difference * radius / n
        ridge = matrix.shrinkage * radius
        variances = std**2 / averaged / (curved * share + ridge) ** 2
        lost = ridge / (curved * share + ridge)
        inverse = (vectors * variances / (values + matrix.floor)) @ vectors.T
        noise = np.sqrt(np.diag(inverse))
        privacy = 0.5 * curved * k * float((share * variances).sum())
        privacy += signal * float(np.mean(lost[values > 1e-9 * values.max()] ** 2))
    else:
        assert isinstance(plan.geometry, Diagonal)
        p = plan.sampling.probabilities
        reach = loss.slope_bound * difference / n
        curves = curved * prior_moments(layout)[1]
        # Weights that are learnt carry the noise of an averaged gradient, those that
        # the run has no time for what steps add up to.
        learnt = z * reach / np.sqrt(plan.n_steps * p) / curves
        walked = z * reach * np.sqrt(plan.n_steps * p) / plan.geometry.smoothness
        noise = np.minimum(learnt, walked)
        privacy = 0.5 * k * float((curves * noise**2).sum())
        reached = np.minimum(1.0, plan.n_steps * p * curves / plan.geometry.smoothness)
        privacy += signal * float(np.mean((1.0 - reached) ** 2))
        sampling = spread * k * float(reached.sum()) / (2.0 * n)
    return Forecast(
        privacy_excess=float(privacy), sampling_excess=sampling, weight_noise=noise
    )


def more_to_halve(plan: Plan, what: str) -> float | None:
    """Factor of ``"n_rows"`` or ``"epsilon"`` at which the forecast excess is halved.

    None if no factor up to 10⁴ does it.
    """
    goal = forecast(plan).excess / 2.0

    def excess(factor: float) -> float:
        changed = {"n_rows": plan.n_rows, "epsilon": plan.epsilon}
        changed[what] *= factor
        changed["n_rows"] = round(changed["n_rows"])
        delta = min(plan.delta, 0.1 / changed["n_rows"])
        return forecast(replan(plan, delta=delta, **changed)).excess

    low, high = 1.0, 2.0
    while excess(high) > goal:
        low, high = high, 2.0 * high
        if high > MOST_FACTOR:
            return None
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excess(middle) <= goal else (middle, high)
    return high


def described(plan: Plan) -> str:
    """A plan for a reader: what it does, and what may be expected of it."""
    columns = sum(group.kind != "ones" for group in plan.layout.groups)
    lines = [
        f"{plan.loss.name} model of {columns} columns, {plan.layout.n_features} "
        f"coefficients, {plan.n_rows:,} rows",
        f"budget: ε = {plan.epsilon:g}, δ = {plan.delta:g}, {plan.relation} neighbours",
    ]
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
    elif isinstance(plan.geometry, InterceptOnly):
        lines.append("geometry: the intercept alone, a constant model")
    else:
        lines.append("geometry: diagonal, from public bounds")
    full = isinstance(plan.sampling, Full)
    moved = "all coordinates" if full else f"coordinates drawn by {plan.sampling!r}"
    lines.append(f"steps: {plan.n_steps * plan.n_restarts:,}, each moves {moved}")
    mu = accountant.gdp_mu(plan.epsilon, plan.delta)
    if mu < math.inf:
        z = plan.noise_multiplier(mu**2)
        lines.append(f"noise: {z:.4g} times what one record can change, each step")
    if plan.rate is not None:
        bound = plan.rate.bound
        lines.append(f"bound on the expected excess: {bound:.3g} ({plan.rate.theorem})")
    return "\n".join([*lines, in_words(plan)])


def in_words(plan: Plan) -> str:
    """What limits the result and what would halve its error."""
    seen = forecast(plan)
    mu = accountant.gdp_mu(plan.epsilon, plan.delta)
    signal = mu * plan.n_rows / (2.0 if plan.relation == "replace-one" else 1.0)
    if isinstance(plan.geometry, InterceptOnly):
        return (
            f"ε = {plan.epsilon:g} and {plan.n_rows:,} rows cannot support a model, "
            "however few its columns: noise would drown it. Only a constant is fitted, "
            f"the base rate or the mean. About {TOO_FEW / signal:.2g} times the rows, "
            "or as many times the ε, would support one."
        )
    if plan.epsilon == math.inf:
        return f"No noise: {plan.n_rows:,} rows leave an error of {seen.excess:.2g}."
    share = seen.privacy_excess / seen.excess
    text = [
        f"Expected cost in mean loss: {seen.privacy_excess:.2g} for privacy, "
        f"{seen.sampling_excess:.2g} because {plan.n_rows:,} rows are not more."
    ]
    if seen.privacy_excess > 0.1:
        text.append(
            "Noise would drown the model: this budget and these rows cannot support "
            f"{plan.layout.n_features} coefficients."
        )
    elif share > 0.5:
        text.append("The budget limits the result.")
    else:
        text.append("The number of rows limits the result, not privacy.")
    rows, epsilon = (more_to_halve(plan, what) for what in ("n_rows", "epsilon"))
    remedies = []
    if rows is not None:
        remedies.append(f"{rows:.2g} times the rows")
    if epsilon is not None:
        remedies.append(f"{epsilon:.2g} times the ε")
    if share > 0.5:
        half = max(1, plan.layout.n_features // 2)
        remedies.append(f"fewer coefficients (about {half})")
    if remedies:
        text.append("Half the error takes " + ", or ".join(remedies) + ".")
    if isinstance(plan.geometry, Matrix) and signal < FEW * TOO_FEW:
        text.append(
            "With so few rows the caps on single records, which are left out here, may "
            "cost more than all this: a rare class may be told too rarely."
        )
    return " ".join(text)
