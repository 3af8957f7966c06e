"""Without noise the models are scikit-learn's: same objective, same coefficients.

Features are put on the grid of 2⁻¹⁴ first, so that both see the same table.
"""

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn import linear_model

from skdp.estimators import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
)

ALPHA = 1e-3
rng = np.random.default_rng(2)
N, D = 3000, 5
X = rng.uniform(size=(N, D))
X[:, 1] = 0.6 * X[:, 0] + 0.4 * X[:, 1]
X = np.trunc(X * 2**14) / 2**14
SIGNAL = X @ np.array([3.0, -2.0, 1.0, 0.0, -1.0])
NOISELESS = {"epsilon": math.inf, "bounds": (0, 1), "alpha": ALPHA}


def on_grid(target):
    return np.rint(target * 2**14) / 2**14


def assert_optimal(objective, model, reference):
    """Compare coefficients and intercepts, and the value of the objective."""
    own = np.append(model.coef_.ravel(), model.intercept_)
    best = np.append(reference[0].ravel(), reference[1])
    shape = model.coef_.shape
    gap = objective(model.coef_, model.intercept_) - objective(
        reference[0].reshape(shape), reference[1]
    )
    assert gap < 1e-6
    assert np.abs(own - best).max() < 1e-3 * np.abs(best).max()


def log_loss(y):
    def objective(coef, intercept):
        margins = X @ coef.T + intercept
        if margins.shape[1] == 1:
            margins = np.hstack([np.zeros_like(margins), margins])
        chosen = log_softmax(margins, axis=1)[np.arange(N), y]
        return -chosen.mean() + ALPHA / 2 * (coef**2).sum()

    return objective


@pytest.mark.parametrize("rare", [0.0, 4.0])
def test_binary(rare):
    y = (rng.random(N) < 1 / (1 + np.exp(-SIGNAL + rare))).astype(int)
    model = LogisticRegression(classes=[0, 1], **NOISELESS).fit(X, y)
    other = linear_model.LogisticRegression(C=1 / (N * ALPHA), tol=1e-10, max_iter=9999)
    other.fit(X, y)
    assert_optimal(log_loss(y), model, (other.coef_, other.intercept_))
    assert model.intercept_.shape == other.intercept_.shape
    np.testing.assert_allclose(
        model.predict_proba(X), other.predict_proba(X), atol=1e-3
    )


def test_multinomial():
    y = np.argmax(4 * X[:, :4] + rng.gumbel(size=(N, 4)), axis=1)
    model = LogisticRegression(classes=range(4), **NOISELESS).fit(X, y)
    other = linear_model.LogisticRegression(C=1 / (N * ALPHA), tol=1e-10, max_iter=9999)
    other.fit(X, y)
    # A constant may be added to all intercepts.
    model.intercept_ -= model.intercept_.mean()
    intercept = other.intercept_ - other.intercept_.mean()
    assert_optimal(log_loss(y), model, (other.coef_, intercept))


def test_ridge():
    y = on_grid(np.clip(0.3 * SIGNAL + 0.2 * rng.normal(size=N), -1, 1))
    model = LinearRegression(target_bounds=(-1, 1), **NOISELESS).fit(X, y)
    other = linear_model.Ridge(alpha=ALPHA * N, tol=1e-12).fit(X, y)

    def objective(coef, intercept):
        residual = X @ coef + intercept - y
        return (residual**2).mean() / 2 + ALPHA / 2 * (coef**2).sum()

    assert_optimal(objective, model, (other.coef_, other.intercept_))


def test_huber():
    y = on_grid(np.clip(0.3 * SIGNAL + 0.1 * rng.standard_t(2, size=N), -1, 1))
    model = HuberRegressor(target_bounds=(-1, 1), **NOISELESS).fit(X, y)

    def objective(coef, intercept):
        size = np.abs(X @ coef + intercept - y)
        loss = np.where(size <= 0.1, size**2 / 2, 0.1 * size - 0.005)
        return loss.mean() + ALPHA / 2 * (coef**2).sum()

    def gradient(w):
        slope = np.clip(X @ w[:-1] + w[-1] - y, -0.1, 0.1)
        return np.append(X.T @ slope / N + ALPHA * w[:-1], slope.mean())

    best = minimize(
        lambda w: objective(w[:-1], w[-1]), np.zeros(D + 1), jac=gradient, tol=1e-12
    ).x
    assert_optimal(objective, model, (best[:-1], best[-1]))


def test_poisson():
    y = np.minimum(rng.poisson(np.exp(0.5 * SIGNAL)), 20)
    model = PoissonRegressor(target_bounds=(0, 20), **NOISELESS).fit(X, y)
    # Ours is divided by the largest count, so its penalty counts for more.
    other = linear_model.PoissonRegressor(alpha=20 * ALPHA, tol=1e-10, max_iter=9999)
    other.fit(X, y)

    def objective(coef, intercept):
        margin = X @ coef + intercept
        return (np.exp(margin) - y * margin).mean() / 20 + ALPHA / 2 * (coef**2).sum()

    assert_optimal(objective, model, (other.coef_, other.intercept_))


def test_support_vectors():
    y = (rng.random(N) < 1 / (1 + np.exp(-SIGNAL))).astype(int)
    sign = 2 * y - 1
    model = LinearSVC(classes=[0, 1], **NOISELESS).fit(X, y)

    def objective(coef, intercept):
        missing = 1 - sign * (X @ coef.ravel() + intercept)
        inside = np.clip(missing, 0, 0.5)
        loss = inside**2 + np.maximum(missing - 0.5, 0)
        return loss.mean() + ALPHA / 2 * (coef**2).sum()

    def gradient(w):
        missing = 1 - sign * (X @ w[:-1] + w[-1])
        slope = -sign * np.clip(2 * missing, 0, 1)
        return np.append(X.T @ slope / N + ALPHA * w[:-1], slope.mean())

    best = minimize(
        lambda w: objective(w[:-1], w[-1]), np.zeros(D + 1), jac=gradient, tol=1e-12
    ).x
    assert_optimal(objective, model, (best[:-1], best[-1]))


def test_sparse():
    words = sparse.random(2000, 40, density=0.1, random_state=0, format="csr")
    words.data = np.trunc(words.data * 2**12) / 2**14  # rows of norm below one
    assert sparse.linalg.norm(words, axis=1).max() < 1
    signal = words @ rng.normal(size=40) * 8
    y = (rng.random(2000) < 1 / (1 + np.exp(-signal))).astype(int)
    model = LogisticRegression(classes=[0, 1], epsilon=math.inf, alpha=ALPHA)
    model.fit(words, y)
    other = linear_model.LogisticRegression(
        C=1 / (2000 * ALPHA), tol=1e-10, max_iter=9999
    ).fit(words, y)

    def objective(coef, intercept):
        margin = (words @ coef.ravel()) + intercept
        loss = np.logaddexp(0, margin) - y * margin
        return loss.mean() + ALPHA / 2 * (coef**2).sum()

    assert_optimal(objective, model, (other.coef_, other.intercept_))
    np.testing.assert_allclose(
        model.predict_proba(words), other.predict_proba(words), atol=1e-3
    )


def test_weights_count_as_repeated_rows():
    """Up to the grid of slopes, and a penalty that repeats with the rows."""
    y = (rng.random(N) < 1 / (1 + np.exp(-SIGNAL))).astype(int)
    times = rng.integers(0, 4, size=N)
    weighted = LogisticRegression(classes=[0, 1], max_weight=3.0, **NOISELESS)
    weighted.fit(X, y, sample_weight=times)
    # Sums are divided by the number of rows, so the penalty counts for less.
    options = NOISELESS | {"alpha": ALPHA * N / times.sum()}
    repeated = LogisticRegression(classes=[0, 1], **options)
    repeated.fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), atol=1e-4
    )


def test_noise_does_not_need_a_poisson_user_to_choose_the_steps():
    n = 20_000
    features = rng.uniform(size=(n, 4))
    rate = np.exp(features @ np.array([1.0, -1.0, 0.5, 0.0]))
    y = np.minimum(rng.poisson(rate), 20)
    model = PoissonRegressor(bounds=(0, 1), target_bounds=(0, 20), random_state=0)
    found = model.fit(features, y).predict(features)
    assert np.abs(found / rate - 1).mean() < 0.1
