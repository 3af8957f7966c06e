"""Define the tasks that the workers of a Dask cluster run.

No task raises an error, because Dask logs the arguments of a failing task, and the
arguments may hold rows. Instead, tasks return errors as results.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from os.path import exists
from pathlib import Path
from threading import Event
from typing import Any

from distributed import get_worker, secede

from skdp.engines.dask_rows import Answer, Name, Partition, get_shelf, make_public
from skdp.engines.dask_tree import listen
from skdp.tables.placed import Read

#: Seconds after which a worker looks whether its caller is gone.
LOOK = 0.5
#: What the task `stay` waits for, by the name of the table.
_ends: dict[str, Event] = {}


def hold(name: Name, read: Read, *arguments: Any) -> Partition:
    """Read a partition. The worker keeps its rows for as long as Dask keeps the result.

    Arguments that are answers of other tasks are replaced by their totals. An error
    names the partition's file, or its number if it is not a file.
    """
    answer = call(read, *arguments)
    error = answer.error
    if error is not None and not isinstance(arguments[0], PathLike):
        error = type(error)(f"In partition {name[1]}: {error}")
    partition = Partition(answer.total, error)
    worker = get_worker()
    get_shelf(worker)[name] = partition
    listen(worker)
    return partition


def stay(table: str) -> None:
    """Occupy a worker until `leave` is called, or until the caller is gone.

    Sums are not tasks. Without this task, Dask would consider the worker idle, and a
    cluster that adapts to its load would close it. Other tasks can still run.
    """
    worker = get_worker()
    key, end = worker.get_current_task(), _ends.setdefault(table, Event())
    secede()
    while worker.status.name == "running" and not end.wait(LOOK):
        task = worker.state.tasks.get(key)
        if task is None or task.state not in ("executing", "long-running"):
            break
    _ends.pop(table, None)


def leave(table: str) -> None:
    """End the task `stay`, so its worker may be closed. Dask would warn otherwise."""
    if table in _ends:
        _ends[table].set()


def call(work: Callable[..., Any], *arguments: Any) -> Answer:
    """Call a function, and return its result or its error.

    Arguments that are answers of other tasks, or lists of them, are replaced by their
    totals. If one of these answers has an error, that answer is returned instead. If
    the first argument is a file, an error names the file.
    """
    for one in arguments:
        for answer in one if isinstance(one, list) else [one]:
            if isinstance(answer, Answer) and answer.error is not None:
                return answer
    try:
        return Answer(work(*map(_get_totals, arguments)))
    except BaseException as error:  # Dask would log any that is left
        return Answer(error=_name_file(make_public(error), *arguments[:1]))


def _get_totals(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_get_totals(one) for one in argument]
    return argument.total if isinstance(argument, Answer) else argument


def _name_file(error: Exception, table: Any = None) -> Exception:
    """Return the error with the name of the file that a task has read.

    Names of files are public, because the caller has listed them.
    """
    if not isinstance(table, PathLike):
        return error
    path = Path(table)
    if not exists(path):  # the method of Path may raise an error
        return ValueError(
            f"A worker of the cluster does not find the file {str(path)!r}. Workers "
            "must be able to read all files, under the same paths as this process."
        )
    if path.name in str(error):
        return error
    return type(error)(f"In {path.name!r}: {error}")
