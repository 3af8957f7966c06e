"""Without a schema, types follow from what was released, never from a library's guess.

A library that reads a file gives a column one type for the sake of one cell: `read_csv`
makes texts of a million numbers and one word, and floats of labels one of which is
missing.
"""

import io
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import skdp
from skdp.estimators.opening import LEVELS, RANGE, open_table
from skdp.privacy import discovery
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric
from skdp.tables.cells import keys

N = 4000
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "dose": RNG.uniform(0.1, 9.0, N).round(3),
        "job": RNG.choice(["baker", "nurse"], N),
        "ill": RNG.choice([True, False], N),
    }
)
LABEL = (TABLE["dose"] > 4).astype(int)


def written(table, label, row=None, column=None, cell=None):
    """A CSV file, one cell of which may be another."""
    cells = table.assign(label=label).astype(object)
    if row is not None:
        cells.loc[row, column] = cell
    return io.BytesIO(cells.to_csv(index=False).encode())


def fitted(file):
    frame = pd.read_csv(file)
    model = skdp.LogisticRegression(
        epsilon=2.0, neighbours="replace-one", random_state=0, n_steps=2
    )
    return frame, model.fit(frame.drop(columns="label"), frame["label"])


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        *(("age", "abc"), ("age", ""), ("dose", "abc"), ("dose", ""), ("job", "7")),
        *(("ill", ""), ("ill", "perhaps"), ("label", ""), ("label", "abc")),
    ],
)
def test_one_cell_of_a_file_decides_no_type(column, cell):
    frame, model = fitted(written(TABLE, LABEL))
    other, changed = fitted(written(TABLE, LABEL, 7, column, cell))
    # Except for texts and gaps, the one cell does change the type that pandas infers.
    alike = (column, cell) in (("job", "7"), ("dose", ""))
    assert (frame.dtypes[column] == other.dtypes[column]) == alike
    assert model.profile_.limits == changed.profile_.limits
    assert model.classes_.dtype == changed.classes_.dtype == int
    assert model.classes_.tolist() == changed.classes_.tolist() == [0, 1]
    kinds = {name: type(c) for name, c in model.schema_.columns.items()}
    assert kinds == dict.fromkeys(TABLE, Numeric) | {"job": Categorical}
    assert model.schema_.columns["job"].levels == ("baker", "nurse")
    told = (model.privacy_.assumptions, changed.privacy_.assumptions)
    assert told[0] == told[1] == ("Column names are public.",)
    plans = [[e.query for e in m.privacy_.events] for m in (model, changed)]
    assert plans[0] == plans[1]


def texts(frame):
    return frame.astype(object).map(str)


FRAMES = {
    "pandas": lambda t: t,
    "objects": lambda t: t.astype(object),
    "texts": texts,
    "pandas strings": lambda t: texts(t).astype("string"),
    "nullable": lambda t: t.convert_dtypes(),
    "pandas on arrow": lambda t: t.convert_dtypes(dtype_backend="pyarrow"),
    "float32": lambda t: t.astype(dict.fromkeys(["age", "dose"], np.float32)),
    "polars": pl.from_pandas,
    "polars texts": lambda t: pl.from_pandas(texts(t)),
    "arrow": pa.Table.from_pandas,
    "arrow texts": lambda t: pa.Table.from_pandas(texts(t)),
    "arrow's reader": lambda t: pacsv.read_csv(
        io.BytesIO(t.to_csv(index=False).encode())
    ),
    "dict of lists": lambda t: {name: t[name].tolist() for name in t},
    "dict of arrays": lambda t: {name: t[name].to_numpy() for name in t},
}
ARRAYS = {
    "objects": lambda t: t.to_numpy(object),
    "texts": lambda t: texts(t).to_numpy().astype(str),
    "bytes": lambda t: texts(t).to_numpy().astype(bytes),
    "lists": lambda t: np.array(t.values.tolist(), dtype=object),
}
TARGETS = {
    "integers": lambda y: y,
    "floats": lambda y: y.astype(float),
    "one missing": lambda y: y.where(y.index != 7),
    "objects": lambda y: y.astype(object),
    "one word": lambda y: y.astype(object).where(y.index != 7, "abc"),
    "texts": lambda y: y.map(str),
    "texts of floats": lambda y: y.astype(float).map(str),
    "array": lambda y: y.to_numpy(),
    "letters": lambda y: y.to_numpy().astype(str),
    "list": lambda y: y.tolist(),
    "polars": lambda y: pl.from_pandas(y),
    "arrow": lambda y: pa.array(y.map(str)),
}


def asked(monkeypatch, table, target, kind):
    """The queries about a table, and the schema, with scripted answers."""
    log = []

    def ranges_and_texts(batches, names, *rest):
        log.append(("kinds", tuple(names), sum(1 for _ in batches) > 0))
        found = dict.fromkeys(names, (0.0, 90.0))
        return found, {name for name in names if name in ("job", "x2")}

    def levels(batches, names, *rest):
        log.append(("levels", tuple(names), sum(1 for _ in batches) > 0))
        return {n: ["0", "1"] if n == "target" else ["baker", "nurse"] for n in names}

    monkeypatch.setattr(discovery, "release_ranges_and_texts", ranges_and_texts)
    monkeypatch.setattr(discovery, "release_levels", levels)
    about = open_table(table, target, schema=None, bounds=None, target=kind)
    record = PrivacyRecord(
        epsilon=1.0, delta=1e-6, neighbours="replace-one", reserved_delta=1e-7
    )
    schema = about.infer_schema(record, 0.1, Randomness(0))
    types = [type(level) for level in getattr(schema.target, "levels", ())]
    return log, schema, types, about.assumptions, about.infers_levels


@pytest.mark.parametrize("kind", [RANGE, LEVELS])
@pytest.mark.parametrize("group", [FRAMES, ARRAYS], ids=["frames", "arrays"])
def test_what_is_found_is_a_function_of_what_was_released(group, kind, monkeypatch):
    """Queries and the use of answers do not depend on the types of columns."""
    few, labels = TABLE.head(20), LABEL.head(20)
    found = {
        (table, target): asked(monkeypatch, made(few), aimed(labels), kind)
        for table, made in group.items()
        for target, aimed in TARGETS.items()
    }
    usual = next(iter(found.values()))
    assert [name for name, each in found.items() if each != usual] == []


@pytest.mark.parametrize("name", FRAMES)
def test_types_are_right_where_there_is_no_noise(name):
    about = open_table(
        FRAMES[name](TABLE), LABEL, schema=None, bounds=None, target=LEVELS
    )
    record = PrivacyRecord(
        epsilon=np.inf, delta=1e-6, neighbours="replace-one", reserved_delta=1e-7
    )
    schema = about.infer_schema(record, 0.1, Randomness(0))
    kinds = {name: type(c) for name, c in schema.columns.items()}
    assert kinds == dict.fromkeys(TABLE, Numeric) | {"job": Categorical}
    assert schema.columns["age"].low <= 18
    assert schema.columns["age"].high >= 89
    assert schema.target.levels == (0, 1)


def test_what_somebody_asked_for_is_public():
    """A categorical type is not guessed; bounds say that columns are numbers."""
    table = TABLE.assign(job=TABLE["job"].astype("category"))
    about = open_table(table, LABEL, schema=None, bounds=None, target=RANGE)
    assert about.columns["job"] == LEVELS
    assert about.assumptions == (
        "Column names and the list of categorical columns are public.",
    )
    enum = pl.from_pandas(TABLE).cast({"job": pl.Enum(["baker", "nurse"])})
    assert open_table(enum, LABEL, schema=None, bounds=None, target=RANGE).columns == (
        about.columns
    )
    for cells in (TABLE, texts(TABLE)):
        about = open_table(cells, LABEL, schema=None, bounds=(0, 9), target=RANGE)
        assert about.columns == dict.fromkeys(TABLE, Numeric(0, 9))
        assert about.assumptions == ("Column names and the bounds given are public.",)


@given(st.integers(-(2**53), 2**53) | st.floats() | st.booleans())
@example(1e22)
@example(-0.0)
def test_a_cell_and_its_text_have_one_key(value):
    """Whether a library has parsed it or not."""
    cells = [np.array([value]), np.array([str(value)], object), np.array([str(value)])]
    cells.append(np.array([f" {value} "], object))
    if isinstance(value, int) and not isinstance(value, bool):
        cells.append(np.array([float(value)]))
    found = [keys(column) for column in cells]
    assert all(c.values == found[0].values for c in found)
    assert all(c.codes.tolist() == found[0].codes.tolist() for c in found)


def test_labels_that_are_truths_and_decimals():
    for labels in ([True, False] * 50, ["True", "FALSE"] * 50):
        model = skdp.LogisticRegression(
            epsilon=np.inf, neighbours="replace-one", bounds=(0, 1), n_steps=2
        ).fit(np.zeros((100, 1)), labels)
        assert model.classes_.tolist() == [False, True]
    for labels in (np.array([0.5, 1.5] * 50), ["0.5", "1.5"] * 50):
        with pytest.raises(ValueError, match="Unknown label type: continuous"):
            skdp.LogisticRegression(epsilon=np.inf, bounds=(0, 1)).fit(
                np.zeros((100, 1)), labels
            )


@pytest.mark.parametrize(
    ("cells", "levels", "warned"),
    [
        (np.array([3.1, 3.2]), ["3.1", "3.2"], True),
        (np.array([3.1, "b"], dtype=object), ["3.1", "b"], True),
        (np.array(["3.1", "b"], dtype=object), ["3.1", "b"], False),
        (np.array([np.nan, "b"], dtype=object), ["3.1", "b"], False),
        (np.array([1.0, 2.0]), ["1", "2"], False),
        (np.array([1.0, "b"], dtype=object), ["1", "b"], False),
    ],
)
def test_categories_of_floats_are_warned_of_once(cells, levels, warned):
    """A library may have merged "3.1" and "3.10". Types in memory are public."""
    schema = skdp.Schema(
        {"c": skdp.Categorical(levels)}, target=("y", skdp.Categorical([0, 1]))
    )
    table = {"c": np.tile(cells, 50), "y": np.tile([0, 1], 50)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        skdp.LogisticRegression(schema=schema, epsilon=9.0).fit(table)
    said = [str(one.message) for one in caught]
    assert sum("'c' holds floating-point" in one for one in said) == warned
