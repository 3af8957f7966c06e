from collections import Counter
from functools import cache
from itertools import chain, islice

import numpy as np
import pytest

from skdp.descent.samplings import (
    SAMPLINGS,
    Blocks,
    ExplicitSets,
    Full,
    Independent,
    Nice,
    Sampling,
    ShuffledBlocks,
    SingleCoordinate,
    sketch,
)

NAMES = sorted(SAMPLINGS)
N_DRAWS = 15_000
PAIRS = [[0, 3], [1], [2, 4, 5]]  # a partition of six coordinates


@cache
def drawn(name: str, d: int) -> tuple[Sampling, list[np.ndarray], np.ndarray]:
    """The sampling, its draws, and who was a member of each, shape (draws, d)."""
    sampling = SAMPLINGS[name](d)
    rng = np.random.default_rng(20250101 + d)
    draws = [sampling.draw(rng) for _ in range(N_DRAWS)]
    member = np.zeros((N_DRAWS, d), dtype=bool)
    for row, chosen in zip(member, draws, strict=True):
        row[chosen] = True
    return sampling, draws, member


def assert_frequencies(observed: np.ndarray, expected: np.ndarray) -> None:
    """Five standard deviations, at most .0204 here.

    An error of .04 in a probability is missed less than once in 10⁵.
    """
    room = 5 * np.sqrt(expected * (1 - expected) / N_DRAWS) + 1e-9
    assert np.all(np.abs(observed - expected) <= room)


# Of 13 coordinates nice and independent sets are too many to list, of 6 they are few.
@pytest.mark.parametrize("d", [6, 13])
@pytest.mark.parametrize("name", NAMES)
class TestLaw:
    def test_sets_are_sorted_unique_in_range_and_never_empty(self, name, d):
        for chosen in drawn(name, d)[1]:
            assert chosen.dtype == np.intp
            assert chosen.size > 0
            assert chosen[0] >= 0
            assert chosen[-1] < d
            assert np.all(np.diff(chosen) > 0)

    def test_marginals_are_the_frequencies(self, name, d):
        sampling, _, member = drawn(name, d)
        assert sampling.n_coordinates == d
        assert sampling.probabilities.shape == (d,)
        assert sampling.probabilities.dtype == np.float64
        assert np.all(sampling.probabilities > 0)
        assert_frequencies(member.mean(axis=0), sampling.probabilities)

    def test_pairs_are_the_frequencies(self, name, d):
        sampling, _, member = drawn(name, d)
        pairs = sampling.pair_probabilities(np.arange(d))
        counts = member.astype(float)
        assert_frequencies(counts.T @ counts / N_DRAWS, pairs)
        np.testing.assert_allclose(np.diag(pairs), sampling.probabilities, rtol=1e-14)

    def test_pairs_of_a_block_are_those_of_the_whole(self, name, d):
        sampling = SAMPLINGS[name](d)
        block = np.array([4, 0, 3])
        np.testing.assert_allclose(
            sampling.pair_probabilities(block),
            sampling.pair_probabilities(np.arange(d))[np.ix_(block, block)],
            rtol=1e-14,
        )

    def test_sketch_is_unbiased(self, name, d):
        sampling, draws, _ = drawn(name, d)
        if sampling.support is None:
            # C x is x/p or 0, so its variance is x²(1−p)/p: five deviations again.
            p, x = sampling.probabilities, np.linspace(-1, 2, d)
            mean = sum(sketch(sampling, chosen) * x for chosen in draws) / N_DRAWS
            room = 5 * np.abs(x) * np.sqrt((1 - p) / p / N_DRAWS)
            assert np.all(np.abs(mean - x) <= room + 1e-9)
        else:
            mean = sum(
                probability * sketch(sampling, chosen)
                for chosen, probability in zip(
                    sampling.support, sampling.set_probabilities, strict=True
                )
            )
            np.testing.assert_allclose(mean, np.ones(d), rtol=1e-12)

    def test_support_gives_sets_marginals_and_pairs(self, name, d):
        sampling, draws, _ = drawn(name, d)
        if sampling.support is None:
            assert sampling.set_probabilities is None
            assert (name, d) in {("nice", 13), ("independent", 13)}
            return
        q = sampling.set_probabilities
        assert q.shape == (len(sampling.support),)
        assert np.all(q > 0)
        assert q.sum() == pytest.approx(1, abs=1e-12)
        member = np.array([np.isin(np.arange(d), s) for s in sampling.support], float)
        np.testing.assert_allclose(q @ member, sampling.probabilities, rtol=1e-12)
        np.testing.assert_allclose(
            (member.T * q) @ member,
            sampling.pair_probabilities(np.arange(d)),
            rtol=1e-12,
            atol=1e-15,
        )
        counts = Counter(chosen.tobytes() for chosen in draws)
        frequency = np.array([counts.pop(s.tobytes(), 0) for s in sampling.support])
        assert not counts  # nothing outside the support
        assert_frequencies(frequency / N_DRAWS, q)

    def test_same_seed_same_sets(self, name, d):
        sampling = SAMPLINGS[name](d)
        one, two = (sampling.sets(20, np.random.default_rng(3)) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))

    def test_sets_gives_as_many_as_asked(self, name, d):
        sampling = SAMPLINGS[name](d)
        assert len(list(sampling.sets(17, np.random.default_rng(0)))) == 17
        assert list(sampling.sets(0, np.random.default_rng(0))) == []
        with pytest.raises(ValueError, match="n_steps must be an integer"):
            sampling.sets(-1, np.random.default_rng(0))

    def test_facts_cannot_be_written(self, name, d):
        sampling = SAMPLINGS[name](d)
        with pytest.raises(ValueError, match="read-only"):
            sampling.probabilities[0] = 0.5
        with pytest.raises(AttributeError):
            sampling.probabilities = np.ones(d)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_examples_exist_for_few_coordinates(name, d):
    sampling = SAMPLINGS[name](d)
    assert sampling.n_coordinates == d
    assert sampling.draw(np.random.default_rng(0)).size >= 1
    assert type(sampling).__name__ in repr(sampling)


def test_every_class_is_in_the_registry():
    classes = {type(SAMPLINGS[name](6)) for name in NAMES}
    every = {Blocks, ExplicitSets, Full, Independent, Nice, ShuffledBlocks}
    assert classes == every | {SingleCoordinate}


class TestShuffledBlocks:
    def test_a_cycle_visits_each_block_its_count_of_times(self):
        counts = [2, 1, 3]
        sampling = ShuffledBlocks(PAIRS, counts)
        stream = sampling.sets(60, np.random.default_rng(1))
        orders = set()
        for _ in range(10):
            cycle = tuple(tuple(chosen.tolist()) for chosen in islice(stream, 6))
            assert Counter(cycle) == {
                tuple(b): c for b, c in zip(PAIRS, counts, strict=True)
            }
            orders.add(cycle)
        assert len(orders) > 1  # shuffled anew
        assert next(stream, None) is None

    def test_every_position_of_a_cycle_has_the_law_of_a_draw(self):
        sampling = ShuffledBlocks(PAIRS, [2, 1, 3])
        stream = sampling.sets(6 * 4000, np.random.default_rng(2))
        first = np.array([chosen.size for chosen in stream]).reshape(-1, 6)
        frequency = np.array([(first == size).mean(axis=0) for size in (2, 1, 3)])
        assert np.all(np.abs(frequency.T - sampling.set_probabilities) < 0.04)

    def test_counts_default_to_one(self):
        sampling = ShuffledBlocks(PAIRS)
        assert sampling.counts.tolist() == [1, 1, 1]
        np.testing.assert_allclose(sampling.probabilities, 1 / 3)

    def test_last_cycle_is_cut_short(self):
        sampling = ShuffledBlocks(PAIRS)
        assert len(list(sampling.sets(8, np.random.default_rng(0)))) == 8


class TestProbabilities:
    def test_importance_is_proportional_to_smoothness(self):
        single = SingleCoordinate.importance([1.0, 3.0])
        np.testing.assert_allclose(single.probabilities, [0.25, 0.75])
        blocks = Blocks.importance(PAIRS, [1, 2, 3, 4, 5, 6])
        np.testing.assert_allclose(blocks.set_probabilities, np.array([4, 2, 6]) / 12)

    def test_prior_minimises_the_distance_of_the_bound(self):
        m = np.array([1.0, 2, 3, 4, 5, 6])
        delta = np.array([3.0, 1, 0.1, 2, 0.5, 1])

        def distance(q):
            return sum((m * delta**2)[b].sum() / x for b, x in zip(PAIRS, q, strict=1))

        best = Blocks.prior(PAIRS, m, delta, floor=0.0).set_probabilities
        rng = np.random.default_rng(0)
        for other in chain(rng.dirichlet(np.ones(3), 200), best * (1 + np.eye(3) / 50)):
            q = other / other.sum()
            assert distance(best) <= distance(q) * (1 + 1e-12)
        assert distance(best) < 0.9 * distance(np.full(3, 1 / 3))

    @pytest.mark.parametrize("floor", [0.1, 0.5, 1.0])
    def test_floor_keeps_every_block_visited(self, floor):
        lopsided = np.array([1e300, 1, 1, 1, 1, 1e-300])
        for sampling in (
            Blocks.importance(PAIRS, lopsided, floor=floor),
            Blocks.prior(PAIRS, np.ones(6), lopsided, floor=floor),
            Blocks.prior(PAIRS, np.ones(6), [1, 0, 0, 0, 0, 0], floor=floor),
        ):
            assert sampling.set_probabilities.min() >= floor / 3 * (1 - 1e-12)

    def test_prior_keeps_half_of_uniform_unless_told(self):
        sampling = Blocks.prior(PAIRS, np.ones(6), [1, 0, 0, 0, 0, 0])
        np.testing.assert_allclose(sampling.set_probabilities, [4 / 6, 1 / 6, 1 / 6])

    def test_probabilities_are_renormalised(self):
        sampling = SingleCoordinate([0.5, 0.5 + 9e-10])
        assert sampling.probabilities.sum() == pytest.approx(1, abs=1e-15)

    def test_independent_of_tiny_probabilities_is_a_single_coordinate(self):
        sampling = Independent([1e-200, 3e-200])
        np.testing.assert_allclose(sampling.probabilities, [0.25, 0.75])
        rng = np.random.default_rng(0)
        assert all(sampling.draw(rng).size == 1 for _ in range(50))

    def test_independent_of_ones_is_full(self):
        sampling = Independent(np.ones(5))
        assert sampling.probabilities.tolist() == [1] * 5
        assert sampling.draw(np.random.default_rng(0)).tolist() == [0, 1, 2, 3, 4]
        assert len(sampling.support) == 1

    def test_independent_conditions_on_being_nonempty(self):
        pi = np.array([0.2, 0.5])
        sampling = Independent(pi)
        np.testing.assert_allclose(sampling.inclusion, pi)
        np.testing.assert_allclose(sampling.probabilities, pi / 0.6)
        both = sampling.pair_probabilities(np.arange(2))[0, 1]
        assert both == pytest.approx(0.1 / 0.6)

    def test_sketch_is_zero_outside_the_set(self):
        sampling = Nice(4, 2)
        assert sketch(sampling, [1, 3]).tolist() == [0, 2, 0, 2]


E = np.eye(2)
BAD = {
    "full-zero": (lambda: Full(0), "n_coordinates"),
    "full-float": (lambda: Full(2.0), "n_coordinates"),
    "full-bool": (lambda: Full(True), "n_coordinates"),
    "single-none": (lambda: SingleCoordinate.uniform(0), "n_coordinates"),
    "single-sum": (lambda: SingleCoordinate([0.5, 0.4]), "probabilities"),
    "single-sum-close": (lambda: SingleCoordinate([0.5, 0.5 + 1e-8]), "probabilities"),
    "single-zero": (lambda: SingleCoordinate([1.0, 0.0]), "probabilities"),
    "single-negative": (lambda: SingleCoordinate([1.5, -0.5]), "probabilities"),
    "single-nan": (lambda: SingleCoordinate([np.nan, 1.0]), "probabilities"),
    "single-inf": (lambda: SingleCoordinate([np.inf, 1.0]), "probabilities"),
    "single-text": (lambda: SingleCoordinate(["a", "b"]), "probabilities"),
    "single-matrix": (lambda: SingleCoordinate(E), "probabilities"),
    "single-empty": (lambda: SingleCoordinate([]), "probabilities"),
    "importance-zero": (lambda: SingleCoordinate.importance([1, 0]), "smoothness"),
    "importance-under": (
        lambda: SingleCoordinate.importance([1e300, 1e-300]),
        "smoothness",
    ),
    "blocks-none": (lambda: Blocks([], []), "probabilities"),
    "blocks-none-uniform": (lambda: Blocks.uniform([]), "blocks"),
    "blocks-empty": (lambda: Blocks([[0], []], [0.5, 0.5]), "blocks"),
    "blocks-overlap": (lambda: Blocks([[0, 1], [1]], [0.5, 0.5]), "blocks"),
    "blocks-gap": (lambda: Blocks([[0], [2]], [0.5, 0.5]), "blocks"),
    "blocks-twice": (lambda: Blocks([[0, 0]], [1.0]), "blocks"),
    "blocks-negative": (lambda: Blocks([[-1, 0]], [1.0]), "blocks"),
    "blocks-float": (lambda: Blocks([[0.0, 1.0]], [1.0]), "blocks"),
    "blocks-ragged": (lambda: Blocks([[[0], [1, 2]]], [1.0]), "blocks"),
    "blocks-length": (lambda: Blocks([[0], [1]], [1.0]), "probabilities"),
    "blocks-m-length": (lambda: Blocks.importance(PAIRS, [1.0]), "smoothness"),
    "blocks-floor": (
        lambda: Blocks.importance(PAIRS, np.ones(6), floor=1.5),
        "floor",
    ),
    "blocks-floor-nan": (
        lambda: Blocks.importance(PAIRS, np.ones(6), floor=np.nan),
        "floor",
    ),
    "prior-zero": (lambda: Blocks.prior(PAIRS, np.ones(6), np.zeros(6)), "distance"),
    "prior-negative": (
        lambda: Blocks.prior(PAIRS, np.ones(6), [1, 1, 1, 1, 1, -1]),
        "distance",
    ),
    "prior-improper": (
        lambda: Blocks.prior(PAIRS, np.ones(6), [1, 0, 0, 0, 0, 0], floor=0.0),
        "distance",
    ),
    "shuffled-zero": (lambda: ShuffledBlocks([[0], [1]], [1, 0]), "counts"),
    "shuffled-float": (lambda: ShuffledBlocks([[0], [1]], [1, 1.5]), "counts"),
    "shuffled-length": (lambda: ShuffledBlocks([[0], [1]], [1]), "counts"),
    "shuffled-none": (lambda: ShuffledBlocks([]), "blocks"),
    "shuffled-gap": (lambda: ShuffledBlocks([[0], [2]]), "blocks"),
    "shuffled-steps": (
        lambda: ShuffledBlocks([[0]]).sets(1.5, np.random.default_rng(0)),
        "n_steps",
    ),
    "nice-zero": (lambda: Nice(3, 0), "tau"),
    "nice-many": (lambda: Nice(3, 4), "tau"),
    "nice-float": (lambda: Nice(3, 1.5), "tau"),
    "independent-zero": (lambda: Independent([0.5, 0.0]), "probabilities"),
    "independent-above": (lambda: Independent([0.5, 1.1]), "probabilities"),
    "explicit-empty": (lambda: ExplicitSets([[0], []], [0.5, 0.5]), "sets"),
    "explicit-improper": (lambda: ExplicitSets([[0], [2]], [0.5, 0.5]), "sets"),
    "explicit-unseen": (lambda: ExplicitSets([[0], [1]], [0.5, 0.5], 3), "sets"),
    "explicit-range": (lambda: ExplicitSets([[0, 5]], [1.0], 3), "n_coordinates"),
    "explicit-zero": (
        lambda: ExplicitSets([[0], [0, 1]], [0.0, 1.0]),
        "probabilities",
    ),
    "sketch-range": (lambda: sketch(Full(2), [2]), "chosen"),
    "sketch-negative": (lambda: sketch(Full(2), [-1]), "chosen"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name(case):
    make, parameter = BAD[case]
    with pytest.raises(
        ValueError,
        match=rf"(?s)^\w[\w.]*: {parameter} must .*, got ",
    ):
        make()
