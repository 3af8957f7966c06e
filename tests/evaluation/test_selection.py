"""The cost of a random search, against brute force on mechanisms that are known."""

import contextlib
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2

import skdp
from skdp.evaluation import search as trials_module
from skdp.privacy.accountant import gdp_delta, gdp_mu
from skdp.privacy.budget import ALLOWED_DRAWS, BudgetError, Event, PrivacyRecord
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.privacy.selection import (
    SHAPE,
    Coins,
    SearchRecord,
    choose_stop,
    mean_trials,
    number_of_trials,
    search_delta,
    search_epsilon,
    tail_ratio,
    trial_mu,
)

Y = np.linspace(-12, 12, 40_001)
STEP = Y[1] - Y[0]


def normal(mean):
    return np.exp(-((Y - mean) ** 2) / 2) / math.sqrt(2 * math.pi) * STEP


def law(k, stop):
    """P(K = k), from the definition: failures before the third success."""
    binomial = math.comb(k + SHAPE - 1, SHAPE - 1)
    return binomial * (1 - stop) ** k * stop**SHAPE / (1 - stop**SHAPE)


def best_of(density, score, stop):
    """The law of the best of K trials on a grid, K summed over without its formula."""
    order = np.argsort(score, kind="stable")
    below = np.empty(len(density))
    cumulated = np.cumsum(density[order])
    below[order] = cumulated - density[order] / 2
    below = np.clip(below, 0.0, 1.0)
    total, power = np.zeros(len(density)), np.ones(len(density))
    for k in range(1, 4000):
        weight = law(k, stop)
        total += k * weight * power
        power = power * below
        if k > 5 / stop and weight * k < 1e-16:
            break
    return density * total


SCORES = {
    "likelihood": Y,
    "against it": -Y,
    "outliers": np.abs(Y),
    "middle": -np.abs(Y - 0.3),
    "nothing": np.sin(1e4 * Y),
    "two steps": np.where(Y > 1.0, 1e3, 0.0) + np.sin(1e4 * Y),
    "few": np.where(Y > 2.5, 1e3, 0.0) + np.sin(1e4 * Y),
}


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.5])
@pytest.mark.parametrize("mean", [2.0, 10.0, 50.0])
def test_no_order_of_the_outcomes_shows_more_than_is_charged(mu, mean):
    stop = choose_stop(mean)
    epsilons = np.linspace(0, 14 * mu, 40)
    most = np.array([search_delta(epsilon, mu, stop) for epsilon in epsilons])
    bound = epsilons[np.argmax(most < 1e-6)]
    reached = 0.0
    for score in SCORES.values():
        laws = [best_of(normal(at), score, stop) for at in (0.0, mu)]
        assert [one.sum() for one in laws] == pytest.approx([1.0, 1.0], abs=1e-3)
        for one, other in (laws, laws[::-1]):
            shown = np.array(
                [np.maximum(one - math.exp(e) * other, 0.0).sum() for e in epsilons]
            )
            assert (shown <= most * (1 + 1e-3) + 1e-12).all()
            reached = max(reached, epsilons[np.argmax(shown < 1e-6)])
    # The bound is not idle: the worst order has a good part of its ε.
    assert 0.5 * bound < reached < bound


def test_a_weaker_bound_would_not_hold():
    """Trials as cheap as a single release are refuted: the choice has a price."""
    mu, stop = 0.5, choose_stop(10.0)
    one, other = (best_of(normal(at), Y, stop) for at in (mu, 0.0))
    excess = [
        np.maximum(one - math.exp(epsilon) * other, 0.0).sum() / gdp_delta(epsilon, mu)
        for epsilon in np.linspace(0.2, 2.5, 20)
    ]
    assert max(excess) > 1.3


@pytest.mark.parametrize("mean", [1.0, 1.5, 7.0, 100.0])
def test_the_law_of_the_number_of_trials(mean):
    stop = choose_stop(mean)
    assert mean_trials(stop) == pytest.approx(mean)
    if mean > 1:
        ks = range(1, round(80 * mean))
        assert sum(law(k, stop) for k in ks) == pytest.approx(1.0)
        assert sum(k * law(k, stop) for k in ks) == pytest.approx(mean)


@pytest.mark.parametrize("mu", [0.02, 0.3, 2.0])
@pytest.mark.parametrize("mean", [3.0, 30.0])
def test_the_ratio_of_tails_holds_for_every_tail(mu, mean):
    """(γ + (1-γ) u')/(γ + (1-γ) u) ≤ C for the worst u' = Φ(Φ⁻¹(u) + μ), and is met."""
    stop = choose_stop(mean)
    tails, others = ndtr(-Y), ndtr(mu - Y)
    ratio = (stop + (1 - stop) * others) / (stop + (1 - stop) * tails)
    assert math.log(ratio.max()) <= tail_ratio(mu, stop)
    assert math.log(ratio.max()) == pytest.approx(tail_ratio(mu, stop), rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("mean", [1.0, 20.0])
def test_budgets_are_used_up_and_not_exceeded(epsilon, mean):
    stop = choose_stop(mean)
    mu = trial_mu(epsilon, 1e-6, stop)
    assert search_epsilon(mu, 1e-6, stop) <= epsilon
    assert search_epsilon(mu * 1.0001, 1e-6, stop) > epsilon
    assert search_delta(epsilon, mu, stop) <= 1e-6 * (1 + 1e-9)
    single = gdp_mu(epsilon, 1e-6)
    assert mu < single
    if mean == 1:
        assert mu == pytest.approx(single, rel=1e-5)


def test_a_random_search_is_cheaper_than_a_split_one():
    for n, most in ((5, 1.9), (20, 2.4), (60, 2.8)):
        cost = gdp_mu(1.0, 1e-6) / trial_mu(1.0, 1e-6, choose_stop(3.5 * n))
        assert cost < most < math.sqrt(n)


def test_a_trial_may_not_spend_more_than_its_charge():
    record = SearchRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one", n_trials=2)
    charged = record.begin(record.budget / 2)
    with pytest.raises(BudgetError):
        record.begin(record.budget)
    own = PrivacyRecord(epsilon=9.0, delta=1e-6, neighbours="replace-one")
    own.charge(Event(Kind.STATED, "q", 1.0, 1 / math.sqrt(record.budget / 2 * 1.01), 3))
    with pytest.raises(BudgetError, match="more than its share"):
        record.end(charged, [own])
    assert charged in record.events
    own.events = {
        Event(Kind.STATED, "q", 1.0, 1 / math.sqrt(record.budget / 2.01), 3): 1
    }
    record.end(charged, [own])
    assert record.events == own.events


def test_trials_may_not_draw_more_noise_than_is_paid_for():
    record = SearchRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one", n_trials=3)
    each = record.budget / 3
    for _ in range(2):
        charged = record.begin(each)
        # Until it has ended a trial counts as if it drew all that is left.
        assert record._total("n_draws") == ALLOWED_DRAWS
        own = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
        own.charge(
            Event(Kind.STATED, "q", 1.0, 1 / math.sqrt(each), ALLOWED_DRAWS // 2)
        )
        record.end(charged, [own])
    charged = record.begin(each)
    with pytest.raises(BudgetError, match="this trial exceeded"):
        record.end(charged, [own])
    assert charged in record.events


def test_infinite_budgets_claim_nothing():
    record = SearchRecord(
        epsilon=math.inf, delta=1e-6, neighbours="replace-one", stop=choose_stop(4.0)
    )
    assert record.budget == record.spent_epsilon == math.inf
    with pytest.raises(ValueError, match="stop must be"):
        SearchRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one", stop=1.5)


def test_an_interrupt_at_the_end_of_a_trial_counts_it_once_at_least():
    """The ledger is charged in full, even if the record cannot be written."""
    release = Event(Kind.STATED, "gradient", 1.0, 10.0, 3)
    for allowed in range(3):
        record = SearchRecord(
            epsilon=1.0, delta=1e-6, neighbours="replace-one", n_trials=2
        )
        begun = record.begin(0.01)
        made = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
        made.charge(release)

        class Stopped(dict):
            left = allowed

            def _count(self):
                if not self.left:
                    raise KeyboardInterrupt
                self.left -= 1

            def __setitem__(self, key, value):
                self._count()
                super().__setitem__(key, value)

            def __delitem__(self, key):
                self._count()
                super().__delitem__(key)

        record.events = Stopped(record.events)
        with contextlib.suppress(KeyboardInterrupt):
            record.end(begun, [made])
        assert record.spent >= 0.01 * (1 - 1e-9), allowed


class Tape(Randomness):
    """Words that were written beforehand, and no more."""

    def __init__(self, words):
        super().__init__(0)
        self.tape = list(words)

    def words(self, size):
        took, self.tape = self.tape[:1], self.tape[1:]
        assert took, "the tape is at its end"
        return np.array(took, dtype=np.uint64)


def test_every_integer_below_a_bound_is_drawn_from_as_many_words():
    """All tapes of three bits: 5 of 8 are kept, each for one integer."""
    drawn = []
    for top in range(8):
        coins = Coins(Tape([top << 61, 6 << 61, 0]))
        drawn.append(coins.draw_below(5))
    assert sorted(drawn[:5]) == [0, 1, 2, 3, 4]
    assert drawn[5:] == [0, 0, 0]  # two tries more


def test_heads_come_up_exactly_as_often_as_their_chance():
    for numerator in range(9):
        tapes = [Coins(Tape([top << 61])) for top in range(8)]
        chance = Fraction(numerator, 8)
        if 0 < chance < 1 and chance.denominator == 8:
            assert sum(coins.toss(chance) for coins in tapes) == numerator
    least = Fraction(2.0**-60 * 3)
    below = Coins(Tape([2 << 4]))
    assert below.toss(least)
    assert not Coins(Tape([3 << 4])).toss(least)


@pytest.mark.parametrize("mean", [1, 2.5, 8.0])
def test_the_number_of_trials_has_its_law(mean):
    stop, coins = choose_stop(mean), Coins(Randomness(4))
    size = 6000
    drawn = np.array([number_of_trials(stop, coins) for _ in range(size)])
    assert drawn.min() >= 1
    if mean == 1:
        assert drawn.max() == 1
        return
    chances = np.array([law(k, stop) for k in range(1, 12)])
    expected = size * np.append(chances, 1 - chances.sum())
    counts = np.bincount(np.minimum(drawn, 12), minlength=13)[1:]
    assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-9, 11)


def test_a_search_draws_its_trials_from_the_source_of_noise(monkeypatch):
    """A generator of numpy would tell the trials to anyone who finds its state."""

    def refuse(*_, **__):
        raise AssertionError("a generator of numpy's was asked")

    X = np.random.default_rng(0).uniform(size=(200, 2))
    monkeypatch.setattr(Randomness, "generator", refuse)
    monkeypatch.setattr(trials_module.Trials, "run", outcome)
    for name in ("choice", "randint", "random_sample", "get_state"):
        monkeypatch.setattr(np.random, name, refuse)
    search = skdp.PrivateSearchCV(
        skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1]),
        {"alpha": [0.1, 1.0, 10.0]},
        method="random",
        n_candidates=2,
    )
    with pytest.raises(Reached):
        search.fit(X, (X[:, 0] > 0.5).astype(int))


class Reached(Exception):
    pass


def outcome(*_):
    raise Reached
