"""Keep the entries of a ledger in a file that several processes may share."""

from __future__ import annotations

import csv
import errno
import getpass
import hashlib
import io
import json
import os
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Protocol

from msgspec import Meta, structs

import skdp
from skdp.ledger.ceiling import NOTHING, Amount, Finite, Terms
from skdp.privacy.queries import Neighbours
from skdp.schema import check
from skdp.typed_files import Count, Form, parse_json

# ---- Keep a log on disk. Entries can be added, but not changed or removed
#
# The file is an SQLite database with two tables. The table ``entries`` has one row
# (seq, body, hash) per entry. Here seq counts 0, 1, 2, …, body is JSON on one line, and
#
#     hash = SHA-256 of (hash of the entry before, a line feed, body) in hexadecimal.
#
# The hash before the first entry is 64 zeros. The table ``head`` has the number of
# entries and the last hash. Anybody can recompute the hashes from the bodies.
#
# If a row is edited, removed or inserted, the hashes no longer agree. If the last rows
# are removed, the head no longer agrees. Somebody who replaces the *whole* file can
# write any history. Only a copy of the head, kept elsewhere, reveals this. `Log`
# objects remember the last head they saw.
#
# Each entry is written in its own transaction, with the rollback journal and
# ``synchronous = EXTRA``. Once `Log.append` returns, the entry survives kills and power
# failures. If `Log.append` is interrupted, the entry is on disk either completely or
# not at all. The file system must have working locks, which some network file systems
# lack.


#: Seconds to wait while other processes write.
PATIENCE = 60.0
#: Largest size of the file and of an entry, in bytes. Anything larger is refused.
LARGEST, LONGEST = 1 << 28, 1 << 16
START = "0" * 64
APPLICATION = 0x736B6470  # "skdp"
#: The last bytes of an SQLite journal that names another file. Only transactions over
#: several databases have such journals.
_NAMED = bytes.fromhex("d9d505f920a163d7")
_STOP = "BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END"
TABLES = {
    "entries": "CREATE TABLE entries (seq INTEGER PRIMARY KEY, body TEXT, hash TEXT)",
    "head": "CREATE TABLE head (one INTEGER PRIMARY KEY, size INTEGER, hash TEXT)",
}
TRIGGERS = {
    "no_edit": f"CREATE TRIGGER no_edit BEFORE UPDATE ON entries {_STOP}",
    "no_removal": f"CREATE TRIGGER no_removal BEFORE DELETE ON entries {_STOP}",
    "no_gap": "CREATE TRIGGER no_gap BEFORE INSERT ON entries "
    f"WHEN NEW.seq <> (SELECT size FROM head) {_STOP}",
    "no_way_back": "CREATE TRIGGER no_way_back BEFORE UPDATE ON head "
    f"WHEN NEW.size <> OLD.size + 1 {_STOP}",
    "no_loss": f"CREATE TRIGGER no_loss BEFORE DELETE ON head {_STOP}",
}

# A process has at most one connection at a time, and no connection while it forks.
# SQLite's locks belong to the process, and a child must not inherit a connection in
# use.
_TURN = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_TURN.acquire,
        after_in_parent=_TURN.release,
        after_in_child=_TURN.release,
    )


class LedgerError(ValueError):
    """Raised if a ledger's file was changed, is not a ledger, or cannot be used."""


@dataclass(frozen=True)
class Head:
    """The number of entries of a log and the hash of the last entry."""

    size: int = 0
    hash: str = START

    @classmethod
    def of(cls, text: str) -> Head:
        """Read a head from a string of the form number:hash."""
        size, _, digits = text.strip().partition(":")
        if not (size.isdecimal() and len(size) < 18 and len(digits) == 64):
            raise LedgerError(
                f"A head must have the form number:hash, got {text[:99]!r}."
            )
        return cls(int(size), digits)

    def __str__(self) -> str:
        return f"{self.size}:{self.hash}"

    def after(self, body: str) -> Head:
        """Return the head that the log will have after an entry with this body."""
        joined = f"{self.hash}\n{body}".encode()
        return Head(self.size + 1, hashlib.sha256(joined).hexdigest())


class Reader(Protocol):
    """An object that receives the checked entries of a log one by one."""

    @property
    def head(self) -> Head:
        """The head of the log after the last entry that was received."""

    def take(self, head: Head, text: str) -> None:
        """Receive an entry. Raise ValueError, and change nothing, if it is invalid."""


class Log:
    """A log that is kept in one file.

    Parameters
    ----------
    path : str
        The absolute path. The constructor does not open it, and only `create` makes a
        file.
    seen : Head
        The head of the log when it was last read or written. The file must still
        contain all entries up to this head.
    """

    def __init__(self, path: str, seen: Head | None = None) -> None:
        self.path = path
        self.seen = seen or Head()

    def create(self, text: str) -> None:
        """Make the file with its first entry, unless the file exists already.

        The file is first written under a temporary name. It gets the name `path` only
        when it is complete.
        """
        folder, name = os.path.split(self.path)
        if not os.path.isdir(folder):
            raise LedgerError(f"There is no folder {folder!r} for a ledger.")
        with _TURN, self._translate_errors():
            handle, beside = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
            os.close(handle)
            try:
                with closing(_connection(beside)) as database:
                    database.execute("BEGIN IMMEDIATE")
                    database.execute(f"PRAGMA application_id = {APPLICATION}")
                    for command in [*TABLES.values(), *TRIGGERS.values()]:
                        database.execute(command)
                    database.execute("INSERT INTO head VALUES (1, 0, ?)", (START,))
                    _insert(database, Head(), text)
                    database.execute("COMMIT")
                try:
                    os.link(beside, self.path)
                except FileExistsError:
                    return
            finally:
                os.unlink(beside)
            _sync_folder(folder)

    def read(self, reader: Reader) -> Head:
        """Check the entries that the reader has not seen, and return the head."""
        with self._transaction("BEGIN") as database:
            return self._follow(database, reader)

    def append(self, reader: Reader, decide: Callable[[], str]) -> int:
        """Pass new entries to a reader, then add the entry that `decide` returns.

        No other process can write in between. Return the number of the added entry. If
        `decide` raises, nothing is added.
        """
        with self._transaction("BEGIN IMMEDIATE") as database:
            head = self._follow(database, reader)
            after = _insert(database, head, decide())
            database.execute("COMMIT")
            self.seen = after
        return head.size

    def _follow(self, database: sqlite3.Connection, reader: Reader) -> Head:
        """Check all entries after the reader's head and pass them to the reader."""
        self._check_form(database)
        heads = _fetch_rows(database, "SELECT size, hash FROM head")
        at = reader.head
        if at.size:
            found = _fetch_rows(
                database, "SELECT hash FROM entries WHERE seq = ?", at.size - 1
            )
            if found != [(at.hash,)]:
                self.refuse("entries that were seen before were removed or rewritten")
        select = "SELECT seq, body, hash FROM entries WHERE seq >= ? ORDER BY seq"
        for seq, body, stored in _fetch_rows(database, select, at.size):
            number = at.size
            if seq != number or not isinstance(body, str):
                self.refuse(f"entry {number} was removed or changed")
            at = at.after(body)
            if stored != at.hash:
                self.refuse(f"entry {number} was changed")
            if at.size == self.seen.size and at.hash != self.seen.hash:
                self.refuse("entries that were seen before were rewritten")
            try:
                reader.take(at, body)
            except (ValueError, OverflowError):
                self.refuse(f"entry {number} was not written by skdp")
        if heads != [(at.size, at.hash)] or not self.seen.size <= at.size > 0:
            self.refuse(
                f"its head does not match its entries ({at.size} found), so some "
                "are missing"
            )
        self.seen = at
        return at

    def _check_form(self, database: sqlite3.Connection) -> None:
        """Refuse a database that lacks the tables, triggers or settings of a ledger."""
        found = _fetch_rows(database, "SELECT name, sql FROM sqlite_master")
        if sorted(found) != sorted([*TABLES.items(), *TRIGGERS.items()]):
            self.refuse("it is not a ledger, or its triggers were removed")
        if _fetch_rows(database, "PRAGMA journal_mode") != [("delete",)]:
            self.refuse("its journal mode was changed")
        if _fetch_rows(database, "SELECT seq FROM entries WHERE seq < 0 LIMIT 1"):
            self.refuse("an entry was inserted before the first one")

    def check_pages(self) -> None:
        """Refuse a file whose pages SQLite finds damaged."""
        with self._transaction("BEGIN") as database:
            if _fetch_rows(database, "PRAGMA integrity_check(1)") != [("ok",)]:
                self.refuse("pages of the file are damaged")

    def refuse(self, why: str) -> NoReturn:
        """Raise a LedgerError that says why the file cannot be trusted."""
        raise LedgerError(
            f"The ledger {self.path!r} is refused: {why}. Nothing was read or spent. "
            "Restore it from a copy that has every entry, and find out who changed it."
        ) from None

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Open a connection and a transaction for the length of a ``with`` block.

        If the block does not commit the transaction, it is rolled back.
        """
        with _TURN, self._translate_errors():
            self._check_file()
            with closing(_connection(self.path)) as database:
                database.execute(begin)
                try:
                    yield database
                finally:
                    if database.in_transaction:
                        database.execute("ROLLBACK")

    def _check_file(self) -> None:
        """Refuse a path that is not a regular file, or a file with several names.

        This does not open the file, because closing it would release SQLite's locks.
        """
        about = os.stat(self.path)
        for _ in range(10):  # a file that is being made has two names for a moment
            if not stat.S_ISREG(about.st_mode) or about.st_nlink <= 1:
                break
            time.sleep(0.05)
            about = os.stat(self.path)
        if not stat.S_ISREG(about.st_mode):
            self.refuse("it is not a regular file")
        if about.st_nlink > 1:
            self.refuse("it has a second name (a hard link), which is not safe")
        if not 0 < about.st_size <= LARGEST:
            self.refuse("it is empty or far too large")
        if _names_a_file(f"{self.path}-journal"):
            self.refuse("the -journal file next to it was not written by a ledger")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Replace errors of SQLite and of the system by a LedgerError."""
        try:
            yield
        except FileNotFoundError:
            raise LedgerError(
                f"There is no ledger {self.path!r}. Create one with "
                "skdp.Ledger(path, epsilon=…, delta=…)."
            ) from None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None) or 0
            name = getattr(error, "sqlite_errorname", "")
            if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                why = f"other processes kept it locked for {PATIENCE:g} seconds"
            elif code & 0xFF in _UNREACHABLE:
                why = f"the file cannot be written or read ({name})"
            else:
                self.refuse("it is not a ledger, or it was cut or damaged")
            raise LedgerError(
                f"Nothing was written to the ledger {self.path!r}: {why}."
            ) from None
        except UnicodeDecodeError:  # damaged text, which SQLite's messages may quote
            self.refuse("it is not a ledger, or it was damaged")
        except OSError as error:
            word = errno.errorcode.get(error.errno or 0, "a system error")
            raise LedgerError(
                f"The ledger {self.path!r} cannot be used ({word}). It must be in a "
                "writable folder, on a file system with locks and hard links."
            ) from None


_UNREACHABLE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}


def _connection(path: str) -> sqlite3.Connection:
    """Open an SQLite file, which must exist already."""
    name = f"{Path(path).as_uri()}?mode=rw"
    database = sqlite3.connect(name, timeout=PATIENCE, isolation_level=None, uri=True)
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        for setting in ("trusted_schema = OFF", "cell_size_check = ON"):
            database.execute(f"PRAGMA {setting}")
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("PRAGMA synchronous = EXTRA")
    except BaseException:
        database.close()
        raise
    return database


def _names_a_file(journal: str) -> bool:
    """Return whether a journal names another file, or is not a regular file itself.

    SQLite would delete the named file. A ledger's transactions concern only one
    database, so its journals never name another file.
    """
    try:
        if not stat.S_ISREG(os.lstat(journal).st_mode):
            return True
        with open(journal, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_NAMED)))
            return file.read() == _NAMED
    except FileNotFoundError:
        return False


def _fetch_rows(
    database: sqlite3.Connection, select: str, *values: object
) -> list[tuple[Any, ...]]:
    """Return all rows of a query, read to the end.

    A cursor that is not read to the end keeps its lock for as long as it exists. A
    traceback, for example, could keep the cursor alive.
    """
    return database.execute(select, values).fetchall()


def _insert(database: sqlite3.Connection, head: Head, text: str) -> Head:
    after = head.after(text)
    row = (head.size, text, after.hash)
    database.execute("INSERT INTO entries VALUES (?, ?, ?)", row)
    database.execute("UPDATE head SET size = ?, hash = ?", (after.size, after.hash))
    return after


def _sync_folder(folder: str) -> None:
    """Flush a folder to disk, so a new file survives a power failure."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---- Define the entries of a ledger, and how they are written and read
#
# **Which table.** A ledger belongs to one table, which has a public name. Every model
# of that table is charged to the ledger, whatever columns and target the model uses,
# because costs add up in the same way for any schema. skdp cannot check that the
# records really belong to the named table. Only a person can know that. A ledger that
# was made with a schema notices some mistakes, because it refuses any other schema
# until `Ledger.admit` adds that schema. The ledger stores only the digest of a schema.
#
# **Who and why.** Each entry states the user who made it and the purpose. Both are
# public, like the table's name. A ledger never contains a value of the table. It
# contains released values only as a digest (see `digests`).


#: Largest length of a table's name, of a purpose and of a user's name.
LONGEST_LABEL = 200
#: The purpose of an entry if none was given.
NOT_STATED = "not stated"

Kind = Literal["open", "reserve", "commit", "stop", "admit"]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Text = Annotated[str, Meta(max_length=1000)]


class Entry(Form, frozen=True, kw_only=True):
    r"""One entry of a ledger.

    Attributes
    ----------
    kind : str
        "open" is the first entry. "reserve" charges the budget of a fit beforehand.
        "commit" replaces that charge after the fit has ended, and "stop" replaces it if
        the fit was stopped by an error. "admit" adds another schema.
    time : str
        The minute of the entry, in UTC. A "commit" or "stop" states the time at which
        its reservation was made, because how long a fit takes depends on the records.
    version : str
        The version of skdp.
    query : str
        What was computed, in words.
    purpose : str
        The purpose of the computation in the user's words, "not stated" by default.
    user : str
        The user who made the entry, by default the operating system's user name.
    neighbours : str
        Which tables are neighbours.
    schema, plan : str or None
        SHA-256 digests of the schema and of the plan.
    released : str or None
        SHA-256 digest of what a "commit" released (see `skdp.ledger.digests`).
    mu_squared, delta, n_draws : numbers
        The amount that is charged.
    epsilon : float
        The ε of this entry alone, at the ledger's δ.
    of : int or None
        The number of the reservation that a "commit" or "stop" replaces.
    table : str or None
        The name of the table that the ledger belongs to. Only the first entry has it.
    terms : Terms or None
        The ceiling of the ledger. Only the first entry has it.
    seq : int
        The number of the entry, counted from 0. It is not part of the written text.
    hash : str
        The hash of this entry and of all earlier entries (see `skdp.ledger.log`). It is
        not part of the written text.
    """

    kind: Kind
    time: Text
    version: Text
    query: Text
    purpose: Text
    user: Text
    neighbours: Neighbours
    schema: Digest | None = None
    plan: Digest | None = None
    released: Digest | None = None
    mu_squared: Finite = 0.0
    delta: Finite = 0.0
    n_draws: Count = 0
    epsilon: Finite = 0.0
    of: Count | None = None
    table: Text | None = None
    terms: Terms | None = None
    seq: int = -1
    hash: str = ""

    def __post_init__(self) -> None:
        for name in ("time", "version", "query"):
            check(
                getattr(self, name).isprintable(),
                f"{name} contains unprintable characters",
            )
        for name in ("purpose", "user", "table"):
            value = getattr(self, name)
            check(_is_label(value) or (name, value) == ("table", None), f"{name}")

    def values(self) -> dict[str, Any]:
        """Return the fields that are written to the ledger."""
        found = structs.asdict(self)
        del found["seq"], found["hash"]
        return found | {"terms": None if self.terms is None else self.terms.to_values()}

    def text(self) -> str:
        """Return the entry as it is written to the ledger and hashed."""
        return write_line(self.values())

    @classmethod
    def read(cls, head: Head, text: str) -> Entry:
        """Read an entry from its written text.

        Raise ValueError if skdp would not have written exactly this text. For example,
        a key may be missing or repeated, keys may be in another order, or a number may
        be written differently.
        """
        found = parse_json(text, cls, "The entry")
        check(found.text() == text, "The entry is not written as skdp writes it.")
        return structs.replace(found, seq=head.size - 1, hash=head.hash)

    @property
    def amount(self) -> Amount:
        """The amount that is charged, as exact numbers."""
        return Amount.of(self.mu_squared, self.delta, self.n_draws)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def write_line(values: dict[str, Any]) -> str:
    """Return values as JSON on one line."""
    return _ENCODER.encode(values)


@dataclass(frozen=True, kw_only=True)
class Requester:
    """The user who makes an entry and the user's purpose. Every entry states both."""

    purpose: str = NOT_STATED
    user: str

    @classmethod
    def of(cls, purpose: str | None, user: str | None) -> Requester:
        """Return a requester, with defaults for arguments that are None.

        By default the purpose is "not stated" and the user is the operating system's
        user name.
        """
        return cls(
            purpose=NOT_STATED if purpose is None else check_label(purpose, "purpose"),
            user=_find_user() if user is None else check_label(user, "user"),
        )


def check_label(given: Any, name: str) -> str:
    """Return a public label unchanged, or raise an error if it is not valid.

    A label must be printable, not blank and not too long.
    """
    check(
        _is_label(given),
        f"{name} must have 1 to {LONGEST_LABEL} printable characters, got "
        f"{str(given)[:99]!r}.",
    )
    return str(given)


def _is_label(value: object) -> bool:
    right = isinstance(value, str) and value.isprintable()
    return right and len(str(value).strip()) > 0 and len(str(value)) <= LONGEST_LABEL


def _find_user() -> str:
    """Return the operating system's user name, or "unknown" if there is none."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
    return name if _is_label(name) else "unknown"


def new_entry(
    kind: Kind,
    query: str,
    terms: Terms,
    amount: Amount = NOTHING,
    *,
    requester: Requester,
    schema: str | None = None,
    plan: str | None = None,
    released: str | None = None,
    of: int | None = None,
    table: str | None = None,
    time: str | None = None,
) -> Entry:
    """Make an entry. Only an "open" entry contains the terms.

    `time` is the current time by default.
    """
    return Entry(
        kind=kind,
        time=time or read_clock(),
        version=skdp.__version__,
        query="".join(c if c.isprintable() else " " for c in query[:1000]),
        purpose=requester.purpose,
        user=requester.user,
        neighbours=terms.neighbours,
        schema=schema,
        plan=plan,
        released=released,
        mu_squared=float(amount.mu_squared),
        delta=float(amount.delta),
        n_draws=amount.n_draws,
        epsilon=terms.epsilon_of(amount),
        of=of,
        table=table,
        terms=terms if kind == "open" else None,
    )


def read_clock() -> str:
    """Return the current minute, in UTC. Seconds would show how long fits take."""
    return datetime.now(UTC).isoformat(timespec="minutes")


def export_entries(entries: list[Entry], form: str) -> str:
    """Return entries as JSON lines or CSV; see `Ledger.export`."""
    check(form in ("jsonl", "csv"), f"form must be 'jsonl' or 'csv', got {form!r}.")
    rows = [entry.values() | {"hash": entry.hash} for entry in entries]
    if form == "jsonl":
        return "".join(f"{write_line(row)}\n" for row in rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        terms = row["terms"]
        writer.writerow(row | {"terms": None if terms is None else write_line(terms)})
    return file.getvalue()
