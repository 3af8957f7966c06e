"""Intervals over what a release leaves possible: forms, Lanczos, quantiles."""

import math

import numpy as np
import pytest
from scipy.linalg import expm

from skdp.inference import slopes, variances
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Numeric, Schema

LAYOUT = Schema(
    {"a": Numeric(0, 1), "b": Numeric(0, 1), "c": Categorical(["x", "y", "z"])},
    target=Numeric(0, 1),
).layout()
N_ROWS = 1000


def rows(spread=1.0):
    rng = np.random.default_rng(0)
    numbers = rng.random((N_ROWS, 2)) * [1.0, spread]
    levels = np.eye(3)[rng.integers(0, 3, N_ROWS)]
    return np.hstack([numbers, levels, np.ones((N_ROWS, 1))])


def released(X, neighbours="zero-out", noise=0.0, rng=None):
    """A Gram matrix as a release hands it over, with this noise on its diagonal."""
    pattern = queries.GramPattern.of(LAYOUT, neighbours, centred=True)
    centred = X - pattern.shift / 2.0
    values = (centred.T @ centred)[pattern.rows, pattern.columns]
    std = noise * pattern.shape
    if rng is not None:
        values = values + std * rng.standard_normal(len(values))
    gram = Released(values, std, Kind.GRAM, "gram")
    return variances.ReleasedGram(
        layout=LAYOUT, pattern=pattern, released=gram, n_rows=N_ROWS
    )


@pytest.mark.parametrize("neighbours", queries.NEIGHBOURS)
def test_quadratic_forms_and_their_noise(neighbours):
    X, rng = rows(), np.random.default_rng(1)
    q = np.array([[1.0, -0.5, 0.3, 0.0, 0.2, -0.4], [0.0, 0.0, 2.0, -1.0, -1.0, 0.0]])
    exact = released(X, neighbours)
    margins = X @ exact.uncentre(q).T
    value, std = exact.evaluate_forms(q)
    np.testing.assert_allclose(value, np.square(margins).mean(axis=0))
    np.testing.assert_array_equal(std, 0.0)
    drawn = [released(X, neighbours, 50.0, rng).evaluate_forms(q) for _ in range(800)]
    spread = np.std([values for values, _ in drawn], axis=0)
    np.testing.assert_allclose(drawn[0][1], spread, rtol=0.13)  # 5 deviations


@pytest.mark.parametrize("neighbours", queries.NEIGHBOURS)
def test_products_of_two_directions_and_their_noise(neighbours):
    X, rng = rows(), np.random.default_rng(2)
    q = np.array([[1.0, -0.5, 0.3, 0.0, 0.2, -0.4], [0.0, 0.0, 2.0, -1.0, -1.0, 0.0]])
    p = np.array([0.2, 1.0, -0.4, 0.1, 0.0, 0.3])
    exact = released(X, neighbours)
    value, _ = exact.evaluate_products(q, p)
    own = (X @ exact.uncentre(q).T).T @ (X @ exact.uncentre(p[None])[0])
    np.testing.assert_allclose(value, own / N_ROWS)
    np.testing.assert_allclose(exact.recentre(exact.uncentre(q)), q)
    drawn = [
        released(X, neighbours, 50.0, rng).evaluate_products(q, p) for _ in range(800)
    ]
    spread = np.std([values for values, _ in drawn], axis=0)
    np.testing.assert_allclose(drawn[0][1], spread, rtol=0.13)  # 5 deviations
    same = released(X, neighbours, 50.0)
    for form, product in zip(
        same.evaluate_forms(p[None]), same.evaluate_products(p[None], p), strict=True
    ):
        np.testing.assert_allclose(form, product)


def test_what_remains_of_a_column_is_its_residual_variance():
    X = rows()
    X[:, 1] = 0.5 * X[:, 0] + 0.1 * X[:, 1] + 0.2 * X[:, 2]
    gram = released(X)
    known = slopes.estimate_moments(LAYOUT, gram.pattern, gram.released, N_ROWS)
    found = variances.measure_remaining(gram, known, np.eye(6)[:2])
    for k in range(2):
        others = np.delete(X, k, axis=1)
        rest = X[:, k] - others @ np.linalg.lstsq(others, X[:, k], rcond=None)[0]
        np.testing.assert_allclose(found.estimate[k], np.var(rest), rtol=1e-3)


def test_noise_does_not_decide_which_columns_are_alike():
    """A hidden column stays hidden, and takes nothing from those that are seen."""
    X, rng = rows(0.02), np.random.default_rng(2)
    for _ in range(20):
        gram = released(X, noise=10.0, rng=rng)
        known = slopes.estimate_moments(LAYOUT, gram.pattern, gram.released, N_ROWS)
        found = variances.measure_remaining(gram, known, np.eye(6)[:2])
        assert found.estimate[0] > 4 * found.std[0]
        assert found.estimate[1] < 4.5 * found.std[1]
        assert found.std[1] < 0.02


def test_margins_explain_no_more_than_noise_allows():
    X, w = rows(), np.array([1.0, -1.0, 0.2, 0.1, 0.0, 3.0])
    np.testing.assert_allclose(
        variances.measure_explained(released(X), w), np.var(X @ w)
    )
    noisy = released(X, noise=40.0)
    assert 0 < variances.measure_explained(noisy, w) < np.var(X @ w) - 0.04
    assert variances.measure_explained(released(X, noise=1e6), w) == 0.0


def test_lanczos_knows_functions_of_a_matrix_that_was_changed_along_its_start():
    rng = np.random.default_rng(3)
    values, b = rng.random(40), rng.standard_normal(40)
    size, basis, inner = variances.lanczos(values, b)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    np.testing.assert_allclose(basis[:, 0] * size, b)
    inner[0, 0] -= 0.3 * size**2
    first = size * basis @ expm(-inner)[:, 0]
    np.testing.assert_allclose(
        first, expm(-(np.diag(values) - 0.3 * np.outer(b, b))) @ b, rtol=1e-9
    )


def test_widths_hold_the_truth_on_average():
    one = np.ones(1)
    assert variances.find_half_width(0 * one, one) == pytest.approx(1.96, abs=1e-3)
    assert variances.find_half_width(10 * one, one) == pytest.approx(11.645, abs=1e-3)
    wide = variances.find_half_width(np.zeros(2), np.array([1.0, 3.0]))
    rng = np.random.default_rng(4)
    drawn = rng.standard_normal((2, 10**6)) * [[1.0], [3.0]]
    assert np.mean(np.abs(drawn) > wide) == pytest.approx(0.05, abs=0.002)


def test_values_that_noise_leaves_possible():
    np.testing.assert_array_equal(variances._list_possible(2.0, 0.0), [2.0])
    found = variances._list_possible(1.0, 1.0)
    assert len(found) == variances.N_POINTS
    assert found.min() == 0.0
    assert math.isclose(np.median(found), 1.0)
