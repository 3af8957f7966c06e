"""Threads and processes that spend at once, and the laws of what they spend."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp import BudgetError, Ledger
from skdp.ledger import LedgerError, log

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
STRESS = Path(__file__).parents[2] / "benchmarks" / "ledger_stress.py"


def ask(ledger, mu_squared, **options):
    options = {"neighbours": "add-remove", "query": "a test", "n_draws": 1} | options
    return ledger.reserve(mu_squared, **options)


@pytest.fixture
def folder():
    """A folder in memory, where entries take little time."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def ledger(folder):
    return Ledger(
        folder / "budget.db", epsilon=1.0, delta=1e-6, neighbours="add-remove"
    )


@pytest.mark.parametrize("shared", [True, False])
def test_threads_never_overspend(ledger, shared):
    part = ledger.terms.mu_squared / 20.5

    def spend(_):
        own = ledger if shared else Ledger(ledger.path)
        with contextlib.suppress(BudgetError):
            return ask(own, part)

    with ThreadPoolExecutor(8) as pool:
        reservations = [
            reservation for reservation in pool.map(spend, range(60)) if reservation
        ]
    assert len(reservations) == 20
    assert sorted(reservation.seq for reservation in reservations) == list(range(1, 21))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda reservation: reservation.settle(part / 2), reservations))
    spent = Fraction(ledger.terms.mu_squared) - Fraction(ledger.remaining)
    assert spent == pytest.approx(float(20 * Fraction(part / 2)))
    assert ledger.check().size == 41


SPENDER = """
import sys
from skdp import BudgetError, Ledger
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
got = 0
for _ in range(30):
    try:
        cost = float(sys.argv[2])
        ledger.reserve(cost, neighbours="add-remove", query="x", n_draws=1)
        got += 1
    except BudgetError:
        pass
print(got)
"""


def test_processes_never_overspend(ledger):
    part = ledger.terms.mu_squared / 40.5
    command = [sys.executable, "-c", SPENDER, ledger.path, repr(part)]
    spenders = [
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(2)
    ]
    for spender in spenders:
        assert spender.stdout.readline() == "ready\n"
    got = []
    for spender in spenders:
        spender.stdin.write("\n")
        spender.stdin.flush()
    for spender in spenders:
        out, _ = spender.communicate(timeout=60)
        got.append(int(out))
    assert sum(got) == 40
    assert ledger.check().size == 41
    assert ledger.remaining < part


def test_many_make_one_ledger(folder):
    path = folder / "new.db"

    def make(_):
        return Ledger(path, epsilon=1.0, delta=1e-6, neighbours="add-remove").head

    with ThreadPoolExecutor(8) as pool:
        heads = set(pool.map(make, range(16)))
    assert len(heads) == 1
    assert [name.name for name in folder.iterdir()] == ["new.db"]


def test_who_comes_second_makes_nothing(ledger, monkeypatch):
    """Two processes found no file, and one was faster: its entries stay."""
    ask(ledger, 0.001)
    monkeypatch.setattr("os.path.lexists", lambda _: False)
    second = Ledger(ledger.path, epsilon=1.0, delta=1e-6, neighbours="add-remove")
    assert second.head == ledger.head
    assert second.head.size == 2


def test_waiting_too_long_ends_with_an_error_and_enters_nothing(ledger, monkeypatch):
    monkeypatch.setattr(log, "PATIENCE", 0.2)
    with contextlib.closing(sqlite3.connect(ledger.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="kept it locked for"):
            ask(ledger, 0.001)
    ask(ledger, 0.001)
    assert ledger.head.size == 2


def test_a_waiting_thread_gets_its_turn(ledger):
    with contextlib.closing(sqlite3.connect(ledger.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(ask, ledger, 0.001)
            time.sleep(0.2)
            assert not waiting.done()
            other.rollback()
            assert waiting.result(timeout=30).seq == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_process_forks_while_the_file_is_open(ledger, monkeypatch):
    """A child would inherit what SQLite believes about its parent's locks."""
    inside, leave, forked = (threading.Event() for _ in range(3))
    insert = log._insert

    def slow(*arguments):
        inside.set()
        assert leave.wait(30)
        return insert(*arguments)

    def fork():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of threads
            child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        forked.set()

    monkeypatch.setattr(log, "_insert", slow)
    with ThreadPoolExecutor(2) as pool:
        entry = pool.submit(ask, ledger, 0.001)
        assert inside.wait(30)
        other = pool.submit(fork)
        assert not forked.wait(0.3)
        leave.set()
        assert forked.wait(30)
        other.result()
        assert entry.result().seq == 1


def test_an_interrupt_inside_an_entry_enters_nothing(ledger, monkeypatch):
    insert = log._insert

    def stop(*arguments):
        insert(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "_insert", stop)
    with pytest.raises(KeyboardInterrupt):
        ask(ledger, 0.001)
    monkeypatch.undo()
    assert ledger.head.size == 1
    assert ask(ledger, 0.001).seq == 1


def test_entries_are_on_disk_before_they_are_reported():
    """Power may fail: the journal's removal is synced too, not only its content."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.db")
        Ledger(path, epsilon=1.0, delta=1e-6, neighbours="add-remove")
        with contextlib.closing(log._connection(path)) as database:
            assert database.execute("PRAGMA synchronous").fetchone() == (3,)
            assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)


FULL = """
import os, resource, sys
from skdp import Ledger
ledger = Ledger(sys.argv[1])
reservation = ledger.reserve(0.001, neighbours="add-remove", query="x", n_draws=1)
size = os.stat(sys.argv[1]).st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for act in (
    lambda: ledger.reserve(0.001, neighbours="add-remove", query="y" * 900, n_draws=1),
    lambda: reservation.settle(0.0),
    lambda: Ledger(sys.argv[1] + "2", epsilon=1.0, delta=1e-6),
):
    try:
        act()
        print("done")
    except ValueError as error:
        print(type(error).__name__, "cannot be" in str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on files")
@pytest.mark.parametrize("room", [0, 100, 600, 4096, 5000])
def test_a_full_disk_is_told_and_nothing_is_lost(ledger, room):
    """The limit on a file's size stands for the disk's."""
    command = [sys.executable, "-c", FULL, ledger.path, str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["LedgerError True"] * 3, done.stderr
    assert [entry.kind for entry in ledger.entries()] == ["open", "reserve"]
    assert ledger.check().size == 2
    assert os.listdir(os.path.dirname(ledger.path)) == ["budget.db"]
    ask(ledger, 0.001)


@pytest.mark.skipif(not STRESS.is_file(), reason="benchmarks are not installed")
def test_killed_at_random_for_five_seconds(folder):
    done = subprocess.run(
        [sys.executable, STRESS, "--seconds", "5", "--folder", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("right\n")
    kills = int(done.stdout.split("(SIGKILL)")[1].split()[0])
    assert kills >= 1  # about fifty on an idle machine


AMOUNT = st.floats(0.0, 0.6)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("reserve"), AMOUNT, AMOUNT),
            st.tuples(st.just("settle"), st.floats(0, 1.2), st.floats(0, 1.2)),
            st.tuples(st.just("reopen"), AMOUNT, AMOUNT),
        ),
        max_size=25,
    )
)
@settings(max_examples=25)
def test_the_sums_are_those_of_a_plain_list_and_never_above_the_ceiling(steps):
    """Against a model: one number per reservation, added as rational numbers."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        ledger = Ledger(
            Path(folder) / "x.db",
            epsilon=1.0,
            delta=1e-6,
            neighbours="add-remove",
            reserved_delta=1e-7,
        )
        most = Fraction(ledger.terms.mu_squared), Fraction(1e-7)
        counted, open_reservations = {}, []

        def total(i):
            return sum((pair[i] for pair in counted.values()), Fraction(0))

        for what, a, b in steps:
            if what == "reserve":
                wanted = a * ledger.terms.mu_squared, b * 1e-7
                fits = all(
                    total(i) + Fraction(x) <= most[i] for i, x in enumerate(wanted)
                )
                try:
                    reservation = ask(ledger, wanted[0], delta=wanted[1])
                except BudgetError:
                    assert not fits
                    continue
                assert fits
                counted[reservation.seq] = tuple(map(Fraction, wanted))
                open_reservations.append(reservation)
            elif what == "settle" and open_reservations:
                reservation = open_reservations.pop()
                reserved = counted[reservation.seq]
                spent = float(reserved[0]) * a, float(reserved[1]) * b
                try:
                    reservation.settle(*spent)
                except ValueError:
                    assert any(
                        Fraction(x) > y for x, y in zip(spent, reserved, strict=True)
                    )
                    continue
                counted[reservation.seq] = tuple(map(Fraction, spent))
            else:
                ledger = Ledger(ledger.path)
            left = [most[i] - total(i) for i in (0, 1)]
            assert all(part >= 0 for part in left)
            assert ledger._read().left[:2] == tuple(left)
            assert Fraction(ledger.remaining) <= left[0]
            assert ledger.spent_epsilon <= 1.0
