"""Fits on a local Dask cluster: their overhead, what a step costs, and lost workers.

A table of 15 columns (8 numbers, 7 categories) lies in Parquet files. It is fitted by
the compiled engine with two threads and by clusters of two workers with one thread
each, in turn: one with Dask's own settings, and one whose workers keep memory. Then the
cost of a step is split:

- *work* is the time that the slower worker computes;
- *a call* is a call to an actor without rows, and its answer;
- *a further worker* is what a sum takes longer for each other worker that is asked.

At last, fits are run in which a worker is killed (SIGKILL) at a random moment of a
random sum, but not of the last one. Each fit ends with the check that sums were left to
compute when the worker was killed, and that its process is gone.

Run ``python benchmarks/cluster.py [--rows 10000000] [--repeats 5] [--kills 10]
[--kill-rows 1000000]``. It writes ``docs/evidence/cluster.json`` and
``docs/evidence/cluster.md``. With ``--only-kills`` it keeps all other numbers.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import psutil
from cluster_report import write
from distributed import Client, LocalCluster

import skdp
from skdp.engines.dask_engine import Adder, Cluster, Part, Partitions
from skdp.privacy.encoding import Records
from skdp.schema import Categorical, Numeric, Schema

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
FILES = 8
#: The workers of the cluster that shows the cost of a further worker.
MANY = 9
#: The settings of Dask that docs/guide/cluster.md recommends.
KEEP_MEMORY = {
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 30,
}
LEVELS = [2, 4, 5, 7, 9, 16, 40]
SCHEMA = Schema(
    {f"n{i}": Numeric(0, 1) for i in range(8)}
    | {f"c{i}": Categorical(list(range(k))) for i, k in enumerate(LEVELS)},
    target=("y", Categorical([0, 1])),
)


def write_table(folder: Path, rows: int) -> None:
    """Write the table, one file after the other."""
    for part in range(FILES):
        rng, n = np.random.default_rng(part), rows // FILES
        table = {f"n{i}": rng.random(n, np.float32) for i in range(8)}
        margin = 3 * table["n0"] - 2 * table["n1"] - 0.5
        table |= {f"c{i}": rng.integers(0, k, n, np.int8) for i, k in enumerate(LEVELS)}
        margin += 0.2 * table["c1"]
        table["y"] = (rng.logistic(size=n) < margin).astype(np.int8)
        pd.DataFrame(table).to_parquet(folder / f"{part}.parquet")


def fit(folder: Path, engine: str, **options: Any) -> tuple[float, Any]:
    """Fit the table, and return the seconds and the model."""
    start = time.perf_counter()
    model = skdp.LogisticRegression(
        schema=SCHEMA, engine=engine, random_state=1, **options
    ).fit(folder)
    return time.perf_counter() - start, model


class Watch:
    """Notes how long each sum takes, and the bytes that pass through this machine."""

    def __init__(self) -> None:
        self.sums: list[tuple[str, float, int]] = []
        self._real = real = Partitions.add_up

        def noted(own: Partitions, name: str, *given: Any, **options: Any) -> Any:
            start, before = time.perf_counter(), count_bytes()
            total = real(own, name, *given, **options)
            seconds = time.perf_counter() - start
            self.sums.append((name, seconds, count_bytes() - before))
            return total

        Partitions.add_up = noted

    def stop(self) -> None:
        """Note nothing more."""
        Partitions.add_up = self._real

    def steps(self) -> tuple[float, float]:
        """Return the median seconds and bytes of a gradient after the first."""
        own = [one[1:] for one in self.sums if one[0] == "gradient"][1:]
        return tuple(statistics.median(column) for column in zip(*own, strict=True))


def count_bytes() -> int:
    """Return the bytes that this machine has sent to itself."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def note_work() -> None:
    """Let a worker note how long it computes gradients. This runs on the worker."""
    real = Adder.gradient
    Adder.noted = noted = []

    def gradient(*arguments: Any) -> Any:
        start = time.perf_counter()
        total = real(*arguments)
        noted.append(time.perf_counter() - start)
        return total

    Adder.gradient = gradient


def get_noted() -> list[float]:
    """Return what a worker has noted. This runs on the worker."""
    return list(Adder.noted)


def find_work(client: Client) -> float:
    """Return the median seconds of the slower worker in a step of the last fit."""
    own = [noted[-60:] for noted in client.run(get_noted).values()]
    return statistics.median(map(max, zip(*own, strict=True)))


def return_zeros(size: int, records: Records) -> Any:
    """Return a sum of the size of a gradient, without work."""
    return np.zeros(size, dtype=object)


def read_nothing(*_: Any) -> Any:
    """Return a partition without rows."""
    return Records(SCHEMA.layout(), ())


def measure_calls(size: int) -> dict[str, float]:
    """Return what sums without work cost, in seconds.

    All workers share the cores of this machine, so this is too much for a cluster.
    """
    seconds = {}
    for many in (1, MANY):
        with start_cluster(n_workers=many) as own, Client(own):
            parts = Partitions(Cluster(), [Part(None)] * many, read_nothing)
            times = []
            for _ in range(41):
                start = time.perf_counter()
                parts.add_up("apply", partial(return_zeros, size))
                times.append(time.perf_counter() - start)
        seconds[many] = statistics.median(times[1:])
    return {"call": seconds[1], "further": (seconds[MANY] - seconds[1]) / (MANY - 1)}


class Killer:
    """Kills a worker (SIGKILL) while a given sum of a fit is computed.

    Parameters
    ----------
    client : Client
        The client of the cluster.
    at : int
        The number of the sum, from zero. It is not the last one, so the fit must go on
        without the worker.
    delay : float
        The seconds from the start of the sum to the kill.
    """

    def __init__(self, client: Client, at: int, delay: float) -> None:
        self._at, self._delay, self._sums = at, delay, 0
        self._pids: dict[str, int] = client.run(os.getpid)
        self.during = ""
        self.after_sums: int | None = None
        self.lost = random.choice(sorted(self._pids.values()))

    def _kill(self) -> None:
        time.sleep(self._delay)
        os.kill(self.lost, signal.SIGKILL)
        self.after_sums = self._sums

    def fit(self, folder: Path) -> tuple[float, Any]:
        """Fit, and return the seconds and the model."""
        real = Partitions.add_up

        def watched(own: Partitions, name: str, *given: Any, **options: Any) -> Any:
            killer = threading.Thread(target=self._kill)
            if self._sums == self._at:
                self.during = name
                killer.start()
            total = real(own, name, *given, **options)
            if killer.ident is not None:
                killer.join()
            self._sums += 1
            return total

        Partitions.add_up = watched
        try:
            return fit(folder, "dask")
        finally:
            Partitions.add_up = real

    def describe(self, client: Client) -> dict[str, Any]:
        """Return when the worker was killed, after checks that it was."""
        assert self.after_sums is not None
        assert self.after_sums < self._sums
        assert self.lost not in client.run(os.getpid).values()
        return {"during": self.during, "done": self.after_sums, "sums": self._sums}


def start_cluster(n_workers: int = 2, keep_memory: bool = False) -> LocalCluster:
    """Start workers with one thread each."""
    with dask.config.set(KEEP_MEMORY if keep_memory else {}):
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )


def measure_kills(rows: int, kills: int) -> dict[str, Any]:
    """Run fits with a worker killed at a random moment, and compare their bits.

    Each fit has its own cluster, because Dask does not always start a killed worker
    again.
    """
    equal = twice = 0
    moments = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_table(folder, rows)
        _, here = fit(folder, "compiled")
        watch = Watch()
        with start_cluster() as cluster, Client(cluster):
            _, expected = fit(folder, "dask")
        watch.stop()
        assert (here.weights_ == expected.weights_).all()
        for _ in range(kills):
            at = random.randrange(len(watch.sums) - 1)
            with start_cluster() as cluster, Client(cluster) as client:
                killer = Killer(client, at, random.uniform(0.0, watch.sums[at][1]))
                own, model = killer.fit(folder)
                moments.append(killer.describe(client) | {"seconds": own})
            equal += bool((model.weights_ == expected.weights_).all())
            twice += len(model.privacy_.transcript) != len(expected.privacy_.transcript)
            print(f"{moments[-1]}: {equal} equal", flush=True)
    counts = {"rows": rows, "fits": kills, "equal": equal, "released_twice": twice}
    return counts | {"moments": moments}


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--kill-rows", type=int, default=1_000_000)
    parser.add_argument("--only-kills", action="store_true")
    given = parser.parse_args()
    random.seed(0)
    if given.only_kills:
        kills = measure_kills(given.kill_rows, given.kills)
        known = json.loads((EVIDENCE / "cluster.json").read_text())
        keep(known | {"kills": kills})
        return
    with (
        tempfile.TemporaryDirectory() as place,
        start_cluster() as plain,
        start_cluster(keep_memory=True) as kept,
        Client(plain, set_as_default=False) as client,
    ):
        large, small = Path(place) / "large", Path(place) / "small"
        for folder, rows in ((large, given.rows), (small, given.rows // 10)):
            folder.mkdir()
            write_table(folder, rows)
        engines = {"compiled": "compiled"}
        for name, cluster in {"dask": plain, "kept": kept}.items():
            engines[name] = cluster.scheduler_address.replace("tcp://", "dask://")
        for engine in engines.values():  # compiles the kernels
            fit(small, engine, n_threads=2 if engine == "compiled" else 1)
        times: dict[str, list[float]] = {name: [] for name in engines}
        watch, steps, models = Watch(), [], {}
        client.run(note_work)
        for _ in range(given.repeats):
            for name, engine in engines.items():
                watch.sums.clear()
                threads = {"n_threads": 2} if engine == "compiled" else {}
                seconds, models[name] = fit(large, engine, **threads)
                times[name].append(seconds)
                if name == "dask":
                    steps.append((*watch.steps(), find_work(client)))
            for model in models.values():
                assert (model.weights_ == models["compiled"].weights_).all()
            print({name: own[-1] for name, own in times.items()}, flush=True)
        load = os.getloadavg()[0]
        step, n_bytes, work = (
            statistics.median(column) for column in zip(*steps, strict=True)
        )
        watch.sums.clear()
        fit(small, engines["dask"])
        small_bytes = watch.steps()[1]
        watch.stop()
    size = models["compiled"].weights_.size
    calls = measure_calls(size)
    kills = measure_kills(given.kill_rows, given.kills)
    found = {
        "rows": given.rows,
        "columns": 15,
        "coordinates": size,
        "cores": os.cpu_count(),
        "load": load,
        **{name: statistics.median(own) for name, own in times.items()},
        "runs": times,
        "sums": len(models["dask"].privacy_.transcript),
        "step": step,
        "work": work,
        **calls,
        "bytes": n_bytes,
        "bytes_tenth": small_bytes,
        "kills": kills,
    }
    keep(found)


def keep(found: dict[str, Any]) -> None:
    """Write the numbers and the page."""
    (EVIDENCE / "cluster.json").write_text(json.dumps(found, indent=1) + "\n")
    write(found, EVIDENCE / "cluster.md")


if __name__ == "__main__":
    main()
