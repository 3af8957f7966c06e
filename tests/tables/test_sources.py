"""Every reader gives the same rows, and a row depends on its own cells alone."""

import csv
import io
import math
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdp.privacy.encoding import encode
from skdp.schema import Categorical, Numeric, Schema, Vector
from skdp.tables import CSV, batches

SCHEMA = Schema(
    {
        "real": Numeric(-2, 2, indicator=True),
        "whole": Numeric(0, 100, bins=7),
        "yes": Numeric(0, 1),
        "v": Vector(["v0", "v1"], norm=3),
        "text": Categorical(["plain", 'a "b", c', "ünï", "two\nlines", "日本"]),
        "digits": Categorical([1, 2, 30, 2**53 - 1]),
        "halves": Categorical([0.5, 1.0, 1.5], other=1.0),
        "flag": Categorical([False, True]),
    },
    target=("y", Categorical(["no", "yes"])),
)
TABLE = {
    "real": [0.1, -1.5, None, 7.25, -1e300, 1 / 3],
    "whole": [3, 2**53 + 1, 50, None, -4, 99],
    "yes": [True, False, None, True, False, True],
    "v0": [0.1, 2.5, 1e300, None, -3.0, 0.0],
    "v1": [-0.2, 2.5, 1.0, 0.7, None, 1e-300],
    "text": ["plain", 'a "b", c', "ünï", None, "two\nlines", "日本"],
    "digits": [1, 30, None, 2, 2**53 - 1, 7],
    "halves": [0.5, 1.0, 1.5, None, 9.5, 0.5],
    "flag": [True, None, False, True, False, False],
    "y": ["no", "yes", None, "yes", "other", "no"],
}
N_ROWS = 6
TYPES = {
    "real": pa.float64(),
    "whole": pa.int64(),
    "yes": pa.bool_(),
    "v0": pa.float64(),
    "v1": pa.float64(),
    "text": pa.string(),
    "digits": pa.int64(),
    "halves": pa.float64(),
    "flag": pa.bool_(),
    "y": pa.string(),
}
ARROW = pa.table({name: pa.array(TABLE[name], TYPES[name]) for name in TABLE})


def rows_of(table, schema=SCHEMA, **keywords):
    """Each encoded row, as bytes."""
    records = encode(batches(table, schema, **keywords), schema)
    rows = []
    for chunk in records.chunks:
        columns = [*chunk.parts, chunk.target, chunk.weight]
        for i in range(len(chunk.target)):
            rows.append(b"|".join(np.asarray(c[i]).tobytes() for c in columns))
    return rows


def written(table, path):
    """A CSV file from Python's own writer."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        out = csv.writer(file)
        out.writerow(table)
        out.writerows(
            ["" if cell is None else cell for cell in row]
            for row in zip(*table.values(), strict=True)
        )
    return CSV(path, multiline=True)


def _pandas_nullable():
    return ARROW.to_pandas(types_mapper={
        pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(),
        pa.float64(): pd.Float64Dtype(), pa.string(): pd.StringDtype("python"),
    }.get)  # fmt: skip


def _parquet(path):
    pq.write_table(ARROW, path, row_group_size=4)
    return path


def _polars_csv(path):
    pl.from_arrow(ARROW).write_csv(path)
    return CSV(path, multiline=True)


def _pyarrow_csv(path):
    pacsv.write_csv(ARROW, path, pacsv.WriteOptions(delimiter=";"))
    return CSV(str(path), multiline=True)


def _pandas_csv(path):
    pd.DataFrame(TABLE).to_csv(path, index=False, lineterminator="\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().rstrip(b"\r\n"))
    return CSV(path, multiline=True)


def _coded(table):
    for name in ("text", "digits", "halves", "flag", "y"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].dictionary_encode())
    return table


def _text():
    return {
        name: [None if c is None else str(c) for c in cells]
        for name, cells in TABLE.items()
    }


SAME = {
    "arrow": lambda path: ARROW,
    "arrow chunks": lambda path: pa.concat_tables([ARROW[:2], ARROW[2:3], ARROW[3:]]),
    "arrow batch": lambda path: ARROW.to_batches()[0],
    "arrow reader": lambda path: ARROW.to_reader(max_chunksize=2),
    "arrow dictionary": lambda path: _coded(ARROW),
    "arrow dictionaries": lambda path: pa.concat_tables(
        [_coded(ARROW[:2]), _coded(ARROW[2:])]
    ),
    "arrow text": lambda path: pa.table(
        {k: pa.array(v, pa.large_string()) for k, v in _text().items()}
    ),
    "arrow view": lambda path: pa.table(
        {k: pa.array(v, pa.string_view()) for k, v in _text().items()}
    ),
    "pandas": lambda path: pd.DataFrame(TABLE),
    "pandas objects": lambda path: pd.DataFrame(TABLE, dtype=object),
    "pandas nullable": lambda path: _pandas_nullable(),
    "pandas arrow": lambda path: ARROW.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas categories": lambda path: pd.DataFrame(TABLE, dtype=object).astype(
        dict.fromkeys(["text", "digits", "halves", "flag", "y"], "category")
    ),
    "pandas index": lambda path: pd.DataFrame(TABLE, index=[5, 5, 0, 1, 1, 2]),
    "pandas text": lambda path: pd.DataFrame(_text()),
    "polars": lambda path: pl.from_arrow(ARROW),
    "polars lazy": lambda path: pl.from_arrow(ARROW).lazy(),
    "polars categories": lambda path: pl.from_arrow(ARROW).with_columns(
        pl.col("text").cast(pl.Categorical),
        pl.col("y").cast(pl.Enum(["other", "yes", "no"])),
    ),
    "dict of lists": lambda path: TABLE,
    "dict of columns": lambda path: {
        name: series if i % 2 else pl.from_arrow(ARROW[name])
        for i, (name, series) in enumerate(pd.DataFrame(TABLE).items())
    },
    "csv": lambda path: written(TABLE, path / "t.csv"),
    "csv of pandas": lambda path: _pandas_csv(path / "t.csv"),
    "csv of polars": lambda path: _polars_csv(path / "t.csv"),
    "csv of pyarrow": lambda path: _pyarrow_csv(path / "t.csv"),
    "parquet": lambda path: _parquet(path / "t.parquet"),
}


@pytest.mark.parametrize("batch_rows", [1, 4, 65_536])
@pytest.mark.parametrize("kind", SAME)
def test_the_same_table_gives_the_same_rows(kind, batch_rows, tmp_path):
    if kind == "pandas" or kind == "pandas index" or kind == "dict of columns":
        # pandas makes floats of integers beside a missing one, as it would on reading.
        assert pd.DataFrame(TABLE)["digits"].dtype == np.float64
    expected = rows_of(ARROW)
    assert len(set(expected)) == N_ROWS
    assert rows_of(SAME[kind](tmp_path), batch_rows=batch_rows) == expected


def test_expected_codes():
    """The table above, by hand: what all the readers agree on is right."""
    (batch,) = batches(ARROW, SCHEMA)
    codes = {
        name: cells.codes.tolist()
        for name, cells in batch.columns.items()
        if hasattr(cells, "codes")
    }
    assert codes == {
        "text": [0, 1, 2, -1, 3, 4],
        "digits": [0, 2, -1, 1, 3, -1],
        "halves": [0, 1, 2, -1, -1, 0],
        "flag": [1, -1, 0, 1, 0, 0],
    }
    assert batch.target.codes.tolist() == [0, 1, -1, 1, -1, 0]
    assert batch.weight is None
    np.testing.assert_array_equal(batch.columns["yes"], [1, 0, math.nan, 1, 0, 1])
    np.testing.assert_array_equal(
        batch.columns["whole"], [3, 2.0**53, 50, math.nan, -4, 99]
    )
    assert batch.columns["v"].shape == (N_ROWS, 2)


def test_matrices_by_position():
    numeric = Schema(
        {"a": Numeric(-1, 1), "v": Vector(["b", "c"]), "d": Categorical([0, 1])},
        target=Categorical(["no", "yes"]),
    )
    X = np.array([[0.5, 0, 0.25, 1], [0, 1, 0, 0], [0, 0, 0, 7]])
    y = ["no", "yes", "no"]
    expected = rows_of(dict(zip("abcd", X.T, strict=True)), numeric, target=y)
    for form in (
        X,
        X.astype(object),
        X.astype(str),
        np.asfortranarray(X),
        X.astype("f4"),
    ):
        assert rows_of(form, numeric, target=y) == expected
    for form in (
        sparse.csr_matrix,
        sparse.csc_matrix,
        sparse.csr_array,
        sparse.coo_array,
    ):
        for rows in (1, 2, 10):
            assert rows_of(form(X), numeric, target=y, batch_rows=rows) == expected
    masked = np.ma.masked_array(X, mask=X == 7)
    assert rows_of(masked, numeric, target=y) == expected


def test_wide_sparse_matrices_are_never_dense_as_a_whole():
    at = np.random.default_rng(0).integers([[300], [50_000]], size=(2, 150))
    wide = sparse.csc_array((np.ones(150), at), shape=(300, 50_000))
    schema = Schema(
        {"v": Vector([str(i) for i in range(50_000)])}, target=Numeric(0, 1)
    )
    sizes = [
        batch.columns["v"].size
        for batch in batches(wide, schema, target=np.zeros(300))
    ]  # fmt: skip
    assert sum(sizes) == 300 * 50_000
    assert max(sizes) <= 1 << 22


SURROGATE = "\ud800"
HOSTILE = [
    None, math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324, 10**400, 10**5000, True,
    "", " ", "garbage", "1,5", "1e999", "0x10", "1_0", "nan", "NA", "１", "\x00",
    "two\r\nlines", '"', '""', '"a', "x" * 100_000, b"\xff", SURROGATE,
    Decimal("sNaN"), Decimal("1e999"), date(2020, 1, 1), datetime(2020, 1, 1), pd.NaT,
    pd.NA, np.timedelta64(1, "s"), np.float32(0.5), np.longdouble("1e4000"), 1j, [1],
    {"a": 1}, {2}, object(),
]  # fmt: skip


def _as_text(cell):
    """A cell as a writer of plain text would write it."""
    if cell is None:
        return None
    if isinstance(cell, int) and abs(cell) > 10**4000:
        return "9" * 5000
    return str(cell).replace("\ud800", "�")


def _as_float(cell):
    return (
        float(cell) if isinstance(cell, (int, float)) and abs(cell) < 10**308 else None
    )


def _texts(table):
    return {
        k: pa.array([_as_text(c) for c in v], pa.string()) for k, v in table.items()
    }


def _typed(table):
    """Cells for a typed table: floats or text, including hostile ones."""
    number = {"real", "whole", "v0", "v1", "halves"}
    return {
        name: pa.array([_as_float(c) if name in number else _as_text(c) for c in cells])
        for name, cells in table.items()
    }


def _read_by_pandas(table):
    buffer = io.StringIO()
    pa_table = {k: v.to_pylist() for k, v in _texts(table).items()}
    pd.DataFrame(pa_table).map(lambda c: str(c).replace("\x00", "")).to_csv(
        buffer, index=False, escapechar="\\"
    )
    return pd.read_csv(io.StringIO(buffer.getvalue()), escapechar="\\")


def _written_texts(table, path):
    texts = {k: v.to_pylist() for k, v in _texts(table).items()}
    return written(texts, path / "t.csv")


def _parquet_texts(table, path):
    pq.write_table(pa.table(_texts(table)), path / "t.parquet")
    return path / "t.parquet"


def _encodable(table):
    """Return a table without cells that text columns of pandas cannot hold."""
    held = {SURROGATE: "�", 10**400: 10**300, 10**5000: 10**300}
    return {
        k: [held.get(c, c) if isinstance(c, (str, int)) else c for c in v]
        for k, v in table.items()
    }


def _objects(cells):
    column = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        column[i] = cell
    return column


CHANGED = {
    "dict": lambda table, path: table,
    "dict of arrays": lambda table, path: {k: _objects(v) for k, v in table.items()},
    "pandas": lambda table, path: pd.DataFrame(_encodable(table)),
    "pandas objects": lambda table, path: pd.DataFrame(table, dtype=object),
    "pandas categories": lambda table, path: pd.DataFrame(_typed(table)).astype(
        {"text": "category", "digits": "category"}
    ),
    "pandas read_csv": lambda table, path: _read_by_pandas(table),
    "arrow": lambda table, path: pa.table(_typed(table)),
    "arrow text": lambda table, path: pa.table(_texts(table)),
    "arrow dictionary": lambda table, path: _coded(pa.table(_texts(table))),
    "polars": lambda table, path: pl.from_arrow(pa.table(_typed(table))),
    "polars lazy": lambda table, path: pl.from_arrow(pa.table(_texts(table))).lazy(),
    "polars objects": lambda table, path: pl.DataFrame(
        {k: pl.Series(k, v, dtype=pl.Object) for k, v in table.items()}
    ),
    "csv": _written_texts,
    "parquet": _parquet_texts,
}
BASE = {name: [cells[i] for i in (0, 1, 5, 0, 1)] for name, cells in TABLE.items()}


@pytest.mark.parametrize("kind", CHANGED)
@settings(max_examples=25, deadline=None)
@given(
    at=st.integers(0, 4),
    record=st.lists(st.sampled_from(HOSTILE), min_size=10, max_size=10),
)
@example(at=0, record=[True] * 10)
@example(at=0, record=[10**5000] * 10)
@example(at=4, record=[SURROGATE] * 10)
@example(at=2, record=[[1]] * 10)
def test_one_record_changes_no_other(kind, at, record, tmp_path_factory):
    path = tmp_path_factory.getbasetemp()
    build = CHANGED[kind]
    expected = rows_of(build(BASE, path))
    table = {
        name: [*cells[:at], cell, *cells[at + 1 :]]
        for (name, cells), cell in zip(BASE.items(), record, strict=True)
    }
    got = rows_of(build(table, path))
    assert len(got) == len(expected) == 5
    assert got[:at] + got[at + 1 :] == expected[:at] + expected[at + 1 :]
