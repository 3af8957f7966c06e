"""Hats in integers: never negative, of sum at most one, so of norm at most one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import hats, hostile

from skdp.privacy import grid, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.discovery import count_shares, release_shares
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema, split_hats

ONE = grid.FEATURE_ONE
AXES = [(2,), (5,), (1000,), (2, 2), (3, 7), (16, 16)]


def positions_of(axes):
    """Positions on the grid, at knots, next to them and in between."""
    each = [
        st.one_of(
            st.integers(0, (width - 1) * ONE),
            st.integers(0, width - 1).map(lambda knot: knot * ONE),
        )
        for width in axes
    ]
    nothing = st.just((axes[0] * ONE, *[0] * (len(axes) - 1)))
    return st.one_of(st.tuples(*each), nothing)


@pytest.mark.parametrize("axes", AXES, ids=str)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_norm_of_hats_is_at_most_one_in_integers(axes, data):
    rows = data.draw(st.lists(positions_of(axes), min_size=1, max_size=9))
    places, values = split_hats(np.array(rows, np.uint32), axes, ONE)
    for row, at, parts in zip(rows, places.tolist(), values.tolist(), strict=True):
        assert sum(parts) <= ONE
        assert sum(part * part for part in parts) <= ONE * ONE
        assert len(axes) == 2 or sum(parts) == ONE
        wanted = hats(row, axes)
        found = [0] * (len(wanted) + 1)
        for place, part in zip(at, parts, strict=True):
            found[place] += part
        assert found[:-1] == wanted


@pytest.mark.parametrize("axes", [(4,), (3, 2)], ids=str)
@given(st.data())
def test_positions_of_any_floats_are_on_the_grid(axes, data):
    cell = st.lists(hostile, min_size=len(axes), max_size=len(axes))
    given_ = np.array(data.draw(st.lists(cell, min_size=1, max_size=5)))
    found = grid.bound_positions(given_, axes)
    assert found.dtype == np.uint32
    assert (found <= np.array(axes) * ONE).all()


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_row_depends_on_its_own_cells_alone(scale):
    """Knots follow from the range, so other rows move no position."""
    column = Numeric(0.0, 10.0, scale=scale, knots=5, indicator=True)
    schema = Schema({"x": column}, target=Categorical([0, 1]))
    cells = np.array([0.0, 2.6, 10.0, 1e9, math.nan, 3.3])

    def encoded(values):
        target = Coded(np.zeros(len(values), int), [0, 1])
        batch = Batch(columns={"x": values}, target=target)
        return encode([batch], schema).chunks[0].parts[0]

    whole = encoded(cells)
    for some in itertools.combinations(range(len(cells)), 2):
        assert (encoded(cells[list(some)]) == whole[list(some)]).all()


@pytest.mark.parametrize("neighbours", queries.NEIGHBOURS)
def test_the_shares_that_knots_follow_are_charged_for_one_record(neighbours):
    """A record adds one to each column, and is charged for the norm of that."""
    columns = {"x": Numeric(0.0, 10.0), "y": Numeric(0.0, 1.0, scale="log")}
    schema = Schema(columns, target=Categorical([0, 1]))

    def counted(rows):
        target = Coded(np.zeros(len(rows), int), [0, 1])
        cells = {"x": np.array(rows), "y": np.array(rows) / 10.0}
        return encode([Batch(columns=cells, target=target)], schema)

    both = [count_shares(counted(rows), ["x", "y"]) for rows in ([3.0], [9.9])]
    away = both[0] - both[1] * (neighbours == "replace-one")
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours=neighbours)
    release_shares(counted([3.0]), ["x", "y"], 20.0, Randomness(0), record)
    (event,) = record.events
    assert event.query == "shares of 2 columns"
    assert np.linalg.norm(away) <= event.sensitivity < 1.0001 * np.linalg.norm(away)
