"""Every separable penalty: its proximal map minimises what it says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from skdp.descent.plan import is_separable
from skdp.models.penalties import PENALTIES, Box, ElasticNet, lasso, ridge

WEIGHTS = np.array([[-3.0], [-0.6], [-0.05], [0.0], [0.02], [0.3], [2.0], [40.0]])
SEPARABLE = [name for name, make in PENALTIES.items() if make().separable]
METRIC = np.array([0.1, 1.0, 5.0, 0.3, 0.01, 2.0, 0.7, 100.0])


def objective(penalty, u, w, metric):
    return metric / 2 * (u - w) ** 2 + penalty.value(np.array([[u]]))


@pytest.mark.parametrize("name", SEPARABLE)
def test_prox_minimises_its_objective(name):
    """Coordinate by coordinate, against a bounded scalar search."""
    penalty = PENALTIES[name]()
    found = penalty.prox(WEIGHTS, METRIC, np.arange(8))
    assert found.shape == WEIGHTS.shape
    for u, w, metric in zip(found[:, 0], WEIGHTS[:, 0], METRIC, strict=True):
        best = objective(penalty, u, w, metric)
        edge = abs(w) + 1.0
        searched = minimize_scalar(
            lambda t, w=w, metric=metric: min(objective(penalty, t, w, metric), 1e6),
            bounds=(-edge, edge),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert best <= searched.fun + 1e-9 * (1 + abs(searched.fun))
        for nearby in u + np.array([-1e-3, -1e-6, 1e-6, 1e-3]):
            assert best <= objective(penalty, nearby, w, metric)


@pytest.mark.parametrize("name", SEPARABLE)
def test_prox_acts_on_every_column_of_a_block_alike(name):
    penalty = PENALTIES[name]()
    at = np.array([1, 4, 5])
    columns = np.random.default_rng(0).normal(size=(3, 4))
    together = penalty.prox(columns, METRIC[at], at)
    for i in range(3):
        for c in range(4):
            one = penalty.prox(columns[i : i + 1, [c]], METRIC[at[[i]]], at[[i]])
            assert together[i, c] == one[0, 0]


@pytest.mark.parametrize("name", SEPARABLE)
@settings(deadline=None, max_examples=60)
@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.floats(1e-6, 1e6))
def test_prox_is_a_contraction(name, one, two, metric):
    penalty = PENALTIES[name]()
    u, v = (
        penalty.prox(np.array([[w]]), np.array([metric]), np.array([0]))[0, 0]
        for w in (one, two)
    )
    assert abs(u - v) <= abs(one - two) * (1 + 1e-12)


@pytest.mark.parametrize("name", SEPARABLE)
def test_value_is_convex_and_separable(name):
    penalty = PENALTIES[name]()
    rng = np.random.default_rng(1)
    one, two = rng.uniform(0, 0.5, (2, 6, 3))
    middle = penalty.value((one + two) / 2)
    assert middle <= (penalty.value(one) + penalty.value(two)) / 2 + 1e-12
    parts = sum(penalty.value(np.array([[x]])) for x in one.ravel())
    assert penalty.value(one) == pytest.approx(parts, rel=1e-12)


@pytest.mark.parametrize("name", SEPARABLE)
def test_a_step_may_move_any_set(name):
    assert PENALTIES[name]().splits(np.array([3]))


@pytest.mark.parametrize("penalty", [ridge, lasso, lambda a, s: ElasticNet(a, a, s)])
def test_intercept_is_left_alone(penalty):
    """Coordinates with strength 0 neither pay nor move, in blocks and alone."""
    strength = np.array([1.0, 1.0, 1.0, 0.0])
    made, weights = penalty(0.7, strength), np.array([[1.0], [-2.0], [0.5], [9.0]])
    moved = made.prox(weights, np.ones(4), np.arange(4))
    assert moved[3, 0] == 9.0
    assert (np.abs(moved[:3]) < np.abs(weights[:3])).all()
    assert made.prox(weights[3:], np.ones(1), np.array([3]))[0, 0] == 9.0
    assert made.prox(weights[2:3], np.ones(1), np.array([2]))[0, 0] != 0.5
    more = weights.copy()
    more[3] = 1e6
    assert made.value(weights) == made.value(more) > 0


def test_values_by_hand():
    weights = np.array([[1.0, -2.0], [0.5, 0.0]])
    assert ridge(3.0).value(weights) == 1.5 * (1 + 4 + 0.25)
    assert lasso(3.0).value(weights) == 3.0 * 3.5
    assert ElasticNet(l1=1.0, l2=2.0).value(weights) == 3.5 + 5.25
    assert Box(-1, 1).value(weights) == math.inf
    assert Box(-2, 1).value(weights) == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: ridge(-1.0),
        lambda: lasso(math.inf),
        lambda: ElasticNet(l1=math.nan),
        lambda: Box(1.0, 0.0),
        lambda: Box(math.nan, 0.0),
    ],
)
def test_senseless_parameters_are_refused(make):
    with pytest.raises(ValueError, match=r"must be .*got "):
        make()


@pytest.mark.parametrize("name", PENALTIES)
def test_quadratic_is_the_ridge_within_a_penalty(name):
    penalty, at = PENALTIES[name](), np.arange(8)
    ridge_of = penalty.quadratic(at)
    assert ridge_of.shape == (8,)
    assert (ridge_of == {"ridge": 0.1, "elastic-net": 0.1}.get(name, 0.0)).all()
    assert penalty.is_ridge == (name in ("none", "ridge"))
    if penalty.is_ridge:
        value = (ridge_of[:, None] * WEIGHTS**2).sum() / 2
        assert penalty.value(WEIGHTS) == pytest.approx(value, rel=1e-12)
    assert not penalty.trusted or is_separable(penalty, at, 2)


def test_quadratic_leaves_out_the_intercept():
    found = ElasticNet(l2=0.7, penalised=np.array([1, 1, 0])).quadratic(
        np.array([2, 0])
    )
    assert found.tolist() == [0.0, 0.7]
