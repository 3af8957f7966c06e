"""A cluster without Dask's scheduler, which would take most of the time of the tests.

Tasks and actors run at once, on copies of their arguments, as they would on a worker.
`tests/engines/test_dask.py` uses a real cluster.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from skdp.engines import dask_engine
from skdp.engines.dask_engine import Adder, Answer, Cluster, Held, Partition

#: The client of all futures. It is closed, so actors are not ended through it.
CLOSED = SimpleNamespace(status="closed")


class ImmediateCluster(Cluster):
    """Two workers, one of which runs a task when it is submitted."""

    def __init__(self, address: str | None = None, n_threads: int | None = None):
        self.n_threads = n_threads
        self.client = self

    def find_workers(self, running: bool = True) -> dict[str, int]:
        return {"first": 1, "second": 1}

    def compute(self, delayed: Any) -> Any:
        return SimpleNamespace(result=delayed.compute(scheduler="synchronous"))

    def scatter(self, values: list[Any], **_: Any) -> list[Any]:
        return [SimpleNamespace(result=copied(value)) for value in values]

    def submit(
        self,
        task: Any,
        *arguments: Any,
        worker: str | None = None,
        actor: bool = False,
    ) -> Any:
        if task is Adder:
            arguments = arguments[0], 1
        result = task(*map(_arrive, arguments))
        return SimpleNamespace(
            result=result, home=worker or "first", status="finished", client=CLOSED
        )

    def find_homes(self, futures: Any) -> list[str]:
        return [future.home for future in futures]

    def gather(self, futures: Any) -> list[Any]:
        results = [future.result for future in futures]
        return [r if isinstance(r, Adder) else copied(r) for r in results]

    def ask(self, held: Any, questions: Any) -> list[Answer]:
        pairs: Iterator[tuple[Held, Any]] = zip(held, questions, strict=True)
        return [copied(one.actor.add_up(*copied(question))) for one, question in pairs]


def _arrive(argument: Any) -> Any:
    """Return a task's argument, given a value, a future or a list of futures."""
    if isinstance(argument, list):
        return [_arrive(one) for one in argument]
    if isinstance(argument, SimpleNamespace):
        own = isinstance(argument.result, Partition)  # stays on the worker
        return argument.result if own else copied(argument.result)
    return copied(argument)


def copied(value: Any) -> Any:
    """Return a value as it arrives in another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))


@pytest.fixture(autouse=True, scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_engine, "Cluster", ImmediateCluster)
        yield
