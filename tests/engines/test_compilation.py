"""The message about compiling is about one kernel, which every engine calls first."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import njit

import skdp
from skdp.engines import choice, compilation, kernels
from skdp.engines.compiled import CompiledEngine
from skdp.privacy.encoding import Batch, encode
from skdp.schema import Numeric, Schema

SCHEMA = Schema({"a": Numeric(0, 1)}, target=("y", Numeric(0, 1)))


@pytest.fixture(autouse=True)
def _messages_are_allowed():
    """Commands and workers of a cluster in this process suppress them."""
    choice.suppress_message(False)


def start(dispatcher):
    """Let the listener know that a kernel is being compiled."""
    event = SimpleNamespace(data={"dispatcher": dispatcher})
    compilation.CompilationListener().on_start(event)


def test_other_kernels_are_compiled_in_silence(capfd):
    """Which of them are compiled may depend on how the rows are stored."""
    start(kernels.find_moves)
    assert capfd.readouterr().err == ""
    start(kernels.sweep)
    (line,) = capfd.readouterr().err.splitlines()
    assert "compiling" in line


def test_numba_lets_the_listener_know(capfd, monkeypatch):
    monkeypatch.setattr(kernels, "sweep", njit(lambda x: x + 1))
    kernels.sweep(1)
    assert "compiling" in capfd.readouterr().err
    kernels.sweep(2)
    assert capfd.readouterr().err == ""


def test_the_message_can_be_suppressed(capfd):
    choice.suppress_message(True)
    start(kernels.sweep)
    choice.suppress_message(False)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("n_rows", [0, 1])
def test_every_engine_calls_the_sweep_before_rows_are_read(n_rows, monkeypatch):
    calls = []
    sweep = kernels.sweep
    monkeypatch.setattr(kernels, "sweep", lambda *given: calls.append(sweep(*given)))
    cells = np.zeros(n_rows)
    batches = [Batch(columns={"a": cells}, target=cells)]
    CompiledEngine(encode(batches, SCHEMA))
    assert len(calls) == 1
    assert len(sweep.signatures) == 1


@pytest.mark.filterwarnings("ignore")  # n_rows is wrong on purpose
def test_small_fits_use_the_reference_engine_until_they_were_many(monkeypatch):
    """With equal rows; the choice follows the number that `n_rows` makes public."""
    monkeypatch.delenv("SKDP_ENGINE", raising=False)
    monkeypatch.setattr(choice, "_patience", choice.PATIENCE)
    table = skdp.make_hospital(50)
    chosen, used = [], []
    for n_rows in (1000, 50, 10**6, 50):
        model = skdp.LogisticRegression(schema=table.schema, n_rows=n_rows, n_steps=5)
        chosen.append(model.fit(table.columns).plan_.engine)
        used.append(choice._patience)
    assert chosen == ["reference", "reference", "auto", "reference"]
    assert used[1] == used[2] > used[3]
    monkeypatch.setattr(choice, "_patience", used[2] - used[3])
    chosen = [model.fit(table.columns).plan_.engine for _ in range(2)]
    assert chosen == ["reference", "auto"]
    assert choice._patience == 0


def test_an_engine_that_was_named_is_used(monkeypatch):
    monkeypatch.setenv("SKDP_ENGINE", "compiled")
    assert choice.choose_small_engine("auto", 1) is None
    monkeypatch.delenv("SKDP_ENGINE")
    assert choice.choose_small_engine("compiled", 1) is None
    assert choice.choose_small_engine("auto", float("inf")) is None
