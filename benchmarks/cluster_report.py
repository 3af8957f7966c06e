"""Write the page about clusters from what ``benchmarks/cluster.py`` has measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

#: Threads of a worker, and steps of a fit, that the prediction assumes.
THREADS, STEPS = 16, 80
ROWS = (10**9, 10**10, 10**11, 10**12)
WORKERS = (10, 100, 1000)


def predict_step(
    found: dict[str, Any], rows: float, workers: int
) -> tuple[float, float]:
    """Return the seconds of a step: work, and asking the workers."""
    per_row = 2 * found["work"] / found["rows"]  # two workers, one thread each
    work = rows * per_row / (workers * THREADS)
    return work, found["call"] + (workers - 1) * found["further"]


def find_least_rows(found: dict[str, Any], workers: int) -> float:
    """Return the number of rows at which four fifths of a step are work."""
    one, overhead = predict_step(found, 1.0, workers)
    return 4 * overhead / one


def _warn(found: dict[str, Any]) -> list[str]:
    """Return a warning if other programs were running.

    The workers keep all cores busy, and Dask's own processes add about one.
    """
    if found["load"] <= 1.5 * found["cores"] + 1:
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
        f"are equal, bit for bit. Times are medians of {len(found['runs']['dask'])} "
        "fits, which take turns.",
        "",
        *(_warn(found)),
        "| whole fit | seconds | ratio (at most 1.5 is wanted) |",
        "|---|---|---|",
        f"| compiled engine, 2 threads | {found['compiled']:.1f} | |",
        f"| local cluster, 2 workers with 1 thread each | {found['dask']:.1f} "
        f"| {found['dask'] / found['compiled']:.2f} |",
        "| the same, and workers keep memory, as the [guide](../guide/cluster.md) "
        f"explains | {found['kept']:.1f} | {found['kept'] / found['compiled']:.2f} |",
        "",
        "| a step on the cluster | |",
        "|---|---|",
        f"| whole step | {found['step'] * ms:.1f} ms |",
        f"| work of the slower worker | {found['work'] * ms:.1f} ms |",
        f"| a call to an actor without rows, and its answer | {found['call'] * ms:.2f} "
        "ms |",
        "| more, for each further worker that is asked | "
        f"{found['further'] * ms:.2f} ms |",
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
        "Predicted, not measured, for workers with "
        f"{THREADS} threads as fast as these. A step takes rows × work per row ÷ "
        "threads. To this comes a call to the first worker and the cost of each "
        "further one, which is an upper bound: it was measured with workers that share "
        f"{found['cores']} cores.",
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
    lines += ["| workers | rows | rows per worker |", "|---|---|---|"]
    for workers in WORKERS:
        least = find_least_rows(found, workers)
        lines.append(f"| {workers:,} | {least:.2g} | {least / workers:.2g} |")
    lines += [
        "",
        "The calling process asks all workers at once, so the overhead grows with "
        "their number. Few large workers are better than many small ones: threads of "
        "one worker share one call.",
        "",
    ]
    page.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "docs" / "evidence"
    write(json.loads((folder / "cluster.json").read_text()), folder / "cluster.md")
