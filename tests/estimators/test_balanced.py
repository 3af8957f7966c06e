"""`class_weight="balanced"` weighs classes by counts that are released and charged."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Plain

import skdp
from skdp.estimators.weights import BALANCED_SHARE, release_balanced_weights
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.reporting.report import remake_plan

rng = np.random.default_rng(0)
X = rng.uniform(size=(8000, 2))
y = (rng.random(8000) < 1 / (1 + np.exp(4.5 - 3 * X[:, 0]))).astype(int)
COMMON = {"bounds": (0, 1), "classes": [0, 1], "class_weight": "balanced"}
KINDS = (skdp.LogisticRegression, skdp.LinearSVC)


@pytest.mark.parametrize("kind", KINDS)
def test_both_classes_are_predicted(kind):
    fit = kind(random_state=0, **COMMON).fit(X, y)
    plain = kind(random_state=0, **COMMON | {"class_weight": None}).fit(X, y)
    assert y.mean() < 0.15
    assert plain.predict(X).mean() < 0.02
    assert 0.3 < fit.predict(X).mean() < 0.7


def test_without_noise_it_is_what_scikit_learn_fits():
    fit = skdp.LogisticRegression(epsilon=np.inf, alpha=0.0, **COMMON).fit(X, y)
    plain = Plain(C=np.inf, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(fit.coef_, plain.coef_, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(fit.intercept_, plain.intercept_, rtol=1e-2)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_counts_are_charged(neighbours):
    fit = skdp.LogisticRegression(neighbours=neighbours, **COMMON).fit(X, y)
    record = fit.privacy_
    (counts,) = [e for e in record.events if e.kind == Kind.CLASS_WEIGHTS]
    assert counts.query == "counts of 2 classes, for weights"
    apart = 2 if neighbours == "replace-one" else 1
    assert counts.sensitivity == pytest.approx(apart**0.5)
    assert counts.mu_squared == pytest.approx(BALANCED_SHARE * record.budget)
    assert record.remaining == pytest.approx(0.0, abs=1e-9)
    assert skdp.verify(fit).passed


def test_weights_follow_the_released_counts_alone():
    """At a small budget, released counts are far from the true ones."""
    record = PrivacyRecord(epsilon=0.01, delta=1e-6, neighbours="zero-out")
    target = skdp.Categorical([0, 1])
    schema = skdp.Schema({"a": skdp.Numeric(0, 1)}, target=target)
    batch = Batch(columns={"a": X[:, 0]}, target=Coded(y, (0, 1)))
    weights = release_balanced_weights(
        encode([batch], schema),
        schema,
        record,
        noise=Randomness(),
        max_weight=3.0,
    )
    (released,) = record.transcript
    counts = np.maximum(released.values, released.noise_std)
    np.testing.assert_allclose(
        list(weights.values()), 3.0 * counts.min() / counts, rtol=1e-12
    )


def test_a_plan_sets_the_counts_aside():
    schema = skdp.Schema(
        {"a": skdp.Numeric(0, 1)}, target=("y", skdp.Categorical([0, 1]))
    )
    plain, less = (
        skdp.plan(schema, 10_000, class_weight=given) for given in (None, "balanced")
    )
    ratio = less.geometry.radius / plain.geometry.radius
    assert ratio == pytest.approx((0.93 / 0.95) ** (1 / 6), rel=1e-6)


def test_it_is_saved_and_refused_by_regressors(tmp_path):
    fit = skdp.LogisticRegression(**COMMON).fit(X, y)
    fit.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    assert loaded.class_weight == "balanced"
    assert remake_plan(loaded) is not None
    with pytest.raises(ValueError, match="requires a categorical target"):
        skdp.LinearRegression(
            bounds=(0, 1), target_bounds=(0, 1), class_weight="balanced"
        ).fit(X, y)
    with pytest.raises(ValueError, match="class_weight must be 'balanced' or map"):
        skdp.LogisticRegression(**COMMON | {"class_weight": "even"}).fit(X, y)


def test_only_ratios_of_class_weights_matter():
    """Weights above max_weight were clipped to it, so {0: 1, 1: 3} had no effect."""
    rng = np.random.default_rng(0)
    X = rng.random((2000, 1))
    y = (rng.random(2000) < 0.2 + 0.3 * X[:, 0]).astype(int)
    options = {"bounds": (0, 1), "classes": [0, 1], "random_state": 0, "n_rows": 2000}

    def fit(weights):
        model = skdp.LogisticRegression(epsilon=8.0, class_weight=weights, **options)
        return model.fit(X, y)

    light, heavy, rest = (
        fit(weights) for weights in ({0: 1 / 3, 1: 1}, {0: 1, 1: 3}, {1: 3})
    )
    assert (light.weights_ == heavy.weights_).all()
    assert (light.weights_ == rest.weights_).all()
    np.testing.assert_allclose(heavy.coef_std_, light.coef_std_)
    assert heavy.predict_proba(X)[:, 1].mean() > fit(None).predict_proba(X)[:, 1].mean()


@pytest.mark.parametrize("weight", ["x", None, -1.0])
def test_a_class_weight_that_is_not_one_is_named(weight):
    data = skdp.make_hospital(100)
    model = skdp.LogisticRegression(
        schema=data.schema, class_weight={"no": weight, "yes": 5.0}
    )
    with pytest.raises(ValueError, match=f"got {weight} for 'no'"):
        model.fit(data.columns)
