"""Any words after ``skdp``: a code and a sentence, and nothing that was not asked for.

`tests/cli/test_refusals.py` has fits; here are the commands that came later.
"""

import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import command, files, fuzzed

from skdp import Ledger

WORDS = st.sampled_from(
    [
        *("make", "show", "check", "export", "verify", "ledger", "predict", "plan"),
        *("--epsilon", "--delta", "--reserved-delta", "--neighbours", "--schema", "-q"),
        *("--last", "--json", "--form", "--head", "--out", "--force", "--ledger", "--"),
        *("--statement", "--probabilities", "--rows", "--help", "--target", "--model"),
        *(
            "l.db",
            "m",
            "t.csv",
            "s.toml",
            "out.csv",
            ".",
            "",
            "/",
            "missing",
            "x" * 300,
        ),
        *(
            "0",
            "1",
            "-1",
            "nan",
            "inf",
            "1e-9",
            "1e400",
            "9" * 30,
            "9" * 5000,
            "1e-320",
        ),
        *(
            "jsonl",
            "csv",
            "zero-out",
            "é\n",
            "\udcff",
            "\x1b[2J",
            "a\0b",
            "-x",
            "--=",
            "=",
        ),
    ]
)
STARTS = st.sampled_from(
    [
        ["ledger", "make", "new.db", "--epsilon", "1", "--delta", "1e-6"],
        *(["ledger", "show", "l.db"], ["ledger", "check", "l.db"]),
        *(["ledger", "export", "l.db"], ["verify", "m"], ["verify", "m", "--ledger"]),
        ["predict", "m", "t.csv", "--out", "out.csv"],
        ["plan", "--schema", "s.toml", "--rows"],
        *(["ledger"], []),
    ]
)


@pytest.fixture
def stocked(place):
    Ledger("l.db", epsilon=4.0, delta=1e-6)
    fit = ["fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "m"]
    assert command(*fit)[0] == 0
    os.mkdir(place / "inside")
    return place


@fuzzed(40)
@given(start=STARTS, words=st.lists(WORDS, max_size=4))
def test_any_arguments(stocked, start, words):
    os.chdir(stocked / "inside")
    for name in ("l.db", "t.csv", "s.toml"):
        shutil.copy(stocked / name, name)
    shutil.copytree(stocked / "m", "m")
    outside = {k: v for k, v in files(stocked).items() if not k.startswith("inside")}
    try:
        command(*start, *words)
    finally:
        os.chdir(stocked)
        left = {k: v for k, v in files(stocked).items() if not k.startswith("inside")}
        shutil.rmtree("inside")
        os.mkdir("inside")
    assert left == outside
