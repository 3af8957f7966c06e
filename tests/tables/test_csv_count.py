"""Rows are counted without parsing them, and are as many as are read."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skdp.tables import csv

HOSTILE = st.lists(
    st.sampled_from([b"a", b"1", b",", b'"', b"\n", b"\r", b"\r\n", b" "]), max_size=30
).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=HOSTILE, size=st.sampled_from([1, 2, 5, 1000]), multiline=st.booleans())
@example(data=b"", size=1, multiline=False)
@example(data=b"1\n\n2", size=3, multiline=False)
@example(data=b'"a\nb",\n', size=1000, multiline=True)
@example(data=b"1\r\n\r\n2\r\n", size=4, multiline=True)
def test_as_many_are_counted_as_are_read(tmp_path, data, size, multiline):
    path = Path(tmp_path) / "t.csv"
    path.write_bytes(b"x,y\n" + data)
    source = csv.open_csv(csv.CSV(path, multiline=multiline), None, size)
    read = sum(len(cells[0]) for cells in source.read([0], 7))
    assert source.count() == read


def test_the_share_that_was_read_grows_to_one(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"x,y\n" + b"1,2\n" * 50)
    source = csv.open_csv(path, None, 40)
    shares = [source.share() for _ in source.read([1], 100)]
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] == pytest.approx(1.0)
    next(source.read([0], 1))
    assert source.share() < 0.5  # each reading starts anew
