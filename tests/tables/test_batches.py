"""Public mistakes raise at once. Weights. No library is imported needlessly."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from skdp.privacy.encoding import Chunk, encode
from skdp.schema import Categorical, Numeric, Schema, Vector
from skdp.tables import batches, encoder

Y = Categorical(["no", "yes"])
SCHEMA = Schema({"age": Numeric(0, 9), "job": Categorical(["a"])}, target=("y", Y))
TABLE = {"age": [1, 2], "job": ["a", "a"], "y": ["no", "yes"], "w": [0.5, "x"]}
APART = Schema({"age": Numeric(0, 9)}, target=Y)
SECRET = "secret"


def refuses(table, schema, sentence, **keywords):
    """At once: before the first batch is asked for."""
    with pytest.raises(ValueError, match=sentence) as caught:
        batches(table, schema, **keywords)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("form", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_missing_and_double_columns(form):
    table = form({"Age": [1], "job": [SECRET], "y": ["no"]})
    refuses(table, SCHEMA, "has no column 'age'. Did you mean 'Age'")
    table = form({"job": [SECRET], "y": ["no"]})
    refuses(table, SCHEMA, "has no column 'age'. Every column of the schema")
    refuses(form({"q": [SECRET]}), SCHEMA, "Is the header missing")


def test_double_columns():
    table = pd.DataFrame(
        [[1, SECRET, "no", 2, 3]], columns=["age", "job", "y", "age", "q"]
    )
    refuses(table, SCHEMA, "several columns named 'age'")
    table.columns = ["age", "job", "y", "q", "q"]
    assert len(list(batches(table, SCHEMA))) == 1
    twice = pa.table([pa.array([1]), pa.array([2])], names=["age", "age"])
    refuses(twice, APART, "several columns named", target=["no"])


ENDINGS = "end in .csv, .tsv, .parquet, .pq, .feather, .arrow, got"


def test_files(tmp_path):
    refuses(tmp_path / "absent.csv", SCHEMA, "There is no file")
    refuses(
        str(tmp_path / "t.xlsx"),
        SCHEMA,
        ENDINGS,
    )
    refuses(tmp_path, SCHEMA, f"There are no files in '{tmp_path}'")
    refuses(tmp_path / "*.csv", SCHEMA, "There are no files in")
    (tmp_path / "t.parquet").mkdir()
    (tmp_path / "t.parquet" / "_SUCCESS").touch()
    refuses(tmp_path / "t.parquet", SCHEMA, "There are no files in")
    (tmp_path / "t.parquet" / "t.xlsx").touch()
    refuses(
        tmp_path / "t.parquet",
        SCHEMA,
        ENDINGS,
    )
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.json").touch()
    refuses(tmp_path / "m", SCHEMA, "m' is a saved model")
    (tmp_path / "t.csv").write_bytes(b"")
    refuses(tmp_path / "t.csv", SCHEMA, "has no header line")
    (tmp_path / "t.csv").write_bytes(b"age,job,y\r1,secret,no\r")
    refuses(tmp_path / "t.csv", SCHEMA, "must end with a line feed")
    (tmp_path / "t.csv").write_bytes("âge,age,job,y\n1,2,é,no\n".encode("latin-1"))
    refuses(tmp_path / "t.csv", SCHEMA, "'t.csv' is not UTF-8")
    (tmp_path / "t.csv").write_bytes(b"1,secret,no\n2,a,yes\n")
    refuses(tmp_path / "t.csv", SCHEMA, "Is the header missing")
    (tmp_path / "t.csv").write_bytes(b"agee,secret,no\n2,a,yes\n")
    refuses(tmp_path / "t.csv", SCHEMA, "Is the header missing")
    (tmp_path / "t.csv").write_bytes(b"agee,job,y\n1,secret,no\n")
    refuses(tmp_path / "t.csv", SCHEMA, "no column 'age'. Did you mean 'agee'")


def test_no_target():
    refuses(TABLE, APART, "does not name the target")
    refuses(
        {"age": [1]},
        Schema({"age": Numeric(0, 9)}),
        "does not describe a target",
        target=["no"],
    )
    refuses(np.ones((2, 2)), SCHEMA, "array without column names.* got 'y'")


def test_a_schema_without_target_gives_batches_without():
    (batch,) = batches(TABLE, Schema({"age": Numeric(0, 9)}))
    assert batch.target is None


def test_arrays_of_the_wrong_shape():
    refuses(np.ones((2, 3)), APART, "is 1 in the schema, but 3 in", target=["no", "no"])
    refuses(np.ones(2), APART, "2 dimensions, got 1", target=["no", "no"])
    refuses(np.ones((2, 1)), APART, "must have 1 dimension", target=np.ones((2, 2)))
    refuses(object(), APART, "A table must be .* got object", target=["no"])
    refuses(np.ones((2, 1)), APART, "must be an array", target=object())
    refuses({"age": [1, 2], "job": ["a"], "y": ["no"]}, SCHEMA, "the same length")
    refuses(TABLE, SCHEMA, "batch_rows must be at least 1", batch_rows=0)


def test_lengths_that_differ_are_not_told(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("age\n1\n2\n")
    for y in (["no"], ["no"] * 3):
        refuses({"age": [1, 2]}, APART, r"^[^0-9]*as many rows[^0-9]*$", target=y)
        with pytest.raises(ValueError, match=r"^[^0-9]*as many rows[^0-9]*$"):
            list(batches(file, APART, target=y))


@pytest.mark.parametrize(
    "y",
    [
        ["no", "yes", None],
        ("no", "yes", "?"),
        np.array(["no", "yes", "?"]),
        np.array([["no"], ["yes"], [None]], dtype=object),
        pd.Series(["no", "yes", None], index=[2, 1, 0]),
        pd.Index(["no", "yes", "?"]),
        pd.Series(["no", "yes", None], dtype="category"),
        pl.Series(["no", "yes", None]),
        pa.array(["no", "yes", None]),
        pa.chunked_array([["no"], ["yes", None]]),
    ],
    ids=lambda y: type(y).__module__ + type(y).__name__,
)
@pytest.mark.parametrize("batch_rows", [1, 2, 3])
def test_a_target_apart(y, batch_rows):
    got = batches({"age": [1, 2, 3]}, APART, target=y, batch_rows=batch_rows)
    assert np.hstack([batch.target.codes for batch in got]).tolist() == [0, 1, -1]


def test_a_target_apart_comes_before_the_column_named():
    (batch,) = batches(TABLE, SCHEMA, target=["yes", "yes"])
    assert batch.target.codes.tolist() == [1, 1]
    (batch,) = batches(TABLE, APART, target="y")
    assert batch.target.codes.tolist() == [0, 1]


def test_weights():
    (batch,) = batches(TABLE, SCHEMA, sample_weight="w")
    np.testing.assert_array_equal(batch.weight, [0.5, np.nan])
    (batch,) = batches(TABLE, SCHEMA, sample_weight=[2, 3], class_weight={"yes": 0.5})
    assert batch.weight.tolist() == [2, 1.5]
    (batch,) = batches(TABLE, SCHEMA, class_weight={"yes": 0.5})
    assert batch.weight.tolist() == [1, 0.5]
    # Hostile weights are clipped by encode, without a warning on the way.
    (batch,) = batches(
        TABLE, SCHEMA, sample_weight=[np.inf, 1e308], class_weight={"no": 0, "yes": 99}
    )
    records = encode([batch], SCHEMA, max_weight=2)
    assert records.chunks[0].weight.tolist() == [0, 2]


def test_class_weight_of_what_falls_on_other():
    schema = Schema({"age": Numeric(0, 9)}, target=Categorical([0, 1], other=1))
    (batch,) = batches(
        {"age": [1, 2, 3]}, schema, target=[0, 1, "?"], class_weight={1.0: 3}
    )
    assert batch.weight.tolist() == [1, 3, 3]


@pytest.mark.parametrize("order", [["no", "yes"], ["yes", "no"], ["yes"]])
@pytest.mark.parametrize("other", [None, "no"])
def test_categories_of_pandas_in_any_order(order, other):
    """The codes of the same categories in the same order are taken as they are."""
    cells = pd.Series(["yes", None, "no", "?", "yes"])
    known = cells.where(cells.isin(order), None)
    codes = [order.index(cell) if cell in order else -1 for cell in cells]
    table = pd.DataFrame(
        {"age": np.arange(5), "y": pd.Categorical.from_codes(codes, order)}
    )
    column = Categorical(["no", "yes"], other=other)
    schema = Schema({"age": Numeric(0, 9)}, target=("y", column))
    (batch,) = batches(table, schema, class_weight={"yes": 4.0, "no": 0.5})
    default = 1.0 if other is None else 0.5
    factors = known.map({"yes": 4.0, "no": 0.5}).fillna(default)
    assert batch.weight.tolist() == factors.tolist()
    (chunk,) = encode([batch], schema, max_weight=9.0).chunks
    classes = known.map({"yes": 1, "no": 0})
    assert chunk.target.tolist() == classes.fillna(0).astype(int).tolist()
    null = classes.isna() & (other is None)
    assert ((chunk.weight == 0) == null).all()
    assert table["y"].cat.codes.tolist() == codes  # the caller's table is unchanged


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.float32, bool])
def test_numbers_of_any_type_are_encoded_like_floats(kind):
    given = np.array([0, 1, 5, 9, 7]).astype(kind)
    schema = Schema({"age": Numeric(0, 9)}, target=Numeric(0, 3))
    forms = {
        "float": {"age": given.astype(float)},
        "stored": {"age": given},
        "arrow": pa.table({"age": given}),
        "nulls": pa.table({"age": pa.array(given, mask=given == 9)}),
    }
    found = {}
    for name, table in forms.items():
        (chunk,) = encode(batches(table, schema, target=table["age"]), schema).chunks
        found[name] = chunk.parts[0].tolist(), chunk.target.tolist()
    assert found["stored"] == found["arrow"] == found["float"]
    absent = np.flatnonzero(given == 9)
    for part, nulls in zip(found["float"], found["nulls"], strict=True):
        assert (
            np.delete(part, absent, 0).tolist() == np.delete(nulls, absent, 0).tolist()
        )


@pytest.mark.parametrize(
    ("n_rows", "n_threads", "sizes"),
    [
        (1000, 16, [1000]),
        (1 << 19, 2, [1 << 18] * 2),
        (1 << 20, 3, [349526, 349526, 349524]),
        ((1 << 22) + 2, 1, [1398102] * 3),
    ],
)
def test_all_threads_get_as_many_rows(n_rows, n_threads, sizes):
    table = pd.DataFrame({"age": np.zeros(n_rows, np.int8)})
    target = np.zeros(n_rows, np.int8)
    schema = Schema({"age": Numeric(0, 9)}, target=Numeric(0, 1))
    parts = batches(
        table,
        schema,
        target=target,
        n_threads=n_threads,
        finish=lambda b: len(b.target),
    )
    assert list(parts) == sizes


def test_batches_of_vectors_have_fewer_rows():
    names = [f"v{j}" for j in range(64)]
    table = pd.DataFrame({name: np.zeros(100_000, np.int8) for name in names})
    schema = Schema({"v": Vector(names)}, target=Numeric(0, 1))
    target = np.zeros(100_000)
    parts = batches(table, schema, target=target, finish=lambda b: len(b.target))
    assert list(parts) == [50_000, 50_000]


@pytest.mark.parametrize("form", [csr_array, np.ma.masked_array])
def test_batches_that_are_copies_have_fewer_rows(form):
    names = [f"v{j}" for j in range(64)]
    schema = Schema({n: Numeric(0, 1) for n in names}, target=Numeric(0, 1))
    table, target = np.zeros((70_000, 64), np.int8), np.zeros(70_000)
    options = {"target": target, "n_threads": 1, "finish": lambda b: len(b.target)}
    assert list(batches(table, schema, **options)) == [70_000]
    assert list(batches(form(table), schema, **options)) == [35_000] * 2


def test_joined_chunks_are_not_too_long(monkeypatch):
    monkeypatch.setattr(encoder, "CHUNK_ROWS", 100)
    sizes = [60, 30, 50, 100, 7, 99, 1, 2]
    parts = [Chunk((), np.full(n, i), np.ones(n), 1) for i, n in enumerate(sizes)]
    joined = list(encoder._join_equal(iter(parts)))
    assert [len(chunk.target) for chunk in joined] == [90, 50, 100, 7, 100, 2]
    whole = np.concatenate([chunk.target for chunk in joined])
    assert (whole == np.repeat(np.arange(8), sizes)).all()


def test_class_weight_mistakes():
    refuses(TABLE, SCHEMA, "got 'yse'. Did you mean 'yes'", class_weight={"yse": 1})
    refuses(TABLE, SCHEMA, "must be finite and ≥ 0", class_weight={"yes": -1})
    refuses(TABLE, SCHEMA, "must be finite and ≥ 0", class_weight={"yes": np.nan})
    refuses(TABLE, SCHEMA, "must be finite and ≥ 0", class_weight={"yes": "a"})
    refuses(TABLE, SCHEMA, "mapping of levels", class_weight="balanced")
    numeric = Schema({"age": Numeric(0, 9)}, target=Numeric(0, 1))
    refuses(TABLE, numeric, "categorical target", target=[0, 1], class_weight={0: 1})


def test_wide_tables_take_few_rows_at_a_time():
    schema = Schema(
        {"v": Vector([str(i) for i in range(10_000)])}, target=Numeric(0, 1)
    )
    X = np.zeros((1000, 10_000), np.int8)
    for batch in batches(X, schema, target=np.zeros(1000)):
        assert batch.columns["v"].size <= 1 << 22


def test_a_failing_query_tells_nothing():
    lazy = pl.LazyFrame({"age": [SECRET], "job": ["a"], "y": ["no"]})
    lazy = lazy.with_columns(pl.col("age").cast(pl.Int64))
    with pytest.raises(ValueError, match="The lazy frame could not be read") as caught:
        list(batches(lazy, SCHEMA))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_streams_of_others():
    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            table = pa.table({name: map(str, cells) for name, cells in TABLE.items()})
            return table.__arrow_c_stream__(requested_schema)

    (batch,) = batches(Stream(), SCHEMA)
    assert batch.columns["age"].tolist() == [1, 2]


def test_nothing_is_imported_for_nothing():
    code = """
import sys
import numpy as np
from skdp.schema import Numeric, Schema
from skdp.tables import batches
schema = Schema({"a": Numeric(0, 1)}, target=Numeric(0, 1))
list(batches({"a": [0.5, "x", None]}, schema, target=np.zeros(3)))
list(batches(np.zeros((3, 1)), schema, target=np.zeros(3)))
assert not {"pandas", "polars", "pyarrow"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pandas_without_pyarrow():
    code = """
import sys
sys.modules["pyarrow"] = None
import pandas as pd
from skdp.schema import Categorical, Numeric, Schema
from skdp.tables import batches
frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": ["x", None]})
schema = Schema({"a": Numeric(0, 1), "b": Categorical(["x"])})
(batch,) = batches(frame, schema)
assert batch.columns["a"][0] == 1 and batch.columns["b"].codes.tolist() == [0, -1]
try:
    batches("absent.parquet", schema)
except ValueError as error:
    assert "There is no file" in str(error)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
