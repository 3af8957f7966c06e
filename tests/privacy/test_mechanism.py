"""release(): the right noise, on the right cells, charged before it is drawn.

One function, `scale_p_value`, is asked about every noise: it accepts the scale that was
promised and rejects two thirds and three halves of it. Draws are seeded, so verdicts
repeat; with fresh bits a false alarm would have probability `LEVEL`.
"""

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from skdp.descent.matrix import whiten
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Logistic, Softmax
from skdp.privacy import queries
from skdp.privacy.budget import BudgetError, PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.mechanism import CELL_BITS, Released, _round_to_cell, release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema

LEVEL = 1e-7
N_RELEASES = 400


def free_record(neighbours="replace-one"):
    return PrivacyRecord(epsilon=math.inf, delta=1e-6, neighbours=neighbours)


def engine(n_classes=2, n_rows=60):
    rng = np.random.default_rng(0)
    schema = Schema(
        {"a": Numeric(0, 1), "b": Numeric(0, 1), "c": Categorical(["x", "y", "z"])},
        target=Categorical(list(range(n_classes))),
    )
    columns = {
        "a": rng.random(n_rows),
        "b": rng.random(n_rows) ** 3,
        "c": Coded(rng.integers(0, 3, n_rows), ["x", "y", "z"]),
    }
    target = Coded(rng.integers(0, n_classes, n_rows), list(range(n_classes)))
    return ReferenceEngine(encode([Batch(columns=columns, target=target)], schema))


def isotropic(neighbours="replace-one", n_classes=2):
    loss = Logistic() if n_classes == 2 else Softmax(n_classes)
    at = np.arange(6)
    return queries.gradient(
        engine(n_classes),
        queries.Slopes(loss),
        np.zeros((6, loss.n_outputs)),
        at,
        neighbours,
        np.ones(6),
    )


def shaped(neighbours="replace-one"):
    shape = np.array([1.0, 0.25, 0.5, 0.5, 0.5, 0.7])
    at, start = np.arange(6), np.zeros((6, 1))
    return queries.gradient(
        engine(), queries.Slopes(Logistic()), start, at, neighbours, shape
    )


def noise_of(total, noise_multiplier, n_releases=N_RELEASES, seed=1):
    """The noise of each release, shape (n_releases, *value.shape)."""
    source, record = Randomness(seed), free_record()
    exact = total.value.astype(float) * total.unit
    return np.array(
        [
            release(total, noise_multiplier, source, record).values - exact
            for _ in range(n_releases)
        ]
    )


def scale_p_value(noise, std):
    """Two-sided test that independent `noise` is normal with deviation `std`.

    Σ (noise/std)² is χ². With 400 values a scale wrong by a third is rejected at 1e-7
    with probability above 1 - 1e-8, be it 2/3 or 3/2 of the right one.
    """
    squares, n = float(np.sum((noise / std) ** 2)), np.broadcast(noise, std).size
    law = stats.chi2(n)
    return 2 * min(law.cdf(squares), law.sf(squares))


def accepted_alone(noise, std):
    """Whether the scale passes, and 2/3 and 3/2 of it do not."""
    verdicts = [
        scale_p_value(noise, std * factor) > LEVEL for factor in (2 / 3, 1, 3 / 2)
    ]
    return verdicts == [False, True, False]


RELATION_FACTOR = {"replace-one": 2.0, "zero-out": 1.0, "add-remove": 1.0}


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 25.0])
@pytest.mark.parametrize("neighbours", RELATION_FACTOR)
def test_isotropic_noise_has_its_scale(neighbours, noise_multiplier):
    """Four groups of norm one and slopes of at most one: L = 2."""
    noise = noise_of(isotropic(neighbours), noise_multiplier)
    promised = noise_multiplier * RELATION_FACTOR[neighbours] * 2.0
    assert accepted_alone(noise, promised)
    for entry in noise.reshape(N_RELEASES, -1).T:
        assert accepted_alone(entry, promised)


def test_fresh_noise_has_its_scale():
    """Bits of the operating system: a false alarm in 1e7 runs."""
    noise = noise_of(isotropic(), 1.0, seed=None)
    assert accepted_alone(noise, 4.0)


def test_shaped_noise_has_its_ellipse():
    """Squares over the shape's: 1 + 16 + 4 + 1/0.49, one term a group."""
    total = shaped()
    noise = noise_of(total, 0.5)[:, :, 0]
    reach = 2 * math.sqrt(1 + 16 + 4 + 1 / 0.49)
    promised = 0.5 * reach * np.array([1.0, 0.25, 0.5, 0.5, 0.5, 0.7])
    for entry, std in zip(noise.T, promised, strict=True):
        assert accepted_alone(entry, std)


def test_matrix_noise_has_the_ellipse_of_the_metric():
    """B⁻¹·noise has covariance (z·2C)²·(BᵀB)⁻¹ = (z·2C)²·A."""
    adder, radius, z = engine(), 3.0, 0.8
    gram = adder.gram().astype(float) * 2.0**-28 / 60
    root = whiten(gram, 0.05, np.zeros(6)).root
    slopes = queries.cap_slopes(
        adder, queries.Slopes(Logistic()), queries.Metric.of(root, radius)
    )
    total = queries.mapped_gradient(adder, slopes, np.zeros((6, 1)), "replace-one")
    noise = np.linalg.solve(root, noise_of(total, z)[:, :, 0].T).T
    values, vectors = np.linalg.eigh(gram)
    floored = np.maximum(values, 0.0) + 0.05
    along = noise @ vectors  # axes of the ellipse
    for axis, value in zip(along.T, floored, strict=True):
        assert accepted_alone(axis, z * 2 * radius * math.sqrt(value))
    between = np.corrcoef(along.T)[np.triu_indices(6, 1)]
    assert np.abs(between).max() < 6 / math.sqrt(N_RELEASES)
    assert floored[-1] / floored[0] > 5  # an ellipse, not a ball


def test_noise_has_mean_zero():
    """An offset of half a cell, 2⁻¹¹ σ, is beyond any sample; one of 0.1 σ is not."""
    noise = noise_of(isotropic(), 1.0, n_releases=2000).ravel() / 4.0
    assert abs(noise.mean()) * math.sqrt(noise.size) < 5.4
    assert abs((noise + 0.1).mean()) * math.sqrt(noise.size) > 5.4
    assert stats.kstest(noise, "norm").pvalue > LEVEL


@pytest.mark.parametrize("std", [1.0, 1.99, 2.0, 0.003, 12345.6])
def test_values_lie_on_cells(std):
    """The cell is the power of two G with 2¹⁰ ≤ σ/G < 2¹¹."""
    total = queries.state_sensitivity(np.linspace(-3, 3, 200), std, Kind.STATED, "test")
    values = release(total, 1.0, Randomness(2), free_record()).values
    cell = 2.0 ** (math.floor(math.log2(std)) - CELL_BITS)
    assert 2.0**10 <= std / cell < 2.0**11
    assert (values / cell == np.rint(values / cell)).all()
    assert (values / cell % 2 == 1).any()  # and on no coarser ones


def test_exact_sum_leaves_no_trace_in_the_low_digits():
    """Two sums that differ below the cell have the same cells."""
    one, two = (
        release(
            queries.state_sensitivity(np.full(1000, x), 1.0, Kind.STATED, "test"),
            1.0,
            Randomness(3),
            free_record(),
        ).values
        for x in (0.0, 2.0**-30)
    )
    assert np.mean(one != two) < 0.01  # a boundary in 2²⁰ draws


class Script(Randomness):
    """A source whose further digits are known."""

    def __init__(self, words):
        super().__init__(0)
        self.script, self.used = list(words), 0

    def words(self, size):
        assert size == 1
        self.used += 1
        return np.array([self.script[self.used - 1]], dtype=np.uint64)


def cell_of(std):
    """G = 2^⌊log2 std⌋ / 2¹⁰, exactly."""
    exponent = math.frexp(std)[1] - 1 - 10
    return Fraction(2) ** exponent


def rounded_exactly(k, std, xi):
    """floor((k + std ξ)/G + 1/2) G in rational numbers."""
    cell = cell_of(std if isinstance(std, float) else float(std))
    return math.floor((k + std * xi) / cell + Fraction(1, 2)) * cell


def as_float(value):
    """The cell as a float: exact below 2⁵³ cells, else the nearest."""
    return value.numerator / value.denominator


stds = st.floats(2.0**-40, 2.0**120)
sizes = st.integers(-(2**80), 2**80) | st.sampled_from([0, 1, -1, 2**52, -(2**53)])
draws = st.integers(-(20 << 64), 20 << 64) | st.sampled_from([0, -1, 1, ~0 << 64])


@settings(deadline=None, max_examples=600)
@given(sizes, stds, draws, st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3))
@example(0, 1.0, 0, [0, 0, 0])
@example(2**60, 2.0**-40, -1, [1, 2, 3])
@example(-1, 2.0**110, (20 << 64) - 1, [1, 2, 3])
def test_rounding_is_that_of_the_real_number(k, std, drawn, words):
    """σ is between std and std(1 + 2⁻²⁹): both ends have the same cell, or enclose."""
    source = Script(words)
    value = _round_to_cell(k, std, drawn, source)
    xi, ulp = Fraction(drawn, 2**64), Fraction(1, 2**64)
    for word in words[: source.used]:
        xi, ulp = xi + word * ulp / 2**64, ulp / 2**64
    exact = Fraction(std)
    ends = [
        rounded_exactly(k, s, x)
        for s in (exact, exact * (1 + Fraction(1, 2**29)))
        for x in (xi, xi + ulp)
        if cell_of(std) == cell_of(float(s))
    ]
    assert as_float(min(ends)) <= value <= as_float(max(ends))
    if std < 2.0**60:
        assert max(ends) - min(ends) <= cell_of(std)


def test_rounding_is_exact_and_never_below_the_promised_scale():
    """For deviations of 20 bits σ = std + G 2⁻²⁰, and every cell is the exact one."""
    rng = np.random.default_rng(4)
    for _ in range(3000):
        std = math.ldexp(int(rng.integers(2**19, 2**20)), int(rng.integers(-40, 40)))
        k = int(rng.integers(-(2**62), 2**62)) >> int(rng.integers(0, 62))
        drawn = int(rng.integers(-(2**62), 2**62)) << int(rng.integers(0, 6))
        sigma = Fraction(std) + cell_of(std) / 2**20
        source = Script([])
        expected = math.floor(
            (k + sigma * Fraction(2 * drawn + 1, 2**65)) / cell_of(std) + Fraction(1, 2)
        )
        value = Fraction(_round_to_cell(k, std, drawn, source))
        assert value == Fraction(as_float(expected * cell_of(std)))


@pytest.mark.parametrize("m", [1, 2, 700, -1, -700])
@pytest.mark.parametrize("k", [0, 5, -12345678901])
@pytest.mark.parametrize("cell", [-3, 0, 7, 90])
def test_undecided_cells_take_further_digits(cell, k, m):
    """A draw across a boundary: the next word says on which side, or asks again.

    With std = 2¹⁰ G, σ = (2³⁰ + 1) 2⁻²⁰ G; the boundary m - ½ of the cells is at
    ξ = ((m - ½) G - k) / σ.
    """
    std, size = math.ldexp(1.0, cell + 10), Fraction(2) ** cell
    sigma = size * Fraction(2**30 + 1, 2**20)
    boundary = (m - Fraction(1, 2)) * size - k
    digits = boundary / sigma * 2**64
    drawn = math.floor(digits)
    assert drawn < digits  # the boundary is inside the interval of the draw
    second = (digits - drawn) * 2**64
    edge = math.floor(second)
    assert edge < second
    third = (second - edge) * 2**64
    cases = [
        ([0], m - 1, 1),
        ([2**64 - 1], m, 1),
        ([edge, 0], m - 1, 2),
        ([edge, 2**64 - 1], m, 2),
        ([edge, math.floor(third), 2**64 - 1], m, 3),
    ]
    for words, expected, used in cases:
        source = Script(words)
        assert _round_to_cell(k, std, drawn, source) == as_float(expected * size)
        assert source.used == used
    # One draw away from the boundary nothing more is asked for.
    for away, expected in ((drawn - 1, m - 1), (drawn + 1, m)):
        assert _round_to_cell(k, std, away, Script([])) == as_float(expected * size)


def test_ties_go_up_whatever_the_parity():
    """Never half to even: at a boundary itself the upper cell is taken."""
    for k in (-3, -1, 1, 3):  # G = 2, k odd: k/G + 1/2 is an integer
        assert _round_to_cell(k, 2.0**11, 0, Script([])) == k + 1
        assert _round_to_cell(k, 2.0**11, -1, Script([5])) == k - 1


def correlations(rows):
    """Largest correlation between rows of independent normals, in deviations."""
    n = rows.shape[1]
    apart = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    return float(np.abs(apart).max() * math.sqrt(n))


def test_noise_is_independent_across_entries_classes_and_releases():
    """18 entries of a softmax gradient, 400 releases: one of 153 pairs is 6
    deviations from zero once in 7e6 runs.

    A stream used twice, for two classes or two releases, has correlation one.
    """
    noise = noise_of(isotropic(n_classes=3), 1.0)
    by_entry = noise.reshape(N_RELEASES, -1).T
    assert correlations(by_entry) < 6.0
    assert correlations(noise_of(isotropic(), 1.0, 800).reshape(40, -1)) < 6.5
    one = noise_of(isotropic(), 1.0, seed=1).ravel()
    two = noise_of(isotropic(), 1.0, seed=2).ravel()
    later = noise_of(isotropic(), 1.0, 2 * N_RELEASES, seed=1)[N_RELEASES:].ravel()
    assert correlations(np.array([one, two, later])) < 6.0
    shared = by_entry.copy()
    shared[1] = shared[0]
    assert correlations(shared) > 6.0


def values_of(seed, record=None):
    return release(isotropic(), 1.0, Randomness(seed), record or free_record()).values


def test_same_seed_same_bits_and_fresh_runs_differ():
    assert values_of(5).tobytes() == values_of(5).tobytes()
    assert (values_of(5) != values_of(6)).all()
    # 2¹⁰ cells a deviation: six entries agree by chance once in 2·10²¹ runs.
    assert (values_of(None) != values_of(None)).any()


def test_released_says_what_it_is():
    record = free_record()
    total = shaped()
    released = release(total, 2.0, Randomness(7), record)
    assert isinstance(released, Released)
    assert released.kind == Kind.GRADIENT
    assert released.query == "gradient of 6 coordinates"
    assert released.values.shape == total.value.shape == (6, 1)
    promised = 2.0 * total.sensitivity * total.shape
    assert (released.noise_std == promised).all()
    assert record.transcript == [released]
    with pytest.raises(FrozenInstanceError):
        released.values = np.zeros(1)


def test_nobody_changes_what_was_released():
    """A callback gets the array that the transcript keeps."""
    released = release(isotropic(), 1.0, Randomness(0), free_record())
    for array in (released.values, released.noise_std):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


def test_stated_values_are_clipped_before_they_overflow():
    total = queries.state_sensitivity(
        np.array([1e300, -(2.0**33), 2.0**-30, math.inf, math.nan]),
        1.0,
        Kind.STATED,
        "test",
    )
    assert total.value.tolist() == [2**62, -(2**62), 1, 2**62, 0]


def test_no_noise_is_exact_and_costs_everything():
    record, total = free_record(), isotropic()
    released = release(total, 0.0, Randomness(), record)
    assert (released.values == total.value.astype(float) * total.unit).all()
    assert record.spent == math.inf
    assert record.spent_epsilon == math.inf


@pytest.mark.parametrize("noise_multiplier", [-1.0, math.nan, math.inf, -math.inf])
def test_senseless_multipliers_are_refused(noise_multiplier):
    record = free_record()
    with pytest.raises(ValueError, match="noise_multiplier must be finite"):
        release(isotropic(), noise_multiplier, Randomness(8), record)
    assert (record.events, record.transcript) == ({}, [])


class Untouched(Randomness):
    """A source that nothing may be drawn from."""

    def words(self, size):
        raise AssertionError("drawn before it was charged")


@pytest.mark.parametrize("noise_multiplier", [0.0, 0.1])
def test_budget_refuses_before_anything_is_drawn_or_released(noise_multiplier):
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    with pytest.raises(BudgetError, match="of the budget is left"):
        release(isotropic(), noise_multiplier, Untouched(), record)
    assert (record.events, record.transcript, record.spent) == ({}, [], 0.0)


def test_charged_although_the_draw_failed():
    """A release that breaks after its charge stays charged: nothing is refunded."""
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    with pytest.raises(AssertionError, match="drawn before"):
        release(isotropic(), 100.0, Untouched(), record)
    assert record.spent == pytest.approx(1e-4)


def test_seeded_noise_marks_a_record_that_was_passed_in():
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    release(isotropic(), 100.0, Randomness(), record)
    assert not record.seeded
    release(isotropic(), 100.0, Randomness(0), record)
    assert record.seeded
    release(isotropic(), 100.0, Randomness(), record)
    assert record.seeded
