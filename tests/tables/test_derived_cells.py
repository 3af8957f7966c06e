"""Cells of derived types whose methods raise mean what their base means."""

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skdp
from skdp.estimators.opening import accept_column, accept_table
from skdp.schema import Categorical, Numeric, Schema
from skdp.tables import batches
from skdp.tables.cells import Levels, as_text, keys, magnitudes, number


def raising(base):
    """A type derived from `base`, all of whose methods raise."""

    def refuse(self, *args, **kwargs):
        raise RuntimeError("secret")

    kept = {"__new__", "__init__", "__class__", "__init_subclass__", "__subclasshook__"}
    body = {name: refuse for name in dir(base) if name not in kept}
    body |= {"__getattr__": refuse, "__bool__": refuse, "encode": refuse}
    return type(f"Raising{base.__name__}", (base,), body)


class NoClass:
    """An object that cannot even be asked what it is."""

    @property
    def __class__(self):
        raise RuntimeError("secret")

    def __getattribute__(self, name):
        raise RuntimeError("secret")


class Unhashed(type):
    def __hash__(cls):
        raise RuntimeError("secret")

    def __eq__(cls, other):
        raise RuntimeError("secret")


class NoHash(str, metaclass=Unhashed):
    __slots__ = ()


BASES = (str, bytes, int, float, complex, Decimal, np.float64, np.str_, np.int64)
DERIVED = {base: raising(base) for base in BASES}
LEVELS = Levels(Categorical(["a", "1", "2.5", "true"]))

values = (
    st.text(max_size=4)
    | st.sampled_from(["a", "1", " 1", "2.50", "True", "nan", ""])
    | st.sampled_from([b"a", b"1", b"\xff"])
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.sampled_from([1 + 0j, 2j, Decimal("2.5"), np.float64(1), np.str_("a")])
    | st.sampled_from([np.int64(1), 10**5000])
)


@given(values)
def test_a_derived_cell_means_what_its_base_means(value):
    cell = DERIVED[type(value)](value)
    assert number(cell) == number(value) or math.isnan(number(value))
    assert as_text(cell) == as_text(value)
    assert LEVELS.code(cell) == LEVELS.code(value)


ODD = [
    *(
        kind(value)
        for kind, value in zip(
            DERIVED.values(), ["a", b"1", 1, 2.5, 1j, 2, 1, "a", 3], strict=True
        )
    ),
    NoClass(),
    NoHash("a"),
]


@pytest.mark.parametrize("which", range(len(ODD)))
def test_no_column_is_stopped_by_one(which):
    cell = ODD[which]
    column = np.fromiter(["a", 1.0, cell, None], dtype=object, count=4)
    assert len(keys(column).codes) == 4
    assert len(np.ma.getdata(magnitudes(column))) == 4
    schema = Schema(
        {"x": Numeric(0, 9), "c": Categorical(["a", 1])}, target=Categorical([0, 1])
    )
    tables = [{"x": column, "c": column}, {"x": list(column), "c": list(column)}]
    tables.append(pd.DataFrame({"x": column, "c": column}, dtype=object))
    for table in tables:
        (batch,) = batches(table, schema, target=column, sample_weight=column)
        assert batch.columns["c"].codes[0] == 0
        assert batch.columns["x"][1] == 1
    rows = accept_table([["a", 1], [cell, cell], [1, 2]])
    assert rows.shape == (3, 2)
    assert len(accept_column([cell, cell])) == 2


class RaisingList(list):
    def __iter__(self):
        raise RuntimeError("secret")

    __len__ = __getitem__ = __iter__


@pytest.mark.parametrize("which", range(len(ODD) + 1))
def test_no_table_is_stopped_by_a_row(which):
    row = [*ODD, RaisingList([1, 2])][which]
    assert accept_table([[1, 2], row, [3, 4]])[2].tolist() == [3, 4]


def test_a_fit_of_such_cells():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=400)
    labels = ["yes" if v > 0.5 else "no" for v in x]
    model = skdp.LogisticRegression(
        bounds=(0, 1), classes=["no", "yes"], random_state=0, neighbours="replace-one"
    )
    for cell in ODD:
        rows = [[v] for v in x]
        rows[3], labels[5] = [cell], cell
        model.fit(rows, labels)
