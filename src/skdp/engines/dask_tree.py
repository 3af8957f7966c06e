"""Let the workers of a Dask cluster add up in a tree, without the scheduler's help.

A step of a fit is short, and Dask's scheduler takes several milliseconds for each task.
So sums are not tasks. The caller asks one worker, which asks some others while it adds
up its own rows. These ask others in turn. Each worker adds the answers that it gets to
its own sum, and returns the total. The scheduler only passes on the first request and
the last answer.

Dask's workers answer requests of other kinds in the same way, for example for the
results of tasks. So this needs no connections that Dask does not need, and the
encryption is the same.
"""

from __future__ import annotations

from asyncio import create_task, gather, get_running_loop
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from distributed.protocol.pickle import dumps, loads

from skdp.engines.dask_rows import Answer, Job, add_up_partitions, make_public, merge

#: The name of the request.
REQUEST = "skdp_add_up"
#: Largest number of workers that one worker asks.
FAN_OUT = 16


class Branch(NamedTuple):
    """A worker and the workers below it in the tree.

    Attributes
    ----------
    worker : str
        The address of the worker.
    numbers : sequence of int
        The numbers of the partitions that the worker adds up.
    own : bytes
        A pickled tuple of further arguments for these partitions.
    branches : sequence of Branch
        The workers that this worker asks, each with the workers below it.
    """

    worker: str
    numbers: Sequence[int]
    own: bytes
    branches: Sequence[Branch] = ()


def grow(branches: Sequence[Branch]) -> Branch:
    """Arrange workers in a tree, in which each worker asks at most `FAN_OUT` others."""

    def take(index: int) -> Branch:
        below = range(FAN_OUT * index + 1, FAN_OUT * (index + 1) + 1)
        own = [take(other) for other in below if other < len(branches)]
        return branches[index]._replace(branches=own)

    return take(0)


def pack(table: str, job: Job) -> bytes:
    """Return a request for the sum of a job over partitions of a table."""
    packed: bytes = dumps((table, job))
    return packed


def listen(worker: Any) -> None:
    """Let a worker answer requests for sums."""

    async def answer(packed: bytes, branch: Sequence[Any]) -> bytes:
        return await _answer(worker, packed, branch)

    worker.handlers.setdefault(REQUEST, answer)


async def ask(connection: Any, packed: bytes, branch: Branch) -> bytes:
    """Request a sum from a worker, and return its pickled answer.

    If the worker cannot be reached, or was started again, it has no rows.
    """
    lost: bytes = dumps(Answer(missing=tuple(branch.numbers)))
    try:
        request = getattr(connection, REQUEST)
        found: bytes | None = await request(packed=packed, branch=branch)
    except Exception:  # whatever Dask raises if a connection breaks
        return lost
    return lost if found is None else found


async def _answer(worker: Any, packed: bytes, branch: Sequence[Any]) -> bytes:
    """Answer a request for a sum. This runs in the thread of a worker's messages.

    It raises no error, because Dask would log it.
    """
    own = Branch(*branch)
    others = [Branch(*one) for one in own.branches]
    calls = [create_task(ask(worker.rpc(one.worker), packed, one)) for one in others]
    run = partial(get_running_loop().run_in_executor, worker.executors["default"])
    try:
        answer: bytes = await run(_add_up_branch, worker, packed, own)
        if calls:
            answer = await run(_merge, [answer, *await gather(*calls)])
    except Exception:  # the worker is being closed
        return _pack_answer(Answer(missing=tuple(own.numbers)))
    return answer


def _add_up_branch(worker: Any, packed: bytes, branch: Branch) -> bytes:
    try:
        table, job = loads(packed)
        own = loads(branch.own)
    except BaseException as error:
        return _pack_answer(Answer(error=make_public(error)))
    return _pack_answer(add_up_partitions(worker, table, branch.numbers, job, *own))


def _merge(answers: Sequence[bytes]) -> bytes:
    return _pack_answer(merge([loads(answer) for answer in answers]))


def _pack_answer(answer: Answer) -> bytes:
    packed: bytes = dumps(answer)
    return packed
