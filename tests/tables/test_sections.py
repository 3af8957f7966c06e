"""Sections of a file have the rows of the file, in order, whatever they contain."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from skdp.tables import csv, readers

HOSTILE = st.lists(
    st.sampled_from([b"a", b"1", b",", b'"', b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf"]),
    max_size=30,
).map(b"".join)


def read(given, size=None):
    source = csv.open_csv(given, None, size)
    cells = [cell for x, y in source.read([0, 1], 7) for cell in zip(x, y, strict=True)]
    assert source.count() == len(cells)
    return [(str(x), str(y)) for x, y in cells]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=HOSTILE,
    most=st.sampled_from([1, 2, 7, 1000]),
    multiline=st.booleans(),
    bom=st.booleans(),
)
@example(data=b"1,2\n3,4\n5,6", most=4, multiline=False, bom=True)
@example(data=b"", most=1, multiline=False, bom=False)
@example(data=b"\n\n\n", most=1, multiline=False, bom=False)
@example(data=b'"1,2\n3",4\r\n5,6\r\n', most=3, multiline=False, bom=False)
@example(data=b'"1\n2",3\n', most=3, multiline=True, bom=False)
def test_sections_of_a_csv_file(tmp_path, data, most, multiline, bom):
    path = Path(tmp_path) / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" * bom + b"x,y\n" + data)
    whole = csv.CSV(path, multiline=multiline)
    sections = readers.split_file(whole, most)
    assert (len(sections) == 1) == (multiline or path.stat().st_size < 1.5 * most)
    rows = [row for section in sections for row in read(section, 5)]
    assert rows == read(whole)
    assert sum(section.size for section in sections) == path.stat().st_size


@pytest.mark.parametrize("group", [1, 3, 10])
def test_sections_of_a_parquet_file(tmp_path, group):
    frame = pd.DataFrame({"x": np.arange(20.0), "c": list("abcde") * 4})
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.Table.from_pandas(frame), path, row_group_size=group)
    sections = readers.split_file(path, path.stat().st_size / 3)
    assert 2 <= len(sections) <= 4
    parts = [readers.open_source(section, None) for section in sections]
    assert sum(part.n_rows for part in parts) == 20
    found = [batch[0].to_pylist() for part in parts for batch in part.read([0], 4)]
    assert [x for part in found for x in part] == frame["x"].tolist()
    assert sum(section.size for section in sections) == pytest.approx(
        path.stat().st_size
    )
    parquet.write_table(pa.Table.from_pandas(frame[:0]), path)
    (empty,) = readers.split_file(path, 1)
    assert readers.open_source(empty, None).n_rows == 0
