"""CSV files: every record is a row, whatever it holds."""

import csv
import io
import math

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skdp.schema import Categorical, Numeric, Schema
from skdp.tables import CSV, batches
from skdp.tables import csv as reader

SCHEMA = Schema({"a": Numeric(0, 9), "b": Categorical(["x", "y,z", "é"])})


def read(data, path, schema=SCHEMA, multiline=False):
    file = path / "t.csv"
    file.write_bytes(data)
    a, b = [], []
    for batch in batches(CSV(file, multiline=True) if multiline else file, schema):
        a += batch.columns["a"].tolist()
        b += batch.columns["b"].codes.tolist()
    return [None if math.isnan(x) else x for x in a], b


@pytest.mark.parametrize(
    ("data", "numbers", "codes"),
    [
        (b"a,b\n1,x\n", [1], [0]),
        (b"a,b\n1,x", [1], [0]),
        (b"\xef\xbb\xbfa,b\r\n1,x\r\n", [1], [0]),
        (b'\xef\xbb\xbf"a","b"\n1,x\n', [1], [0]),
        (b"b;a\nx;1\n", [1], [0]),
        (b"a\tb\n1\tx\n", [1], [0]),
        (b"a|b\n1|x\n", [1], [0]),
        (b"c,a,d,b\n0,1,0,x\n", [1], [0]),
        (b'a,b\n"1","y,z"\n', [1], [1]),
        (b"a,b\n1,q\rq\n2,x\r\n\r3,x", [1, 2, 3], [-1, 0, 0]),
        (b"a,b\n", [], []),
        (b"a,b", [], []),
        (b"a,b\n1,x\n\n", [1, None], [0, -1]),
        (b"a,b\n\n2,x\n", [None, 2], [-1, 0]),
        (b"a,b\n1\n2,x\n", [1, 2], [-1, 0]),
        (b"a,b\n1,x,3,4\n2,x\n", [1, 2], [0, 0]),
        (b"a,b\n1,x,\xff\n2,\xff\n", [1, 2], [0, -1]),
        (b"a,b\n\x00,x\n2,\x00\n", [None, 2], [0, -1]),
        (b"a,b\n1,\xe9\n2,\xc3\xa9\n", [1, 2], [-1, 2]),
        (b'a,b\n1,"two\nlines"\n2,x\n', [1, None, 2], [-1, -1, 0]),
        (b'a,b\n"1,x\n2,x\n"3,x\n', [None, 2, None], [-1, 0, -1]),
        (b'a,b\n1,"x\r\n2,x\r\n', [1, 2], [0, 0]),
        (b'a,b\n1,"x""\n2,x\n3,"x\n', [1, 2, 3], [-1, 0, 0]),
        (b'"a,b\n', None, None),
        (b'a,b\n1,5" pipe\n2,x\n', [1, 2], [-1, 0]),
        (b'a,b\n1,"x"y\n2,x\n', [1, 2], [-1, 0]),
        (b'a,b\n1,x\n2,"x', [1, 2], [0, 0]),
        (b"a,b\n1,x\n2," + b"q" * 5_000_000 + b"\n3,x\n", [1, 2, 3], [0, -1, 0]),
    ],
    ids=range(28),
)
def test_what_a_file_says(data, numbers, codes, tmp_path):
    if numbers is None:
        with pytest.raises(ValueError, match="no column 'a'"):
            read(data, tmp_path)
    else:
        assert read(data, tmp_path) == (numbers, codes)


@pytest.mark.parametrize(
    ("data", "numbers", "codes"),
    [
        (b'a,b\n1,"two\nlines"\n2,x\n', [1, 2], [-1, 0]),
        (b'a,b\n1,"two\nlines\n2,x\n', [1], [-1]),
        (b'"a",b,"c\nd"\n1,x\n', [1], [0]),
    ],
)
def test_quoted_line_ends_are_part_of_a_field_where_asked_for(
    data, numbers, codes, tmp_path
):
    assert read(data, tmp_path, multiline=True) == (numbers, codes)


def test_a_file_with_options_stands_for_its_path(tmp_path):
    file = CSV(tmp_path / "t.csv", multiline=True)
    assert str(file) == str(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="There is no file"):
        next(batches(file, SCHEMA))


def test_the_one_column_of_a_file_may_be_empty(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a\n1\n\n3\n")
    (batch,) = batches(tmp_path / "t.csv", Schema({"a": Numeric(0, 9)}))
    np.testing.assert_array_equal(batch.columns["a"], [1, math.nan, 3])


hostile = st.lists(
    st.sampled_from(
        [b"a", b",", b",", b"\n", b"\n", b"\r", b'"', b'"', b"\xff", b"\x00"]
    ),
    max_size=24,
).map(b"".join)


def by_arrow(block, width):
    names = [str(i) for i in range(width)]
    try:
        table = pacsv.read_csv(
            pa.py_buffer(block),
            pacsv.ReadOptions(column_names=names),
            pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()), check_utf8=False
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return [list(row.values()) for row in table.to_pylist()]


@settings(max_examples=600, deadline=None)
@given(hostile, st.integers(1, 3))
def test_the_lexer_reads_as_arrow_does(block, width):
    block = block.replace(b"\r", b"\r\n")
    found = by_arrow(block, width)
    if found is not None:  # else the lexer's word is the only one
        records = reader.parse_records(block, b",")
        assert [(r + [b""] * width)[:width] for r in records] == found


@settings(max_examples=600, deadline=None)
@given(hostile, st.integers(1, 9))
@example(b'a,"b""', 3)
@example(b'"a"\r', 4)
def test_blocks_cut_between_records(data, size):
    whole = reader.parse_records(data, b",")
    cut = list(reader.cut_blocks(io.BytesIO(data), b",", size, multiline=True))
    assert b"".join(cut) == data
    assert [r for block in cut for r in reader.parse_records(block, b",")] == whole


@settings(max_examples=200, deadline=None)
@given(hostile, st.integers(1, 9))
@example(b"a" * (2**20 - 3) + b',"\r\n', 1)  # where Arrow would cut by itself
def test_blocks_of_any_size_give_the_same_columns(data, size):
    expected = [
        ([*record, b""][1], record[0]) for record in reader.parse_records(data, b",")
    ]
    assert by_blocks(data, size, multiline=True) == expected


def by_blocks(data, size, multiline):
    """Second and first field of each record, read in blocks."""
    columns = [
        reader._read_columns(block, b",", 2, [1, 0], multiline)
        for block in reader.cut_blocks(io.BytesIO(data), b",", size, multiline)
    ]
    return [
        r for two in columns for r in zip(*(c.to_pylist() for c in two), strict=True)
    ]


def fields_of(line):
    """The fields of one line, letter by letter: what the page says, done slowly."""
    fields, field, quoted, at = [], b"", False, 0
    start = True
    while at < len(line):
        letter = line[at : at + 1]
        if quoted and letter == b'"':
            if line[at + 1 : at + 2] == b'"':
                field, at = field + b'"', at + 1
            else:
                quoted = False
        elif not quoted and start and letter == b'"':
            quoted = True
        elif not quoted and letter == b",":
            fields, field, start, at = [*fields, field], b"", True, at + 1
            continue
        else:
            field += letter
        start, at = False, at + 1
    return [*fields, field]


@settings(max_examples=600, deadline=None)
@given(hostile, st.integers(1, 30))
@example(b'"a\n"b\n', 99)  # two open quotes, which Arrow takes for one field
@example(b',"a\nb,c\n', 99)  # an open quote in a line that is not the last
@example(b'"a\n', 99)
@example(b'b,"a\n', 99)  # whose line end Arrow keeps
@example(b'b,"a\r\nc,d\r\nb,"a\r\n', 99)
@example(b'"a,"\n"\n', 99)
@example(b'"a"",b\r\nc\n', 99)
@example(b'"a\r', 99)
def test_every_line_is_a_record_of_its_own(data, size):
    lines = data.split(b"\n")
    last = lines.pop()
    lines = [line.removesuffix(b"\r") for line in lines] + ([last] if last else [])
    expected = [([*fields, b""][1], fields[0]) for fields in map(fields_of, lines)]
    assert by_blocks(data, size, multiline=False) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.text('",\n\r a', max_size=5)), max_size=6
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_was_written_is_read(rows, line_end):
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows(rows)
    data = text.getvalue().encode("utf-8", "surrogatepass")
    expected = [[c.encode("utf-8", "surrogatepass") for c in row] for row in rows]
    if line_end == "\r\n":
        assert reader.parse_records(data, b",") == expected
    assert len(reader.parse_records(data, b",")) == len(rows)


plain = st.lists(
    st.integers(0, 255).filter(lambda b: b != ord("\n")).map(lambda b: bytes([b]))
    | st.sampled_from([b",", b'"', b'"']),
    max_size=12,
).map(b"".join)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3), plain)
@example(1, b'"')
@example(2, b'"3,q')
def test_a_line_of_garbage_changes_no_other_row(tmp_path_factory, at, garbage):
    path = tmp_path_factory.getbasetemp()
    lines = [b"1,x", b'2,"y,z"', b"3,q", b"4,x"]
    numbers, codes = read(b"\n".join([b"a,b", *lines, b""]), path)
    lines[at] = garbage
    changed = read(b"\n".join([b"a,b", *lines, b""]), path)
    for before, after in zip((numbers, codes), changed, strict=True):
        assert len(after) == 4
        assert before[:at] + before[at + 1 :] == after[:at] + after[at + 1 :]


def test_memory_is_that_of_a_block(tmp_path):
    with (tmp_path / "t.csv").open("wb") as file:
        file.write(b"a,b\n" + b"1.25,x\n" * 300_000)
    source = reader.open_csv(tmp_path / "t.csv", ["a", "b"], block_bytes=1 << 16)
    before = pa.total_allocated_bytes()
    for columns in source.read([0, 1], 1000):
        assert len(columns[0]) <= 1000
        assert pa.total_allocated_bytes() - before < 1 << 20


def test_a_mark_where_a_block_starts_changes_no_other_row(tmp_path):
    """Arrow drops a byte order mark at the start of a buffer; where one starts depends
    on the lengths of the other records."""
    mark = b"\xef\xbb\xbf"
    tail = mark + b'"x,1\n' + b"0.75,0\n" * 5 + b'z",0\n' + b"0.25,1\n" * 10
    counts = set()
    for pad in range(8):
        first = b"0.5" + b"0" * pad + b",1\n"
        records = first + b"0.250000,1\n" * 20 + tail
        size = len(b"0.500,1\n" + b"0.250000,1\n" * 20)
        blocks = reader.cut_blocks(io.BytesIO(records), b",", size, multiline=True)
        columns = [
            reader._read_columns(block, b",", 2, [1, 0], True) for block in blocks
        ]
        counts.add(sum(len(column[0]) for column in columns))
    assert len(counts) == 1


def test_blocks_end_with_a_line_and_after_the_given_bytes():
    file = io.BytesIO(b"a\nbbbbbbbb\nc\n")
    assert list(reader.cut_blocks(file, b",", size=8, left=5)) == [b"a\nbbbbbbbb\n"]
