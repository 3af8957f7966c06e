"""Every bad input ends in an exit code and a sentence, never in a traceback."""

import os
import string
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skdp
from skdp import cli
from skdp.schema import toml_files

SCHEMA = skdp.Schema(
    {"age": skdp.Numeric(0, 100), "job": skdp.Categorical(["a", "b"])},
    target=("y", skdp.Categorical([0, 1])),
)
SETTINGS = settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def command(arguments, capsys):
    """Exit code and what was shown; anything but an exit is an error of the test."""
    sys.argv = ["skdp", *arguments]
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    shown = capsys.readouterr()
    return stopped.value.code, shown.out, shown.err


@pytest.fixture
def place(here):
    toml_files.write(SCHEMA, "s.toml")
    pd.DataFrame({"age": [1, 2] * 20, "job": ["a", "b"] * 20, "y": [0, 1] * 20}).to_csv(
        "t.csv", index=False
    )
    (here / "folder.csv").mkdir()
    (here / "empty.csv").touch()
    return here


WORDS = st.sampled_from(
    [
        *("demo", "schema", "plan", "fit", "predict", "compare", "ledger", "nothing"),
        *("--schema", "--epsilon", "--out", "--rows", "--target", "--delta", "--json"),
        *("--model", "--neighbours", "--seed", "--ledger", "--force", "--total", "-q"),
        *("--score", "--threads", "--probabilities", "--version", "--help", "--"),
        *("s.toml", "t.csv", "empty.csv", "folder.csv", "missing.csv", "m", ".", ""),
        *("0", "1", "-1", "nan", "inf", "1e400", "1e-9", "9" * 30, "y", "age", "é\n"),
        *("svc", "poisson", "zero-out", "add-remove", "\udcff", "out.csv"),
    ]
)
#: Mostly well formed, so that commands are reached.
FITS = st.tuples(
    st.just(["fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "m"]),
    st.lists(WORDS, max_size=3),
).map(lambda pair: pair[0] + pair[1])


@SETTINGS
@given(arguments=st.lists(WORDS, max_size=8) | FITS)
def test_any_arguments(place, capsys, arguments):
    # A demo of many rows would be long, not wrong; an audit takes its minutes.
    if "demo" in arguments[:1]:
        arguments = ["demo", "--rows", "50", "-q", *arguments[1:]]
    code, out, err = command(arguments, capsys)
    assert code in (0, 1, 2), (arguments, err)
    assert "Traceback" not in out + err
    assert code == 0 or err
    assert code != 2 or "--json" not in arguments or out == ""


CELLS = st.text(string.printable + "é\0\ud800", max_size=8)
CONTENTS = st.binary(max_size=300) | st.lists(
    st.lists(CELLS, max_size=5), max_size=6
).map(
    lambda rows: "\n".join(["age,job,y", *map(",".join, rows)]).encode(
        "utf-8", "surrogatepass"
    )
)


@SETTINGS
@given(content=CONTENTS, suffix=st.sampled_from(["csv", "tsv", "parquet", "toml"]))
def test_any_file(place, capsys, content, suffix):
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / f"file.{suffix}"
        path.write_bytes(content)
        if suffix == "toml":
            commands = [["plan", "--schema", str(path), "--rows", "10"]]
        else:
            fit = ["fit", str(path), "--schema", "s.toml", "--epsilon", "1"]
            commands = [["schema", str(path)], [*fit, "--out", f"{folder}/m"]]
        for arguments in commands:
            code, out, err = command(arguments, capsys)
            assert code in (0, 2), err
            assert "Traceback" not in out + err
            assert code == 0 or err.startswith("skdp: ")


ODD = ["", "secret", "nan", "-1e999", "\0", "9" * 400, '"', "2", "0x1", "ä", "1_0"]


@pytest.mark.parametrize("column", [0, 1, 2])
def test_no_cell_shows_in_what_is_said(place, capsys, column):
    """One odd record changes neither the exit code nor a character of the output."""
    lines = (place / "t.csv").read_text().splitlines()
    shown = set()
    for cell in ODD:
        cells = lines[1].split(",")
        cells[column] = cell.replace('"', '""').join('""')
        text = "\n".join([lines[0], ",".join(cells), *lines[2:]])
        (place / "odd.csv").write_text(text, newline="")
        fit = ["fit", "odd.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "m"]
        given = ["--rows", "20"]  # sentences about a released number are noisy
        shown.add(command([*fit, *given, "--force"], capsys))
    assert len(shown) == 1
    assert shown.pop()[0] == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit", "t.csv", "--delta=1e-9", "--delta=1e-8"], "--delta may be given only"),
        (["fit", "t.csv", "--rows", "20,000"], "--rows"),
        (["fit", "missing.csv"], "There is no file 'missing.csv'"),
        (["fit", "folder.csv"], "There are no files in 'folder.csv'"),
        (["fit", "."], "The file name must end in"),
        (["fit", "empty.csv"], "has no header line"),
        (
            ["fit", "none.csv", "--neighbours", "replace-one"],
            "The table has no rows.",
        ),
        (["fit", "none.csv", "--neighbours", "zero-out"], "The table has no rows"),
        (["fit", "wide.csv"], "UTF-8"),
        (["fit", "t.csv", "--schema", "missing.toml"], "There is no file"),
        (["fit", "t.csv", "--schema", "t.csv"], "The schema 't.csv' is not TOML"),
        (["fit", "t.csv", "--schema", "folder.csv"], "'folder.csv' is a directory"),
        (["fit", "t.csv", "--schema", "wide.csv"], "UTF-8"),
        (["fit", "t.csv", "--out", "empty.csv/m"], "is not writable"),
        (["fit", "t.csv", "--out", "folder.csv"], "exists"),
        (["fit", "t.csv", "--out", "dangling"], "exists"),
        (["fit", "t.csv", "--epsilon", "0"], "epsilon must be positive"),
        (["fit", "t.csv", "--model", "logistik"], "'--model': 'logistik' is not one"),
        (["fit", "t.csv", "--delta", "1"], "delta must be"),
        (["fit", "t.csv", "--target", "job"], "--target must be the schema's"),
        (["fit", "t.csv", "--model", "huber"], "needs a numeric target"),
        (["fit", "t.csv", "--ledger", "missing"], "There is no ledger"),
        (["fit", "t.csv", "--ledger", "empty.csv"], "ledger"),
        (["fit", "t.csv", "--threads", "0"], "--threads"),
        (["fit", "bad.parquet"], "could not be read"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(place, capsys, words, sentence):
    Path("wide.csv").write_bytes("age,job,y\n1,a,0\n".encode("utf-16"))
    Path("none.csv").write_text("age,job,y\n")
    Path("bad.parquet").write_bytes(b"PAR1 and then nothing")
    os.symlink("nowhere", "dangling")
    usual = {"--schema": "s.toml", "--epsilon": "1", "--out": "m"}
    kept = [part for pair in usual.items() if pair[0] not in words for part in pair]
    words = [*words[:2], *kept, *words[2:]]
    code, out, err = command(words, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("skdp: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert not Path("m").exists()


def test_a_private_number_of_rows_may_be_none(place, capsys):
    """A table without rows gets the same message as one with rows."""
    Path("none.csv").write_text("age,job,y\n")
    shown = set()
    for name in ("none.csv", "t.csv"):
        fit = ["fit", name, "--schema", "s.toml", "--epsilon", "1", "--out", "m"]
        more = ["--neighbours", "add-remove", "--rows", "40", "--force"]
        shown.add(command([*fit, *more], capsys))
    assert len(shown) == 1
    assert shown.pop()[0] == 0


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_header_is_utf8(place, capsys, delimiter):
    header, row = delimiter.join(["age", "job", "y", "âge"]), delimiter.join("1a0é")
    Path("latin.csv").write_bytes(f"{header}\n{row}\n".encode("latin-1"))
    usual = ["--schema", "s.toml", "--epsilon", "1", "--out", "m"]
    assert command(["fit", "t.csv", *usual], capsys)[0] == 0
    for words in (
        ["schema", "latin.csv"],
        ["fit", "latin.csv", *usual, "--force"],
        ["predict", "m", "latin.csv", "--out", "p.csv"],
    ):
        code, out, err = command(words, capsys)
        assert (code, out) == (2, "")
        assert err.startswith("skdp: The header of 'latin.csv' is not UTF-8. State")
    # Cells may be anything.
    Path("latin.csv").write_bytes("age,job,y\n1,é,0\n".encode("latin-1"))
    assert command(["fit", "latin.csv", *usual, "--force"], capsys)[0] == 0


def test_a_mistake_of_ours_quotes_nothing(place, capsys, monkeypatch):
    def broken(*_, **__):
        raise KeyError("the cell of a record")

    monkeypatch.setattr(skdp.LogisticRegression, "fit", broken)
    fit = ["fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "m"]
    code, out, err = command(fit, capsys)
    assert (code, out) == (70, "")
    assert "KeyError" in err
    assert "record" not in err.replace("may quote records", "")


def test_messages_of_other_libraries_are_not_shown(place, capsys, monkeypatch):
    pa = pytest.importorskip("pyarrow")

    def broken(*_, **__):
        raise pa.ArrowInvalid("the cell of a record")

    monkeypatch.setattr(skdp.LogisticRegression, "fit", broken)
    fit = ["fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "m"]
    code, _, err = command(fit, capsys)
    assert code == 2
    assert "cell of a record" not in err
