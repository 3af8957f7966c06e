"""Files of records of any content: one record never shows, one file never hangs."""

import os
import string
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import command, files, fuzzed

from skdp import Ledger

FIT = ["--schema", "s.toml", "--epsilon", "1", "--out", "m", "--force", "--seed", "0"]
CELLS = st.sampled_from(
    [
        *(
            "",
            " ",
            "1",
            "a",
            "0",
            "nan",
            "NaN",
            "inf",
            "-inf",
            "1e308",
            "-1e309",
            "0x1",
        ),
        *(
            "9" * 400,
            "9" * 5000,
            "1" * 100_000,
            '"',
            '""',
            '"a',
            'a"b',
            "\0",
            "\r",
            "\n",
        ),
        *("é", "\ud800", "١", "1_0", "1,5", ";", "\t", "|", "=1+1", "\ufeff", "True"),
    ]
) | st.text(string.printable, max_size=4)
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "utf-7", "cp037"]


def encoded(text, encoding):
    how = "surrogatepass" if encoding.startswith("utf-8") else "replace"
    return text.encode(encoding, how)


TABLES = st.builds(
    lambda rows, end, encoding, cut: encoded(
        end.join(map(",".join, [["age", "job", "y"], *rows])), encoding
    )[: cut or None],
    st.lists(st.lists(CELLS, max_size=5), max_size=6),
    st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"]),
    st.sampled_from(["utf-8"] * 5 + ENCODINGS),
    st.sampled_from([0, 0, 0, -1, -2, 15]),
)


@fuzzed(20)
@given(content=TABLES | st.binary(max_size=200))
def test_any_csv(place, content):
    Path("any.csv").write_bytes(content)
    before = files(place)
    command("schema", "any.csv")
    assert files(place) == before
    code = command("fit", "any.csv", *FIT)[0]
    if code == 0:
        command("predict", "m", "any.csv", "--out", "p.csv", "--force")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"age,job,y\n", 0),
        (b"age,job,y", 0),
        (b"age,job,y\n1,a,0\n", 0),
        (b"age\n1\n", 2),
        (b"age,age,job,y\n1,2,a,0\n", 2),
        (b"age,job,y\n" + b"\n" * 20, 0),
        (b'age,job,y\n"1,a,0\n' + b"2,b,1\n" * 20, 0),
        (b'"age,job,y\n' + b"2,b,1\n" * 20, 2),
        (b"age,job,y\n" + b"1," * 10_000 + b"\n", 0),
        (b"age,job,y\n" + b"x" * (1 << 22) + b",a,0\n", 0),
        (b"\xef\xbb\xbfage,job,y\n1,a,0\n" * 2, 0),
        ("age,job,y\n1,a,0\n".encode("utf-16"), 2),
        (b"\0" * 1000, 2),
        (b"a" * (1 << 20), 2),
        (b"," * (1 << 16) + b"age,job,y\n", 0),
    ],
    ids=range(15),
)
def test_odd_files(place, content, code):
    """A table without rows is as good as any: whether it has one is private."""
    Path("odd.csv").write_bytes(content)
    assert command("fit", "odd.csv", *FIT)[0] == code


@pytest.mark.parametrize("content", [b"age,job,y\n", b"age,job,y"])
def test_files_without_rows_are_refused_where_their_number_is_public(place, content):
    Path("odd.csv").write_bytes(content)
    assert command("fit", "odd.csv", *FIT, "--neighbours", "replace-one")[0] == 2


@pytest.mark.parametrize("letter", ["\x1b", "\x7f", "\x9b", "\u2028", "\U000e0001"])
def test_no_name_of_a_column_or_file_moves_the_cursor(place, letter):
    Path("odd.csv").write_text(f"a{letter}b,y\n1,0\n2,1\n", "utf-8")
    for words in ([], ["--json"], ["--out", f"t{letter}.toml"]):
        code, out, _ = command("schema", "odd.csv", *words)
        assert code == 0
        assert letter not in out
    text = Path(f"t{letter}.toml").read_text("utf-8")
    assert f"a{letter}b" in tomllib.loads(text)["columns"]


def test_a_header_that_never_ends_is_given_up(place):
    with open("long.csv", "wb") as file:
        file.write(b'"age,job,y')
        file.truncate(1 << 34)  # sparse: it takes no room, but minutes to read
    code, _, err = command("fit", "long.csv", *FIT)
    assert (code, err.count("\n")) == (2, 1)
    assert "header" in err


def test_thousands_of_categories(place):
    levels = ", ".join(f'"c{i}"' for i in range(4_000))
    target = '[target]\nname = "y"\nkind = "categorical"\nlevels = [0, 1]\n'
    column = f'[columns.job]\nkind = "categorical"\nlevels = [{levels}]\n'
    Path("s.toml").write_text(column + target)
    Path("many.csv").write_text("job,y\n" + "c1,0\nc3999,1\nd,1\n" * 20)
    assert command("fit", "many.csv", *FIT)[0] == 0
    assert command("predict", "m", "many.csv", "--out", "p.csv")[0] == 0


def test_something_else_than_a_file_of_records(place):
    os.mkdir("folder.csv")
    os.mkfifo("pipe.csv")
    os.symlink("loop.csv", "loop.csv")
    os.symlink("/dev/zero", "zero.csv")
    Path("empty.parquet").touch()
    names = ["folder.csv", "pipe.csv", "loop.csv", "zero.csv", "empty.parquet", "x.pkl"]
    for name in [*names, "x" * 5000 + ".csv"]:
        for words in (["schema", name], ["fit", name, *FIT]):
            code, _, err = command(*words)
            assert (code, err.count("\n")) == (2, 1)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "t.parquet"
    columns = {"age": [1.0, 2.0] * 20, "job": ["a", "b"] * 20, "y": [0, 1] * 20}
    pq.write_table(pa.table(columns), path)
    return path.read_bytes()


@fuzzed(20)
@given(data=st.data())
def test_any_parquet(place, parquet, data):
    whole = bytearray(parquet)
    for _ in range(data.draw(st.integers(1, 4))):
        # Most of what decides anything is in the last bytes.
        end = data.draw(st.sampled_from([len(whole), min(len(whole), 600)]))
        at = len(whole) - data.draw(st.integers(0, end))
        more = data.draw(st.binary(max_size=4))
        whole[at : at + len(more)] = more
    Path("any.parquet").write_bytes(bytes(whole)[data.draw(st.integers(0, 1)) :])
    command("schema", "any.parquet")
    command("fit", "any.parquet", *FIT)


COLUMNS = {
    "halves": pa.array(np.array([1.0, np.nan], np.float16)),
    "decimals": pa.array([1, None], pa.decimal256(60, 2)),
    "dates": pa.array([0, 1], pa.date32()),
    "times": pa.array([0, 1], pa.time64("ns")),
    "spans": pa.array([0, 1], pa.duration("s")),
    "moments": pa.array([2**62, None], pa.timestamp("ns", "UTC")),
    "lists": pa.array([[1], None]),
    "structs": pa.array([{"a": 1}, None]),
    "maps": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
    "nulls": pa.nulls(2),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "numbers in a dictionary": pa.array([1, None]).dictionary_encode(),
    "bytes": pa.array([b"\xff", b"a"]),
    "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
    "large": pa.array(["a", "1"], pa.large_string()),
    "views": pa.array(["a", "1"], pa.string_view()),
    "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
    "truth": pa.array([True, None]),
}


@pytest.mark.filterwarnings("ignore:Column .* holds floating-point numbers")
@pytest.mark.parametrize("name", COLUMNS)
def test_any_type_of_parquet(place, name):
    """A column of any type is read, or refused for its type and not for a cell."""
    column = COLUMNS[name]
    for role in ("age", "job"):
        columns = {"age": [1, 2], "job": ["a", "b"], "y": [0, 1]} | {role: column}
        try:
            pq.write_table(pa.table(columns), "odd.parquet")
        except pa.ArrowException:
            pytest.skip("this version of pyarrow cannot write such a file")
        codes = {command("fit", "odd.parquet", *FIT)[0]}
        columns[role] = pa.concat_arrays([column.slice(1, 1)] * 2)
        pq.write_table(pa.table(columns), "odd.parquet")
        codes.add(command("fit", "odd.parquet", *FIT)[0])
        assert len(codes) == 1


@pytest.mark.parametrize(("rows", "public"), [(0, 2), (1, 0)])
def test_none_and_one_record_of_a_parquet_file(place, rows, public):
    columns = {"age": [1.0], "job": ["a"], "y": [0]}
    pq.write_table(pa.table(columns).slice(0, rows), "few.parquet")
    assert command("fit", "few.parquet", *FIT)[0] == 0
    replace = ["--neighbours", "replace-one"]
    assert command("fit", "few.parquet", *FIT, *replace)[0] == public


@pytest.mark.parametrize("kind", [pa.list_, lambda t: pa.struct([("a", t)])])
def test_columns_inside_columns(place, kind):
    """Arrow gives up, not the program."""
    nested = pa.int8()
    for _ in range(500):
        nested = kind(nested)
    columns = {"age": [1.0, 2.0], "job": ["a", "b"], "y": [0, 1]}
    deep = pa.table(columns | {"z": pa.nulls(2, nested)})
    pq.write_table(deep, "deep.parquet")
    for words in (["schema", "deep.parquet"], ["fit", "deep.parquet", *FIT]):
        code, _, err = command(*words)
        assert (code, err.count("\n")) == (2, 1)


OUTPUTS = {
    "schema": ["schema", "t.csv", "--out", "link.csv"],
    "plan": ["plan", "--schema", "s.toml", "--rows", "100", "--out", "link.csv"],
    "export": ["ledger", "export", "l.db", "--out", "link.csv"],
    "predict": ["predict", "m", "t.csv", "--out", "link.csv"],
}


@pytest.mark.parametrize("what", OUTPUTS)
@pytest.mark.parametrize("to", ["precious", "nowhere", "link.csv"])
def test_no_output_goes_where_a_link_leads(place, what, to):
    Ledger("l.db", epsilon=4.0, delta=1e-6)
    assert command("fit", "t.csv", *FIT)[0] == 0
    Path("precious").write_text("mine")
    os.symlink(to, "link.csv")
    before = files(place)
    code, _, err = command(*OUTPUTS[what])
    assert (code, err.count("\n")) == (2, 1)
    assert files(place) == before
    assert command(*OUTPUTS[what], "--force")[0] == 0
    assert not os.path.islink("link.csv")
    after = files(place)
    assert after.pop("link.csv") != before.pop("link.csv")
    assert after == before
