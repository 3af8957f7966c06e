"""The record: nothing is spent that the budget does not cover, nothing goes unsaid."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.privacy import accountant, queries
from skdp.privacy.budget import ALLOWED_DRAWS, BudgetError, Event, PrivacyRecord
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness


def make(epsilon=1.0, delta=1e-6, neighbours="replace-one", **options):
    return PrivacyRecord(epsilon=epsilon, delta=delta, neighbours=neighbours, **options)


def gradient(noise_multiplier, n_draws=5, delta=0.0, query="gradient"):
    return Event(Kind.STATED, query, 2.0, noise_multiplier, n_draws, delta)


def test_events_are_merged_with_counts():
    record = make(epsilon=5.0)
    for z in (20.0, 30.0, 20.0, 20.0):
        record.charge(gradient(z))
    record.charge(gradient(20.0, query="Gram"))
    assert list(record.events.values()) == [3, 1, 1]
    assert record.spent == pytest.approx(4 / 400 + 1 / 900, rel=1e-15)


events = st.builds(
    gradient,
    st.floats(1.0, 1e6),
    st.integers(0, 1000),
    st.floats(0.0, 1e-12),
    st.sampled_from(["gradient", "Gram", "counts"]),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(events, st.integers(1, 6)), max_size=6))
def test_spent_is_the_sum_of_squares_whatever_the_order(asked):
    """Charging e k times equals one entry with count k, in any order."""
    one, other = (make(epsilon=50.0, reserved_delta=1e-7) for _ in range(2))
    for event, times in asked:
        for _ in range(times):
            one.charge(event)
    for turn in range(6):
        for event, times in reversed(asked):
            if turn < times:
                other.charge(event)
    counts = {}
    for event, times in asked:
        counts[event] = counts.get(event, 0) + times
    assert one.events == other.events == counts
    assert one.spent == other.spent
    assert one.spent == pytest.approx(
        sum(times / event.noise_multiplier**2 for event, times in asked), rel=1e-12
    )
    assert one.spent_epsilon == other.spent_epsilon


@settings(deadline=None, max_examples=60)
@given(
    st.floats(0.05, 20.0),
    st.floats(1e-12, 1e-2),
    st.lists(st.floats(0.1, 50.0), min_size=1, max_size=40),
)
def test_whatever_is_asked_the_budget_holds(epsilon, delta, multipliers):
    """Requests are granted or refused; what was spent never exceeds (ε, δ)."""
    record = make(epsilon=epsilon, delta=delta)
    for z in multipliers:
        before = dict(record.events)
        if record.spent + z**-2 <= record.budget:
            record.charge(gradient(z))
        elif record.spent + z**-2 > record.budget * (1 + 1e-11):
            with pytest.raises(BudgetError):
                record.charge(gradient(z))
            assert record.events == before
    assert record.spent <= record.budget * (1 + 1e-12)
    assert record.spent_epsilon <= epsilon
    assert record.remaining == record.budget - record.spent


@pytest.mark.parametrize("n_releases", [1, 7, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5)])
def test_a_full_budget_is_used_up_and_then_shut(epsilon, delta, n_releases):
    record = make(epsilon=epsilon, delta=delta)
    z = accountant.noise_multiplier(math.sqrt(record.budget), n_releases)
    for _ in range(n_releases):
        record.charge(gradient(z))
    assert epsilon * (1 - 1e-6) < record.spent_epsilon <= epsilon
    with pytest.raises(BudgetError, match=r"only .* is left"):
        record.charge(gradient(100.0 * z / math.sqrt(n_releases)))
    assert list(record.events.values()) == [n_releases]


def test_no_noise_is_refused_by_any_finite_budget():
    record = make(epsilon=1e6)
    with pytest.raises(BudgetError, match="costs μ² = inf"):
        record.charge(gradient(0.0))


def test_nan_is_refused():
    with pytest.raises(BudgetError):
        make().charge(gradient(math.nan))


def test_reserved_delta_is_spent_and_no_more():
    record = make(delta=1e-6, reserved_delta=4e-7)
    left = 1e-6 - 4e-7 * (1 + 2.0**-25)
    assert record.budget == accountant.calibrate(1.0, left, ALLOWED_DRAWS) ** 2
    record.charge(gradient(100.0, delta=3e-7))
    record.charge(gradient(100.0, delta=1e-7))
    with pytest.raises(BudgetError):
        record.charge(gradient(100.0, delta=1e-8))
    plain = make(delta=1e-6)
    with pytest.raises(BudgetError):
        plain.charge(gradient(100.0, delta=1e-300))
    record.charge(gradient(1 / math.sqrt(record.remaining * (1 - 1e-9))))
    assert record.spent_epsilon <= 1.0
    # What the δ of the releases cost is in what is reported.
    mu = math.sqrt(record.spent)
    assert record.spent_epsilon > accountant.gdp_epsilon(mu, 1e-6) * 1.001
    assert record.spent_epsilon == pytest.approx(
        accountant.gdp_epsilon(mu, 6e-7), rel=1e-6
    )


@pytest.mark.parametrize("reserved", [1e-6, 2e-6, math.nan])
def test_reserving_all_of_delta_is_refused(reserved):
    with pytest.raises(ValueError, match="delta must be"):
        make(delta=1e-6, reserved_delta=reserved)


def test_a_negative_reserve_buys_nothing():
    record = make(delta=1e-6, reserved_delta=-1e-3)
    with pytest.raises(BudgetError):
        record.charge(gradient(1e6))


def test_draws_are_limited():
    record = make()
    record.charge(gradient(1e4, n_draws=ALLOWED_DRAWS - 1))
    record.charge(gradient(1e4, n_draws=1))
    with pytest.raises(BudgetError):
        record.charge(gradient(1e4, n_draws=1))
    record.charge(gradient(1e4, n_draws=0))


def test_infinite_epsilon_refuses_nothing_and_claims_nothing():
    record = make(epsilon=math.inf)
    record.charge(gradient(0.0))
    record.charge(gradient(0.1, n_draws=2 * ALLOWED_DRAWS))
    assert record.remaining == record.budget == math.inf
    assert record.spent_epsilon == math.inf
    text = str(record)
    assert text.startswith("no noise: no privacy claim")
    assert "differential privacy" not in text


@pytest.mark.parametrize("neighbours", ["replace_one", "Replace-one", "", None])
def test_unknown_relations_are_refused(neighbours):
    with pytest.raises(ValueError, match="neighbours must be"):
        make(neighbours=neighbours)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_senseless_budgets_are_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be"):
        make(epsilon=epsilon)


@pytest.mark.parametrize("delta", [0.0, -1e-6, 1.0, math.nan])
def test_senseless_deltas_are_refused(delta):
    with pytest.raises(ValueError, match="delta must be"):
        make(delta=delta)


SEED = 73192846501


def filled(seed):
    record = make(epsilon=3.0, assumptions=("The number of rows is public.",))
    source = Randomness(seed)
    for size in (3, 3, 5):
        total = queries.state_sensitivity(
            np.zeros(size), 2.0, Kind.STATED, f"gradient of {size} coordinates"
        )
        release(total, 12.0, source, record)
    return record


def test_text_says_what_holds():
    record = filled(None)
    lines = str(record).splitlines()
    assert lines[0] == f"({record.spent_epsilon:.6g}, 1e-06)-differential privacy"
    assert lines[1] == "neighbouring tables: replace-one"
    assert lines[2].startswith("2 × gradient of 3 coordinates: noise 12 × 2, μ² ")
    assert lines[3].startswith("1 × gradient of 5 coordinates")
    assert lines[4] == "The number of rows is public."
    assert "Not protected" in lines[5]


def test_seeded_text_claims_nothing_and_hides_the_seed():
    record = filled(SEED)
    assert record.seeded
    assert str(record).startswith("seeded: no privacy claim")
    assert "differential privacy" not in str(record)
    shown = str(record) + repr(record) + str(vars(record))
    assert str(SEED) not in shown


def test_text_shows_no_released_value():
    record = filled(None)
    shown = str(record) + repr(record)
    for released in record.transcript:
        for value in released.values.tolist():
            if len(repr(value)) > 6:  # 12.0, say, may stand there for another reason
                assert repr(value) not in shown
    assert any(len(repr(v)) > 6 for r in record.transcript for v in r.values.tolist())
    assert "transcript" not in repr(record)


def by_privacy_loss(record):
    """ε of the record's events, by convolving privacy-loss distributions."""
    whole = PLDAccountant(value_discretization_interval=1e-4)
    for event, times in record.events.items():
        one = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        whole.compose(dp_accounting.SelfComposedDpEvent(one, times))
    return whole.get_epsilon(record.delta)


@pytest.mark.parametrize(
    ("epsilon", "delta", "charged"),
    [
        (0.2, 1e-6, [(400.0, 30), (150.0, 4)]),
        (1.0, 1e-5, [(40.0, 30), (12.0, 4), (9.0, 1)]),
        (4.0, 1e-8, [(40.0, 200), (5.0, 2)]),
        (12.0, 1e-4, [(20.0, 100), (1.0, 3)]),
    ],
)
def test_spent_epsilon_is_recomputed_by_another_accountant(epsilon, delta, charged):
    record = make(epsilon=epsilon, delta=delta)
    for z, times in charged:
        for _ in range(times):
            record.charge(gradient(z))
    theirs = by_privacy_loss(record)
    assert record.spent_epsilon == pytest.approx(theirs, abs=1e-3)
    assert theirs > epsilon / 3  # the case is not an empty one
    record.charge(gradient(30.0 * max(z for z, _ in charged)))
    assert record.spent_epsilon > theirs - 1e-3
