"""The intercept is corrected after the descent, and the correction is paid for."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax

from skdp.datasets import compute_true_margins, make_hospital
from skdp.descent.matrix import FARTHEST, USUAL_ERROR, Matrix, find_shift, release_level
from skdp.descent.plan import run
from skdp.descent.rule import make_default_plan
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Huber, Logistic, Poisson, SmoothedHinge, Softmax, Squared
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import NEIGHBOURS, Kind, Slopes
from skdp.schema import Categorical, Numeric, Schema

N_ROWS = 3000


def made(target="readmitted", **options):
    data = make_hospital(N_ROWS, target=target)
    return encode([data.batch], data.schema, **options)


def three_classes():
    """Readmissions, a class of every fiftieth row, and all others."""
    data = make_hospital(N_ROWS)
    codes = np.where(np.arange(N_ROWS) % 50 == 0, 2, data.batch.target.codes)
    batch = Batch(columns=data.batch.columns, target=Coded(codes, (0, 1, 2)))
    schema = Schema(data.schema.columns, target=Categorical([0, 1, 2]))
    return encode([batch], schema)


def fitted(records, loss, geometry=None, epsilon=math.inf, **options):
    plan = make_default_plan(
        records.layout, loss, n_rows=N_ROWS, epsilon=epsilon, delta=1e-6, **options
    )
    if geometry is not None:
        plan = replace(plan, geometry=geometry)
    return run(plan, records, random_state=1)


def low(share, radius=1.0):
    """Caps that cut many records, with and without a correction."""
    return Matrix(radius=radius, floor=1e-3, target_share=0.1, level_share=share)


MEANS = {
    "two classes": (made, Logistic(), lambda m: expit(m)),
    "three classes": (three_classes, Softmax(3), lambda m: softmax(m, axis=1)),
    "counts": (lambda: made("visits"), Poisson(), np.exp),
}


@pytest.mark.parametrize("name", MEANS)
def test_predictions_are_right_on_average(name):
    """Without noise, to the error of taking margins as normal."""
    make, loss, mean = MEANS[name]
    records = make()
    target = records.chunks[0].target.astype(float)
    rate = target.mean() / 2**14
    if loss.n_classes:
        rate = np.bincount(target.astype(int)) / N_ROWS
        rate = rate[1:] if loss.n_outputs == 1 else rate
    off = []
    for share in (0.0, 0.1):
        cap = 1.0 if loss.n_classes else 0.1
        weights = fitted(records, loss, low(share, cap), n_steps=60).weights
        off.append(
            np.abs(mean(compute_true_margins(records, weights)).mean(axis=0) - rate)
        )
    assert np.max(off[0]) > 0.01 * np.max(rate)
    assert np.max(off[1]) < 0.1 * np.max(off[0])


def test_a_shift_moves_predictions_by_the_released_error():
    margins = np.random.default_rng(0).normal(-2.0, 1.5, 200_000)
    for error in (0.05, -0.08):
        shift = find_shift(
            Logistic(), np.array([-2.0]), np.eye(1) * 2.25, np.array([error]), 0.0, 1.0
        )
        moved = expit(margins + shift).mean() - expit(margins).mean()
        assert moved == pytest.approx(-error, abs=1e-3)


def test_noise_shrinks_the_shift_and_nothing_moves_it_far():
    def shift(error, noise_std, spread=1.0):
        given = np.zeros(1), np.eye(1) / 25, np.array([error]), noise_std, spread
        return float(find_shift(Squared(), *given)[0])

    assert shift(0.1, 0.0) == pytest.approx(-0.1)
    assert shift(0.1, USUAL_ERROR) == pytest.approx(-0.05)
    assert shift(0.1, USUAL_ERROR, spread=0.5) == pytest.approx(-0.02)
    far = find_shift(Logistic(), np.zeros(1), np.eye(1), np.array([9.0]), 0.0, 1.0)
    assert -FARTHEST <= far[0] < -0.99 * FARTHEST


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("max_weight", [1.0, 4.0])
def test_the_correction_is_charged_at_its_bound(neighbours, max_weight):
    records = made(max_weight=max_weight)
    fit = fitted(records, Logistic(), epsilon=1.0, neighbours=neighbours)
    share = fit.plan.geometry.level_share
    level = [event for event in fit.record.events if event.kind == Kind.LEVEL]
    assert [fit.record.events[event] for event in level] == [1]
    apart = 2 if neighbours == "replace-one" else 1
    assert level[0].sensitivity == pytest.approx(apart * max_weight)
    assert level[0].mu_squared == pytest.approx(share * fit.record.budget)
    assert fit.record.transcript[-1].kind == Kind.LEVEL
    assert fit.record.remaining == pytest.approx(0.0, abs=1e-9)


def test_slopes_of_counts_are_capped_by_the_spread_of_the_target():
    fit = fitted(made("visits"), Poisson(), epsilon=1.0, neighbours="zero-out")
    (level,) = [e for e in fit.record.events if e.kind == Kind.LEVEL]
    assert 0.1 < level.sensitivity < 0.9


@pytest.mark.parametrize("loss", [Huber(), SmoothedHinge()])
def test_losses_that_do_not_predict_a_mean_have_no_correction(loss):
    target = "readmitted" if loss.n_classes else "cost"
    records = made(target)
    fit = fitted(records, loss, epsilon=1.0, neighbours="zero-out")
    assert fit.plan.geometry.level_share == 0
    assert "sum of slopes" not in str(fit.record)
    with pytest.raises(ValueError, match="level_share > 0 requires an intercept"):
        fitted(records, loss, low(0.1))
    with pytest.raises(ValueError, match="level_share must be at least 0"):
        low(-0.1)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_one_record_moves_the_sum_by_no_more_than_its_bound(neighbours):
    """Counts at both ends of their range, where slopes are longest."""
    schema = Schema({"x": Numeric(0, 1)}, target=Numeric(0, 10))

    def total(x, counts):
        batch = Batch(columns={"x": np.asarray(x)}, target=np.asarray(counts))
        engine, asked = ReferenceEngine(encode([batch], schema)), []
        weights = np.array([[0.0], [-0.01]])  # all means are nearly 10
        slopes = Slopes(loss=Poisson())
        release_level(engine, slopes, weights, neighbours, 0.25, asked.append)
        return asked[0]

    one, other = total([0.5, 1.0], [3.0, 10.0]), total([0.5, 1.0], [3.0, 0.0])
    least = total([0.5], [3.0])
    bound = one.sensitivity / one.unit
    moved = [abs(one.value - other.value), abs(other.value - least.value)]
    if neighbours == "replace-one":
        assert 0.25 / one.unit < moved[0][0, 0] <= bound
    else:
        assert 0.24 / one.unit < moved[1][0, 0] <= bound
