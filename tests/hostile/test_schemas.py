"""Schema files of any content: a schema, or a sentence."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import command, fuzzed, limited

from skdp import Categorical, Numeric, Schema
from skdp.schema import toml_files

TARGET = '[target]\nname = "y"\nkind = "categorical"\nlevels = [0, 1]\n'
KEYS = ["kind", "low", "high", "scale", "bins", "missing", "indicator", "levels"]
KEYS += ["other", "names", "norm", "row_norm", "name", "columns", "target", "é", "''"]
VALUES = [
    *('"numeric"', '"categorical"', '"vector"', '"log"', '"?"', '""', '"a\\u0000b"'),
    *("0", "1", "-1", "2", "65000", "65001", "1e308", "-1e308", "5e-324", "1e-300"),
    *("nan", "inf", "-inf", "true", "1" + "0" * 400, "9" * 5000, "0x" + "f" * 5000),
    *("[]", "[[]]", "[0, 1]", '["a", "a"]', '[1, "1", 1.0]', "[nan]", "[1979-05-27]"),
    *("{}", "{a = 1}", "07:32:00", "1979-05-27T07:32:00Z", "[" * 3000, "{a=" * 3000),
    *(
        '"""',
        "'''",
        '"\\ud800"',
        '"\\u001b[2J"',
        "[" + '"a",' * 3 + "]",
        "[1" + "0" * 400 + "]",
    ),
]
LINES = st.builds("{} = {}\n".format, st.sampled_from(KEYS), st.sampled_from(VALUES))
HEADS = st.sampled_from(
    [
        *("[columns.a]\n", "[columns.b]\n", '[columns."\\u001b"]\n', "[target]\n"),
        *("[columns]\n", "[[columns]]\n", "[a.b.c]\n", "[columns.a.b]\n", "["),
    ]
)
TEXTS = st.lists(LINES | HEADS, max_size=8).map("".join) | st.text(max_size=60)


@fuzzed(100)
@given(text=TEXTS, whole=st.booleans())
def test_any_text(text, whole):
    text = f"{text}\n{TARGET}" if whole else text
    try:
        schema = toml_files.loads(text)
    except ValueError as error:
        said = str(error)
        assert "\n" not in said.strip()
        assert len(said) < 5000
        return
    assert toml_files.loads(toml_files.dumps(schema)) == schema


@fuzzed(8)
@given(content=TEXTS.map(lambda text: text.encode("utf-8", "replace")) | st.binary())
def test_any_file(place, content):
    Path("any.toml").write_bytes(content)
    assert command("plan", "--schema", "any.toml", "--rows", "100")[0] in (0, 2)


@pytest.mark.parametrize(
    "line",
    [
        "x = " + "[" * 5000,
        "x = " + "{a=" * 5000,
        "[" + "a." * 50_000 + "a]",
        "a . 'b' ." * 50_000 + "a = 1",
        "x = [{y = 1, " + '"," . ' * 50_000 + "a = 1}]",
        "row_norm = " + "9" * 5000,
        f"[columns.a]\nkind = 'numeric'\nlow = 0\nhigh = 1{'0' * 400}",
        f"[columns.a]\nkind = 'categorical'\nlevels = [1{'0' * 400}]",
        f"[columns.a]\nkind = 'numeric'\nlow = 0\nhigh = 0x{'f' * 5000}",
    ],
    ids=[
        *("lists", "tables", "header", "key", "key inside"),
        *("digits", "high", "level", "hexadecimal"),
    ],
)
def test_depth_and_digits_are_refused_in_a_short_sentence(line):
    with limited(), pytest.raises(ValueError, match="nested") as error:
        toml_files.loads(f"{line}\n{TARGET}")
    assert len(str(error.value)) < 400


def test_dots_that_nest_nothing():
    levels = ["a." * 200, "." * 200, "0.5", *(i / 1000 for i in range(99))]
    schema = Schema({"x.y": Categorical(levels)}, target=Numeric(0, 1))
    assert toml_files.loads(toml_files.dumps(schema)) == schema


def test_more_bins_than_weights_fit_into_memory(place):
    column = "[columns.c{}]\nkind = 'numeric'\nlow = 0\nhigh = 1\nbins = 65000\n"
    Path("s.toml").write_text(TARGET + "".join(map(column.format, range(99))))
    code, _, err = command("plan", "--schema", "s.toml", "--rows", "100")
    assert (code, err.count("\n")) == (2, 1)
    assert "got 4,225,000 up to column 'c64'" in err


def test_a_file_without_an_end(place):
    os.truncate("s.toml", 1 << 40)
    code, _, err = command("plan", "--schema", "s.toml", "--rows", "100")
    assert (code, err.count("\n")) == (2, 1)
    assert "larger than 16 MiB" in err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1", "cp037", "utf-7"])
def test_other_encodings(place, encoding):
    text = Path("s.toml").read_text("utf-8").replace('"a"', '"é"')
    Path("s.toml").write_bytes(text.encode(encoding))
    code, _, err = command("plan", "--schema", "s.toml", "--rows", "100")
    assert (code, err.count("\n")) == ((0, 0) if encoding == "utf-7" else (2, 1))


def test_something_else_than_a_file(place):
    Path("folder").mkdir()
    for name in ("folder", "/dev/zero", "missing", "", "/", "s.toml/x", "x" * 5000):
        code, _, err = command("plan", "--schema", name, "--rows", "100")
        assert code == 2
        assert err.count("\n") == 1
