"""Errors, warnings and charges that a cell caused until an audit found them."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.special import ndtr

import skdp
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.discovery import compute_threshold
from skdp.privacy.mechanism import _round_to_cell
from skdp.privacy.randomness import Randomness

pa = pytest.importorskip("pyarrow")
N_ROWS = 300
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N_ROWS)


def fitted(table, **given):
    settings = {"classes": [0, 1], "n_steps": 3, "random_state": 0} | given
    return skdp.LogisticRegression(**settings).fit(table, Y)


@pytest.mark.filterwarnings("ignore::skdp.estimators.DoubtfulSchemaWarning")
@pytest.mark.parametrize(
    ("cells", "odd", "kind"),
    [
        ([10] * N_ROWS, 2147483647, pa.date32()),
        ([10] * N_ROWS, 2**62, pa.timestamp("us")),
        ([b"a"] * N_ROWS, b"\xe9secret", pa.binary()),
    ],
)
def test_no_arrow_cell_raises_where_categories_are_found(cells, odd, kind):
    integers = pa.int32() if kind == pa.date32() else pa.int64()
    changed = [*cells[:3], odd, *cells[4:]]
    for column in (cells, changed):
        array = pa.array(column, pa.binary() if kind == pa.binary() else integers)
        if kind == pa.binary():
            text = pa.StringArray.from_buffers(
                len(array), array.buffers()[1], array.buffers()[2]
            )
        else:
            text = array.view(kind)
        table = pa.table({"x": RNG.uniform(size=N_ROWS), "odd": text})
        assert fitted(table, epsilon=10.0).coef_.shape[0] == 1


@pytest.mark.parametrize("cell", [1e4000, 5e-324, np.inf])
def test_no_wide_float_warns_where_ranges_are_found(cell):
    X = RNG.uniform(size=(N_ROWS, 2)).astype(np.longdouble)
    X[3, 0] = np.longdouble("1e4000") if cell == np.inf else cell
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(X)


@pytest.mark.parametrize(
    "odd",
    [[], [0.5], [0.5, 0.5, 0.5], [[0.5], [0.5]], 0.5, None, "row", np.zeros((2, 2))],
    ids=str,
)
def test_a_row_of_a_list_may_have_any_length(odd):
    """The first row says how many columns there are; no other row can raise."""
    rows, y = [[0.1, 0.2], (0.3, 0.4)] * 15, [0, 1] * 15
    model = skdp.LogisticRegression(
        bounds=(0, 1), classes=[0, 1], n_steps=2, random_state=0
    )
    plain = model.fit(rows, y).privacy_.events
    assert model.fit([*rows[:-1], odd], y).privacy_.events == plain
    assert model.n_features_in_ == 2
    missing = model.fit([*rows[:-1], [np.nan, np.nan]], y).coef_.tolist()
    if str(odd) not in ("[0.5]", "[0.5, 0.5, 0.5]"):
        assert model.fit([*rows[:-1], odd], y).coef_.tolist() == missing
    cut = model.fit([*rows[:-1], [0.5, 0.5]], y).coef_.tolist()
    assert model.fit([*rows[:-1], [0.5, 0.5, "more"]], y).coef_.tolist() == cut


def test_a_nested_cell_of_a_list_is_a_missing_one():
    X = RNG.uniform(size=(N_ROWS, 2))
    for at in (0, 3):
        labels = Y.tolist()
        labels[at] = [[1, 2], [3]]
        skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], n_steps=3).fit(X, labels)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", -1.0),
        ("l1_ratio", 2.0),
        ("engine", "x"),
        ("n_steps", 0),
        ("geometry", "q"),
        ("sampling", "q"),
        ("calibration", "x"),
        ("class_weight", "heavy"),
        ("max_weight", -1.0),
    ],
)
def test_public_mistakes_cost_nothing(name, value):
    X = RNG.uniform(size=(N_ROWS, 2))
    with pytest.raises(ValueError, match=name) as refusal:
        skdp.LogisticRegression(**{name: value}).fit(X, Y)
    assert not getattr(refusal.value, "__notes__", [])


def test_threads_never_share_a_deviate():
    """A source is for one thread: two may run it empty, but never draw the same."""

    def draw(_):
        try:
            return noise.normals(50)
        except IndexError:  # another thread took what was left
            return []

    noise, interval = Randomness(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            drawn = list(pool.map(draw, range(400)))
    finally:
        sys.setswitchinterval(interval)
    flat = [v for part in drawn for v in part]
    assert len(flat) > 1000
    assert len(set(flat)) == len(flat)


@pytest.mark.parametrize("std", [1.0, 3.7, 20.35 * 10**0.5, 64.35, 2047.9, 2048.1])
@pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-10])
def test_a_single_record_passes_the_threshold_with_at_most_delta(std, delta):
    """The least deviate whose rounded count passes, found by halving in integers."""
    threshold = compute_threshold(std, delta)
    low, high = 0, 40 << 64
    while high - low > 1:
        middle = (low + high) // 2
        passes = _round_to_cell(1, std, middle, Randomness(0)) > threshold
        low, high = (low, middle) if passes else (middle, high)
    assert ndtr(-high / 2.0**64) <= delta
    assert ndtr(-high / 2.0**64) > 0.98 * delta


def test_a_record_shows_the_delta_of_its_releases():
    record = PrivacyRecord(
        epsilon=1.0, delta=1e-6, neighbours="replace-one", reserved_delta=1e-7
    )
    model = skdp.LogisticRegression(neighbours="replace-one", bounds=(0, 1))
    X = RNG.uniform(size=(20_000, 2))
    y = (X[:, 0] > 0.5).astype(int)
    assert "δ 1e-07 each" in str(model.fit(X, y).privacy_)
    assert "δ" not in str(record).split("neighbouring")[1]
