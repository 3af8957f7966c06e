"""A team's threads sweep together, end with their engine, and survive its failures."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from skdp.engines import kernels
from skdp.engines import threads as row_threads
from skdp.engines import threads as team_module
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.engines.threads import Team
from skdp.models import losses
from skdp.privacy import queries
from skdp.privacy.encoding import Batch, encode
from skdp.privacy.grid import WeightGrid
from skdp.schema import Numeric, Schema

N_ROWS = 40_000
RNG = np.random.default_rng(0)
SCHEMA = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}, target=("y", Numeric(0, 1)))
COLUMNS = {name: RNG.random(N_ROWS) for name in "ab"}
RECORDS = encode([Batch(columns=COLUMNS, target=RNG.random(N_ROWS))], SCHEMA)
SLOPES = queries.Slopes(loss=losses.Squared())
AT = np.arange(3)
EXPECTED = ReferenceEngine(RECORDS)
TAKEN = kernels.SweepJob._fields.index("taken")


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Let several threads sweep over few rows."""
    monkeypatch.setattr(row_threads, "TASK_ENTRIES", 1)


def gradients(engine, times):
    """Return the gradients at some weights."""
    grid = WeightGrid.of(RECORDS.layout)
    weights = [grid.units(np.full((3, 1), 0.01 * i)) for i in range(times)]
    return [engine.gradient(units, AT, SLOPES) for units in weights]


@numba.njit
def finish(job):
    """Count a thread as finished, as `kernels.sweep` does."""
    kernels.add_at(job.ctypes.data + 8 * kernels.FINISHED, 1)


@numba.njit
def take_turn(job):
    """Return how many threads have called this function before, for the same job."""
    return kernels.add_at(job[TAKEN], 1)


def make_job(taken):
    """Return a job without rows."""
    nothing = kernels.SweepJob(*[0] * len(kernels.SweepJob._fields))
    return nothing._replace(taken=taken.ctypes.data)


@pytest.mark.parametrize("n_threads", [2, 5, 16])
def test_every_sweep_has_the_sums_of_the_reference(n_threads):
    found = gradients(CompiledEngine(RECORDS, n_threads), 60)
    expected = gradients(CompiledEngine(RECORDS, 1), 60)
    assert all((a == b).all() for a, b in zip(found, expected, strict=True))
    assert (found[-1] == gradients(EXPECTED, 60)[-1]).all()


def test_two_engines_sweep_at_the_same_time():
    engines = [CompiledEngine(RECORDS, 3) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(gradients, engines, [50, 50])
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


def test_a_sweep_waits_for_the_slowest_thread(monkeypatch):
    @numba.njit
    def note(job):
        turn, word, slowest = take_turn(job), 1, job[0]
        for i in range((turn == slowest) * 10**7):
            word = (word * 1_103_515_245 + i) % 2_147_483_648
        job[TAKEN + 1 + turn] = -1 - word
        finish(job)

    monkeypatch.setattr(kernels, "sweep", note)
    team = Team(3)
    for turn in [0, 1, 2] * 6:  # which thread takes which turn, the system decides
        team.sweep(make_job(np.zeros(1, np.int64))._replace(ranges=turn), 3)
        assert (team._job[TAKEN + 1 : TAKEN + 4] < 0).all()


def test_callers_of_one_team_take_turns(monkeypatch):
    """Otherwise a job would be overwritten while threads work on it."""

    @numba.njit
    def count(job):
        turn, word = take_turn(job), job[0]
        for i in range(10**5):
            word = (word * 1_103_515_245 + i) % 2_147_483_648
        numba.carray(kernels._int64(job[0]), 3)[turn] += 1 if word != 1 else 2
        finish(job)

    def sweep(_):
        taken, own = np.zeros(1, np.int64), np.zeros(3, np.int64)
        team.sweep(make_job(taken)._replace(ranges=own.ctypes.data), 3)
        return own.tolist()

    monkeypatch.setattr(kernels, "sweep", count)
    team = Team(3)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(sweep, range(40)))
    assert found == [[1, 1, 1]] * 40


def test_threads_have_finished_when_an_error_is_raised():
    """They read arrays by their addresses, and the caller may delete the arrays."""
    started, finished = threading.Event(), []

    def work(item):
        if item == 0:
            started.wait()
            raise KeyboardInterrupt
        started.set()
        time.sleep(0.3)
        finished.append(item)

    threads = row_threads.Threads(2, [row_threads.MANY_ROWS], [None] * 2)
    with pytest.raises(KeyboardInterrupt):
        threads.map(work, [0, 1])
    assert finished == [1]


def test_some_threads_of_a_team_sweep():
    team, taken = Team(4), np.zeros(1, np.int64)
    for n_threads in (4, 1, 3):
        team.sweep(make_job(taken), n_threads)
    assert taken == 4 + 1 + 3


@pytest.mark.parametrize("n_cores", [1, 64])
def test_threads_may_sleep_or_try_again_between_sweeps(monkeypatch, n_cores):
    """They try only if each has a core of its own."""
    monkeypatch.setattr(team_module, "count_cores", lambda: n_cores)
    engine = CompiledEngine(RECORDS, 3)
    found = gradients(engine, 20)
    assert bool(engine._threads._team._job[team_module.TRIES]) == (n_cores > 3)
    expected = gradients(CompiledEngine(RECORDS, 1), 20)
    assert all((a == b).all() for a, b in zip(found, expected, strict=True))


def test_threads_that_wait_for_long_use_no_processor(monkeypatch):
    monkeypatch.setattr(team_module, "count_cores", lambda: 64)
    engine = CompiledEngine(RECORDS, 4)
    gradients(engine, 3)
    start = time.process_time()
    time.sleep(1)
    assert time.process_time() - start < 0.5


def test_the_threads_end_with_their_engine():
    before = set(threading.enumerate())
    engine = CompiledEngine(RECORDS, 4)
    gradients(engine, 2)
    made = set(threading.enumerate()) - before
    assert len(made) == 3  # the fourth is the one that calls
    del engine
    gc.collect()
    for thread in made:
        thread.join(60)
    assert not any(thread.is_alive() for thread in made)


def test_an_engine_is_deleted_with_its_last_reference():
    """Its threads and rows should not stay until garbage is collected."""
    engine = CompiledEngine(RECORDS, 3)
    gradients(engine, 2)
    threads = weakref.ref(engine._threads)
    gc.disable()
    try:
        del engine
        assert threads() is None
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("failing", [0, 1])
def test_a_failed_sweep_is_an_error_and_not_the_end(monkeypatch, failing):
    """One thread raises: one of the team, or the one that calls."""

    @numba.njit
    def fail(job):
        if take_turn(job) == failing and job[0]:
            raise MemoryError
        finish(job)

    monkeypatch.setattr(kernels, "sweep", fail)
    team = Team(2)
    for _ in range(20):
        job = make_job(np.zeros(1, np.int64))
        with pytest.raises(MemoryError, match="not enough memory"):
            team.sweep(job._replace(ranges=1), 2)
        team.sweep(job, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_forked_process_makes_a_team_of_its_own(fresh):
    engine = CompiledEngine(RECORDS, 2)
    expected = gradients(engine, 3)
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if child == 0:
        if fresh:  # ends without waiting for threads that this process does not have
            del engine
            engine = CompiledEngine(RECORDS, 2)
        found = gradients(engine, 3)
        same = all((a == b).all() for a, b in zip(found, expected, strict=True))
        os._exit(0 if same else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("The forked process hangs.")
    assert status == 0


#: A program that prints whether the compiled engine's sum is that of the reference.
COMPARE = """
import numpy as np
import skdp
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Squared
from skdp.privacy import queries
from skdp.privacy.encoding import Batch, encode

x = np.linspace(0, 1, 5000)
schema = skdp.Schema({"a": skdp.Numeric(0, 1)}, target=("y", skdp.Numeric(0, 1)))
records = encode([Batch(columns={"a": x}, target=x)], schema)
given = np.full((2, 1), 1 << 20), np.arange(2), queries.Slopes(loss=Squared())
sums = [make(records).gradient(*given) for make in (CompiledEngine, ReferenceEngine)]
print((sums[0] == sums[1]).all())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="MALLOC_PERTURB_ is glibc's")
def test_memory_is_kept_until_a_sweep_ends():
    """The C library overwrites memory that is freed, so its use after that shows."""
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    command = [sys.executable, "-c", COMPARE]
    found = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert found.stdout == b"True\n"
