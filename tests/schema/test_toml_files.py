"""Schemas survive their files; mistakes in a file are named with their column."""

import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.schema import Categorical, Numeric, Schema, Vector, level_key, toml_files
from skdp.tables.template import schema_template

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
levels = st.one_of(
    texts,
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)
bounds = st.one_of(st.integers(-(10**9), 10**9), st.floats(-1e300, 1e300))


@st.composite
def numerics(draw):
    low, high = sorted(draw(st.tuples(bounds, bounds).filter(lambda b: b[0] != b[1])))
    indicator = draw(st.booleans())
    return Numeric(
        low,
        high,
        scale=draw(st.sampled_from(["linear", "log"])),
        bins=draw(st.none() | st.integers(2, 65000)),
        missing=None if indicator else draw(st.sampled_from([None, low, high])),
        indicator=indicator,
    )


@st.composite
def categoricals(draw):
    chosen = draw(st.lists(levels, min_size=1, max_size=6, unique_by=level_key))
    return Categorical(chosen, other=draw(st.none() | st.sampled_from(chosen)))


@st.composite
def schemas(draw):
    names = iter(draw(st.lists(texts, min_size=4, max_size=8, unique=True)))
    target = draw(st.none() | numerics() | categoricals())
    if target is not None and draw(st.booleans()):
        target = (f"target {next(names)}", target)
    columns = {"v": Vector(["first", "second\n"], norm=draw(st.floats(1e-9, 1e9)))}
    for name in names:
        columns[name + "."] = draw(numerics() | categoricals())
    row_norm = draw(st.none() | st.floats(10, 1e6))
    return Schema(columns, target=target, row_norm=row_norm)


def _typed(schema):
    """Everything in a schema with its type: 1, 1.0 and True are told apart."""
    return repr(vars(schema))


@settings(max_examples=60, deadline=None)
@given(schemas())
def test_a_schema_survives_its_text(schema):
    again = toml_files.loads(toml_files.dumps(schema))
    assert again == schema
    assert _typed(again) == _typed(schema)
    assert list(again.columns) == list(schema.columns)


def test_a_schema_survives_its_file(tmp_path):
    path = tmp_path / "schema.toml"
    schema = Schema(
        {'a "b"\r\n\x00\x7f é𝄞': Categorical(["?", "\\", True, 1.5, 2], other="?")},
        target=("y", Numeric(0, 1)),
    )
    toml_files.write(schema, path)
    assert _typed(toml_files.read_toml(path)) == _typed(schema)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert toml_files.read_toml(path) == schema


def test_numpy_levels_become_plain_ones():
    schema = Schema(
        {"a": Categorical(np.array([1, 2])), "b": Numeric(np.float64(0), 1)}
    )
    assert "levels = [\n    1,\n    2,\n]" in toml_files.dumps(schema)
    assert toml_files.loads(toml_files.dumps(schema)) == schema


@pytest.mark.parametrize("level", [math.inf, (1,), "\ud800"])
def test_levels_that_a_file_cannot_hold_are_refused(level):
    with pytest.raises(ValueError, match="A schema file"):
        toml_files.dumps(Schema({"a": Categorical([level])}))


AGE = '[columns.age]\nkind = "numeric"\nlow = 1\nhigh = 2\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("low =", "The schema is not TOML"),
        ("", "The schema: missing key `columns`"),
        ("colums = 1", "The schema has no key 'colums'. Did you mean 'columns'?"),
        ("columns = 1", "The schema: expected a table, got an integer at columns"),
        ("[columns]\na = 1", "Column 'a' must be a table"),
        ("[columns.a]\nlow = 1", "Column 'a' must have a kind, 'numeric' or"),
        ('[columns.a]\nkind = "num"', "got 'num'"),
        ('[columns.a]\nkind = "numeric"\nhigh = 1', "Column 'a': missing key `low`"),
        ('[columns.a]\nkind = "numeric"\nlow = 1', "Column 'a': missing key `high`"),
        ('[columns.a]\nkind = "categorical"', "Column 'a': missing key `levels`"),
        (AGE + "hihg = 3", "Column 'age' has no key 'hihg'. Did you mean 'high'?"),
        (
            AGE.replace("1", "true"),
            "Column 'age': expected a number, got true or false at low",
        ),
        (
            AGE.replace("1", "'x'"),
            "Column 'age': expected a number, got text at low",
        ),
        (
            AGE.replace("1", "inf"),
            "Column 'age': A numeric column must have finite low < high",
        ),
        (
            AGE.replace("1", "3"),
            "Column 'age': A numeric column must have finite low < high",
        ),
        (
            AGE + "bins = 2.0",
            "Column 'age': expected an integer, got a number at bins",
        ),
        (
            '[columns.a]\nkind = "categorical"\nlevels = [nan]',
            "Column 'a': levels must be finite numbers",
        ),
        (AGE + '[target]\nkind = "vector"', "The target must have kind 'numeric' or"),
        (
            AGE + '[target]\nkind = "numeric"\nname = 1',
            "The name of the target must be a string",
        ),
        (AGE + '[target]\nkind = "numeric"\nlow = 1', "The target: missing key `high`"),
        (
            "row_norm = 'x'\n" + AGE,
            "The schema: expected a number, got text at row_norm",
        ),
    ],
)
def test_a_mistake_is_named_in_one_sentence(text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        toml_files.loads(text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_a_schema(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        toml_files.read_toml(tmp_path / "absent.toml")
    with pytest.raises(ValueError, match="is a directory"):
        toml_files.read_toml(tmp_path)
    (tmp_path / "table.csv").write_bytes(b"age,y\n1,0\n")
    with pytest.raises(ValueError, match=r"The schema '.*table\.csv' is not TOML: "):
        toml_files.read_toml(str(tmp_path / "table.csv"))
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(ValueError, match="UTF-8"):
        toml_files.read_toml(tmp_path / "latin.toml")


def _tables(tmp_path, secret):
    """One table with a secret in every column, by every source with names."""
    frame = pd.DataFrame(
        {
            "n": [secret],
            "t": pd.Series([f"s{secret}"], dtype="string"),
            "b": [True],
            "c": pd.Categorical([f"s{secret}"]),
            "o": pd.Series([secret], dtype=object),
        }
    )
    plain = frame.drop(columns="o")
    arrow = pa.Table.from_pandas(plain, preserve_index=False)
    plain.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(arrow, tmp_path / "t.parquet")
    return {
        "pandas": frame,
        "arrow": arrow,
        "polars": pl.from_arrow(arrow),
        "lazy": pl.from_arrow(arrow).lazy(),
        "dict": {"n": [secret], "m": np.array([secret])},
        "csv": str(tmp_path / "t.csv"),
        "parquet": tmp_path / "t.parquet",
    }


@pytest.mark.parametrize(
    "kind", ["pandas", "arrow", "polars", "lazy", "dict", "csv", "parquet"]
)
def test_a_template_depends_on_names_and_types_alone(tmp_path, kind):
    text = schema_template(_tables(tmp_path, 4711)[kind])
    assert text == schema_template(_tables(tmp_path, 1234)[kind])
    assert "4711" not in text
    with pytest.raises(ValueError, match=r"Column 'n'.* needs? ") as caught:
        toml_files.loads(text)
    assert "\n" not in str(caught.value)


def test_a_template_says_what_is_open_and_can_be_completed(tmp_path):
    text = schema_template(_tables(tmp_path, 4711)["pandas"])
    with pytest.raises(ValueError, match="is not complete") as caught:
        toml_files.loads(text)
    assert "Column 'n' needs low and high; Column 't', Column 'c' need levels;" in str(
        caught.value
    )
    assert "Column 'o' needs a kind (then low and high, or levels)." in str(
        caught.value
    )
    text = text.replace('low = "?"', "low = 0").replace('high = "?"', "high = 9")
    text = text.replace('levels = "?"', 'levels = ["?"]')
    text = text.replace('kind = "?"', 'kind = "numeric"\nlow = 0\nhigh = 1')
    schema = toml_files.loads(text)
    assert schema.columns["n"] == Numeric(0, 9)
    assert schema.columns["b"] == Categorical([False, True])


def test_many_open_columns_are_told_in_one_line():
    table = pd.DataFrame({f"c{i}": ["text"] for i in range(40)} | {"n": [1.0]})
    with pytest.raises(ValueError, match="is not complete") as caught:
        toml_files.loads(schema_template(pa.Table.from_pandas(table)))
    assert str(caught.value) == (
        "The schema is not complete: Column 'c0', Column 'c1', Column 'c2' and 37 more "
        "need levels; Column 'n' needs low and high. Replace each \"?\"."
    )


def test_a_template_needs_names():
    with pytest.raises(ValueError, match="requires column names"):
        schema_template(np.zeros((2, 2)))


def test_given_knots_are_kept():
    column = Numeric(0, 9, knots=[0, 0.5, 9])
    again = toml_files.loads(toml_files.dumps(Schema({"x": column})))
    assert again.columns["x"] == column
    assert again.columns["x"].knots == (0.0, 0.5, 9.0)


def test_from_toml_takes_text_or_a_path(tmp_path):
    schema = Schema({"a": Numeric(0, 1)})
    path = tmp_path / "a.toml"
    toml_files.write(schema, path)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_toml(str(path)) == Schema.from_toml(path) == schema
    with pytest.raises(ValueError, match="There is no file"):
        Schema.from_toml("missing.toml")
