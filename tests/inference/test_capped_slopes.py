"""Means of capped slopes, against targets that are drawn."""

import numpy as np
import pytest
from scipy.optimize import root
from scipy.special import softmax

from skdp.inference.slopes import (
    Classes,
    Counts,
    Normal,
    Weighting,
    average_products,
    find_bias,
)

N = 200_000


def cap(slopes, caps):
    """Slopes (n, k), shortened to the caps (n,)."""
    norm = np.linalg.norm(slopes, axis=1)
    return slopes * np.minimum(1.0, caps / norm)[:, None]


def draw(name):
    """A law, the margins of one row, a cap, and slopes that were drawn (N, k)."""
    rng = np.random.default_rng(0)
    if name == "counts":
        margins = np.array([[-1.5]])
        mean = np.exp(margins[0, 0])
        y = rng.gamma(mean / 0.1, 0.1, N)
        return Counts(0.1), margins, 0.15, lambda m: np.exp(m) - y[:, None]
    if name == "normal":
        residuals = 0.3 * rng.standard_normal((N, 1))
        margins = np.zeros((1, 1))
        return Normal(0.3), margins, 0.4, lambda m: m - residuals
    factors = np.array([0.5, 1.0]) if name == "two" else np.array([1.0, 0.3, 0.7])
    margins = np.array([[0.4]]) if name == "two" else np.array([[0.5, -0.2, 0.1]])
    both = np.hstack([[[0.0]], margins]) if name == "two" else margins
    true = softmax(both[0]) / factors
    y = rng.choice(len(factors), N, p=true / true.sum())

    def slopes(m):
        both = np.hstack([np.zeros((1, 1)), m]) if name == "two" else m
        all_slopes = softmax(both, axis=1) - np.eye(len(factors))[y]
        return factors[y, None] * all_slopes[:, -m.shape[1] :]

    return Classes(factors), margins, 0.37, slopes


@pytest.mark.parametrize("name", ["counts", "normal", "two", "three"])
def test_means_are_those_of_targets_that_are_drawn(name):
    law, margins, most, slopes = draw(name)
    caps, k = np.array([most]), margins.shape[1]
    found = law.average(margins, caps)
    drawn = cap(slopes(margins), most)
    assert np.mean(np.linalg.norm(drawn, axis=1) > most * 0.999) > 0.05
    square = drawn.T @ drawn / N
    np.testing.assert_allclose(found.square[0], square, atol=0.003)
    expected = law.expect(margins, margins, caps)[0]
    np.testing.assert_allclose(expected, drawn.mean(axis=0), atol=0.003)
    ends = [
        cap(slopes(margins + s * np.eye(k)[[j]]), most).mean(axis=0)
        for j in range(k)
        for s in (-0.02, 0.02)
    ]
    steep = np.array(
        [(b - a) / 0.04 for a, b in zip(ends[::2], ends[1::2], strict=True)]
    )
    np.testing.assert_allclose(found.curvature[0], (steep + steep.T) / 2, atol=0.01)


@pytest.mark.parametrize("name", ["counts", "two", "three"])
def test_derivatives_in_the_true_margins(name):
    law, margins, most, _ = draw(name)
    caps, k = np.array([most]), margins.shape[1]
    true = margins + 0.3
    found = law.derive(margins, true, caps)[0]
    for j in range(k):
        step = 1e-5 * np.eye(k)[[j]]
        up, down = (law.expect(margins, true + s * step, caps)[0] for s in (1, -1))
        np.testing.assert_allclose(found[:, j], (up - down) / 2e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["counts", "three"])
def test_what_caps_hide_is_found(name):
    """Fit capped slopes in expectation; the bias leads back to the true weights."""
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.random((500, 2)), np.ones((500, 1))])
    caps = np.where(rows[:, 0] > 0.7, 0.1, 0.3)
    weighting = Weighting(weights=np.array([0.5, 1.0]), shares=np.array([0.5, 0.5]))
    law, k = (Counts(0.3), 1) if name == "counts" else (Classes(np.ones(3)), 3)
    true = np.zeros((3, k))
    true[:, 0] = [1.5, -1.0, -1.5]
    true -= true.mean(axis=1, keepdims=True) * (k > 1)

    def force(w):
        margins = (rows @ w.reshape(3, k), rows @ true)
        slopes = sum(
            s * u * law.expect(*margins, caps / u)
            for u, s in zip(weighting.weights, weighting.shares, strict=True)
        )
        total = rows.T @ slopes / len(rows)
        if k > 1:  # only differences between classes are determined
            total += w.reshape(3, k).mean(axis=1, keepdims=True)
        return total.ravel()

    reached = root(force, true.ravel()).x.reshape(3, k)
    assert np.abs(reached - true).max() > 0.05
    bias = find_bias(law, weighting, rows, reached, caps)
    bias -= bias.mean(axis=1, keepdims=True) * (k > 1)
    np.testing.assert_allclose(bias, reached - true, atol=0.005)


def test_sums_over_rows_are_sorted_by_output():
    rng = np.random.default_rng(0)
    rows, blocks = rng.random((5, 2)), rng.random((5, 3, 3))
    expected = sum(
        np.kron(b, np.outer(x, x)) for b, x in zip(blocks, rows, strict=True)
    ) / len(rows)
    np.testing.assert_allclose(average_products(rows, blocks), expected)


@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("cap", [1e-3, 0.1])
def test_a_bias_is_a_number_however_bad_the_fit(size, cap):
    """With few rows and much noise, weights are noise, and Newton's steps run away."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random((500, 4)), np.ones(500)])
    weights = size * rng.standard_normal((5, 1))
    law, caps = Counts(0.05), np.full(500, cap)
    assert np.isfinite(find_bias(law, Weighting.equal(), rows, weights, caps)).all()
