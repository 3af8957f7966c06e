"""A ledger that somebody else wrote: refused in a sentence, or what it says it is.

`tests/ledger/test_tampering.py` has what must be refused; here is the command line, on
bytes and values that nobody thought of, and on what lies beside the file.
"""

import contextlib
import json
import os
import sqlite3
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import command, files, fuzzed
from test_models import VALUES, places

from skdp import Ledger
from skdp.ledger.log import TRIGGERS, Head

FIT = ["fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--delta", "1e-6"]


class Bytes(bytes):
    """The bytes of a file. Reports of failures do not show them."""

    def __repr__(self):
        return "the ledger"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "l.db"
    made = Ledger(path, epsilon=4.0, delta=1e-6, neighbours="add-remove")
    for settled in (True, False):
        reservation = made.reserve(0.01, neighbours="add-remove", query="q", n_draws=1)
        if settled:
            reservation.settle(0.005)
    return Bytes(path.read_bytes())


def tried(folder):
    """Every command that reads a ledger, on this one; a fit that it pays is entered."""
    before = files(folder).keys()
    for words in (["show", "l.db"], ["check", "l.db"], ["export", "l.db"]):
        code = command("ledger", *words)[0]
    # What SQLite keeps beside a file is gone once somebody has opened it.
    beside = {"l.db-journal", "l.db-wal", "l.db-shm"}
    assert files(folder).keys() - beside == before - beside
    code, _, err = command(*FIT, "--out", "m", "--ledger", "l.db")
    if code == 0:
        assert Ledger("l.db").entries()[-1].kind == "commit"
    else:
        assert err.count("\n") == 1
        assert not Path("m").exists()


def clean():
    for name in ("l.db", "l.db-journal", "l.db-wal", "l.db-shm"):
        Path(name).unlink(missing_ok=True)
    if Path("m").exists():
        for path in Path("m").iterdir():
            path.unlink()
        os.rmdir("m")


@fuzzed(10)
@given(data=st.data())
def test_damaged_bytes(place, ledger, data):
    clean()
    at = data.draw(st.integers(0, len(ledger)))
    more = data.draw(
        st.binary(max_size=6) | st.sampled_from([b"\0" * 99, b"\xff" * 99])
    )
    gone = data.draw(st.sampled_from([0, len(more), 4096, len(ledger)]))
    where = data.draw(st.sampled_from(["l.db", "l.db-journal", "l.db-wal"]))
    if where != "l.db":
        Path("l.db").write_bytes(ledger)
    Path(where).write_bytes(ledger[:at] + more + ledger[at + gone :])
    tried(place)


def forged(rows):
    """Write a history with its hashes and head right, as only a forger would."""
    head, written = Head(), []
    for seq, row in enumerate(rows):
        text = json.dumps(row, separators=(",", ":"))
        head = head.after(text)
        written.append((seq, text, head.hash))
    with contextlib.closing(sqlite3.connect("l.db", isolation_level=None)) as database:
        database.execute("BEGIN")
        for name in TRIGGERS:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM entries")
        database.executemany("INSERT INTO entries VALUES (?, ?, ?)", written)
        database.execute("UPDATE head SET size = ?, hash = ?", (head.size, head.hash))
        for trigger in TRIGGERS.values():
            database.execute(trigger)
        database.execute("COMMIT")


@fuzzed(12)
@given(data=st.data())
def test_forged_values(place, ledger, data):
    clean()
    Path("l.db").write_bytes(ledger)
    with contextlib.closing(sqlite3.connect("l.db")) as database:
        rows = [json.loads(b) for (b,) in database.execute("SELECT body FROM entries")]
    *way, last = data.draw(st.sampled_from(list(places(rows))[1:]))
    at = rows
    for key in way:
        at = at[key]
    at[last] = data.draw(VALUES)
    forged(rows)
    tried(place)


def test_forged_numbers_are_shown_or_refused(place, ledger):
    """Numbers that are not floats, in place of each number."""
    with contextlib.closing(sqlite3.connect("file::memory:", uri=True)) as database:
        database.deserialize(bytes(ledger))
        rows = [json.loads(b) for (b,) in database.execute("SELECT body FROM entries")]
    for row in (0, 1):
        for key in ("mu_squared", "delta", "n_draws", "epsilon", "of"):
            clean()
            Path("l.db").write_bytes(ledger)
            forged([r | {key: 10**400} if r is rows[row] else r for r in rows])
            assert command("ledger", "show", "l.db")[0] == 2
    clean()
    Path("l.db").write_bytes(ledger)
    terms = rows[0]["terms"] | {"mu_squared": 10**400}
    forged([rows[0] | {"terms": terms}, *rows[1:]])
    assert command("ledger", "show", "l.db")[0] == 2


@pytest.mark.parametrize("letter", ["x", "\x1b", "\x7f", "\x9b", "\n", "\u2028"])
def test_texts_that_move_the_cursor_are_refused(place, ledger, letter):
    Path("l.db").write_bytes(ledger)
    with contextlib.closing(sqlite3.connect("l.db")) as database:
        rows = [json.loads(b) for (b,) in database.execute("SELECT body FROM entries")]
    forged([rows[0], rows[1] | {"query": f"a{letter}b"}, *rows[2:]])
    for word, *more in (["show"], ["check"], ["export"], ["export", "--form", "csv"]):
        code, out, _ = command("ledger", word, "l.db", *more)
        assert (code == 0) == (letter == "x")
        assert letter == "x" or f"a{letter}b" not in out


def planted(ledger, name):
    """A journal that SQLite plays back; it then deletes the file that it names."""
    page = struct.unpack(">H", ledger[16:18])[0]
    magic, sector = bytes.fromhex("d9d505f920a163d7"), 512
    header = struct.pack(">IIIII", 1, 0, len(ledger) // page, sector, page)
    first = ledger[:page]
    checked = sum(first[at] for at in range(page - 200, 0, -200))
    record = struct.pack(">I", 1) + first + struct.pack(">I", checked)
    lock = struct.pack(">I", (1 << 30) // page + 1)
    size = struct.pack(">II", len(name), sum(name))
    named = lock + name + size + magic if name else b""
    return (magic + header).ljust(sector, b"\0") + record + named


def test_a_journal_that_was_planted_deletes_nothing(place, ledger):
    Path("l.db").write_bytes(ledger)
    Path("precious").write_text("mine")
    name = os.fsencode(place / "precious")
    Path("l.db-journal").write_bytes(planted(ledger, name))
    assert command("ledger", "show", "l.db")[0] == 2
    assert command(*FIT, "--out", "m", "--ledger", "l.db")[0] == 2
    assert Path("precious").read_text() == "mine"
    # Only such a name is refused. A journal of a killed process is rolled back.
    Path("l.db-journal").write_bytes(planted(ledger, b""))
    assert command("ledger", "show", "l.db")[0] == 0
    assert not Path("l.db-journal").exists()
    # SQLite does delete it. Otherwise this test would show nothing.
    Path("l.db-journal").write_bytes(planted(ledger, name))
    with contextlib.closing(sqlite3.connect("l.db")) as database:
        database.execute("SELECT * FROM entries").fetchall()
    assert not Path("precious").exists()


def test_a_journal_that_is_a_link_is_not_followed(place, ledger):
    Path("l.db").write_bytes(ledger)
    Path("precious").write_text("mine")
    os.symlink("precious", "l.db-journal")
    assert command("ledger", "show", "l.db")[0] == 2
    assert command(*FIT, "--out", "m", "--ledger", "l.db")[0] == 2
    assert Path("precious").read_text() == "mine"


@pytest.mark.parametrize("name", ["a?mode=ro", "a#b", "a%20b", "é", "a b", "-q", "~"])
def test_names_are_names(place, name):
    """SQLite and the command line give no meaning to any letter of a file name."""
    make = ["ledger", "make", "--epsilon", "1", "--delta", "1e-6", "--", name]
    assert command(*make)[0] == 0
    assert Path(name).is_file()
    assert command("ledger", "show", "--", name)[0] == 0
    assert sorted(os.listdir(place)) == sorted([name, "s.toml", "t.csv"])
