"""A disk that is full: a sentence, no half of anything, and what was spent is entered.

``benchmarks/kill_fits.py`` ends fits with SIGKILL at any point.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import command, files

import skdp
from skdp import Ledger

FIT = ["fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--delta", "1e-6"]


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_model_that_cannot_be_saved_was_paid(place, monkeypatch):
    ledger = Ledger(place / "l.db", epsilon=4.0, delta=1e-6)
    before = files(place).keys()
    # The ledger's own writing is SQLite's, and is not hindered.
    monkeypatch.setattr("os.fsync", full)
    code, out, err = command(*FIT, "--out", "m", "--ledger", "l.db")
    assert (code, out) == (2, "")
    assert err.startswith("skdp: No space left on device.\n")
    assert "stays spent" in err
    assert files(place).keys() == before
    assert not [path for path in place.iterdir() if path.is_dir()]
    assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "commit"]
    assert 0.99 < ledger.spent_epsilon <= 1.0


@pytest.mark.parametrize(
    "words",
    [
        ["schema", "t.csv", "--out", "f"],
        ["plan", "--schema", "s.toml", "--rows", "100", "--out", "f"],
        ["ledger", "export", "l.db", "--out", "f"],
        ["predict", "m", "t.csv", "--out", "f.csv"],
    ],
    ids=lambda words: words[0],
)
def test_what_cannot_be_written_leaves_nothing(place, words, monkeypatch):
    """A failed write leaves no file behind, and keeps the one that was there."""
    Ledger("l.db", epsilon=4.0, delta=1e-6)
    command(*FIT, "--out", "m")
    for name in ("f", "f.csv"):
        Path(name).write_text("mine")
    before = files(place)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        code, out, err = command(*words, "--force")
    assert (code, out) == (2, "")
    assert "No space left" in err
    assert files(place) == before
    assert command(*words, "--force")[0] == 0


LIMITED = """
import resource, signal, sys
import scipy.stats  # of which older versions open a file of their own
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv[1:2] = []
from skdp.cli import main
main()
"""


def limited(room, *words):
    """Run a command none of whose files may grow beyond `room` bytes."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(room), *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


def test_files_that_may_not_grow(place):
    """The system itself refuses to write: first for the model, then for the ledger."""
    ledger = Ledger(place / "l.db", epsilon=4.0, delta=1e-6)
    before = files(place)
    done = limited(0, *FIT, "--out", "m", "--ledger", "l.db")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert files(place) == before  # nothing was read, nothing is spent
    assert ledger.spent_epsilon == 0
    done = limited(10, "schema", "t.csv", "--out", "g")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert files(place) == before


def test_records_that_outgrow_memory_and_the_disk(place, monkeypatch):
    """A spill file that cannot grow stops the fit, which the ledger has counted."""
    monkeypatch.setattr("skdp.tables.encoder.IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    ledger = Ledger(place / "l.db", epsilon=4.0, delta=1e-6)
    model = skdp.LogisticRegression(
        schema=skdp.schema.toml_files.read_toml("s.toml"), delta=1e-6, ledger=ledger
    )
    with pytest.raises(OSError, match="No space"):
        model.fit("t.csv")
    kinds = [entry.kind for entry in ledger.entries()]
    assert kinds == ["open", "reserve", "stop"]
    assert ledger.spent_epsilon == 0  # no noise was drawn, nothing was released


@pytest.mark.parametrize("out", ["x" * 201, "x" * 300 + "/m", "x/" * 3000])
def test_names_that_no_disk_takes_are_refused_before_anything_is_spent(place, out):
    ledger = Ledger(place / "l.db", epsilon=4.0, delta=1e-6)
    code, _, err = command(*FIT, "--out", out, "--ledger", "l.db")
    assert (code, err.count("\n")) == (2, 1)
    assert [entry.kind for entry in ledger.entries()] == ["open"]
