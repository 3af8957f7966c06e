"""The message about compiling is about one kernel, which every engine calls first."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import njit

from skdp.engines import compilation, kernels
from skdp.engines.compiled import CompiledEngine
from skdp.privacy.encoding import Batch, encode
from skdp.schema import Numeric, Schema

SCHEMA = Schema({"a": Numeric(0, 1)}, target=("y", Numeric(0, 1)))


def start(dispatcher):
    """Let the listener know that a kernel is being compiled."""
    event = SimpleNamespace(data={"dispatcher": dispatcher})
    compilation.CompilationListener().on_start(event)


def test_other_kernels_are_compiled_in_silence(capfd):
    """Rows in a file are read-only: which kernels are compiled depends on records."""
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
    compilation.suppress_message(True)
    start(kernels.sweep)
    compilation.suppress_message(False)
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
