"""Time a fit on 1 core and on all: make bench NAME=cores.

The table has 20,000,000 rows and 9 columns, in memory. A fit is timed whole, and by
part: reading and encoding, the Gram matrix, caps and gradients. Numbers of threads take
turns, and times are medians. A loop that only computes shows what the machine can do.
Without ``--output``, the page docs/evidence/cores.md is written, too.

    python benchmarks/cores.py [--rows 20000000] [--threads 1 4 16] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
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
    "caps": "caps",
    "gram": "Gram matrix",
    "reading and the rest": "reading, encoding and all else",
    "loop": "a loop that only computes",
}
PAGE = """# A fit on all cores

Written by `make bench NAME=cores` on a machine with {cores} cores.
[cores.json](cores.json) has the numbers. The table has {rows:,} rows and 9 columns
(5 numbers, 4 categories) and is a pandas frame in memory. Numbers of threads take turns
in one process. Times are medians of {times} fits, in seconds.

{table}

The last line is what this machine can do at best: no thread of it waits for memory or
for another thread. A fit has the same bits for every number of threads.

Caps and the Gram matrix are one sweep each, and gain nearly as much as that loop. Each
of the 80 steps is a sweep of its own, for which all threads are woken one after the
other, because a thread needs the interpreter's lock to start. Reading waits for the
same lock between calls of numpy.
"""
#: Seconds of each part of the fit that runs.
SECONDS: dict[str, float] = defaultdict(float)


class TimedEngine(compiled.CompiledEngine):
    """An engine that adds up how long each sum takes."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in PARTS:
            return found

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = found(*arguments)
            SECONDS[name] += time.perf_counter() - start
            return result

        return timed


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
    start = time.perf_counter()
    skdp.LogisticRegression(schema=schema, n_threads=threads, random_state=0).fit(table)
    whole = time.perf_counter() - start
    rest = whole - sum(SECONDS.values())
    return {"whole": whole, "reading and the rest": rest, **SECONDS}


@numba.njit(nogil=True)
def compute(n: int) -> float:
    """Compute for a while, without memory."""
    total = 0.0
    for i in range(n):
        total = total * 0.5 + i
    return total


def time_loop(threads: int) -> float:
    """Return the seconds of a fixed amount of work on some threads."""
    compute(1)
    n = 1 << 30
    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        list(pool.map(compute, [n // threads] * threads))
        return time.perf_counter() - start


def write_page(result: dict[str, Any]) -> None:
    """Write the table of times."""
    found = result["seconds"]
    first, *_, last = found
    head = ["part", f"{first} thread", *[*found][1:], f"{last} against {first}"]
    lines = [head, ["---"] * len(head)]
    for part, words in LINES.items():
        seconds = [found[threads][part] for threads in found]
        ratio = f"{seconds[0] / seconds[-1]:.1f} times faster"
        lines.append([words, *(f"{one:.3g}" for one in seconds), ratio])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    page = PAGE.format(**result, table=table)
    (EVIDENCE / "cores.md").write_text(page, encoding="utf-8")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    cores = os.cpu_count() or 1
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 4, cores])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--output")
    options = parser.parse_args()
    entry = choice.EngineEntry(location="cores:TimedEngine", threaded=True)
    choice.ENGINES["compiled"] = entry
    vars(choice)["import_module"] = lambda name: __import__("__main__")
    table, schema = make_table(options.rows)
    time_fit(table.head(100_000), schema, max(options.threads))
    found: dict[int, list[dict[str, float]]] = defaultdict(list)
    for _ in range(options.times):
        for threads in options.threads:
            found[threads].append(time_fit(table, schema, threads))
            found[threads][-1]["loop"] = time_loop(threads)
    medians = {
        str(threads): {
            part: statistics.median(run[part] for run in runs) for part in runs[0]
        }
        for threads, runs in found.items()
    }
    result = {"rows": options.rows, "cores": cores, "times": options.times}
    result["seconds"] = medians
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    Path(options.output or EVIDENCE / "cores.json").write_text(text)
    if options.output is None:
        write_page(result)


if __name__ == "__main__":
    main()
