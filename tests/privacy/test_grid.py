"""The grids: bounds in integers whatever the floats, and exact margins."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from made_tables import COLUMNS, ONE, hostile, schema_of, slope_grid, slope_units

from skdp.engines.reference import ReferenceEngine
from skdp.privacy import grid
from skdp.privacy.encoding import Chunk, Records
from skdp.schema import Group, Layout

FULL = ONE * ONE
matrices = hnp.arrays(
    np.float64, st.tuples(st.integers(0, 5), st.integers(1, 5)), elements=hostile
)
norms = st.one_of(
    st.sampled_from([1.0, 2.0, 5e-324, 1e-300, 1e300]), st.floats(1e-3, 1e3)
)


def squares(units):
    """Σ k² of each row in Python's integers; a fraction of a unit would raise."""
    rows = [[Fraction(unit) for unit in row] for row in units.tolist()]
    assert all(unit.denominator == 1 for row in rows for unit in row)
    return [sum(int(unit) ** 2 for unit in row) for row in rows]


# ------------------------------------------------------------------------ features


@given(hnp.arrays(np.float64, st.integers(0, 6), elements=hostile))
@example(np.array([math.nan, math.inf, -math.inf, 1e308, 5e-324, 1.0, -1.0]))
def test_truncated_goes_toward_zero_and_stays_in_the_unit_interval(values):
    for value, unit in zip(
        values.tolist(), grid.truncate(values).tolist(), strict=True
    ):
        if math.isnan(value):
            assert unit == 0
            continue
        inside = Fraction(max(-1.0, min(1.0, value))) * ONE
        assert unit == math.trunc(inside)


@given(hnp.arrays(np.float64, st.integers(0, 40), elements=hostile))
@example(np.array([math.nan, math.inf, -math.inf, 1e308, 2.5, -3.0, 1e5, 1.0, -1.0]))
def test_a_column_is_truncated_in_the_same_way_and_bounded(values):
    for least in (-1, 0):
        units = grid.truncate_column(values.copy(), least)
        assert units.dtype == np.int16
        assert ((units >= least * ONE) & (units <= ONE)).all()
        inside = (values >= least) & (values <= 1)
        assert (units[inside] == grid.truncate(values)[inside]).all()


def near_the_sphere():
    """Integer pairs just outside the unit ball, where a rounded check is wrong."""
    pairs = [(k, math.isqrt(FULL - k * k) + 1) for k in range(8000, ONE)]
    close = [pair for pair in pairs if sum(k * k for k in pair) <= FULL + 16]
    return np.array(close) / ONE


@settings(max_examples=200, deadline=None)
@given(matrices, norms)
@example(np.full((1, 3), 1e308), 1.0)
@example(np.full((1, 3), 5e-324), 5e-324)
@example(np.array([[math.nan, math.inf, -math.inf]]), 1.0)
@example(near_the_sphere(), 1.0)
def test_joint_rows_have_norm_at_most_one_in_integers(values, norm):
    assert all(square <= FULL for square in squares(grid.bound_rows(values, norm)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.longdouble])
def test_joint_rows_are_checked_in_integers_for_every_dtype(dtype):
    wide = np.random.default_rng(0).standard_normal((200, 64)) * 8
    for values in (wide, near_the_sphere(), 10**4 * near_the_sphere()):
        units = grid.bound_rows(values.astype(dtype), 1.0)
        assert max(squares(units)) <= FULL


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.float64, (4, 3), elements=st.floats(-1e3, 1e3)), norms)
def test_joint_rows_keep_what_the_grid_can_hold(values, norm):
    """Each entry is x/max(norm, ‖x‖) toward zero, less one part in 2¹⁵."""
    for row, units in zip(values, grid.bound_rows(values, norm), strict=True):
        length = max(Fraction(math.hypot(*row)), Fraction(norm))
        for value, unit in zip(row.tolist(), units.tolist(), strict=True):
            wanted = abs(Fraction(value)) / length * ONE
            assert abs(unit) <= wanted * (1 + Fraction(1, 2**48))
            assert abs(unit) >= wanted * (1 - Fraction(1, 2**15)) - 2
            assert unit * value >= 0


def test_in_a_joint_row_nan_is_zero_and_infinity_the_longest():
    nan, inf = math.nan, math.inf
    rows = np.array([[nan, 0.5], [nan, nan], [inf, nan], [-inf, 1.0], [0.0, -3.0]])
    units = grid.bound_rows(rows, 1.0).tolist()
    assert units == [[0, ONE / 2], [0, 0], [ONE, 0], [-ONE, 0], [0, -ONE]]


def test_nearest_rounding_would_break_the_norm():
    """The property above has teeth: half of the rows need rounding toward zero."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    above = [square > FULL for square in squares(np.rint(rows * ONE))]
    assert 0.3 < np.mean(above) < 0.7
    assert max(squares(np.trunc(rows * ONE))) <= FULL


@given(
    hnp.arrays(np.int64, (5, 4), elements=st.integers(-ONE, ONE)),
    st.integers(0, 5 * FULL),
)
@example(np.full((5, 4), ONE), 0)
@example(np.full((5, 4), ONE), 1)
@example(np.full((5, 4), ONE), 4 * FULL - 1)
def test_shortened_obeys_the_norm_and_leaves_short_rows_alone(units, room):
    short = grid.shrink_rows(units.astype(np.float64), float(room))
    for before, after in zip(units.tolist(), short.tolist(), strict=True):
        square = sum(k * k for k in before)
        assert sum(int(k) ** 2 for k in after) <= room
        assert all(abs(b) <= abs(a) for a, b in zip(before, after, strict=True))
        if square <= room:
            assert before == after
        else:  # no more than rounding and the safety factor are lost
            kept = math.sqrt(sum(k * k for k in after))
            assert kept >= math.sqrt(room) * (1 - 2**-15) - math.sqrt(len(before))


# -------------------------------------------------------------------------- slopes

bounds = st.one_of(
    st.sampled_from([1.0, math.sqrt(2.0), 0.1, 2.0, 1e-280, 1e280, 1 + 2**-52]),
    st.floats(1e-6, 1e6),
)


@given(bounds)
def test_the_cap_of_slopes_is_rounded_down(bound):
    slopes = grid.SlopeGrid.of(bound)
    assert (Fraction(slopes.unit), slopes.cap) == slope_grid(bound)
    assert slopes.cap * Fraction(slopes.unit) <= Fraction(bound)
    assert (slopes.cap + 1) * Fraction(slopes.unit) > Fraction(bound)
    assert 2**16 <= slopes.cap < 2**17


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(
        np.float64, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=hostile
    ),
    bounds,
    st.lists(st.one_of(st.integers(0, 2**17), st.just(math.inf)), min_size=5),
)
@example(np.array([[1.0, -1.0, 0.0]]), math.sqrt(2.0), [math.inf] * 5)
@example(np.array([[1e300, -1e300, math.nan]]), 1.0, [3] * 5)
@example(np.array([[1e300] * 4]), 1.0, [1] * 5)
def test_slopes_are_rounded_half_up_then_capped(raw, bound, caps):
    slopes, caps = grid.SlopeGrid.of(bound), caps[: len(raw)]
    units = slopes.units(raw, np.array(caps, dtype=np.float64))
    for row, cap, got in zip(raw.tolist(), caps, units.tolist(), strict=True):
        most = slopes.cap if cap == math.inf else min(cap, slopes.cap)
        assert sum(Fraction(u) ** 2 for u in got) <= most**2
        assert got == slope_units(row, Fraction(slopes.unit), most)


@given(st.integers(-(2**18), 2**18), st.integers(1, 2**17))
def test_halves_go_up_and_rounding_comes_before_the_cap(halves, cap):
    slopes = grid.SlopeGrid.of(1.0)
    raw = np.array([[halves / 2 * slopes.unit]])
    most = min(cap, slopes.cap)
    wanted = max(-most, min(most, (halves + 1) // 2))
    assert slopes.units(raw, np.array([cap])).tolist() == [[wanted]]


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_slope_bound_must_be_a_positive_number(bound):
    with pytest.raises(ValueError, match="must be between 1e-290 and 1e290, got"):
        grid.SlopeGrid.of(bound)


# ------------------------------------------------------------------------- weights


@pytest.mark.parametrize("name", COLUMNS)
@given(st.lists(hostile, min_size=1, max_size=5))
@example([math.nan, math.inf, -math.inf, 1e308, 5e-324])
def test_weights_are_on_their_grid_and_in_the_box(name, weights):
    weight_grid = grid.WeightGrid.of(schema_of(name).layout())
    units = weight_grid.units(np.array(weights))
    for weight, unit in zip(weights, units.tolist(), strict=True):
        inside = 0.0 if math.isnan(weight) else max(-1024.0, min(1024.0, weight))
        assert unit == round(Fraction(inside) * Fraction(2) ** weight_grid.bits)


def wide_layout(width, n_groups):
    groups = [
        Group(name=f"g{g}", kind="dense", start=g * width, labels=("",) * width)
        for g in range(n_groups)
    ]
    start = n_groups * width
    ones = Group(name="intercept", kind="ones", start=start, labels=("intercept",))
    return Layout(groups=(*groups, ones))


@pytest.mark.parametrize(
    ("width", "n_groups"), [(1, 1), (1, 63), (4, 3), (100, 2), (3, 1000)]
)
def test_margins_are_exact_at_the_corners_of_the_box(width, n_groups):
    """The worst rows and weights of a layout: Σ|x_j w_j| and all partial sums fit."""
    layout = wide_layout(width, n_groups)
    rng = np.random.default_rng(width)
    unit = math.isqrt(FULL // width)
    parts = rng.choice([-unit, unit], (8, n_groups, width))
    parts[0] = unit
    chunk = Chunk(
        (*parts.transpose(1, 0, 2).astype(np.int16), np.empty((8, 0), np.int16)),
        np.zeros(8, np.int16),
        np.ones(8, np.float32),
    )
    engine = ReferenceEngine(Records(layout, (chunk,)))
    weight_grid = grid.WeightGrid.of(layout)
    d = layout.n_features
    corner = weight_grid.units(np.full((d, 1), 1024.0))
    odd = corner - rng.integers(0, 2, (d, 1))
    for units in (corner, -odd, odd, np.where(rng.random((d, 1)) < 0.5, odd, -corner)):
        engine._move_margins(units)  # each move is across the whole box
        w = [int(unit) for unit in units[:, 0]]
        for i in range(8):
            x = [*parts[i].ravel().tolist(), ONE]
            exact = sum(k * u for k, u in zip(x, w, strict=True))
            assert abs(exact) <= 2**52
            assert int(engine._margins[0][i, 0]) == exact
    finer = sum(abs(k * 2 * int(u)) for k, u in zip(x, corner[:, 0], strict=True))
    assert finer > 2**49, "the grid is no coarser than it must be"


def test_round_up_is_above_any_few_roundings():
    for value in (1.0, 1 / 3, 1e300, 1e-300, 2.0**-1000):
        assert Fraction(grid.round_up(value)) > Fraction(value) * (
            1 + Fraction(1, 2**46)
        )
        assert grid.round_up(value) < value * (1 + 2**-44)
