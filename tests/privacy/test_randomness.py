"""The sampler: exact where it can be, statistical with stated power elsewhere.

Seeded draws make every statistical test repeat itself: what passes once passes always.
`LEVEL` is the false-alarm rate that each comparison would have with fresh bits.
"""

import copy
import math
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from skdp.privacy.randomness import POOL, Randomness

LEVEL = 1e-7
N_DRAWS = 400_000
ONE = 1 << 64


def floats(drawn):
    """The middles of the intervals that draws stand for."""
    return np.array([math.ldexp(2 * v + 1, -65) for v in drawn])


def smooth_p_value(draws):
    """Kolmogorov and Smirnov's test that draws are standard normal.

    At 4e5 draws an observed distance of 0.0046 between distribution functions is
    rejected. A scale wrong by 3 % or a shift of 0.02 is missed less than once in 10⁵.
    """
    return stats.kstest(draws, "norm").pvalue


def binned_p_value(draws):
    """Pearson's test on whole part, sign and eighths, and on the tails beyond 3.5.

    At 2e5 draws, the rarest of 60 cells expects 6, and 1e-7 of the χ² law is 1.4e-7 of
    the statistic's.
    """
    edges = np.concatenate([np.arange(-28, 29) / 8, [-4.0, 4.0]])
    edges = np.concatenate([[-np.inf], np.sort(edges), [np.inf]])
    seen = np.histogram(draws, edges)[0]
    expected = len(draws) * np.diff(stats.norm.cdf(edges))
    assert expected.min() > 5
    return stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue


class WrongStart(Randomness):
    """Trials of exp(-¼) in place of exp(-½)."""

    def _trial(self, start, k=None):
        return super()._trial(np.full_like(start, 1 << 62) if k is None else start, k)


class NearlyRightStart(Randomness):
    """Trials of exp(-½·15/16)."""

    def _trial(self, start, k=None):
        near = np.full_like(start, 15 << 59)
        return super()._trial(near if k is None else start, k)


class MissingKeep(Randomness):
    """Steps are always kept, so the fraction is accepted with exp(-x)^(k+1)."""

    def _trial(self, start, k=None):
        return super()._trial(start)


class OneFractionTrial(Randomness):
    """The last of the k+1 trials of the fraction is left out for k > 0."""

    def _trial(self, start, k=None):
        good = super()._trial(start, k)
        return good if k is None else good | ((k > 0) & super()._trial(start, k))


class Unsigned(Randomness):
    def _attempts(self, size):
        return [max(v, ~v) for v in super()._attempts(size)]


class CoarseFraction(Randomness):
    """Fractions of four bits only."""

    def _attempts(self, size):
        return [v >> 60 << 60 for v in super()._attempts(size)]


MUTANTS = [
    WrongStart,
    NearlyRightStart,
    MissingKeep,
    OneFractionTrial,
    Unsigned,
    CoarseFraction,
]


def test_draws_are_standard_normal():
    draws = floats(Randomness(20).normals(N_DRAWS))
    assert smooth_p_value(draws) > LEVEL
    assert binned_p_value(draws) > LEVEL


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_samplers_are_rejected(mutant):
    """A quarter of the draws is enough, except for the one that is nearly right."""
    size = N_DRAWS if mutant is NearlyRightStart else N_DRAWS // 4
    draws = floats(mutant(20).normals(size))
    assert smooth_p_value(draws) < LEVEL or binned_p_value(draws) < LEVEL


def test_fresh_draws_are_standard_normal():
    """Bits of the operating system: a false alarm in 4e6 runs (1e-7 and 1.4e-7)."""
    draws = floats(Randomness().normals(N_DRAWS // 2))
    assert smooth_p_value(draws) > LEVEL
    assert binned_p_value(draws) > LEVEL


def test_whole_parts_have_their_probabilities():
    whole = [max(v, ~v) >> 64 for v in Randomness(21).normals(N_DRAWS)]
    seen = np.bincount(whole, minlength=5)
    expected = N_DRAWS * 2 * np.diff(stats.norm.cdf(np.arange(5)))
    assert stats.chisquare(seen[:4], expected * seen[:4].sum() / expected.sum())[1] > (
        LEVEL
    )
    # Four and beyond: 6.3e-5 of the draws, a Poisson count.
    assert stats.poisson(N_DRAWS * 2 * stats.norm.sf(4)).cdf(seen[4:].sum()) > LEVEL
    assert stats.poisson(N_DRAWS * 2 * stats.norm.sf(4)).sf(seen[4:].sum() - 1) > LEVEL


def test_fractions_are_conditionally_right():
    """Given k, the fraction has density ∝ exp(-x(2k+x)/2) on [0, 1]."""
    draws = np.abs(floats(Randomness(22).normals(N_DRAWS)))
    for k in range(4):
        inside = draws[(draws >= k) & (draws < k + 1)]
        low, high = stats.norm.cdf([k, k + 1])
        law = (stats.norm.cdf(inside) - low) / (high - low)
        assert stats.kstest(law, "uniform").pvalue > LEVEL


class Script(Randomness):
    """Words of a list, one at a time; IndexError when it ends."""

    def __init__(self, script):
        super().__init__(0)
        self.script, self.place = script, 0

    def words(self, size):
        assert size == 1
        self.place += 1
        return np.array([self.script[self.place - 1]], dtype=np.uint64)


def exact_probability(j, n, k):
    """P(trial) with every word uniform on n values, by listing all words.

    The start is j/n. A step asks for a word, and with k for a side and another word.
    """
    values = [i * (ONE // n) for i in range(n)]
    choices = [values] if k is None else [values, list(range(2 * k + 2)), values]
    start = np.array([j * (ONE // n)], dtype=np.uint64)
    keys = None if k is None else np.array([k])

    def probability(script):
        try:
            good = Script(script)._trial(start, keys)[0]
        except IndexError:
            options = choices[len(script) % len(choices)]
            return sum(probability([*script, v]) for v in options) / len(options)
        return Fraction(int(good))

    return Fraction(probability([]))


@pytest.mark.parametrize(("n", "j"), [(4, 0), (4, 1), (4, 2), (4, 3), (8, 3), (8, 5)])
def test_trial_of_a_start_is_exact(n, j):
    """Σ_m (-1)^m C(j,m)/n^m = (1 - 1/n)^j, which tends to exp(-j/n)."""
    assert exact_probability(j, n, None) == (1 - Fraction(1, n)) ** j


@pytest.mark.parametrize(
    ("n", "j", "k"),
    [(4, 0, 1), (4, 1, 0), (4, 1, 3), (4, 2, 1), (4, 3, 0), (3, 2, 0), (3, 2, 2)],
)
def test_trial_with_a_kept_step_is_exact(n, j, k):
    """Each step falls and is kept with q = (2k+x)/(2k+2): (1 - q/n)^j."""
    kept = (2 * k + Fraction(j, n)) / (2 * k + 2)
    assert exact_probability(j, n, k) == (1 - kept / n) ** j


@pytest.mark.parametrize("x", [0.0, 2.0**-20, 0.1, 0.5, 0.9, 1 - 2.0**-20])
@pytest.mark.parametrize("k", [None, 0, 1, 3, 9])
def test_trial_has_its_probability_on_full_words(x, k):
    """On 1e6 trials an error of 0.005 in the probability is missed once in 6e5."""
    size = 1_000_000
    start = np.full(size, int(x * 2.0**64), np.uint64)
    keys = None if k is None else np.full(size, k)
    hits = int(Randomness(23)._trial(start, keys).sum())
    power = x if k is None else x * (2 * k + x) / (2 * k + 2)
    assert stats.binomtest(hits, size, math.exp(-power)).pvalue > LEVEL


def test_the_half_of_the_algorithm_is_exp_minus_half():
    hits = int(Randomness(24)._trial(np.full(4_000_000, 1 << 63, np.uint64)).sum())
    assert stats.binomtest(hits, 4_000_000, math.exp(-0.5)).pvalue > LEVEL
    # exp(-½·(1 - 0.01)) is 0.003 away, or 12 deviations. Five of them are allowed.
    assert stats.binomtest(hits, 4_000_000, math.exp(-0.495)).pvalue < LEVEL


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5])
def test_an_outcome_takes_the_trials_of_its_density(k):
    """With e^(-½) and e^(-x(2k+x)/(2k+2)) a trial, they make e^(-(k+x)²/2)."""
    asked = []

    class Spy(Randomness):
        def _trial(self, start, k_of=None):
            assert len(start) == 1
            asked.append((int(start[0]), None if k_of is None else int(k_of[0])))
            return np.array([len(asked) != k + 1])  # the first failure ends N1

    (value,) = Spy(25)._attempts(1)
    value = max(value, ~value)
    assert value >> 64 == k
    first = k + 1 + k * (k - 1)
    assert asked[:first] == [(1 << 63, None)] * first
    assert asked[first:] == [(value & (ONE - 1), k)] * (k + 1)
    x = Fraction(value & (ONE - 1), ONE)
    exponent = Fraction(k, 2) + Fraction(k * (k - 1), 2)
    exponent += (k + 1) * x * (2 * k + x) / (2 * k + 2)
    assert exponent == (k + x) ** 2 / 2


@pytest.mark.parametrize("fails", range(2, 10))
def test_any_failed_trial_rejects_the_attempt(fails):
    """For k = 2: three trials of N1, two of N2, three of N4."""
    asked = []

    class Spy(Randomness):
        def _trial(self, start, k_of=None):
            asked.append(k_of)
            return np.array([len(asked) not in (3, fails)])

    values = Spy(25)._attempts(1)
    if (
        fails == 2
    ):  # N1 ends with k = 1: no trial of N2, two of N4, the third call fails
        assert (len(values), len(asked)) == (0, 3)
    elif fails in (3, 9):  # N1 ends by itself, and nothing is asked after the eighth
        assert (len(values), len(asked)) == (1, 8)
    else:
        assert (len(values), len(asked)) == (0, fails)


def test_negative_draws_stand_for_the_mirrored_interval():
    """-x for x in [v, v+1] lies in [-(v+1), -v], which is [~v, ~v + 1]."""
    drawn = Randomness(26).normals(10_000)
    negative = sum(v < 0 for v in drawn)
    assert stats.binomtest(negative, len(drawn), 0.5).pvalue > LEVEL
    assert all(isinstance(v, int) for v in drawn)


def test_draws_are_used_once_and_in_any_portions():
    together = Randomness(27).normals(1500)
    source = Randomness(27)
    apart = [v for size in (1, 0, 3, 96, 900, 500) for v in source.normals(size)]
    assert apart == together
    assert len(set(together)) == 1500
    source.normals(10 * POOL)
    assert not set(source.normals(1000)) & set(together)


def test_words_are_never_handed_out_twice():
    source = Randomness(28)
    words = np.concatenate([source.words(1000) for _ in range(20)])
    assert len(np.unique(words)) == 20_000
    ones = np.unpackbits(words.view(np.uint8)).reshape(20_000, 64).sum(axis=0)
    off = int(np.abs(ones.astype(int) - 10_000).max())
    # The largest of 64 positions, in both directions.
    assert 128 * stats.binom(20_000, 0.5).sf(9_999 + off) > LEVEL


@pytest.mark.parametrize("lag", [1, 2, 7, POOL])
def test_draws_are_uncorrelated(lag):
    """On 2e5 draws a correlation of 0.022 is missed less than once in 10⁵.

    Of values, of sizes, and of tails.
    """
    draws = floats(Randomness(29).normals(200_000))
    for of in (draws, np.abs(draws), (draws > 1).astype(float)):
        assert stats.pearsonr(of[:-lag], of[lag:]).pvalue > LEVEL


def test_same_seed_same_bits():
    assert Randomness(30).normals(100) == Randomness(30).normals(100)
    first, second = Randomness(30).generator(), Randomness(30).generator()
    assert (first.random(10) == second.random(10)).all()


def test_other_seeds_and_no_seeds_differ():
    runs = [Randomness(31), Randomness(32), Randomness(), Randomness()]
    assert len({v for run in runs for v in run.normals(1000)}) == 4000
    assert [run.seeded for run in runs] == [True, True, False, False]
    assert len({float(run.generator().random()) for run in runs}) == 4


def test_seed_zero_is_a_seed():
    assert Randomness(0).seeded
    assert Randomness(0).normals(3) == Randomness(0).normals(3)


def test_streams_of_different_seeds_are_uncorrelated():
    draws = np.array([floats(Randomness(seed).normals(20_000)) for seed in range(8)])
    apart = np.corrcoef(draws)[np.triu_indices(8, 1)]
    assert np.abs(apart).max() < 5.7 / math.sqrt(20_000)  # 28 pairs at 1e-8 each


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_child_does_not_repeat_its_parent():
    source = Randomness()
    source.normals(10)  # leaves thousands in the pool
    assert len(source._pool) > 1000
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = " ".join(map(str, source.normals(50)))
            os.write(writing, text.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = [int(v) for v in pipe.read().split()]
    os.waitpid(child, 0)
    ours = source.normals(50)
    assert len(theirs) == len(set(theirs) - set(ours)) == 50


@pytest.mark.parametrize("seed", [None, 33])
@pytest.mark.parametrize("keep", [copy.copy, copy.deepcopy, pickle.dumps])
def test_generators_cannot_be_stored(keep, seed):
    source = Randomness(seed)
    source.normals(1)
    with pytest.raises(TypeError, match="cannot be copied or stored"):
        keep(source)


def test_a_seed_is_not_shown():
    source = Randomness(987654321)
    assert "987654321" not in repr(source) + str(source)
    assert "987654321" not in str(vars(source))


@pytest.mark.parametrize("seed", [0.5, "1", np.random.default_rng(0)])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(ValueError, match="random_state must be None or an integer"):
        Randomness(seed)
