"""Write the page about clusters from what ``benchmarks/cluster.py`` has measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

#: Threads of a worker, and steps of a fit, that the prediction assumes.
THREADS, STEPS = 16, 80
#: How many answers one task adds up.
FAN_IN = 16
ROWS = (10**9, 10**10, 10**11, 10**12)
WORKERS = (10, 100, 1000)


def predict_step(
    found: dict[str, Any], rows: float, workers: int
) -> tuple[float, float]:
    """Return the seconds of work and of overhead of a step.

    Each worker is one task for the scheduler, and the sums of more than 16 workers go
    through further rounds of tasks.
    """
    per_row = 2 * found["work"] / found["rows"]  # two workers, one thread each
    work = rows * per_row / (workers * THREADS)
    rounds, tasks, level = 0, workers, workers
    while level > FAN_IN:
        level = math.ceil(level / FAN_IN)
        rounds, tasks = rounds + 1, tasks + level
    overhead = (1 + rounds) * found["network"] + tasks * found["scheduler"]
    return work, overhead


def find_least_rows(found: dict[str, Any], workers: int) -> float:
    """Return the number of rows at which four fifths of a step are work."""
    _, overhead = predict_step(found, 1.0, workers)
    one, _ = predict_step(found, 1.0, workers)
    return 4 * overhead / one


def _warn(found: dict[str, Any]) -> list[str]:
    """Return a warning if other programs were running."""
    if found["load"] <= 1.5 * found["cores"]:
        return []
    return [
        "**Other programs used the cores most of the time.** All times on this page "
        "and the predictions from them are too long. Measure again on a quiet machine.",
        "",
    ]


def write(found: dict[str, Any], page: Path) -> None:
    """Write the page."""
    kills, ms = found["kills"], 1000.0
    lines = [
        "# A cluster",
        "",
        "Written by `make bench NAME=cluster`.",
        "",
        f"A table of {found['rows']:,} rows and {found['columns']} columns "
        f"({found['coordinates']} coordinates) in 8 Parquet files, on a machine with "
        f"{found['cores']} cores whose load was {found['load']:.1f}. All coefficients "
        "are equal, bit for bit. Workers keep memory, as the "
        "[guide](../guide/cluster.md) recommends.",
        "",
        *(_warn(found)),
        "| whole fit | seconds |",
        "|---|---|",
        f"| compiled engine, 2 threads | {found['compiled']:.1f} |",
        f"| local cluster, 2 workers with 1 thread each | {found['dask']:.1f} |",
        f"| ratio (at most 1.3 is wanted) | {found['dask'] / found['compiled']:.2f} |",
        "",
        "| a step on the cluster | |",
        "|---|---|",
        f"| whole step | {found['step'] * ms:.1f} ms |",
        f"| work of the slower worker | {found['work'] * ms:.1f} ms |",
        "| a step of one task without work (network) | "
        f"{found['network'] * ms:.2f} ms |",
        f"| each further task (scheduler) | {found['scheduler'] * ms:.3f} ms |",
        f"| bytes moved | {found['bytes']:,.0f} |",
        f"| bytes moved with a tenth of the rows | {found['bytes_tenth']:,.0f} |",
        "",
        "## Workers that are killed",
        "",
        f"{kills['fits']} fits of {kills['rows']:,} rows with a worker killed "
        f"(SIGKILL) at a random moment: {kills['equal']} equal the undisturbed one bit "
        f"for bit, and {kills['released_twice']} released anything twice. Each time, "
        "sums were left to compute, and the worker's process was gone at the end.",
        "",
        "| killed during | after this many sums | of | seconds of the fit |",
        "|---|---|---|---|",
        *(
            f"| `{one['during']}` | {one['done']} | {one['sums']} "
            f"| {one['seconds']:.1f} |"
            for one in kills["moments"]
        ),
        "",
        "## Larger clusters",
        "",
        "Predicted, not measured: from the work per row, the latency and the cost of "
        f"a task above, for workers with {THREADS} threads as fast as these. A step "
        "takes rows × work per row ÷ threads, plus one latency per round of the tree "
        "of sums, plus the scheduler's time for each worker. The scheduler's time is "
        "an upper bound: the two workers ran all 64 tasks without work themselves.",
        "",
        f"| rows | workers | work of a step | overhead | efficiency | {STEPS} steps |",
        "|---|---|---|---|---|---|",
    ]
    for rows in ROWS:
        for workers in WORKERS:
            work, overhead = predict_step(found, rows, workers)
            share, whole = work / (work + overhead), STEPS * (work + overhead)
            power = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(c)] for c in str(round(math.log10(rows))))
            lines.append(
                f"| 10{power} | {workers:,} "
                f"| {work:.3g} s | {overhead:.2g} s | {share:.0%} | {whole:.3g} s |"
            )
    lines += ["", "Efficiency falls below 80 % with fewer rows than this:", ""]
    lines += [
        "| workers | rows | rows per worker | overhead is mostly |",
        "|---|---|---|---|",
    ]
    for workers in WORKERS:
        least = find_least_rows(found, workers)
        tasks = workers * found["scheduler"]
        cause = "the scheduler" if tasks > found["network"] else "latency"
        lines.append(f"| {workers:,} | {least:.2g} | {least / workers:.2g} | {cause} |")
    lines += [
        "",
        "The scheduler hands out tasks one after the other, so its part grows with the "
        "number of workers. Fewer workers with more threads each have less of it: the "
        "threads of a worker share one task.",
        "",
    ]
    page.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "docs" / "evidence"
    write(json.loads((folder / "cluster.json").read_text()), folder / "cluster.md")
