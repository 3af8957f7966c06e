"""Reading a file gives a typed value or an error of one short sentence."""

import json
import math
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, field

from skdp.typed_files import (
    Count,
    Epsilon,
    Form,
    Value,
    parse_json,
    read_file,
    to_json,
    write_json,
)


class Example(Form, frozen=True, kw_only=True):
    count: Count = 0
    rate: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    epsilon: Epsilon = 1.0
    values: dict[str, Value] = field(default_factory=dict)


def parse(text):
    return parse_json(text, Example, "x.json is not an example")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the text ends too early"),
        ("[]", "expected a table, got a list"),
        ('{"count": true}', "expected an integer, got true or false at count"),
        ('{"count": 1.0}', "expected an integer, got a number at count"),
        ('{"count": -1}', "expected an integer >= 0 at count"),
        ('{"count": 1e999}', "a number is out of range"),
        ('{"count": %s}' % ("9" * 9999), "an integer is out of range at count"),
        ('{"rate": NaN}', "it is not JSON"),
        ('{"rate": 1}', "expected a number < 1.0 at rate"),
        ('{"epsilon": "nan"}', "at epsilon"),
        ('{"more": 1}', "unknown key `more`"),
        ('{"\\u001b[2J": 1}', "unknown key `\\x1b[2J`"),
        ('{"values": {"a": {}}}', "or text or a list, got a table at values"),
        ('{"values": {"a": 1%s}}' % ("0" * 400), "too many digits"),
        ('{"values": {"a": [[1%s]]}}' % ("0" * 400), "too many digits"),
        ('{"values": {"a": %s' % ("[" * 9999), "at values"),
    ],
    ids=range(16),
)
def test_what_is_wrong_is_said_with_its_place(text, sentence):
    with pytest.raises(ValueError, match="is not an example: ") as error:
        parse(text)
    assert sentence in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda t: t.encode()))
def test_nothing_else_is_raised(text):
    with pytest.raises(ValueError, match="example"):
        parse(b"[" + text)


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.none()
        | st.booleans()
        | st.integers(-(10**299), 10**299)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3)),
    )
)
def test_values_survive_with_their_types(values):
    text = write_json(Example(values=values), "an example")
    assert repr(parse(text).values) == repr(values)


def test_numbers_of_numpy_and_infinity_are_written():
    given = {"a": np.float64(0.5), "b": np.int16(3), "c": np.bool_(True)}
    form = Example(epsilon=to_json(np.float64(math.inf)), values=given)
    again = parse(write_json(form, "an example"))
    assert float(again.epsilon) == math.inf
    assert again.values == {"a": 0.5, "b": 3, "c": True}


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {"a": 1}, 10**400])
def test_what_could_not_be_read_again_is_not_written(value):
    with pytest.raises(ValueError, match="example"):
        write_json(Example(values={"a": value}), "an example")


def test_files_are_bounded(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(ValueError, match="There is no file"):
        read_file(path, 9)
    path.write_text(json.dumps("1234567"))
    assert read_file(path, 9) == b'"1234567"'
    with pytest.raises(ValueError, match="larger than"):
        read_file(path, 8)
    with pytest.raises(ValueError, match="is a directory"):
        read_file(tmp_path, 9)
