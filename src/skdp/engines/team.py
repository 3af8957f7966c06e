"""Let threads sweep over rows without waiting for the interpreter's lock.

A thread needs the interpreter's lock to start or end a call from Python. Sixteen
threads therefore start one after another, which takes longer than a sweep over a
million rows. The threads of a `Team` stay in compiled code from one sweep to the next.
They wait there for locks of the operating system, which need no interpreter. The thread
that calls the team sweeps too.

numba's own parallel loops would also work without the lock. But they kill a forked
process that uses them. With some threading libraries, they also kill a process in which
two threads use them at the same time.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from functools import cache
from threading import Lock, Thread
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from skdp.engines import kernels
from skdp.engines.kernels import SweepJob

#: Words after the fields of a job: the compiled sweep, how often a thread tries to
#: acquire a lock before it sleeps, whether the threads must end, and the addresses of
#: two C functions that acquire and release a lock. They do not depend on the number of
#: fields, because numba keeps compiled code until this file changes. numba describes a
#: compiled function by two or three words.
SWEEP, TRIES, END, ACQUIRE, RELEASE = 56, 60, 61, 62, 63
#: How often a thread tries to acquire a lock, if each thread has a core of its own.
#: This takes one or two milliseconds, which is longer than the time between two sweeps.
#: Waking a thread that sleeps takes longer, above all on a virtual machine.
MANY_TRIES = 1 << 16

Words = npt.NDArray[np.int64]


def _call_with(*arguments: int) -> Any:
    """Return a compiled function that calls a C function at an address.

    The C function gets a pointer and then the integers in `arguments`. It returns an
    integer. If it is declared to return nothing, this integer has no meaning.
    """

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(number, [pointer, *[number] * len(arguments)])
        function = builder.inttoptr(values[0], kind.as_pointer())
        lock = builder.inttoptr(values[1], pointer)
        return builder.call(function, [lock, *(number(one) for one in arguments)])

    def call(typing_context: Any, function: Any, lock: Any) -> Any:
        return types.int32(types.int64, types.int64), codegen

    return intrinsic(call)


_acquire, _try_to_acquire, _release = _call_with(1), _call_with(0), _call_with()

WORDS, PAIRS = (types.Array(types.int64, ndim, "C") for ndim in (1, 2))
SWEEP_TYPE = types.FunctionType(types.void(WORDS))


def _store_function(typing_context: Any, function: Any, address: Any) -> Any:
    """Define the compiled function `_store`, which stores a function at an address."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[1], values[0].type.as_pointer())
        builder.store(values[0], pointer)
        return context.get_dummy_value()

    return types.void(SWEEP_TYPE, types.int64), codegen


def _load_function(typing_context: Any, address: Any) -> Any:
    """Define the compiled function `_load`, which returns the function stored there."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(SWEEP_TYPE)
        return builder.load(builder.inttoptr(values[0], kind.as_pointer()))

    return SWEEP_TYPE(types.int64), codegen


_store: Any = intrinsic(_store_function)
_load: Any = intrinsic(_load_function)


def _keep(sweep: Any, job: Words) -> None:
    _store(sweep, job.ctypes.data + 8 * SWEEP)


@kernels.kernel()
def _wait_for(lock: int, job: Words) -> None:
    """Acquire a lock when it is released."""
    for _ in range(job[TRIES]):
        if _try_to_acquire(job[ACQUIRE], lock):
            return
    _acquire(job[ACQUIRE], lock)


def _work(job: Words, locks: Words) -> None:
    """Wait for the first lock, sweep, and release the second lock, until the end."""
    sweep = _load(job.ctypes.data + 8 * SWEEP)
    while True:
        _wait_for(locks[0], job)
        if job[END]:
            break
        try:  # noqa: SIM105 (compiled code has no contextlib)
            sweep(job)
        except Exception:  # the job then counts too few threads as finished
            pass
        _release(job[RELEASE], locks[1])


def _lead(job: Words, locks: Words, finished: int) -> int:
    """Wake the threads with these locks, sweep too, and wait until all have swept.

    Return how many have finished, which is the job's field with the index `finished`.
    """
    sweep = _load(job.ctypes.data + 8 * SWEEP)
    for i in range(len(locks)):
        _release(job[RELEASE], locks[i, 0])
    try:  # noqa: SIM105 (compiled code has no contextlib)
        sweep(job)
    except Exception:  # see `_work`
        pass
    for i in range(len(locks)):
        _wait_for(locks[i, 1], job)
    return int(job[finished])


@cache
def _compile() -> tuple[Any, Any, Any]:
    """Compile `_keep`, `_work` and `_lead`.

    They get the sweep as a value. Otherwise it would be compiled again. Python takes
    long to pass such a value, so it does this once and not for each sweep.
    """
    return (
        kernels.kernel(types.void(SWEEP_TYPE, WORDS))(_keep),
        kernels.kernel(types.void(WORDS, WORDS))(_work),
        kernels.kernel(types.int64(WORDS, PAIRS, types.int64))(_lead),
    )


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Team:
    """Threads that sweep over rows together.

    Parameters
    ----------
    n_threads : int
        The number of threads, including the one that calls `sweep`.
    """

    def __init__(self, n_threads: int) -> None:
        keep, work, self._lead = _compile()
        python = ctypes.pythonapi
        python.PyThread_allocate_lock.restype = ctypes.c_void_p
        functions = python.PyThread_acquire_lock, python.PyThread_release_lock
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]
        self._one_at_a_time = Lock()
        self._job = np.zeros(RELEASE + 1, np.int64)
        self._job[ACQUIRE:] = addresses
        self._job[TRIES] = MANY_TRIES if n_threads <= count_cores() else 0
        self._sweep = kernels.sweep  # kept alive, like any function that is stored
        keep(self._sweep, self._job)
        others = n_threads - 1
        locks = [python.PyThread_allocate_lock() for _ in range(2 * others)]
        for lock in locks:
            python.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
        self._locks = np.array(locks, np.int64).reshape(others, 2)
        for own in self._locks:
            Thread(target=_follow, args=(work, self._job, own), daemon=True).start()
        end = weakref.finalize(self, _end, self._job, self._locks, os.getpid())
        end.atexit = False  # the threads end with the process

    def sweep(self, job: SweepJob, n_threads: int) -> None:
        """Let some of the threads sweep."""
        with self._one_at_a_time:
            self._job[: len(job)] = job
            others = self._locks[: n_threads - 1]
            finished = self._lead(self._job, others, kernels.FINISHED)
        if finished < n_threads:
            raise MemoryError("There is not enough memory for a sweep over the rows.")


def _follow(work: Any, job: Words, locks: Words) -> None:
    """Sweep whenever the first lock is released, and free both locks at the end."""
    work(job, locks)
    for lock in locks.tolist():
        ctypes.pythonapi.PyThread_free_lock(ctypes.c_void_p(lock))


def _end(job: Words, locks: Words, process: int) -> None:
    """Let the threads of a team end, without waiting for them.

    The garbage collector may call this function anywhere, even while a lock is held
    that a thread needs in order to end.
    """
    if os.getpid() != process:  # a forked process has no threads to end
        return
    job[END] = 1
    for lock in locks[:, 0].tolist():
        ctypes.pythonapi.PyThread_release_lock(ctypes.c_void_p(lock))
