"""Standard errors of weighted fits, counts and several classes."""

import math
from dataclasses import replace

import numpy as np
import pytest

import skdp
from skdp.estimators.weights import N_BINS, _count_weights, make_weighting
from skdp.privacy.encoding import Batch, encode
from skdp.privacy.queries import Kind

RNG = np.random.default_rng(0)
N = 6000
X = RNG.random((N, 2))
YES = (RNG.random(N) < 1 / (1 + np.exp(1 - 2 * X[:, 0]))).astype(int)
COUNTS = RNG.poisson(np.exp(0.5 + X @ [1.0, -1.0]))
WEIGHTS = RNG.choice([0.25, 1.0], N)


def fit(kind=skdp.LogisticRegression, y=YES, **options):
    given = {"sample_weight": options.pop("sample_weight", None)}
    if "exposure" in options:
        given = {"exposure": options.pop("exposure")}
    about = {"target_bounds": (0, 15)} if kind is skdp.PoissonRegressor else {}
    if not about:
        about = {"classes": sorted(set(y.tolist()))}
    options = {"epsilon": 8.0, "bounds": (0, 1), "random_state": 0} | about | options
    return kind(**options).fit(X, y, **given)


def test_weights_are_released_without_null_rows():
    model = fit(sample_weight=np.where(X[:, 1] < 0.5, 0.0, WEIGHTS), epsilon=math.inf)
    (released,) = (
        r for r in model.privacy_.transcript if r.kind == Kind.WEIGHT_HISTOGRAM
    )
    there = X[:, 1] >= 0.5
    expected = np.zeros(N_BINS)
    expected[N_BINS // 4 - 1] = (there & (WEIGHTS < 0.5)).sum()
    expected[-1] = (there & (WEIGHTS > 0.5)).sum()
    np.testing.assert_array_equal(released.values.ravel(), expected)
    found = make_weighting(model)
    assert found.shares.sum() == pytest.approx(there.mean(), rel=1e-9)
    mean = (found.weights * found.shares).sum()
    assert mean == pytest.approx((WEIGHTS * there).mean(), rel=0.05)


def test_a_row_is_in_one_bin_and_a_person_adds_one():
    schema = skdp.Schema({"a": skdp.Numeric(0, 1)}, target=skdp.Numeric(0, 1))
    weights = np.array([0.0, 1e-9, 0.5, 2.0, math.inf, math.nan, -3.0, 1e300])
    cells = np.zeros(len(weights))
    for unit, divisor in ((None, None), ("id", np.arange(1, len(weights) + 1))):
        batch = Batch(
            columns={"a": cells}, target=cells, weight=weights, divisor=divisor
        )
        about = skdp.Schema(schema.columns, target=schema.target, unit=unit)
        records = encode([batch], about, max_weight=2.0)
        counts = _count_weights(records)
        assert counts.sum() <= 5 * records.one
        for chunk in records.chunks:
            own = _count_weights(replace(records, chunks=(chunk,)))
            assert own.sum() * chunk.divisor <= len(chunk.target) * records.one


def test_fits_without_weights_release_no_histogram():
    for options in ({}, {"class_weight": "balanced"}):
        assert Kind.WEIGHT_HISTOGRAM not in {
            r.kind for r in fit(**options).privacy_.transcript
        }
    svc = fit(skdp.LinearSVC, sample_weight=WEIGHTS)
    assert Kind.WEIGHT_HISTOGRAM not in {
        r.kind for r in svc.privacy_.transcript
    }  # of no use there


def test_a_histogram_of_weights_is_verified(tmp_path):
    model = fit(sample_weight=WEIGHTS, random_state=None)
    model.save(tmp_path / "model")
    assert skdp.verify(tmp_path / "model").passed


@pytest.mark.parametrize(
    ("kind", "y", "options"),
    [
        (skdp.LogisticRegression, YES, {"sample_weight": WEIGHTS}),
        (skdp.LogisticRegression, YES, {"class_weight": {0: 0.3, 1: 1.0}}),
        (skdp.LogisticRegression, YES, {"class_weight": "balanced"}),
        (skdp.LogisticRegression, YES, {"max_weight": 3.0}),
        (skdp.PoissonRegressor, COUNTS, {}),
        (skdp.PoissonRegressor, COUNTS, {"exposure": np.full(N, 0.5)}),
    ],
)
def test_errors_are_as_large_as_they_are_said_to_be(kind, y, options):
    """Errors of coefficients are those that fits to fresh halves of rows have."""
    model = fit(kind, y, **options)
    true = [2.0, 0.0] if kind is skdp.LogisticRegression else [1.0, -1.0]
    z = (model.coef_.ravel() - true) / model.coef_std_.ravel()
    assert np.abs(z).max() < 4.0
    assert 0 < model.coef_noise_std_.max() < model.coef_std_.max() < 0.6


@pytest.mark.parametrize("units", [16.0, 2.0**-10])
def test_the_units_of_weights_do_not_matter(units):
    """Caps are in proportion to the largest weight, and noise to the caps."""
    plain = fit(sample_weight=WEIGHTS, alpha=0.0, n_rows=N)
    other = fit(sample_weight=units * WEIGHTS, alpha=0.0, n_rows=N, max_weight=units)
    np.testing.assert_allclose(other.weights_, plain.weights_, atol=1e-6)
    np.testing.assert_allclose(other.coef_std_, plain.coef_std_, rtol=1e-6)


def test_class_weights_shift_only_the_intercept():
    weighing = fit(class_weight={0: 0.25, 1: 1.0}, epsilon=math.inf, alpha=0.0)
    plain = fit(epsilon=math.inf, alpha=0.0)
    shift = weighing.intercept_ - plain.intercept_
    assert shift[0] == pytest.approx(math.log(4.0), abs=0.1)
    wider = weighing.coef_std_ / plain.coef_std_
    assert np.all((wider > 0.98) & (wider < 1.1))


def test_sample_and_class_weights_together_have_no_errors():
    model = fit(sample_weight=WEIGHTS, class_weight={0: 0.5, 1: 1.0})
    with pytest.raises(AttributeError, match="not with both"):
        _ = model.coef_std_


def test_counts_that_vary_more_have_larger_errors():
    over = RNG.poisson(np.exp(0.5 + X @ [1.0, -1.0]) * RNG.gamma(1.0, 1.0, N))
    wider = fit(skdp.PoissonRegressor, over).coef_std_
    assert np.all(wider > 1.2 * fit(skdp.PoissonRegressor, COUNTS).coef_std_)


def test_a_summary_says_that_weights_were_clipped():
    said = "of the sample weights are near max_weight = 1 or above it"
    clipped = fit(sample_weight=np.full(len(YES), 3.0), epsilon=8.0)
    assert said in " ".join(clipped.summary().notes)
    fitting = fit(sample_weight=np.full(len(YES), 3.0), max_weight=6.0, epsilon=8.0)
    assert said not in " ".join(fitting.summary().notes)
