"""Every loss of the registry: its slope, its bounds and its bits.

Slopes are read from tables by linear interpolation. With table steps h = 1/128 and
|φ'''| the second derivative of the slope, the error is at most h²/8·sup|φ'''|: 7.4e-7
for the sigmoid, 7.7e-6·exp(m) for exp. A softmax is a quotient of such: within 1.6e-5.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.models.losses import LOSSES, Huber, Poisson, SmoothedHinge, Softmax, Squared
from skdp.privacy.encoding import Chunk
from skdp.privacy.queries import Slopes

MORE = {
    "softmax of 2": lambda: Softmax(2),
    "softmax of 7": lambda: Softmax(7),
    "squared, tight": lambda: Squared(slope_bound=0.3),
    "huber, wide": lambda: Huber(slope_bound=1.5),
    "hinge, narrow": lambda: SmoothedHinge(width=0.05),
    "hinge, wide": lambda: SmoothedHinge(width=3.0),
    "poisson, wide": lambda: Poisson(slope_bound=4.0),
    "poisson, tight": lambda: Poisson(slope_bound=0.25),
}
ALL = LOSSES | MORE

#: The error of a slope, from interpolation. Other losses only add, without any error.
ERROR = {
    "logistic": 7.4e-7,
    "softmax": 1.6e-5,
    "softmax of 2": 1.6e-5,
    "softmax of 7": 1.6e-5,
    "poisson": 7.7e-6 * 2,
    "poisson, wide": 7.7e-6 * 5,
    "poisson, tight": 7.7e-6 * 1.25,
}


def targets(loss, n, rng):
    """Targets as chunks store them: codes, or integers up to 2¹⁴."""
    if loss.kind in ("logistic", "hinge", "softmax"):
        return rng.integers(0, max(2, loss.n_outputs), n)
    edges = [0, 1, 2**13, 2**14 - 1, 2**14]
    return np.concatenate([edges, rng.integers(0, 2**14 + 1, n - 5)]).astype(np.int16)


def sample(name, n=4000, spread=4.0):
    rng = np.random.default_rng(len(name))
    loss = ALL[name]()
    margin = rng.normal(scale=spread, size=(n, loss.n_outputs))
    return loss, margin, targets(loss, n, rng)


def directions(loss):
    """Each output by itself, and a mixed one."""
    k = loss.n_outputs
    mixed = np.linspace(-1.0, 1.5, k)[None] if k > 1 else np.ones((1, 1))
    return np.concatenate([np.eye(k), mixed / np.linalg.norm(mixed)])


def test_registry_is_what_users_import():
    assert [LOSSES[name]().kind for name in LOSSES] == list(LOSSES)


@pytest.mark.parametrize("name", ALL)
def test_slope_is_the_derivative_of_the_value(name):
    """(φ(m+t) - φ(m-t))/2t is the mean slope on [m-t, m+t], φ being convex.

    It lies between the slopes at the two ends, kinks or not; and it is the slope at m
    but for the curvature times t.
    """
    loss, margin, target = sample(name)
    t, error = 1e-4, ERROR.get(name, 0.0)
    for direction in directions(loss):
        ahead, behind = margin + t * direction, margin - t * direction
        rise = (loss.value(ahead, target) - loss.value(behind, target)) / (2 * t)
        low, here, high = (
            loss.slope(m, target) @ direction for m in (behind, margin, ahead)
        )
        room = 2 * error + 1e-10  # rounding of the difference: 1e-15/2t, tens of units
        assert (low - room <= rise).all()
        assert (rise <= high + room).all()
        assert (np.abs(here - rise) <= loss.curvature * t + room).all()


@pytest.mark.parametrize("name", ALL)
def test_slope_agrees_with_a_formula_of_its_own(name):
    loss, margin, target = sample(name)
    if loss.kind == "logistic":
        truth = 1 / (1 + np.exp(-margin)) - target[:, None]
    elif loss.kind == "softmax":
        odds = np.exp(margin)
        truth = odds / odds.sum(axis=1, keepdims=True) - np.eye(loss.n_outputs)[target]
    elif loss.kind == "poisson":
        truth = np.exp(margin) - target[:, None] / 2**14
    elif loss.kind == "hinge":
        sign = np.where(target == 1, 1.0, -1.0)[:, None]
        gap = (1 - sign * margin) / loss.width
        truth = np.where(gap <= 0, 0.0, np.where(gap >= 1, -sign, -sign * gap))
    else:
        truth = margin - (target[:, None] / 2**13 - 1)
    truth = np.clip(truth, -loss.slope_bound, loss.slope_bound)
    error = ERROR.get(name, 0.0) + 1e-12
    assert np.abs(loss.slope(margin, target) - truth).max() <= error


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("spread", [0.1, 4.0, 100.0])
def test_slopes_keep_their_bound(name, spread):
    loss, margin, target = sample(name, spread=spread)
    norms = np.linalg.norm(loss.slope(margin, target), axis=1)
    assert norms.max() <= loss.slope_bound * (1 + 1e-12)
    if spread == 100.0:
        assert norms.max() > 0.99 * loss.slope_bound * math.sqrt(0.5)


@pytest.mark.parametrize("name", ALL)
def test_slopes_are_monotone_and_no_steeper_than_the_curvature(name):
    """0 ≤ (s(m+t) - s(m))·t ≤ β‖t‖², for steps of every length.

    A softmax is a quotient of interpolated numbers, so monotone but for their error.
    """
    loss, margin, target = sample(name)
    rng = np.random.default_rng(0)
    room = ERROR[name] if loss.kind == "softmax" else 1e-12
    for size in (1e-3, 0.1, 3.0):
        step = rng.normal(size=margin.shape) * size
        turn = loss.slope(margin + step, target) - loss.slope(margin, target)
        along, squared = (turn * step).sum(axis=1), (step**2).sum(axis=1)
        slack = 2 * room * np.sqrt(squared)
        assert (along >= -slack).all()
        assert (along <= loss.curvature * squared * (1 + 1e-6) + slack).all()


@pytest.mark.parametrize("name", ALL)
def test_curvature_is_reached(name):
    """The bound is not a needlessly large one: steps would be needlessly small."""
    loss, line = ALL[name](), np.linspace(-3, 3, 6001)
    margin = np.full((6001, loss.n_outputs), -40.0)
    margin[:, -1] = -line  # for a softmax two classes against each other
    margin[:, 0] = line
    direction = margin[-1] - margin[0]
    direction /= np.linalg.norm(direction)
    largest = 0.0
    for y in (0, 1, 2**14)[: 2 if loss.kind in ("logistic", "hinge", "softmax") else 3]:
        slope = loss.slope(margin, np.full(6001, y)) @ direction
        largest = max(
            largest, float((np.diff(slope) / np.diff(margin @ direction)).max())
        )
    assert largest >= 0.95 * loss.curvature


@pytest.mark.parametrize("name", ALL)
def test_value_is_convex(name):
    loss, margin, target = sample(name)
    other = np.random.default_rng(1).normal(scale=6.0, size=margin.shape)
    for share in (0.1, 0.5, 0.8):
        between = loss.value(share * margin + (1 - share) * other, target)
        ends = share * loss.value(margin, target)
        ends += (1 - share) * loss.value(other, target)
        assert (between <= ends + 1e-9 * (1 + np.abs(ends))).all()


def units(loss, margin, target):
    """Bounded slopes as every engine gets them."""
    chunk = Chunk((), np.asarray(target), np.ones(len(margin), np.float32))
    return Slopes(loss).units(margin, 0, chunk, slice(0, len(margin)))


@pytest.mark.parametrize("name", ALL)
def test_slopes_are_the_same_bits_in_any_company(name):
    """Row order, batch size and memory layout change no bit of any row's slope."""
    loss, margin, target = sample(name, n=1003)
    whole = loss.slope(margin, target)
    order = np.random.default_rng(2).permutation(1003)
    assert (loss.slope(margin[order], target[order]) == whole[order]).all()
    assert (loss.slope(np.asfortranarray(margin), target) == whole).all()
    assert (loss.slope(np.repeat(margin, 2, axis=0)[::2], target) == whole).all()
    for size in (1, 2, 3, 7, 64):
        parts = [
            loss.slope(margin[i : i + size], target[i : i + size])
            for i in range(0, 1003, size)
        ]
        assert (np.concatenate(parts) == whole).all()


HOSTILE = [0.0, -0.0, 5e-324, 16.0, -16.0, 1e300, -1e300, 1.7e308, -1.7e308]


@pytest.mark.parametrize("name", ALL)
def test_hostile_margins_give_bounded_slopes_and_no_warning(name):
    """Warnings are errors here. Infinities cannot come from the weight grid at all."""
    loss = ALL[name]()
    hostile = [*HOSTILE, math.inf, -math.inf] if loss.n_outputs == 1 else HOSTILE
    margin = np.array([np.roll(hostile, shift) for shift in range(loss.n_outputs)]).T
    grid = Slopes(loss).grid
    for y in (0, 1):
        slopes = units(loss, margin, np.full(len(margin), y))
        assert (slopes == np.rint(slopes)).all()
        assert (np.linalg.norm(slopes, axis=1) <= grid.cap).all()
        if loss.n_outputs == 1:  # still monotone out there
            ordered = np.argsort(margin[:, 0])
            assert (np.diff(slopes[ordered, 0]) >= 0).all()


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(sorted(ALL)),
    st.lists(st.floats(-1e308, 1e308), min_size=7, max_size=7),
    st.integers(0, 1),
)
def test_any_finite_margin_is_fine(name, values, y):
    loss = ALL[name]()
    slopes = units(loss, np.array([values[: loss.n_outputs]]), [y])
    assert np.linalg.norm(slopes) <= Slopes(loss).grid.cap


@pytest.mark.parametrize(
    "make",
    [
        lambda: Softmax(1),
        lambda: Squared(slope_bound=0.0),
        lambda: Squared(slope_bound=math.inf),
        lambda: Huber(slope_bound=math.nan),
        lambda: SmoothedHinge(width=-1.0),
        lambda: SmoothedHinge(width=math.nan),
        lambda: Poisson(slope_bound=1001.0),
        lambda: Poisson(slope_bound=math.nan),
    ],
)
def test_senseless_parameters_are_refused(make):
    with pytest.raises(ValueError, match=r"needs .*got "):
        make()
