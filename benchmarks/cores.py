"""Time a fit on 1 core and on all: make bench NAME=cores.

The table has 20,000,000 rows and 9 columns, in memory. A fit is timed whole, and by
part: reading and encoding, the Gram matrix, caps and gradients. Numbers of threads take
turns, and times are medians. One thread is timed twice: alone, and while other
processes keep the other cores busy, because cores share parts of the processor. Cores
of a virtual machine are not equally fast, so one thread uses another core each time.
Gradients, and a loop that uses no memory, are also timed on each core in turn. Without
``--output``, the run is added to docs/evidence/cores.json, and the page
docs/evidence/cores.md is written.

    python benchmarks/cores.py [--rows 20000000] [--threads 4 16] [--output FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd

import skdp
from skdp.engines import choice, compiled

EVIDENCE = Path(__file__).resolve().parents[1] / "docs" / "evidence"
LEVELS = (9, 16, 7, 2)
PARTS = ("gram", "caps", "gradient", "counts")
#: The lines of the page: a part of a fit, and its name in words.
LINES = {
    "whole": "whole fit",
    "gradient": "gradients (80 full steps)",
    "turns": "gradients (80 full steps), each core in turn",
    "registers": "a loop without memory (1,000 times), each core in turn",
    "gradient processor": "gradients, processor time of all threads",
    "caps": "caps",
    "gram": "Gram matrix",
    "reading and the rest": "reading, encoding and all else",
    "together": "gradients, next to the following line",
    "apart": "gradients in processes that share nothing",
}
#: The columns of the page's list of runs.
COLUMNS = (
    "whole fit",
    "gradients, each core in turn",
    "loop without memory, each core in turn",
    "gradients of fits",
    "whole fit, others busy",
    "gradients of fits, others busy",
    "processes that share nothing",
    "time of threads divided by that of processes",
)
PAGE = """# A fit on all cores

Written by `make bench NAME=cores` on a machine with {cores} cores.
[cores.json](cores.json) has the numbers of all runs. The table has {rows:,} rows and
9 columns (5 numbers, 4 categories) and is a pandas frame in memory. Numbers of threads
take turns in one process. Times are in seconds, medians over fits: {times} for each
number of threads.

{table}

"Others busy" is one thread while other processes keep the other cores busy. A core is
slower then, because cores share clock rate, execution units, caches and memory. This is
the fair comparison for many threads. A fit has the same bits for every number of
threads.

"Each core in turn" does not depend on the core that one thread happens to use. One
thread computes a gradient, then {last} threads compute {last}, and so on, until one
thread has had {turns} turns on each core. Its time is the harmonic mean over cores,
which is {last} times the time that all cores would need if they did not slow each other
down. One thread took {fastest:.3g} s on the fastest core and {slowest:.3g} s on the
slowest. In the same turns, a loop multiplies and adds numbers in registers, and uses no
memory. It shows how much the cores slow each other down in any case.

The last line shows what the machine itself can give. The gradients are computed again,
by as many processes as threads. Each has its own part of the rows, and none ever waits
for another. The time is the mean over processes, as if all had finished together. With
the same kernels, threads that wait for each other after each step cannot be faster,
apart from noise. Threads and processes take turns, and the line before the last shows
the threads.

The machines were shared with others, so runs differ, even runs of one version on one
machine. The next table shows how many times as fast {last} threads or processes were as
one, in each run. Its last column shows how long gradients took with {last} threads,
divided by how long they took with {last} such processes. A cell is empty if a run did
not measure it. Earlier runs are of earlier versions, and the table above is the last
run. Up to run 18, threads and processes were not timed in turns, so the last column
compares different minutes. Runs 15 to 18 also timed each core in turn, but by mistake
with steps that keep margins, which steps of a whole fit do not do. Their results are in
cores.json: 13.3, 12.7, 12.3 and 13.2 times.

{runs}

The threads of a gradient wait in compiled code for the next step, and never for the
interpreter's lock. With {last} threads they worked or tried to go on {worked:.0%} of
the time, and otherwise slept. This took {slower:.2f} times the processor time of one
thread. Reading waits for the interpreter's lock between calls of numpy.
"""
#: Seconds of each part of the fit that runs.
SECONDS: dict[str, float] = defaultdict(float)
#: Processor seconds of each part, of all threads together.
WORKED: dict[str, float] = defaultdict(float)
#: The engine and the arguments of the last gradient of all coordinates.
SAMPLE: list[Any] = []
#: The full steps of a fit, how many of them `time_steps` computes, the turns of each
#: core, and the loops of a thread in a turn.
STEPS, APART_STEPS, TURNS, LOOPS = 80, 16, 5, 4
#: The column for one thread while the other cores are busy.
BUSY = "1, others busy"


def time_part(name: str) -> Any:
    """Return a method of `CompiledEngine` that also adds up how long it takes."""
    work = getattr(compiled.CompiledEngine, name)

    def timed(self: compiled.CompiledEngine, *arguments: Any) -> Any:
        start, worked = time.perf_counter(), time.process_time()
        result = work(self, *arguments)
        SECONDS[name] += time.perf_counter() - start
        WORKED[name] += time.process_time() - worked
        if name == "gradient" and len(arguments[0]) == len(arguments[1]):
            SAMPLE[:] = self, *arguments
        return result

    return timed


class TimedEngine(compiled.CompiledEngine):
    """An engine that adds up how long each sum takes."""

    gram, caps, gradient, counts = map(time_part, PARTS)


def make_table(rows: int) -> tuple[pd.DataFrame, skdp.Schema]:
    """Make a table of 5 numbers and 4 categories, and its schema."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"x{j}": rng.random(rows) for j in range(5)}
    levels = {f"c{g}": [f"level {i}" for i in range(w)] for g, w in enumerate(LEVELS)}
    for name, names in levels.items():
        codes = rng.integers(0, len(names), rows, dtype=np.int8)
        columns[name] = pd.Categorical.from_codes(codes, names)
    chance = 1 / (1 + np.exp(1.0 - 2 * columns["x0"] + columns["x1"]))
    columns["y"] = (rng.random(rows) < chance).astype(np.int8)
    described = {f"x{j}": skdp.Numeric(0, 1) for j in range(5)}
    described |= {name: skdp.Categorical(names) for name, names in levels.items()}
    schema = skdp.Schema(described, target=("y", skdp.Categorical([0, 1])))
    return pd.DataFrame(columns), schema


def time_fit(
    table: pd.DataFrame, schema: skdp.Schema, threads: int
) -> dict[str, float]:
    """Return the seconds of a fit, whole and by part."""
    SECONDS.clear()
    WORKED.clear()
    start = time.perf_counter()
    skdp.LogisticRegression(schema=schema, n_threads=threads, random_state=0).fit(table)
    whole = time.perf_counter() - start
    rest = whole - sum(SECONDS.values())
    parts = {"whole": whole, "reading and the rest": rest, **SECONDS}
    return {**parts, "gradient processor": WORKED["gradient"]}


@contextmanager
def keep_busy(cores: int) -> Iterator[None]:
    """Let other processes keep some cores busy."""
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def use_core(core: int | None) -> Iterator[None]:
    """Let this thread, and those that it starts, use a single core."""
    every = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]  # of numba
def use_registers(start: float) -> float:
    """Multiply and add in registers, for some milliseconds."""
    a, b, c, d = start, start + 1, start + 2, start + 3
    e, f, g, h = start + 4, start + 5, start + 6, start + 7
    for _ in range(3_000_000):
        a, b, c, d = a * 0.9 + 1, b * 0.9 + 1, c * 0.9 + 1, d * 0.9 + 1
        e, f, g, h = e * 0.9 + 1, f * 0.9 + 1, g * 0.9 + 1, h * 0.9 + 1
    return a + b + c + d + e + f + g + h


def time_turns(numbers: list[int]) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of gradients and of loops, by numbers of threads in turn.

    In a turn, n threads compute n gradients, and then 4 n loops. There is a median for
    each core, which one thread used at that time. Other numbers of threads used all
    cores. All weights change from one gradient to the next, as in a fit. Otherwise the
    engine would keep margins, and read and write them from then on.
    """
    (engine, units, columns, slopes) = SAMPLE
    engines = {n: compiled.CompiledEngine(engine.records, n) for n in numbers}
    pools = {n: ThreadPoolExecutor(n) for n in numbers}
    weights = (units + change for change in itertools.count())

    def compute_gradients(n: int) -> float:
        start = time.perf_counter()
        for _ in range(n):
            engines[n].gradient(next(weights), columns, slopes)
        return STEPS / n * (time.perf_counter() - start)

    def loop(n: int) -> float:
        start, numbers = time.perf_counter(), [2.0] * (LOOPS * n)
        # A thread of a pool does not know that the main thread uses a single core.
        list((map if n == 1 else pools[n].map)(use_registers, numbers))
        return 1000 / len(numbers) * (time.perf_counter() - start)

    works = {"turns": compute_gradients, "registers": loop}
    for work, n in itertools.product(works.values(), numbers):
        work(n)
    found: dict[str, dict[str, list[float]]] = {
        name: {str(n): [] for n in numbers} for name in works
    }
    for core in sorted(os.sched_getaffinity(0)):
        seconds = defaultdict(list)
        for _, name, n in itertools.product(range(TURNS), works, numbers):
            with use_core(core if n == 1 else None):
                seconds[name, n].append(works[name](n))
        for (name, n), own in seconds.items():
            found[name][str(n)].append(statistics.median(own))
    return found


def time_steps(engine: compiled.CompiledEngine, units: Any, *others: Any) -> float:
    """Return the seconds of 80 gradients, measured by a few of them."""
    for step in range(2 + APART_STEPS):
        if step == 2:
            begin = time.perf_counter()
        engine.gradient(units + step, *others)
    return (time.perf_counter() - begin) * STEPS / APART_STEPS


def time_together(n: int) -> float:
    """Return the seconds of gradients, computed by n threads."""
    (engine, *arguments) = SAMPLE
    return time_steps(compiled.CompiledEngine(engine.records, n), *arguments)


def time_apart(n: int) -> float:
    """Return the mean seconds of n processes for the gradients of their own rows."""
    context = multiprocessing.get_context("fork")
    start, seconds = context.Barrier(n), context.Queue()

    def work(at: list[int]) -> None:
        (engine, units, columns, slopes) = SAMPLE
        vars(compiled)["LONG_TABLE"] //= n  # the same kernels for shorter tables
        records = engine.records
        own = replace(records, chunks=tuple(records.chunks[i] for i in at))
        engine, slopes = compiled.CompiledEngine(own, 1), slopes.take_chunks(at)
        start.wait()
        seconds.put(time_steps(engine, units, columns, slopes))

    n_chunks = len(SAMPLE[0].records.chunks)
    assert n_chunks >= n, "Each process needs rows: use more rows or fewer threads."
    indices = np.array_split(np.arange(n_chunks), n)
    processes = [context.Process(target=work, args=(i.tolist(),)) for i in indices]
    for process in processes:
        process.start()
    found = [seconds.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return statistics.mean(found)


def compare(found: dict[str, dict[str, float]], last: str) -> dict[str, float]:
    """Return the numbers of a run that the page lists for all runs, by `COLUMNS`."""
    one, busy, many = (found[name] for name in ("1", BUSY, last))
    pairs = [(one, "whole"), (one, "turns"), (one, "registers"), (one, "gradient")]
    pairs += [(busy, "whole"), (busy, "gradient"), (one, "apart")]
    ratios = {
        name: alone[part] / many[part]
        for name, (alone, part) in zip(COLUMNS, pairs, strict=False)
        if part in alone
    }
    if "apart" in many:
        *_, name = COLUMNS
        ratios[name] = many.get("together", many["gradient"]) / many["apart"]
    return ratios


def write_page(results: list[dict[str, Any]]) -> None:
    """Write the times of the last run, and the ratios of all runs."""
    *_, result = results
    found = result["seconds"]
    *_, last = found
    head = ["part", *found, f"{last} against 1", f"{last} against 1, others busy"]
    lines = [head, ["---"] * len(head)]
    for part, words in LINES.items():
        seconds = [found[threads].get(part) for threads in found]
        ones = [
            None if "processor" in part else found[n].get(part) for n in ("1", BUSY)
        ]
        faster = [one and f"{one / seconds[-1]:.1f} times" for one in ones]
        cells = [one and f"{one:.3g}" for one in seconds] + faster
        lines.append([words, *(cell or "" for cell in cells)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    worked = found[last]["gradient processor"]
    share = worked / (int(last) * found[last]["gradient"])
    slower = worked / found["1"]["gradient processor"]
    lines = [["run", *COLUMNS], ["---"] * (1 + len(COLUMNS))]
    for number, run in enumerate(results, start=1):
        ratios = compare(run["seconds"], last)
        cells = [f"{ratios[name]:#.3g}" if name in ratios else "" for name in COLUMNS]
        lines.append([str(number), *cells])
    runs = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    by_core = result["turns"]["1"]
    facts = {"table": table, "runs": runs, "last": last, "turns": TURNS}
    facts |= {"fastest": min(by_core), "slowest": max(by_core)}
    page = PAGE.format(**(result | facts), worked=share, slower=slower)
    (EVIDENCE / "cores.md").write_text(page, encoding="utf-8")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    cores = os.cpu_count() or 1
    parser.add_argument("--threads", type=int, nargs="+", default=[4, cores])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--output")
    options = parser.parse_args()
    entry = choice.EngineEntry(location="cores:TimedEngine", threaded=True)
    choice.ENGINES["compiled"] = entry
    vars(choice)["import_module"] = lambda name: __import__("__main__")
    table, schema = make_table(options.rows)
    time_fit(table.head(100_000), schema, max(options.threads))
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for turn in range(options.times):
        for name in ["1", BUSY, *map(str, options.threads)]:
            threads = 1 if name == BUSY else int(name)
            core = cores * turn // options.times if name == "1" else None
            with keep_busy(cores - 1 if name == BUSY else 0), use_core(core):
                found[name].append(time_fit(table, schema, threads))
    turns = time_turns([1, *options.threads])
    for turn in range(options.times):  # last, because a fork slows later writes down
        for name in found:
            threads = 1 if name == BUSY else int(name)
            with keep_busy(cores - 1 if name == BUSY else 0):
                found[name][turn]["together"] = time_together(threads)
                found[name][turn]["apart"] = time_apart(threads)
    medians = {
        threads: {
            part: statistics.median(run[part] for run in runs) for part in runs[0]
        }
        for threads, runs in found.items()
    }
    for name, threads in ((name, n) for name, own in turns.items() for n in own):
        mean = statistics.harmonic_mean if threads == "1" else statistics.mean
        medians[threads][name] = mean(turns[name][threads])
    result = {"rows": options.rows, "cores": cores, "times": options.times}
    result |= {"seconds": medians, **turns}
    known = EVIDENCE / "cores.json"
    earlier = [] if options.output else json.loads(known.read_text(encoding="utf-8"))
    text = json.dumps([*earlier, result], indent=1) + "\n"
    print(json.dumps(result, indent=1))
    Path(options.output or known).write_text(text, encoding="utf-8")
    if options.output is None:
        write_page([*earlier, result])


if __name__ == "__main__":
    main()
