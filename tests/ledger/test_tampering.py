"""A ledger that was edited, cut or replaced is refused in a sentence."""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp import Ledger
from skdp.ledger import LedgerError
from skdp.ledger.log import TRIGGERS, Head


def spend(ledger, times):
    for i in range(times):
        reservation = ledger.reserve(
            0.001 * (i + 1), neighbours="add-remove", query=f"query {i}", n_draws=10
        )
        if i % 3:
            reservation.settle(0.0005)


class Original(tuple):
    """Its bytes, its entries and what is left."""

    def __new__(cls, *parts):
        return super().__new__(cls, parts)

    def __repr__(self):
        return "the original"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The bytes of a ledger of several pages, its entries and what it spent."""
    path = tmp_path_factory.mktemp("original") / "ledger.db"
    ledger = Ledger(path, epsilon=4.0, delta=1e-6, neighbours="add-remove")
    spend(ledger, 10)
    return Original(path.read_bytes(), ledger.entries(), ledger.remaining)


@pytest.fixture
def path(original, tmp_path):
    path = tmp_path / "ledger.db"
    path.write_bytes(original[0])
    return path


def edit(path, *commands):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")
        for command in commands:
            database.execute(*([command] if isinstance(command, str) else command))


DROPPED = [f"DROP TRIGGER {name}" for name in TRIGGERS]
RESTORED = list(TRIGGERS.values())
EDITS = {
    "a smaller charge": [
        "UPDATE entries SET body = replace(body, '0.001', '0.0001') WHERE seq = 1"
    ],
    "a space": ["UPDATE entries SET body = body || ' ' WHERE seq = 3"],
    "another hash": ["UPDATE entries SET hash = upper(hash) WHERE seq = 3"],
    "a blob": ["UPDATE entries SET body = CAST(body AS BLOB) WHERE seq = 3"],
    "null": ["UPDATE entries SET body = NULL WHERE seq = 3"],
    "a middle entry removed": ["DELETE FROM entries WHERE seq = 5"],
    "the first removed": ["DELETE FROM entries WHERE seq = 0"],
    "the last removed": ["DELETE FROM entries WHERE seq = 16"],
    "all removed": ["DELETE FROM entries"],
    "renumbered": [
        "DELETE FROM entries WHERE seq = 5",
        "UPDATE entries SET seq = seq - 1 WHERE seq > 5",
    ],
    "one put before": ["INSERT INTO entries VALUES (-1, '{}', '')"],
    "one put behind": ["INSERT INTO entries VALUES (99, '{}', '')"],
    "two exchanged": [
        "UPDATE entries SET seq = 99 WHERE seq = 4",
        "UPDATE entries SET seq = 4 WHERE seq = 5",
        "UPDATE entries SET seq = 5 WHERE seq = 99",
    ],
    "a head of before": [
        "UPDATE head SET size = 10, hash = (SELECT hash FROM entries WHERE seq = 9)"
    ],
    "no head": ["DELETE FROM head"],
    "two heads": ["INSERT INTO head VALUES (2, 17, '')"],
    "a head of text": ["UPDATE head SET size = 'seventeen'"],
    "a head of nothing": [
        "DELETE FROM entries",
        f"UPDATE head SET size = 0, hash = '{'0' * 64}'",
    ],
}


def refused(path, **options):
    with pytest.raises(LedgerError) as error:
        Ledger(path, **options)
    words = str(error.value)
    assert str(path) in words
    assert words.endswith(".")
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return words


@pytest.mark.parametrize("name", EDITS)
def test_edits_behind_the_triggers_are_noticed(path, name):
    edit(path, "BEGIN", *DROPPED, *EDITS[name], *RESTORED, "COMMIT")
    refused(path)
    refused(path, epsilon=4.0, delta=1e-6)


@pytest.mark.parametrize("name", EDITS)
def test_triggers_are_the_first_line(path, name, original):
    if name in ("two heads", "one put before", "one put behind"):
        first = EDITS[name]
    else:
        first = EDITS[name][:1]
    before = path.read_bytes()
    if name == "two heads":  # nothing stops a second head but the check
        edit(path, *first)
        refused(path)
        return
    with pytest.raises(sqlite3.DatabaseError, match="only grows"):
        edit(path, *first)
    assert path.read_bytes() == before
    assert Ledger(path).entries() == original[1]


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_taken_off_is_noticed(path, name):
    edit(path, f"DROP TRIGGER {name}")
    assert "triggers" in refused(path)


@pytest.mark.parametrize(
    "command",
    [
        "CREATE TABLE more (x)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON entries BEGIN DELETE FROM head; END",
        "CREATE INDEX more ON entries (hash)",
        "ALTER TABLE entries ADD COLUMN more",
    ],
)
def test_anything_added_is_noticed(path, command):
    edit(path, command)
    refused(path)


def rewritten(path, change):
    """Write a whole history anew, hashes and head right, as only a forger would."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = [json.loads(b) for (b,) in database.execute("SELECT body FROM entries")]
    rows = change(rows)
    head, written = Head(), []
    for seq, row in enumerate(rows):
        text = json.dumps(row, separators=(",", ":"))
        head = head.after(text)
        row = (seq, text, head.hash)
        written.append(("INSERT INTO entries VALUES (?, ?, ?)", row))
    written.append(("UPDATE head SET size = ?, hash = ?", (head.size, head.hash)))
    edit(path, "BEGIN", *DROPPED, "DELETE FROM entries", *written, *RESTORED, "COMMIT")


def changed(**fields):
    return lambda rows: [*rows[:1], rows[1] | fields, *rows[2:]]


def opened(**fields):
    return lambda rows: [rows[0] | {"terms": rows[0]["terms"] | fields}, *rows[1:]]


FORGERIES = {
    "a negative charge": changed(mu_squared=-0.5),
    "a charge of text": changed(mu_squared="0"),
    "a charge of truth": changed(mu_squared=True),
    "endless": changed(mu_squared=1e999),
    "above the ceiling": changed(mu_squared=3.0),
    "a negative δ": changed(delta=-1e-9),
    "negative draws": changed(n_draws=-5),
    "parts of draws": changed(n_draws=0.5),
    "another kind": changed(kind="refund"),
    "a second opening": changed(kind="open"),
    "another relation": changed(neighbours="zero-out"),
    "one field more": changed(more=1),
    "one field less": lambda r: [
        {k: v for k, v in x.items() if k != "plan"} for x in r
    ],
    "no opening": lambda rows: rows[1:],
    "no entries": lambda rows: [],
    "settled twice": lambda rows: [*rows, rows[3]],
    "settled by more": lambda rows: [
        *rows[:2],
        rows[3] | {"of": 1, "mu_squared": 0.1},
    ],
    "settled first": lambda rows: [rows[0], rows[3], *rows[1:]],
    "settles nothing": lambda rows: [*rows, rows[3] | {"of": None}],
    "admits a charge": changed(kind="admit"),
    "a larger m": opened(mu_squared=1.5),
    "more draws": opened(n_draws=1 << 50),
    "a smaller ε, the same m": opened(epsilon=1.0),
    "terms of text": opened(epsilon="4"),
    "no object": lambda rows: [[1], *rows[1:]],
    "a control character": changed(query="\x1b[2J"),
    "a long query": changed(query="x" * 2000),
    "fields in another order": lambda rows: [
        rows[0],
        dict(reversed(rows[1].items())),
        *rows[2:],
    ],
    "a number written in another way": changed(delta=0),
    "a number of the entry": changed(seq=1),
    "terms twice": changed(terms={}),
    "a digest of too few digits": changed(plan="0" * 63),
    "a digest and a line feed": changed(plan="0" * 64 + "\n"),
    "a purpose of spaces": changed(purpose="  "),
    "more terms": opened(more=1),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_skdp_never_writes_is_refused_though_the_hashes_are_right(path, name):
    rewritten(path, FORGERIES[name])
    refused(path)


def test_a_key_that_occurs_twice_is_refused(path, original):
    """Readers of JSON differ in which of the two they take."""
    text = original[1][0].text()
    twice = text.replace('"kind"', '"purpose":"another","kind"', 1)
    for body, right in ((text, True), (twice, False)):
        head = Head().after(body)
        edit(
            path,
            "BEGIN",
            *DROPPED,
            "DELETE FROM entries",
            ("INSERT INTO entries VALUES (0, ?, ?)", (body, head.hash)),
            ("UPDATE head SET size = 1, hash = ?", (head.hash,)),
            *RESTORED,
            "COMMIT",
        )
        if right:
            assert len(Ledger(path).entries()) == 1
        else:
            refused(path)


def test_numbers_nesting_and_entries_of_any_length_are_refused(path):
    for text in (
        "9" * 5000,
        "9" * 70_000,
        "[" * 30_000,
        '{"a":' * 5000 + "1" + "}" * 5000,
    ):
        told = hashlib.sha256(f"{'0' * 64}\n{text}".encode()).hexdigest()
        edit(
            path,
            "BEGIN",
            *DROPPED,
            "DELETE FROM entries",
            ("INSERT INTO entries VALUES (0, ?, ?)", (text, told)),
            ("UPDATE head SET size = 1, hash = ?", (told,)),
            *RESTORED,
            "COMMIT",
        )
        refused(path)


def test_a_history_rewritten_as_a_whole_is_told_by_a_noted_head_only(path):
    ledger = Ledger(path)
    noted = str(ledger.head)
    rewritten(path, lambda rows: rows[:2])
    forged = Ledger(path)  # nothing in the file can tell
    assert forged.check().size == 2
    with pytest.raises(LedgerError, match="refused"):
        forged.check(noted)
    with pytest.raises(LedgerError, match="seen before"):
        _ = ledger.remaining
    with pytest.raises(LedgerError, match="seen before"):
        ledger.reserve(0.001, neighbours="add-remove", query="x")


def test_an_older_copy_is_told_by_who_has_seen_more(path, tmp_path):
    ledger, old = Ledger(path), tmp_path / "old.db"
    shutil.copy(path, old)
    spend(ledger, 1)
    os.replace(old, path)
    with pytest.raises(LedgerError, match=r"some are missing|seen before"):
        _ = ledger.remaining


def test_a_noted_head_is_found_in_a_longer_log(path):
    ledger = Ledger(path)
    noted = ledger.head
    spend(ledger, 2)
    assert ledger.check(noted).size > noted.size
    assert ledger.check(str(noted)) == ledger.head
    wrong = [f"{noted.size}:{'0' * 64}", f"{noted.size - 1}:{noted.hash}"]
    for head in (*wrong, f"9999:{noted.hash}", "", "x:y", "1:2", f"{noted}0"):
        with pytest.raises(LedgerError):
            ledger.check(head)


# ---- files that are not ledgers


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"a,b\n1,2\n" * 100, b"SQLite format 3\x00", b"\x00" * 4096],
    ids=["empty", "x", "csv", "magic", "zeros"],
)
def test_other_files_are_refused_and_kept(tmp_path, content):
    path = tmp_path / "some.db"
    path.write_bytes(content)
    refused(path)
    refused(path, epsilon=1.0, delta=1e-6)
    assert path.read_bytes() == content


def test_another_database_is_refused_and_kept(tmp_path):
    path = tmp_path / "other.db"
    edit(path, "CREATE TABLE mine (x)")
    before = path.read_bytes()
    refused(path, epsilon=1.0, delta=1e-6)
    assert path.read_bytes() == before


def test_something_else_than_a_file_is_refused(tmp_path):
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    assert "not a regular file" in refused(folder)
    assert "not a regular file" in refused(pipe)
    with pytest.raises(LedgerError, match=r"no folder '.*missing' for a ledger"):
        Ledger(
            tmp_path / "missing" / "x.db",
            epsilon=1.0,
            delta=1e-6,
            neighbours="add-remove",
        )


def test_a_second_name_is_refused(path, tmp_path):
    os.link(path, tmp_path / "second.db")
    assert "hard link" in refused(path)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="root can write to a read-only file",
)
def test_a_ledger_that_cannot_be_written_says_so(path):
    path.chmod(0o400)
    ledger = Ledger(path)
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.reserve(0.001, neighbours="add-remove", query="x")


# ---- any damage: refused, or harmless


MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def survives(content, original):
    """Whether a file of these bytes is accepted: then its history is the same."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "ledger.db"
        path.write_bytes(content)
        try:
            ledger = Ledger(path)
            assert ledger.entries() == original[1]
            assert ledger.remaining == original[2]
            spend(ledger, 1)
            assert ledger.entries()[:-1] == original[1]
            assert ledger.remaining < original[2]
        except LedgerError:
            return False
    return True


def test_the_original_survives(original):
    assert survives(original[0], original)


#: A place in a file of any length.
PLACE = st.integers(0, 10**9)


@given(PLACE)
@settings(max_examples=150)
def test_cut_anywhere(original, place):
    content = original[0]
    assert not survives(content[: place % len(content)], original)


@given(st.lists(st.tuples(PLACE, st.integers(1, 255)), min_size=1, max_size=3))
@settings(max_examples=300)
def test_bytes_changed_anywhere(original, changes):
    content = bytearray(original[0])
    for place, bits in changes:
        content[place % len(content)] ^= bits
    survives(bytes(content), original)


@given(st.integers(0, 99), st.integers(1, 255))
@settings(max_examples=200)
def test_bytes_changed_in_the_first_lines(original, at, bits):
    content = bytearray(original[0])
    content[at] ^= bits
    survives(bytes(content), original)


@given(PLACE, PLACE, st.booleans())
@settings(max_examples=100)
def test_pages_exchanged_or_wiped(original, first, second, wipe):
    content, page = original[0], 4096
    pages = [content[i : i + page] for i in range(0, len(content), page)]
    a, b = first % len(pages), second % len(pages)
    pages[a], pages[b] = pages[b], pages[a]
    if wipe:
        pages[a] = bytes(page)
    accepted = survives(b"".join(pages), original)
    assert accepted == (a == b and not wipe)
