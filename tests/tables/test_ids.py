"""Whose row it is: ids are the same however a library stores them, and exact."""

import datetime
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skdp
from skdp.schema import Categorical, Numeric, Schema
from skdp.tables import batches, readers
from skdp.tables.ids import Ids, find_ids, refuse_floats

PERSONS = ["7", "b", "7", "007", "NA", "", "b ", "7.0", "b"]
#: 7, 007 and 7.0 are one number. "b " is another text. Two cells hold no id.
SAME = [4, 2, 4, 4, 0, 0, 1, 4, 2]


def divisors(column):
    source = readers.open_source(
        {"id": column} if not hasattr(column, "columns") else column
    )
    counts = Ids.of("id").count(source)
    return np.concatenate(
        [counts.find_divisors(ids) for ids in Ids.of("id").read(source, 4)]
    ).tolist()


@pytest.mark.parametrize(
    "column",
    [
        PERSONS,
        np.array(PERSONS),
        np.array(PERSONS, object),
        pd.Series(PERSONS),
        pd.Series(PERSONS, dtype="category"),
        pd.Series(PERSONS, dtype="string"),
        pl.Series(PERSONS),
        pa.array(PERSONS),
        pa.array(PERSONS).dictionary_encode(),
        np.array([7, "b", 7.0, "007", None, np.nan, "b ", b"7", "b"], object),
    ],
    ids=lambda column: f"{type(column).__module__}-{getattr(column, 'dtype', '')}",
)
def test_an_id_is_the_same_however_it_is_stored(column):
    assert divisors(column) == SAME


DAYS = ["1980-01-01", "1990-05-05T09:30:00.25"]
MOMENTS = [datetime.datetime.fromisoformat(day) for day in DAYS]


@pytest.mark.parametrize(
    "column",
    [
        *(np.array(DAYS, f"M8[{unit}]") for unit in ("ms", "us", "ns")),
        *(pa.array(MOMENTS, pa.timestamp(unit)) for unit in ("ms", "us", "ns")),
        pa.array(MOMENTS, pa.timestamp("us", tz="UTC")),
        pa.array(MOMENTS).dictionary_encode(),
        np.array(MOMENTS, object),
        np.array([one.replace(tzinfo=datetime.UTC) for one in MOMENTS], object),
        pd.Series([pd.Timestamp(day) for day in DAYS], dtype=object),
        pd.Series(pd.to_datetime(DAYS, format="ISO8601")).dt.tz_localize("UTC"),
        np.array([np.datetime64(day) for day in DAYS], object),
        np.array([datetime.date(1980, 1, 1), DAYS[1]], object),
        np.array(DAYS),
        np.array([np.str_(day) for day in DAYS], object),
        pa.array(DAYS).dictionary_encode(),
    ],
    ids=str,
)
def test_a_date_is_the_same_id_however_it_is_stored(column):
    """Files of one folder, and partitions of one table, may store it differently."""
    cells = readers.read_column(column, "id")
    (day, moment) = find_ids([cells]).values
    assert (day, moment) == ("1980-01-01", "1990-05-05T09:30:00.25")
    assert (type(day), type(moment)) == (str, str)
    pairs = find_ids([cells, cells]).values
    assert {type(part) for pair in pairs for part in pair} == {str}


def test_a_day_is_the_same_id_in_both_of_arrows_types():
    """One counts days, the other milliseconds."""
    days = [datetime.date(1980, 1, 1), datetime.date(2026, 12, 31), None]
    for kind in (pa.date32(), pa.date64()):
        for cells in (pa.array(days, kind), pa.array(days, kind).dictionary_encode()):
            found = find_ids([readers.read_column(cells, "id")])
            assert found.values == ["1980-01-01", "2026-12-31"]
            assert found.codes.tolist() == [0, 1, -1]


def test_lengths_of_time_identify_nobody():
    lengths = np.array([1, 2], "m8[s]")
    for cells in (lengths, pa.array(lengths), np.array(lengths.tolist(), object)):
        assert (find_ids([readers.read_column(cells, "id")]).codes < 0).all()


def test_files_have_the_ids_of_frames(tmp_path):
    frame = pd.DataFrame({"id": PERSONS})
    frame.to_csv(tmp_path / "a.csv", index=False)
    pq.write_table(pa.table(frame), tmp_path / "a.parquet", row_group_size=3)
    for name in ("a.csv", "a.parquet"):
        source = readers.open_source(tmp_path / name, ["id"])
        counts = Ids.of("id").count(source)
        read = [counts.find_divisors(ids) for ids in Ids.of("id").read(source, 2)]
        assert np.concatenate(read).tolist() == SAME


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (np.array([1, 2, 1, 2**53 - 1, 2**53, 2**62 + 1]), [2, 1, 2, 1, 1, 1]),
        (pa.array([2**62, 2**62 + 1, None]), [1, 1, 0]),
        ([2.0**60, 2**60, str(2**60), str(2**60 + 1)], [0, 2, 2, 1]),
        ([2**60, 2.0**60], [1, 0]),
        (np.array([True, False, True]), [2, 1, 2]),
        (np.array(["2026-01-01", "NaT", "2026-01-01"], "M8[D]"), [2, 0, 2]),
        (pd.Series(pd.to_datetime(["2026-01-01", None])).dt.tz_localize("UTC"), [1, 0]),
        ([datetime.date(2026, 1, 1), datetime.date(2026, 1, 1), None], [2, 2, 0]),
        (pa.array([datetime.date(2026, 1, 1), None]), [1, 0]),
        ([uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=1)], [2, 1, 2]),
        (["9" * 30, "9" * 29 + "8", "9" * 30], [2, 1, 2]),
        (["1e5", "100000", "12e345", "13e345"], [1, 1, 1, 1]),
        (["nan", "+nan", "-NaN", " +NAN", "NA", "null", "?"], [0] * 7),
        ([[1], {}, object(), "a"], [0, 0, 0, 1]),
        (pl.Series([2**63 - 1, None, 2**63 - 1]), [2, 0, 2]),
    ],
)
def test_cells_of_any_type_are_ids_or_missing(cells, found):
    assert divisors(cells) == found


@pytest.mark.parametrize(
    "made",
    [
        lambda ids: pd.DataFrame({"id": ids}),
        lambda ids: pl.DataFrame({"id": ids}),
        lambda ids: pl.DataFrame({"id": ids}).lazy(),
        lambda ids: pa.table({"id": ids}),
        lambda ids: {"id": ids},
        lambda ids: pd.DataFrame({"id": ids}).astype("Float64"),
        lambda ids: pd.DataFrame({"id": ids}).astype("category"),
        lambda ids: pa.table({"id": pa.array(ids).dictionary_encode()}),
    ],
)
def test_floats_are_not_ids(made):
    """One word among them would keep "3.1" and "3.10" apart, which are one float."""
    table = made(np.array([3.1, 3.1, 4.0]))
    source = readers.open_source(table)
    with pytest.raises(ValueError, match="'id' holds floating-point numbers"):
        refuse_floats(source, Ids.of("id"))
    with pytest.raises(ValueError, match="'unit' holds floating-point numbers"):
        refuse_floats(source, Ids.of(np.array([3.1, 3.1, 4.0])))
    with pytest.raises(ValueError, match="'unit' holds floating-point numbers"):
        refuse_floats(source, Ids.of(pd.Series([3.1, 3.1, 4.0], dtype="category")))
    refuse_floats(source, Ids.of(np.array([3, 3, 4])))
    rows = table | {"x": [0, 1, 1]} if isinstance(table, dict) else table
    with pytest.raises(ValueError, match="Read ids as text"):
        skdp.discover(rows, epsilon=1.0, unit="id")


def test_several_columns_are_one_id_and_all_must_be_there():
    ids = find_ids([np.array([1, 1, 2, 1, 1]), np.array(["a", "b", "a", "a", ""])])
    assert [ids.values[c] if c >= 0 else None for c in ids.codes] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (1, "a"),
        None,
    ]


class Hostile(str):
    """A text whose methods fail."""

    def __hash__(self):
        raise RuntimeError("secret")

    def __eq__(self, other):
        raise RuntimeError("secret")

    def strip(self, *args):
        raise RuntimeError("secret")


def test_no_cell_makes_an_id_fail():
    assert divisors(np.array([Hostile("a"), "a", Hostile("a")], object)) == [3, 3, 3]


SCHEMA = Schema({"x": Numeric(0, 1)}, target=("y", Categorical([0, 1])), unit="id")


def test_batches_have_divisors_of_the_whole_table():
    table = {"x": np.zeros(5), "y": [0, 1, 0, 1, 0], "id": ["a", "b", "a", "", "a"]}
    read = batches(table, SCHEMA, batch_rows=2)
    assert [batch.divisor.tolist() for batch in read] == [[3, 1], [3, 0], [3]]


def test_ids_may_be_given_beside_an_array():
    read = batches(np.zeros((3, 1)), SCHEMA, target=[0, 1, 0], unit=np.array([5, 6, 5]))
    assert [batch.divisor.tolist() for batch in read] == [[2, 1, 2]]
    with pytest.raises(ValueError, match="must be an array"):
        batches(np.zeros((3, 1)), SCHEMA, target=[0, 1, 0])
    with pytest.raises(ValueError, match="no column 'id'"):
        batches({"x": [0.0], "y": [0]}, SCHEMA)
