"""The schema refuses what is public and wrong, and its layout bounds every row."""

import copy
import itertools
import math
import pickle
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdp.schema import (
    Categorical,
    Group,
    Layout,
    Numeric,
    Pair,
    Schema,
    Vector,
    level_key,
)

X = {"x": Numeric(0.0, 1.0)}
TWO_CODES = {"a": Categorical(["u", "v"]), "b": Numeric(0, 1, bins=2)}

#: What is refused, words of the rule, and the value as the message has it.
REFUSED = {
    "low above high": (lambda: Numeric(1, 0), "low < high", "got 1, 0"),
    "low is high": (lambda: Numeric(1, 1), "low < high", "got 1, 1"),
    "low is nan": (lambda: Numeric(math.nan, 1), "finite", "got nan"),
    "high is nan": (lambda: Numeric(0, math.nan), "finite", "got 0, nan"),
    "high infinite": (lambda: Numeric(0, math.inf), "finite", "got 0, inf"),
    "low infinite": (lambda: Numeric(-math.inf, 0), "finite", "got -inf"),
    "infinite span": (lambda: Numeric(-1e308, 1e308), "finite", "got -1e+308"),
    "scale": (lambda: Numeric(0, 1, scale="sqrt"), "'linear' or 'log'", "got 'sqrt'"),
    "one bin": (lambda: Numeric(0, 1, bins=1), "from 2 to 65000", "got 1."),
    "falling knots": (
        lambda: Numeric(0, 1, knots=(0, 0.5, 0.5, 1)),
        "increase from low to high",
        "got (0.0, 0.5, 0.5, 1.0).",
    ),
    "knots inside": (
        lambda: Numeric(0, 1, knots=(0, 0.5)),
        "increase from low to high",
        "got (0.0, 0.5).",
    ),
    "many bins": (lambda: Numeric(0, 1, bins=65001), "2 to 65000", "got 65001"),
    "missing below": (lambda: Numeric(0, 1, missing=-1), "missing must", "got -1"),
    "missing above": (lambda: Numeric(0, 1, missing=2), "in [low, high]", "got 2"),
    "missing nan": (lambda: Numeric(0, 1, missing=math.nan), "missing", "got nan"),
    "missing and indicator": (
        lambda: Numeric(0, 1, missing=1, indicator=True),
        "cannot be combined",
        "got missing=1",
    ),
    "no level": (lambda: Categorical([]), "1 to 65000 levels", "got 0"),
    "many levels": (lambda: Categorical(range(65001)), "65000 levels", "got 65001"),
    "level twice": (lambda: Categorical(["a", "a"]), "distinct", "got ['a']"),
    "1 and 1.0": (lambda: Categorical([1, 1.0]), "distinct", "got ['1']"),
    "1 and '1'": (lambda: Categorical([1, "1"]), "distinct", "got ['1']"),
    "True and 'true'": (lambda: Categorical([True, "true"]), "distinct", "['true']"),
    "unknown other": (lambda: Categorical(["a"], other="b"), "other must", "got 'b'"),
    "no names": (lambda: Vector([]), "at least one column name", ""),
    "name twice": (lambda: Vector(["a", "a"]), "no name may repeat", ""),
    "norm zero": (lambda: Vector(["a"], norm=0.0), "positive and finite", "got 0.0"),
    "norm negative": (lambda: Vector(["a"], norm=-1.0), "positive", "got -1.0"),
    "norm nan": (lambda: Vector(["a"], norm=math.nan), "finite", "got nan"),
    "norm infinite": (lambda: Vector(["a"], norm=math.inf), "finite", "got inf"),
    "no column": (lambda: Schema({}), "at least one column", ""),
    "target among columns": (
        lambda: Schema(X, target=("x", Numeric(0, 1))),
        "only once",
        "got ['x']",
    ),
    "column in a vector": (
        lambda: Schema(X | {"text": Vector(["x", "y"])}),
        "only once",
        "got ['x']",
    ),
    "column in two vectors": (
        lambda: Schema({"s": Vector(["x"]), "t": Vector(["x"])}),
        "only once",
        "got ['x']",
    ),
    "target in a vector": (
        lambda: Schema({"t": Vector(["x", "y"])}, target=("y", Numeric(0, 1))),
        "only once",
        "got ['y']",
    ),
    "row_norm zero": (lambda: Schema(X, row_norm=0.0), "above √0", "got 0.0"),
    "row_norm nan": (lambda: Schema(X, row_norm=math.nan), "row_norm must", "got nan"),
    "row_norm infinite": (lambda: Schema(X, row_norm=math.inf), "finite", "got inf"),
    "row_norm of codes": (
        lambda: Schema(X | TWO_CODES, row_norm=math.sqrt(2.0) - 1e-9),
        "above √2, the norm of categories, bins and curves alone",
        "got 1.41",
    ),
    "no target": (lambda: Schema(X).target_column, "has no target", "target=(name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_public_mistake_is_refused_with_its_value(case):
    make, rule, value = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(rule)) as refusal:
        make()
    message = str(refusal.value)
    assert value in message
    assert message.endswith(".")
    assert "\n" not in message
    assert len(re.findall(r"[.:] [A-Z]", message)) <= 1, "one sentence, and what it got"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Numeric(0, 5e-324),
        lambda: Numeric(-8e307, 8e307, scale="log"),
        lambda: Numeric(0, 1, bins=2, missing=0),
        lambda: Numeric(0, 1, bins=65000, indicator=True),
        lambda: Categorical(["a"]),
        lambda: Categorical(range(65000), other=64999.0),
        lambda: Categorical([True, False, 1, 0, "True"], other=np.bool_(True)),
        lambda: Vector(["a"], norm=5e-324),
        lambda: Schema(X, target=Numeric(0, 1)),
        lambda: Schema(X | TWO_CODES, row_norm=1.5),
        lambda: Schema(X, row_norm=1e-9),
    ],
)
def test_what_is_at_the_edge_of_a_rule_is_taken(make):
    make()


# ------------------------------------------------------------------------- categories


@pytest.mark.parametrize(
    ("value", "key"),
    [
        *[(one, "1") for one in (1, 1.0, "1", np.int8(1), np.float32(1), np.str_("1"))],
        *[(true, "true") for true in (True, np.bool_(True), "true")],
        *[(false, "false") for false in (False, np.bool_(False))],
        *[(zero, "0") for zero in (0, -0.0, np.float64(-0.0), np.uint16(0))],
        (0.5, "0.5"),
        (np.float64(0.5), "0.5"),
        ("1.0", "1.0"),
        ("True", "True"),
        (" a", " a"),
        (1e22, "1" + 22 * "0"),
        (2**70, str(2**70)),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (np.float32(math.nan), "nan"),
        (None, "None"),
    ],
)
def test_a_level_is_known_by_its_key(value, key):
    assert level_key(value) == key


@given(st.integers(-(2**53), 2**53))
def test_an_integer_is_one_level_whatever_its_type(value):
    assert level_key(value) == level_key(float(value)) == level_key(str(value))
    assert level_key(value) == level_key(np.int64(value))


def test_unknown_values_touch_nothing_or_fall_on_other():
    assert Categorical(["a", "b"]).default_code == 2
    assert Categorical(["a", "b"], other="b").default_code == 1
    assert Categorical([1, 2], other="2").default_code == 1
    assert Categorical([False, True], other="true").default_code == 1
    assert Categorical(["a", 1.0, True]).codes == {"a": 0, "1": 1, "true": 2}


# ---------------------------------------------------------------------------- numbers


@given(
    st.lists(st.floats(), min_size=1),
    st.sampled_from(["linear", "log"]),
    st.sampled_from([(0.0, 1.0), (-5.0, 1e5), (0.0, 5e-324), (-8e307, 8e307)]),
    st.booleans(),
)
@np.errstate(over="ignore")  # numpy 1 divides what fills its registers too
def test_scaled_numbers_are_in_the_unit_interval_in_order(values, scale, ends, given):
    column = Numeric(*ends, scale=scale, missing=ends[1] if given else None)
    scaled, missing = column.rescale(
        np.array(sorted(values, key=lambda v: (v != v, v)))
    )
    assert missing.sum() == sum(math.isnan(value) for value in values)
    assert np.all((scaled >= 0) & (scaled <= 1))
    assert np.all(np.diff(scaled[~missing]) >= 0)
    ends_scaled, _ = column.rescale(np.array([-math.inf, *ends, math.inf]))
    assert ends_scaled == pytest.approx([0, 0, 1, 1], abs=1e-15)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_end_of_a_range_is_at_most_one(scale):
    """The largest value is divided by the length of the range, which is rounded too."""
    rng = np.random.default_rng(0)
    ends = [(2**53 + 1, 2**54 + 3), (-(2**60) - 1, 2**60 + 1), (0.1, 0.3), (-1e300, 3)]
    drawn = rng.normal(size=(300, 2)) * 10.0 ** rng.integers(-9, 9, (300, 1))
    for low, high in [*ends, *np.sort(drawn).tolist()]:
        column = Numeric(low, high, scale=scale)
        near = np.nextafter(float(high), [-math.inf, high, math.inf])
        scaled, _ = column.rescale(np.array([*near, low, math.nan]))
        assert 0.0 <= scaled.min() <= scaled.max() <= 1.0


def test_a_missing_number_is_the_middle_of_its_range_unless_it_is_given():
    nan = np.array([math.nan])
    assert Numeric(2, 4).rescale(nan)[0].tolist() == [0.5]
    assert Numeric(2, 4, missing=4).rescale(nan)[0].tolist() == [1.0]
    log = Numeric(0, math.e**2 - 1, scale="log", missing=math.e - 1)
    assert log.rescale(nan)[0] == pytest.approx([0.5])


# ----------------------------------------------------------------------------- layout


def test_the_layout_names_every_coordinate_once():
    columns = {
        "x": Numeric(0, 1),
        "gap": Numeric(0, 1, indicator=True),
        "bins": Numeric(0, 1, bins=2, indicator=True),
        "job": Categorical(["a", 1]),
        "text": Vector(["t0", "t1"]),
    }
    schema = Schema(columns, target=("y", Numeric(0, 1)), row_norm=3.0)
    layout = schema.layout()
    names = "x gap gap? bins#0 bins#1 bins? job=a job=1 t0 t1 intercept"
    assert layout.labels == names.split()
    kinds = ["dense", "dense", "code", "code", "dense", "ones"]
    assert [group.kind for group in layout.groups] == kinds
    assert [group.signed for group in layout.groups] == [False] * 4 + [True, False]
    assert layout.group_of.tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5]
    assert np.concatenate(layout.blocks).tolist() == list(range(11))
    assert layout.penalised.tolist() == [1.0] * 10 + [0.0]
    assert layout.absolute_sum == pytest.approx(1 + 2**0.5 + 1 + 1 + 2**0.5 + 1)
    assert schema.layout(False).labels == layout.labels[:-1]
    assert layout.row_norm == 3.0
    assert schema.inputs == ("x", "gap", "bins", "job", "t0", "t1")
    assert (schema.target_name, schema.target_column) == ("y", Numeric(0, 1))
    bare = Schema(columns, target=Numeric(0, 2))
    assert (bare.target_name, bare.target_column) == (None, Numeric(0, 2))


COPIES = [copy.copy, copy.deepcopy, replace, lambda x: pickle.loads(pickle.dumps(x))]


@pytest.mark.parametrize(
    "copied", COPIES, ids=["copy", "deepcopy", "replace", "pickle"]
)
def test_copies_have_the_same_facts_and_read_only_arrays(copied):
    columns = {
        "x": Numeric(1, 4, "log", knots=3, indicator=True),
        "gap": Numeric(0, 1),
        "job": Categorical(["a", "b"], other="b"),
        "text": Vector(["t0", "t1"]),
        "both": Pair("x", "job", knots=4),
    }
    schema = Schema(columns, target=("y", Numeric(0, 1)), unit=["p", "q"])
    layout = schema.layout()
    for made in (schema, *schema.columns.values(), layout, *layout.groups):
        facts = [one.name for one in fields(made) if not one.init]
        same = copied(made)
        assert facts
        assert (same, repr(same)) == (made, repr(made))
        for name in facts:
            value = getattr(same, name)
            np.testing.assert_equal(value, getattr(made, name))
            assert name not in repr(made)
            for array in value if isinstance(value, tuple) else (value,):
                assert not isinstance(array, np.ndarray) or not array.flags.writeable


def test_a_changed_description_has_its_own_facts():
    curve = Numeric(0, 8, knots=5)
    bins = replace(curve, knots=None, bins=3, low=2, indicator=True)
    assert (curve.kind, curve.n_knots, curve.width, curve.axes) == ("hats", 5, 5, (5,))
    assert (curve.sides, curve.default, curve.span) == (((5, 5),), 4.0, 8)
    assert (bins.kind, bins.n_knots, bins.width, bins.axes) == ("code", None, 4, ())
    assert (bins.sides, bins.default, bins.span) == ((), 5.0, 6)
    layout = Schema({"x": curve}, unit="p").layout()
    row = replace(layout, unit=None, groups=layout.groups[1:])
    assert (layout.counted, layout.n_features) == ("persons", 6)
    assert (row.counted, row.n_features, row.absolute_sum) == ("rows", 1, 1.0)


def random_layout(draw, row_norm):
    groups, start = [], 0
    for kind in draw(
        st.lists(st.sampled_from(["dense", "code"]), min_size=1, max_size=3)
    ):
        labels = ("c",) * draw(st.integers(1, 3))
        groups.append(Group(name=kind, kind=kind, start=start, labels=labels))
        start += len(labels)
    if draw(st.booleans()):
        ones = Group(name="intercept", kind="ones", start=start, labels=("i",))
        groups.append(ones)
    return Layout(groups=tuple(groups), row_norm=row_norm)


def extreme_rows(layout):
    """Squares of the rows at the corners: a one in each group, or none."""
    sides = []
    for group in layout.groups:
        corners = np.eye(group.width)
        none = np.zeros((int(group.kind != "ones"), group.width))
        sides.append(np.vstack([corners, none]))
    return [np.concatenate(parts) for parts in itertools.product(*sides)]


@given(st.data())
def test_the_squared_norm_is_the_largest_over_extreme_rows(data):
    layout = random_layout(data.draw, None)
    d = layout.n_features
    at = np.array(
        data.draw(st.lists(st.sampled_from(range(d)), unique=True)), dtype=int
    )
    weight = st.floats(1e-6, 1e6)
    weights = np.array(data.draw(st.lists(weight, min_size=len(at), max_size=len(at))))
    rows = extreme_rows(layout)
    for given_weights, used in ((weights, weights), (None, np.ones(len(at)))):
        brute = max(float(used @ row[at]) for row in rows)
        got = layout.squared_norm(at, given_weights)
        assert got == pytest.approx(brute, rel=1e-12, abs=0.0)


@given(st.data())
def test_the_squared_norm_bounds_rows_under_a_row_norm(data):
    """Greedy fill: the most that weights can gather within row_norm² of squares."""
    row_norm = data.draw(st.floats(0.1, 2.5))
    layout = random_layout(data.draw, row_norm)
    at = np.arange(layout.n_features)
    weight = st.floats(1e-3, 1e3)
    weights = np.array(data.draw(st.lists(weight, min_size=len(at), max_size=len(at))))
    inside = [
        float(weights[group.coordinates].max())
        for group in layout.groups
        if group.kind != "ones"
    ]
    ones = sum(weights[g.start] for g in layout.groups if g.kind == "ones")
    room, greedy = row_norm**2, 0.0
    for most in sorted(inside, reverse=True):
        greedy += min(1.0, room) * most
        room -= min(1.0, room)
    got = layout.squared_norm(at, weights)
    assert got >= (greedy + ones) * (1 - 1e-12)
    assert got <= (sum(inside) + ones) * (1 + 1e-12)
    equal = layout.squared_norm(at)  # with equal weights the bound is the supremum
    wanted = min(row_norm**2, len(inside)) + (ones > 0)
    assert equal == pytest.approx(wanted)


# --------------------------------------------------- public and wrong, in other ways


@pytest.mark.parametrize("row_norm", [1e200, -3.0])
def test_row_norm_is_positive_and_its_square_finite(row_norm):
    with pytest.raises(ValueError, match="row_norm"):
        Schema(X, row_norm=row_norm)


def test_bins_are_a_whole_number():
    with pytest.raises(ValueError, match="bins"):
        Numeric(0, 1, bins=2.5)


def test_a_printed_schema_names_the_unit():
    schema = Schema({"x": Numeric(0, 1)}, target=Numeric(0, 1), unit="patient")
    said = "all rows with the same patient are one person"
    assert str(schema).splitlines()[-1] == said
    assert said in schema._repr_html_()
    assert repr(schema) == "<Schema: 1 column, target, unit patient>"
