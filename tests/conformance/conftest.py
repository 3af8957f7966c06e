"""A cluster without Dask's scheduler, which would take most of the time of the tests.

Tasks and sums run at once, on copies of their arguments, as they would on a worker.
`tests/engines/test_dask.py` uses a real cluster.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from skdp.engines import dask_client, dask_engine, dask_tasks, dask_tree
from skdp.engines.dask_rows import Answer, merge
from skdp.engines.dask_tree import Branch


class ImmediateCluster:
    """Two workers, one of which runs a task when it is submitted."""

    def __init__(self, address: str | None = None, n_threads: int | None = None):
        self.n_threads = n_threads
        self.client = self
        names = ("first", "second")
        self._workers = {
            name: SimpleNamespace(state=SimpleNamespace(nthreads=1), handlers={})
            for name in names
        }

    def find_workers(self) -> dict[str, int]:
        return dict.fromkeys(self._workers, 1)

    list_workers = find_workers

    def compute(self, delayed: Any) -> Any:
        return SimpleNamespace(result=delayed.compute(scheduler="synchronous"))

    def scatter(self, values: list[Any], workers: list[str], **_: Any) -> list[Any]:
        return [SimpleNamespace(result=copied(value)) for value in values]

    def submit(self, task: Any, *arguments: Any, worker: str | None = None) -> Any:
        arguments = tuple(
            one.result if isinstance(one, SimpleNamespace) else copied(one)
            for one in arguments
        )
        if task is dask_tasks.stay:  # there is no scheduler that could close workers
            return None
        on = worker or "first"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dask_tasks, "get_worker", lambda: self._workers[on])
            result = task(*arguments)
        return SimpleNamespace(result=result, worker=on, status="finished")

    def ask(self, packed: bytes, branch: Branch, *_: Any) -> Answer:
        own = dask_tree._add_up_branch(self._workers[branch.worker], packed, branch)
        others = [self.ask(packed, other) for other in branch.branches]
        return merge([cloudpickle.loads(own), *others])

    def let_go(self, table: str, workers: Any) -> None:
        pass

    def finish(self, futures: list[Any], workers: Any = ()) -> None:
        pass

    def find_holders(self, futures: dict[int, Any]) -> dict[int, str]:
        return {number: future.worker for number, future in futures.items()}

    def total(self, futures: list[Any], workers: Any = ()) -> Answer:
        return merge([copied(future.result) for future in futures])


def copied(value: Any) -> Any:
    """What arrives of a value that is sent to another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))


@pytest.fixture(autouse=True, scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (dask_client, dask_engine):
            patch.setattr(module, "Cluster", ImmediateCluster)
        yield
