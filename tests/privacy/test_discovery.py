"""Ranges and categories found privately: right without noise, charged with it."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from skdp.privacy import discovery
from skdp.privacy.budget import BudgetError, PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import NEIGHBOURS
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema

floats = st.one_of(
    st.floats(width=64),
    st.sampled_from([0.0, -0.0, 5e-324, 1e308, math.inf, -math.inf, math.nan, 1.0]),
)


def record(neighbours="replace-one", epsilon=1.0, reserved=1e-7):
    return PrivacyRecord(
        epsilon=epsilon, delta=1e-6, neighbours=neighbours, reserved_delta=reserved
    )


@given(st.lists(floats, min_size=1, max_size=20))
def test_every_value_has_a_bin_that_holds_it(values):
    array = np.array(values)
    bins, edges = discovery.find_bins(array), discovery.list_edges()
    assert len(edges) == 2 * discovery.SIDE + 2
    assert (np.diff(edges) > 0).all()
    for value, bin_ in zip(values, bins.tolist(), strict=True):
        assert 0 <= bin_ <= 2 * discovery.SIDE + 1
        if math.isnan(value):
            assert bin_ == 2 * discovery.SIDE + 1
        elif edges[0] <= value < edges[-1] and abs(value) >= 2.0**discovery.LOWEST:
            at_edge = value in edges and value < 0  # negative bins hold their low end
            assert edges[bin_] <= value <= edges[bin_ + 1] or at_edge
    order = np.argsort(np.where(np.isnan(array), np.inf, array), kind="stable")
    known = [bins[i] for i in order if not math.isnan(values[i])]
    assert known == sorted(known)


def test_ranges_without_noise_cover_the_data():
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.uniform(17, 90, 500),
        "loss": -rng.exponential(5, 500) - 0.1,
        "zero": np.zeros(500),
        "gone": np.full(500, np.nan),
        "both": rng.normal(size=500),
    }
    names = list(columns)
    free = record(epsilon=math.inf)
    parts = [
        ({n: c[:200] for n, c in columns.items()}, None),
        ({n: c[200:] for n, c in columns.items()}, None),
    ]
    found = discovery.release_ranges(parts, names, 0.0, Randomness(0), free)
    for name in ("age", "loss", "both"):
        low, high = found[name]
        assert low <= columns[name].min()
        assert columns[name].max() <= high
        assert high - low <= 2 * math.sqrt(2) * max(-low, high)
    assert found["zero"] == (0.0, 1.0)
    assert found["gone"] == (0.0, 1.0)
    assert found == discovery.release_ranges(
        [(columns, None)], names, 0.0, Randomness(0), record(epsilon=math.inf)
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 1), (0, 1)),
        ((-1, 0, 1), (-1, 1)),
        ((1, 2, 3, 4, 5), (1, 5)),
        ((-3, -2, -1), (-3, -1)),
        ((1,), (1, 2)),
        ((0.5, 1), (0.5, math.sqrt(2))),
        ((1, 1.5, 2), (1, math.sqrt(8))),
        ((0, 4.5, 7.5), (0, 8)),
    ],
)
def test_columns_that_seem_to_hold_integers_end_at_integers(values, expected):
    """Bins decide, not values: 1.2 beside 0 looks like 1."""
    column = np.repeat(np.array(values, float), 400)
    for epsilon in (math.inf, 1.0):
        own = record(epsilon=epsilon)
        z = 0.0 if epsilon == math.inf else 10.0
        found = discovery.release_ranges(
            [({"x": column}, None)], ["x"], z, Randomness(0), own
        )
        assert found["x"] == pytest.approx(expected, rel=1e-12)


def test_noise_alone_seldom_widens_a_range():
    columns = {f"x{j}": np.full(5000, 3.0) for j in range(6)}
    wrong = 0
    for seed in range(40):
        found = discovery.release_ranges(
            [(columns, None)], list(columns), 20.0, Randomness(seed), record()
        )
        wrong += any(pair != (2 * math.sqrt(2), 4.0) for pair in found.values())
    # One in a hundred is promised. Then more than four of 40 would be wrong once in
    # 20,000 runs; at one in three, no more than four would be once in 1,000.
    assert binom.sf(4, 40, 1 / 100) < 1 / 20_000
    assert binom.cdf(4, 40, 1 / 3) < 1 / 1000
    assert wrong <= 4


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_a_range_is_charged_once_for_all_columns(neighbours):
    book = record(neighbours)
    columns = {"a": np.arange(50.0), "b": np.arange(50.0)}
    discovery.release_ranges([(columns, None)], ["a", "b"], 10.0, Randomness(0), book)
    (event,) = book.events
    expected = math.sqrt(2 * (2 if neighbours == "replace-one" else 1))
    assert event.sensitivity == pytest.approx(expected)
    assert book.spent == pytest.approx(0.01)


def coded(counts, rng):
    names = list(counts)
    codes = np.repeat(np.arange(len(names)), list(counts.values()))
    rng.shuffle(codes)
    return Coded(codes, names)


def test_frequent_categories_are_found_and_rare_ones_are_not():
    rng = np.random.default_rng(0)
    counts = {"many": 4000, "some": 900, "few": 30, "one": 1}
    shown = Counter()
    for seed in range(30):
        found = discovery.release_levels(
            [({"job": coded(counts, rng)}, None)],
            ["job"],
            10.0,
            1e-7,
            Randomness(seed),
            record(),
        )
        shown.update(found["job"])
        assert found["job"] == sorted(found["job"])
    assert shown["many"] == shown["some"] == 30
    assert shown["one"] == 0
    assert shown["few"] < 30


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_a_lone_record_shows_about_as_often_as_delta(neighbours):
    """δ is large here, so that it can be counted: 0.2 for one record.

    A replacement has two sides and spends δ on both.
    """
    sides = 2 if neighbours == "replace-one" else 1
    delta, trials, shown, noise = 0.2 * sides, 1500, 0, Randomness(0)
    low, high = binom.ppf([5e-8, 1 - 5e-8], trials, 0.2)
    for wrong in (0.1, 0.4):  # half or twice as much is missed less than once in 10⁷
        law = binom(trials, wrong)
        assert law.cdf(high) - law.cdf(low - 1) < 1e-7
    columns = [({"job": Coded(np.array([0]), ["lone"])}, None)]
    for _ in range(trials):
        book = PrivacyRecord(
            epsilon=1.0, delta=0.5, neighbours=neighbours, reserved_delta=delta
        )
        shown += len(
            discovery.release_levels(columns, ["job"], 5.0, delta, noise, book)["job"]
        )
    assert low <= shown <= high


def test_the_number_of_categories_shows_nowhere():
    """Charge, draws and transcript are the same for one category and for a thousand."""
    books = []
    for size in (1, 1000):
        book = record()
        cells = Coded(np.arange(2000) % size, [f"k{i}" for i in range(size)])
        discovery.release_levels(
            [({"job": cells}, None)], ["job"], 50.0, 1e-7, Randomness(0), book
        )
        books.append(book)
    assert books[0].events == books[1].events
    assert books[0].transcript == books[1].transcript == []
    assert books[0].seeded


def test_without_noise_every_category_is_found():
    cells = Coded(np.array([0, 1, 1, -1, 7]), ["b", "a", "never"])
    book = record(epsilon=math.inf)
    found = discovery.release_levels(
        [({"job": cells}, None)], ["job"], 0.0, 1e-7, Randomness(0), book
    )
    assert found == {"job": ["a", "b"]}


def test_what_the_budget_does_not_cover_is_not_drawn():
    cells = Coded(np.zeros(10, int), ["a"])
    noise = Randomness(0)
    noise.words = None  # drawing would fail
    with pytest.raises(BudgetError):
        discovery.release_levels(
            [({"job": cells}, None)], ["job"], 50.0, 2e-7, noise, record()
        )
    with pytest.raises(BudgetError):
        discovery.release_ranges(
            [({"x": np.ones(3)}, None)], ["x"], 0.1, noise, record()
        )


def mixed(n_numbers, n_texts):
    """A column of ones and texts, as readers hand them over."""
    values = np.repeat([1.0, math.nan], [n_numbers, n_texts])
    return np.ma.masked_array(values, np.isnan(values))


@pytest.mark.parametrize(
    ("n_numbers", "n_texts", "expected"),
    [(900, 1, False), (1, 900, True), (900, 0, False), (0, 900, True), (0, 0, False)],
)
def test_columns_of_numbers_and_texts_are_told_apart(n_numbers, n_texts, expected):
    for z in (0.0, 5.0):
        book = record(epsilon=1.0 if z else math.inf)
        column = {"x": mixed(n_numbers, n_texts)}
        _, texts = discovery.release_ranges_and_texts(
            [(column, None)], ["x"], z, Randomness(1), book
        )
        assert (texts == {"x"}) == expected


def test_types_are_decided_by_noisy_counts():
    """Tables that differ in a cell at the threshold are told apart by luck alone."""
    decided = {False: 0, True: 0}
    for one_more in decided:
        column = {"x": mixed(500, 500 + one_more)}
        for seed in range(80):
            _, texts = discovery.release_ranges_and_texts(
                [(column, None)], ["x"], 20.0, Randomness(seed), record()
            )
            decided[one_more] += bool(texts)
    assert 20 < decided[False] <= decided[True] < 60
    assert decided[True] - decided[False] < 10


def encode_column(values, weights=None):
    """Encode numbers in [0, 8], with a class that is always known."""
    schema = Schema({"x": Numeric(0, 8)}, target=Categorical([0, 1]))
    zeros = Coded(np.zeros(len(values), int), [0, 1])
    batch = Batch(columns={"x": np.array(values)}, target=zeros, weight=weights)
    return encode([batch], schema)


def test_shares_count_each_row_once_and_null_rows_never():
    values, weights = (
        [0.0, 8.0, 4.0, 1e9, math.nan, 1.0],
        np.array([1, 1, 0, 1, 1, 0.5]),
    )
    total = discovery.count_shares(encode_column(values, weights), ["x"])
    assert total.sum() == 5
    assert total[0, [0, 8, 32, 63]].tolist() == [1, 1, 1, 2]


def test_rows_of_a_person_share_one_count():
    rows = encode_column([1.0, 1.0, 5.0])
    layout = replace(rows.layout, unit="id")
    chunks = tuple(replace(chunk, divisor=3) for chunk in rows.chunks)
    persons = replace(rows, layout=layout, chunks=chunks)
    total = discovery.count_shares(persons, ["x"])
    assert persons.one - 3 <= total.sum() <= persons.one
    assert total[0, 8] == 2 * (persons.one // 3)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_shares_are_charged_and_hide_few_rows(neighbours):
    spent = record(neighbours)
    rows = encode_column(np.r_[np.full(4000, 3.0), 7.0])
    shares = discovery.release_shares(rows, ["x"], 30.0, Randomness(1), spent)["x"]
    assert np.flatnonzero(shares).tolist() == [24]
    assert shares.sum() == pytest.approx(1.0)
    (event,) = spent.events
    assert event.query == "shares of 1 column"
    assert event.sensitivity == pytest.approx(
        math.sqrt(2 if neighbours == "replace-one" else 1)
    )
    few = discovery.release_shares(
        encode_column([3.0]), ["x"], 30.0, Randomness(1), record(neighbours)
    )["x"]
    assert few.sum() == 0
