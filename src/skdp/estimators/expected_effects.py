"""Forecast the intervals of a fit: which effects it will tell, and how closely.

Before a fit nothing is known of the records. So rows are made up that follow stated
assumptions, and the releases of a fit of such rows are made up too, with the noise that
the plan will add. Standard errors then come from the same functions as in a fit. No
record is read, and nothing made up is ever released or saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import ndtri

from skdp.descent.forecast import LIKELY
from skdp.descent.plan import EffectForecast, EffectOutlook, Plan
from skdp.engines.reference import ReferenceEngine
from skdp.estimators.effects import compute_effects
from skdp.estimators.weights import BALANCED
from skdp.inference.covariances import find_obstacle
from skdp.privacy import accountant
from skdp.privacy.encoding import encode
from skdp.privacy.queries import BigInts, BoundedSum, Slopes
from skdp.schema import (
    Categorical,
    Column,
    Factor,
    FloatArray,
    IntArray,
    Numeric,
    Pair,
    Product,
    Schema,
    Target,
    Vector,
)
from skdp.tables.batches import batches

#: Rows fill this share of each range, in its middle.
FILLED = 1.0 / 3.0
#: They fill it like a bell of this many standard deviations, from end to end.
WIDE = 5.0
#: If a column has an indicator of missing cells, one of this many is missing.
MISSING = 10
#: The variance that all columns together explain: of the log-odds of a class and of the
#: logarithm of a count, and the share of the variance of a number.
EXPLAINED = {"logit": 1.0, "log": 0.25, "identity": 0.5}
#: Number of rows that are made up. Each stands for many rows of the table.
N_MADE = 1024
#: Number of times that noise is made up.
N_DRAWS = 3
#: Effects of models with more coefficients are not forecast, because it takes too long.
MOST_FORECAST = 100
#: Rows and ε are doubled at most this many times to tell all effects, and ε at most up
#: to this.
MOST_DOUBLINGS, MOST_EPSILON = 6, 10.0


def forecast_effects(
    estimator: Any, schema: Schema, plan: Plan, remaining: float
) -> EffectOutlook | str:
    """Forecast the standard errors of all effects of a fit.

    Parameters
    ----------
    estimator : PrivateLinearModel
        The estimator, which is not changed.
    schema : Schema
        The schema that the plan is for.
    plan : Plan
        The plan.
    remaining : float
        The part of the budget (of μ²) that is left for the plan.

    Returns
    -------
    EffectOutlook or str
        What is expected, or a sentence that says why nothing is.
    """
    if math.isinf(plan.epsilon):
        return "Intervals are forecast for a finite ε."
    reason = find_obstacle(plan)
    if reason is not None:
        return reason
    several = plan.loss.n_outputs > 1
    plain = not any(isinstance(c, (Pair, Vector)) for c in schema.columns.values())
    curved = any(getattr(c, "n_knots", None) for c in schema.columns.values())
    if several or not plain or curved or plan.layout.n_features > MOST_FORECAST:
        return (
            "Intervals are forecast for models without curves, pairs, vectors and "
            f"further classes, of at most {MOST_FORECAST} coefficients."
        )
    looks = estimator._looks(schema)
    assumed = assume_filled(schema) if looks else schema
    share = remaining / accountant.gdp_mu(plan.epsilon, plan.delta) ** 2

    def rehearse(n_rows: int, epsilon: float, draws: int) -> list[EffectForecast]:
        delta = min(plan.delta, 0.1 / n_rows)
        model = copy(estimator).set_params(epsilon=epsilon)
        if model.class_weight == BALANCED:  # made-up classes are nearly balanced
            model.class_weight = None
        budget = share * accountant.gdp_mu(epsilon, delta) ** 2
        return _rehearse(model, assumed, n_rows, delta, budget, draws)

    def tells_all(n_rows: int, epsilon: float) -> bool:
        return all(one.told >= LIKELY for one in rehearse(n_rows, epsilon, 1))

    try:
        found = rehearse(plan.n_rows, plan.epsilon, N_DRAWS)
    except np.linalg.LinAlgError:  # as with ranges from -1e300 to 1e300
        return "Intervals cannot be forecast for such extreme ranges."
    times, epsilon = 1.0, plan.epsilon
    if any(one.told < LIKELY for one in found):
        powers = range(1, MOST_DOUBLINGS + 1)
        times = next(
            (2.0**k for k in powers if tells_all(plan.n_rows << k, plan.epsilon)),
            math.inf,
        )
        rises = [plan.epsilon * 2.0**k for k in powers if 2.0**k <= 4.0 * times]
        budgets = [one for one in rises if one <= MOST_EPSILON]
        epsilon = next(
            (one for one in budgets if tells_all(plan.n_rows, one)), math.inf
        )
    return EffectOutlook(
        effects=tuple(found),
        link=estimator.link,
        times_to_tell_all=times,
        epsilon_to_tell_all=epsilon,
    )


@np.errstate(all="ignore")
def _rehearse(
    estimator: Any,
    schema: Schema,
    n_rows: int,
    delta: float,
    remaining: float,
    n_draws: int,
) -> list[EffectForecast]:
    """Forecast the effects of a fit of `n_rows` made-up rows.

    `schema` is that of a look, and `remaining` what the look leaves of the budget.
    """
    record: Any = SimpleNamespace(
        remaining=remaining,
        neighbours=estimator.neighbours,
        assumptions=[],
        delta=delta,
    )
    schema = replace(schema, unit=None)  # as if each person had one row
    plan = estimator._plan(schema, n_rows, record)
    # A single level has no effect.
    columns = [n for n, c in schema.columns.items() if c.width > 1 or c.kind != "code"]
    if find_obstacle(plan) is not None:
        return [EffectForecast(name, 0.0, math.inf) for name in columns]
    made = make_up_rows(schema, estimator.link, min(N_MADE, n_rows))
    table, target, weights = made
    records = encode(batches(table, schema, target=target), schema)
    repeats = max(1, round(n_rows / len(records.chunks[0].target)))
    names: list[str] = []
    stds = []
    for draw in range(n_draws):
        model = copy(estimator)
        model.plan_, model._errors = plan, None
        model._weighted = model._exposed = False
        if plan.layout.clips is not None:  # as after a look
            model.profile_ = SimpleNamespace()
        model.privacy_ = SimpleNamespace(
            transcript=_make_up_releases(
                plan, records, repeats, weights, remaining, draw
            ),
            find_released=lambda *_: None,
        )
        if isinstance(schema.target_column, Categorical):
            model.classes_ = np.array(schema.target_column.levels, dtype=object)
        model._set_fitted(weights[:, None], schema, True)
        (output,) = compute_effects(model)
        names = [one.column for one in output.effects]
        stds.append([one.std for one in output.effects])
    return [_summarise_effects(name, names, np.array(stds)) for name in columns]


def _summarise_effects(name: str, names: list[str], stds: FloatArray) -> EffectForecast:
    """Return the forecast of a column from the standard errors (draws, effects)."""
    own = stds[:, [other == name for other in names]]
    told = np.isfinite(own)
    width = 2 * 1.96 * float(np.median(own[told])) if told.any() else math.inf
    return EffectForecast(name, float(told.mean()), width)


def assume_filled(schema: Schema) -> Schema:
    """Return the schema that a look would find if rows fill a part of each range."""
    columns: dict[str, Any] = dict(schema.columns)
    for name, column in columns.items():
        if isinstance(column, Numeric) and not isinstance(column, Product):
            columns[name] = _fill(column)
    for name, column in columns.items():
        if isinstance(column, Product):
            columns[name] = _fill_product(column, columns)
    return replace(schema, columns=columns)


def _find_filled(column: Numeric) -> tuple[float, float]:
    """Return the part of the scaled range [0, 1] that rows fill."""
    if column.bins is not None:  # which are equally frequent, as levels are
        return 0.0, 1.0
    if column.fill is not None:
        return column.inner
    return 0.5 - FILLED / 2, 0.5 + FILLED / 2


def _fill_product(column: Product, columns: Mapping[str, Column]) -> Product:
    if column.centred:
        return column.recentre(columns, {})
    filled = []
    for factor in column.factors:
        own = factor.column
        if isinstance(own, Numeric):
            own = replace(_fill(own).narrow(), missing=None)
        filled.append(replace(factor, column=own))
    ends = Product.of(*filled)
    fill = (max(ends.low, column.low), min(ends.high, column.high))
    return replace(column, fill=fill, missing=sum(fill) / 2)


def _fill(column: Numeric) -> Numeric:
    if column.fill is not None or column.bins is not None:
        return column
    ends = _find_filled(column)
    low, high, middle = column.unscale(np.array([*ends, 0.5])).tolist()
    if column.indicator:
        start = column.low if column.scale == "log" else low
        return replace(column, low=start, high=high)
    return replace(column, fill=(low, high), missing=middle)


def make_up_rows(
    schema: Schema, link: str, n_rows: int
) -> tuple[dict[str, Any], Any, FloatArray]:
    """Return made-up rows, their targets, and the weights (d,) that these follow.

    Columns are independent. Numbers fill their part like a bell. The second level is
    half as frequent as the first, the third a third as frequent, and so on. All columns
    explain the same part of the target.
    """
    sources: dict[str, Any] = {}
    for name, column in schema.columns.items():
        parts = {name: column}
        if isinstance(column, Product):
            parts = {one.name: _describe_factor(one) for one in column.factors}
        sources = parts | sources
    table: dict[str, Any] = {}
    for place, (name, column) in enumerate(sources.items()):
        even = draw_uniforms(n_rows, place + 1)
        if isinstance(column, Categorical):
            shares = 1.0 / np.arange(1, column.width + 1)
            ends = np.cumsum(shares / shares.sum())
            codes = np.minimum(np.searchsorted(ends, even), column.width - 1)
            table[name] = [column.levels[code] for code in codes.tolist()]
        else:
            low, high = _find_filled(column)
            if column.bins is None:
                even = np.clip(0.5 + ndtri(even) / WIDE, 0.0, 1.0)
            table[name] = column.unscale(low + even * (high - low))
            if column.indicator:
                table[name][::MISSING] = math.nan
    layout = schema.layout(True)
    own = [group for group in layout.groups if group.kind != "ones"]
    weights = np.zeros(layout.n_features)
    margin = np.zeros(n_rows)
    (batch,) = batches(table, replace(schema, target=None, unit=None))
    explained = EXPLAINED[link]
    target = schema.target_column
    if isinstance(target, Numeric):  # rows fill a part of this range too, on [-1, 1]
        spread = 2.0 * FILLED / WIDE
        explained *= spread**2 if link == "identity" else 1.0
    for at, group in enumerate(own):
        column = schema.columns[group.name]
        features = np.asarray(column.compute_features(batch.columns[group.name]))
        if group.kind == "code":
            features = np.eye(group.width + 1)[features.ravel()][:, :-1]
        effects = np.where(np.arange(group.width) % 2 == at % 2, 1.0, -1.0)
        if group.width == 1:
            effects = np.array([1.0 if at % 2 else -1.0])
        size = float(np.std(features @ effects)) or 1.0
        effects *= math.sqrt(explained / len(own)) / size
        weights[group.coordinates] = effects
        margin += features @ effects
    shift = -float(margin.mean())
    noise = draw_uniforms(n_rows, 0)
    made = _make_up_target(target, link, margin + shift, noise)
    if link == "log":  # margins are logarithms of shares of the largest count
        shift += math.log(FILLED / 4.0)
    weights[-1] = shift
    return table, made, weights


def _describe_factor(factor: Factor) -> Any:
    column = factor.column
    return column if isinstance(column, Categorical) else _fill(column)


def _make_up_target(
    target: Target, link: str, margin: FloatArray, noise: FloatArray
) -> Any:
    """Return targets, for margins whose mean is zero."""
    if isinstance(target, Categorical):
        codes = (noise < 1.0 / (1.0 + np.exp(-margin))).astype(int)
        return [target.levels[code] for code in codes.tolist()]
    if link == "log":
        counts = target.high * FILLED / 4.0 * np.exp(margin)
        return counts * (1.0 + 0.5 * ndtri(noise)).clip(0.0)
    residual = 2.0 * FILLED / WIDE * math.sqrt(1.0 - EXPLAINED[link])
    half = (target.high - target.low) / 2.0
    return target.low + half * (1.0 + margin + residual * ndtri(noise))


class _RepeatedRows(ReferenceEngine):
    """Sums over a table in which each row occurs several times."""

    def __init__(self, records: Any, repeats: int) -> None:
        super().__init__(records)
        self._repeats = repeats

    def gram(self) -> BigInts:
        return super().gram() * self._repeats

    def counts(self, n_classes: int) -> BigInts:
        return super().counts(n_classes) * self._repeats

    def gradient(self, units: FloatArray, at: IntArray, slopes: Slopes) -> BigInts:
        return super().gradient(units, at, slopes) * self._repeats


def _make_up_releases(
    plan: Plan,
    records: Any,
    repeats: int,
    weights: FloatArray,
    budget: float,
    draw: int,
) -> list[Any]:
    """Return what a run of a plan would release, in the order of its transcript.

    Only the noise of the steps matters for standard errors, so all steps are the same.
    """
    made: list[Any] = []

    def pretend(total: BoundedSum, z: float) -> Any:
        std = z * total.sensitivity * np.broadcast_to(total.shape, total.value.shape)
        exact = total.value.astype(np.float64) * total.unit
        noise = ndtri(draw_uniforms(exact.size, 101 + 17 * draw + len(made)))
        values = exact + std * noise.reshape(exact.shape)
        made.append(SimpleNamespace(values=values, noise_std=std))
        return made[-1]

    def release_share(total: BoundedSum, share: float) -> Any:
        z = accountant.noise_multiplier(math.sqrt(budget * share), 1)
        return pretend(total, z)

    engine = _RepeatedRows(records, repeats)
    task = plan.make_task(engine, release_share)
    prepared = plan.geometry.prepare(task)
    every = np.arange(plan.layout.n_features)
    total = prepared.query(every, weights[:, None])
    step = pretend(total, plan.noise_multiplier(budget))
    made += [step] * (plan.n_steps - 1)
    released = len(made)
    prepared.finish(weights[:, None])
    for level in made[released:]:  # few made-up rows differ by chance, not by caps
        level.values = np.zeros_like(level.values)
    return made


def draw_uniforms(size: int, sequence: int) -> FloatArray:
    """Return numbers in (0, 1) that look random, the same ones every time.

    They are hashes (splitmix64) of positions in one of many sequences.
    """
    at = np.arange(1, size + 1, dtype=np.uint64) + np.uint64((sequence + 1) << 40)
    with np.errstate(over="ignore"):
        state = at * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return np.asarray(((state >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)
