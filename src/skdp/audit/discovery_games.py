"""Make audit games for the private discovery of ranges and categories.

The code calls the categories of a column its levels.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from skdp.audit.games import Game, Observation, compare_releases, make_record
from skdp.privacy import discovery, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Coded
from skdp.privacy.queries import Neighbours
from skdp.privacy.randomness import Randomness


def make_ranges_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases a histogram of the magnitudes of a column.

    Under replace-one, the replaced records move to another bin.
    """
    rest = [0.5, 2.0]
    cells = {
        False: [1.0] * group + rest,
        True: ([-1.0] * group if neighbours == "replace-one" else []) + rest,
    }
    noise, n_bins = Randomness(), discovery.TEXT + 1
    first, second = (
        queries.histogram(
            queries.big(
                [np.bincount(discovery.find_bins(np.array(c)), minlength=n_bins)]
            ),
            1,
            neighbours,
            "magnitudes",
        )
        for c in cells.values()
    )

    def play(other: bool) -> Observation:
        record = make_record(neighbours)
        table = [({"x": np.array(cells[other])}, None)]
        discovery.release_ranges(table, ["x"], z, noise, record)
        return compare_releases(record, [(first, second)])

    return play


def make_levels_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases which categories of a column were found.

    The count of a category is just above the threshold in one table and just below it
    in the other. Under replace-one, two categories cross the threshold in opposite
    directions. The game can then reveal at most 1/√2 of the μ that is charged.
    """
    std = z * queries.histogram(queries.big([0]), 1, neighbours, "").sensitivity
    sides = 2 if neighbours == "replace-one" else 1
    near = math.ceil(discovery.compute_threshold(std, delta / sides) + 0.5)
    # Lower δ a little, to put the threshold midway between two counts.
    delta = sides * float(ndtr(2.0**-10 - (near - 1.5) / std))
    before, after = [near, near - 1], [near - 1, near]
    if neighbours != "replace-one":
        before, after = before[:1], after[:1]
    noise = Randomness()

    def play(other: bool) -> Observation:
        found, record = _find_levels(
            after if other else before, z, delta, neighbours, noise
        )
        decided = np.array([name in found for name in "ab"[: len(before)]], float)
        # In the other table, the first category has one record less and the second one
        # record more.
        residual, shift = decided - [1.0, 0.0][: len(before)], [-1.0, 1.0]
        return _decision(residual, np.array(shift[: len(before)]), record)

    return play


def make_rare_level_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that looks for a category that only the canary has.

    The category is found with probability at most δ.
    """
    noise = Randomness()

    def play(other: bool) -> Observation:
        table = [50, 1] if other else [50 + (neighbours == "replace-one")]
        found, record = _find_levels(table, z, delta, neighbours, noise)
        return _decision(np.array([float("b" in found)]), np.ones(1), record)

    return play


def _find_levels(
    sizes: list[int], z: float, delta: float, neighbours: Neighbours, noise: Randomness
) -> tuple[list[str], PrivacyRecord]:
    """Release the categories of a column that has `sizes[0]` rows of category a.

    If `sizes` has a second entry, it is the number of rows of category b.
    """
    record = make_record(neighbours)
    record.reserved_delta = delta
    codes = np.repeat(np.arange(len(sizes)), sizes)
    table = [({"x": Coded(codes, list("ab"[: len(sizes)]))}, None)]
    return discovery.release_levels(table, ["x"], z, delta, noise, record)["x"], record


def _decision(
    residual: np.ndarray, shift: np.ndarray, record: PrivacyRecord
) -> Observation:
    """Return the observation of a run that released decisions instead of numbers."""
    delta = sum(event.delta * times for event, times in record.events.items())
    return Observation(residual, shift, record.spent, delta)
