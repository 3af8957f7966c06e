"""The meaning of a cell is one total function, however it is computed."""

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skdp.privacy.encoding import Coded
from skdp.schema import Categorical
from skdp.tables import cells, frames
from skdp.tables.cells import Levels, keys, number

inf, nan = math.inf, math.nan


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("1", 1), (" 1.5\t", 1.5), ("+1", 1), (".5", 0.5), ("5.", 5), ("-1e3", -1000),
        ("1e308", 1e308), ("1e309", inf), ("-1e999", -inf), ("inf", inf),
        ("-Infinity", -inf),
        ("nan", nan), ("", nan), (" ", nan), ("NA", nan), ("1,5", nan), ("0x10", nan),
        ("1_000", nan), ("１", nan), ("1\x00", nan), ("\ud800", nan), ("1 2", nan),
        ("true", 1), ("False", 0), (" TRUE ", 1), ("yes", nan),
        (True, 1), (np.False_, 0), (3, 3), (2**53 + 1, 2.0**53), (10**400, inf),
        (-(10**400), -inf), (np.uint64(2**64 - 1), 2.0**64), (np.float32(0.5), 0.5),
        (Decimal("1.5"), 1.5), (Decimal("sNaN"), nan), (Decimal("-1e999"), -inf),
        (b"2.5", 2.5), (b"\xff", nan), (None, nan), (nan, nan), (pd.NA, nan),
        (pd.NaT, nan), (np.datetime64("2020"), nan), (np.timedelta64(1, "s"), nan),
        (1j, nan), ([1], nan), ({}, nan), (object(), nan),
    ],
)  # fmt: skip
def test_number(cell, expected):
    assert (
        math.isnan(number(cell)) if math.isnan(expected) else number(cell) == expected
    )


LEVELS = Levels(Categorical(["a", 1, 2.5, True, "False", "007", "", " b", 2**60 + 1]))


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("a", 0), (" a ", 0), ("A", -1), (b"a", 0), (np.str_("a"), 0), ("b", -1),
        (" b", 7), (1, 1), (1.0, 1), ("1", 1), ("1.0", 1), ("01", 1), ("+1", 1),
        ("1e0", 1), (np.int8(1), 1), (Decimal("1.00"), 1), (2.5, 2), ("2.50", 2),
        (np.float32(2.5), 2),
        (True, 3), (np.True_, 3), ("true", 3), (False, 4), ("False", 4), ("false", 4),
        (0, 4), ("0.0", 4), (-0.0, 4), (7, 5), ("7", 5), ("007", 5), (7.0, 5),
        ("", 6), ("  ", 6), (2**60 + 1, 8), (str(2**60 + 1), 8), (2**60, -1),
        (float(2**60), -1), (None, -1), (nan, -1), ("nan", -1), (Decimal("NaN"), -1),
        (inf, -1), (b"\xff", -1), (10**4000, -1), ("9" * 5000, -1), ([1], -1), (1j, -1),
        (pd.NA, -1),
        (np.timedelta64(1, "s"), -1), (object(), -1),
    ],
)  # fmt: skip
def test_code(cell, code):
    assert LEVELS.code(cell) == code


@pytest.mark.parametrize("store", [np.array, pa.array])
def test_not_a_number_is_not_a_category_however_it_is_written(store):
    found = keys(store(["nan", "+nan", "-nan", " +NaN ", "nano", "+na"]))
    assert found.codes.tolist() == [-1, -1, -1, -1, 0, 1]
    assert found.values == ["nano", "+na"]


def test_an_integer_that_python_will_not_write():
    assert LEVELS.code(10**5000) == -1
    assert number(10**5000) == inf


def test_a_number_that_two_levels_share_is_not_a_level():
    levels = Levels(Categorical(["01", "1.0"]))
    assert [levels.code(c) for c in ("01", "1.0", 1, "1")] == [0, 1, -1, -1]
    levels = Levels(Categorical(["01", 1, "true"]))
    assert [levels.code(c) for c in (1.0, "1.00", "true", True, "01")] == [
        1,
        1,
        2,
        2,
        0,
    ]


def test_levels_by_truth_and_number():
    zero_one, truth = Levels(Categorical([0, 1])), Levels(Categorical([False, True]))
    for levels in (zero_one, truth):
        for cell in (True, 1, 1.0, "1", "true", "True", "TRUE"):
            assert levels.code(cell) == 1


def test_a_float32_is_compared_by_its_own_digits():
    levels = Levels(Categorical([0.1]))
    column = np.array([0.1], np.float32)
    assert cells.codes(column, levels).tolist() == [0]
    assert frames.to_codes(pa.array(column), levels).tolist() == [0]
    assert frames.to_codes(pa.array(column.astype(np.float16)), levels).tolist() == [0]


@pytest.mark.parametrize("type_", [pa.int8(), pa.uint8(), pa.int16(), pa.int64()])
@pytest.mark.parametrize("n_levels", [3, 127, 128, 40_000])
def test_small_integers_of_arrow(type_, n_levels):
    """Numbers of one byte, missing ones too, have the codes of larger integers."""
    levels = Levels(Categorical(list(range(n_levels))))
    array = pa.array([9, 0, None, 2, 126, 127, None, 1, 5], type_)[1:-1]
    found = frames.to_codes(array, levels)
    expected = [0, -1, 2, 126, 127, -1, 1]
    assert found.tolist() == [code if code < n_levels else -1 for code in expected]
    assert np.iinfo(found.dtype).max >= n_levels


@pytest.mark.parametrize("n_values", [1, 127, 128, 300])
def test_missing_cells_have_no_key_whatever_the_type_of_codes(n_values):
    values = [f"v{i}" for i in range(n_values)]
    found = keys(Coded(np.array([-1, 0, -128], np.int8), values))
    assert found.codes.tolist() == [-1, 0, -1]
    indices = pa.array([0, None, min(n_values, 128) - 1], pa.int8())
    found = keys(pa.DictionaryArray.from_arrays(indices, pa.array(values)))
    assert found.codes.tolist() == [0, -1, min(n_values, 128) - 1]


def test_a_missing_cell_does_not_change_the_levels_of_others():
    """It turns integers into floats, which would equal neighbouring levels."""
    levels = Levels(Categorical([2**53, 2**53 + 1, 5]))
    stored = np.array([2**53, 2**53 + 1, 5])
    assert cells.codes(stored, levels).tolist() == [-1, -1, 2]
    with_missing = np.array([*stored, np.nan])
    assert cells.codes(with_missing, levels).tolist() == [-1, -1, 2, -1]


texts = st.one_of(
    st.text(max_size=6),
    st.text("0123456789.eE+- ainfINFtrue_,", max_size=8),
    st.floats().map(repr),
    st.integers(-(2**70), 2**70).map(str),
).filter(
    lambda text: text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(texts | st.none(), max_size=5))
@example(["1", " 1", "1e400", "", None])
def test_arrow_reads_text_as_python_does(column):
    expected = np.array([number(text) for text in column], dtype=float)
    codes = LEVELS.codes(column)
    for type_ in (pa.string(), pa.large_string(), pa.binary(), pa.string_view()):
        array = pa.array(
            [None if t is None else t.encode() for t in column], pa.binary()
        )
        array = array.cast(type_)
        np.testing.assert_array_equal(frames.to_numbers(array), expected)
        np.testing.assert_array_equal(frames.to_codes(array, LEVELS), codes)
    coded = pa.array(column, pa.string()).dictionary_encode()
    np.testing.assert_array_equal(frames.to_numbers(coded), expected)
    np.testing.assert_array_equal(frames.to_codes(coded, LEVELS), codes)


@pytest.mark.parametrize("column", [["1.5", "", "2"], ["1", " 1", "", None, "a"]])
@pytest.mark.parametrize("type_", [pa.string(), pa.large_binary(), pa.binary_view()])
def test_a_slice_is_read_as_if_it_stood_alone(column, type_):
    """Otherwise a cell of one row would be read as that of another."""
    rows = ["3", "", "77", *column, "4"]
    whole = pa.array([None if t is None else t.encode() for t in rows]).cast(type_)
    array = whole[3:-1]
    expected = [number(text) for text in column]
    np.testing.assert_array_equal(frames.to_numbers(array), expected)
    assert frames.to_codes(array, LEVELS).tolist() == LEVELS.codes(column).tolist()
    coded = pa.array(rows).dictionary_encode()[3:-1]
    np.testing.assert_array_equal(frames.to_numbers(coded), expected)
    assert frames.to_codes(coded, LEVELS).tolist() == LEVELS.codes(column).tolist()


def test_bytes_that_are_no_text():
    array = pa.array([b"\xff", b"a", b"1", b"\xff1"], pa.binary())
    assert frames.to_codes(array, LEVELS).tolist() == [-1, 0, 1, -1]
    np.testing.assert_array_equal(frames.to_numbers(array), [nan, nan, 1, nan])


@pytest.mark.parametrize(
    "array",
    [
        pa.nulls(2),
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([1, 2], pa.date32()),
        pa.array([1, 2], pa.duration("s")),
        pa.array([[1], None]),
        pa.array([{"a": 1}, None]),
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([b"x" * 16] * 2, pa.binary(16))
        ),
        np.array([1, 2], "M8[D]"),
        np.array([1, 2], "m8[s]"),
        np.array([1j, 2 + 1j]),
    ],
    ids=str,
)
def test_types_of_no_use_are_missing(array):
    assert np.isnan(cells.numbers(array)).tolist() == [True, True]
    assert cells.codes(array, LEVELS).tolist() == [-1, -1]


def test_one_complex_cell_does_not_spoil_a_column():
    column = np.array([1j, 1, 2.5, np.nan])
    np.testing.assert_array_equal(cells.numbers(column), [nan, 1, 2.5, nan])
    assert cells.codes(column, LEVELS).tolist() == [-1, 1, 2, -1]
    assert cells.codes(column.astype(object), LEVELS).tolist() == [-1, 1, 2, -1]
    assert number(2.5 + 0j) == 2.5


def test_decimals_are_read_by_their_digits():
    array = pa.array([Decimal("0.10"), Decimal("1.00"), None], pa.decimal128(20, 2))
    np.testing.assert_array_equal(frames.to_numbers(array), [0.1, 1.0, nan])
    assert frames.to_codes(array, LEVELS).tolist() == [-1, 1, -1]


def test_codes_outside_are_missing():
    column = Coded(codes=np.array([0, -1, 5, 1]), values=["1", None])
    np.testing.assert_array_equal(cells.numbers(column), [1, nan, nan, nan])
    assert cells.codes(column, LEVELS).tolist() == [1, -1, -1, -1]


def test_mixed_cells_that_compare_equal_do_not_share_an_outcome():
    levels = Levels(Categorical(["true", "1"]))
    for order in ([True, 1, 1.0], [1, 1.0, True]):
        column = np.array(order, dtype=object)
        got = dict(zip(map(type, order), cells.codes(column, levels), strict=True))
        assert got == {bool: 0, int: 1, float: 1}
