"""Attack everything that reads records with random hostile pairs of tables, for long.

Each pair is a table and a neighbour of it. What runs on the first is recorded, and its
releases are replayed on the second: every sum is compared with its claimed sensitivity
and everything else for identity (``tests/attack``). The exit code is 1 if anything
differs by more than was paid for.

Run ``python benchmarks/attack.py [--pairs 20000] [--jobs 2] [--write]``. Results are
logged as they come. A run that was stopped continues where it was, unless the source
has changed since. With ``--write`` the summary enters ``docs/evidence/attack.csv`` and
``docs/evidence/attack.md``.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
ATTACK = ROOT / "tests" / "attack"
#: Pairs that a worker is handed at a time.
TASK = 25
PAGE = """\
# Attack by replay

Differential privacy promises that two tables which differ in one record can hardly \
be told apart. We test this by brute force. A program draws a random table, changes \
one record, and runs the same fit on both tables. The second run is handed the noisy \
values that the first one released, so no noise hides the differences that remain. \
Two things are checked:

- Each exact sum that is about to be released differs by no more than its claimed \
sensitivity. The largest ratio of the two is shown below. It must not exceed 1, and a \
value near 1 shows that the attack is as strong as it can be.
- Everything else is identical, bit for bit: weights, attributes, plan, privacy \
record, number of releases, warnings, printed text, errors and saved files.

Schemas, tables, weights, estimators, solvers and parameters are drawn at random. \
Cells hold missing values, infinities, denormals, 1e308, unknown levels and text. The \
record that differs often sits in a corner of what the schema allows, because that is \
where the sensitivity is reached. Randomness that meets records outside of a release \
has its own comparison: batches, the exponential mechanism, the tilt of an objective, \
and thresholds for categories. `tests/attack/watch.py` says how each is compared. \
Three in ten tables of persons return their rows in another order, and in other \
batches, at each read, as a query may. Run time and memory are not compared.

A name with parentheses is a solver that was called with options of its own, one \
without is the same solver behind an estimator. A pair is *refused* if both runs raise \
the same error, for example because the parameters do not fit together. \
`make bench NAME=attack` repeats the attack. A few hundred pairs are part of the test \
suite.

{summary}

| what was run | relation | pairs | refused | sums | largest ratio | of the query |
|---|---|---|---|---|---|---|
{rows}

Largest ratio for each kind of query:

| query | largest ratio |
|---|---|
{queries}
"""


def digest() -> str:
    """What was attacked and how: results of another source are not added up."""
    found = hashlib.sha256()
    for folder in (ROOT / "src", ATTACK):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def prepare() -> None:
    """Import the attack in a worker, and compile kernels, which prints one line."""
    sys.path.insert(0, str(ATTACK))
    import numpy as np

    import skdp

    model = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], engine="compiled")
    model.fit(np.ones((9, 2)), [0, 1, 1] * 3)


def attacked(seeds: list[int]) -> list[dict[str, Any]]:
    """Compare some pairs."""
    from pairs import pair  # which `prepare` has made known

    lines = []
    for seed in seeds:
        drawn = pair(seed)
        found = drawn.compare()
        lines.append(
            {
                "seed": seed,
                "subject": drawn.subject,
                "neighbours": drawn.neighbours,
                "ratios": found.ratios,
                "wrong": found.wrong,
                "error": found.error,
                "releases": found.n_releases,
                "told": drawn.told if found.wrong else "",
            }
        )
    return lines


def kept(log: Path, version: str) -> dict[int, dict[str, Any]]:
    """Results that an earlier run of the same source left, by seed."""
    if not log.exists():
        return {}
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return {line["seed"]: line for line in lines if line["version"] == version}


def run(seeds: list[int], jobs: int, console: Console) -> Iterator[dict[str, Any]]:
    """Compare all pairs, some at a time."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn())
    tasks = [seeds[at : at + TASK] for at in range(0, len(seeds), TASK)]
    context = multiprocessing.get_context("spawn")
    with (
        Progress(*columns, TimeRemainingColumn(), console=console) as bar,
        ProcessPoolExecutor(jobs, mp_context=context, initializer=prepare) as pool,
    ):
        shown = bar.add_task("pairs", total=len(seeds))
        futures = [pool.submit(attacked, task) for task in tasks]
        for future in as_completed(futures):
            for line in future.result():
                if line["wrong"]:
                    bar.console.print(
                        f"seed {line['seed']}, {line['subject']}, "
                        f"{line['neighbours']}: {line['wrong'][:3]}",
                        markup=False,
                    )
                bar.advance(shown)
                yield line


def summed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each subject and relation."""
    by: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        by[line["subject"], line["neighbours"]].append(line)
    rows = []
    for (subject, neighbours), some in sorted(by.items()):
        ratios = largest(some)
        query = max(ratios, key=lambda name: ratios[name], default="")
        rows.append(
            {
                "subject": subject,
                "neighbours": neighbours,
                "pairs": len(some),
                "refused": sum(line["error"] is not None for line in some),
                "releases": sum(line["releases"] for line in some),
                "largest": f"{ratios.get(query, 0.0):.6f}",
                "query": query,
                "differed": sum(bool(line["wrong"]) for line in some),
            }
        )
    return rows


def largest(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Largest ratio of each kind of query."""
    ratios: dict[str, float] = defaultdict(float)
    for line in lines:
        for query, ratio in line["ratios"].items():
            ratios[query] = max(ratios[query], ratio)
    return dict(ratios)


def written(lines: list[dict[str, Any]], summary: str) -> None:
    """Enter the summary in the table and the page."""
    rows = summed(lines)
    table = ROOT / "docs" / "evidence" / "attack.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    told = [
        f"| `{row['subject']}` | {row['neighbours']} | {row['pairs']:,} | "
        f"{row['refused']:,} | {row['releases']:,} | {row['largest']} | "
        f"{row['query']} |"
        for row in rows
    ]
    queries = [f"| {name} | {ratio:.6f} |" for name, ratio in largest(lines).items()]
    page = PAGE.format(
        summary=summary, rows="\n".join(told), queries="\n".join(sorted(queries))
    )
    (ROOT / "docs" / "evidence" / "attack.md").write_text(page, encoding="utf-8")


def main() -> int:
    """Run as many pairs as are asked for, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=20_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "attack.jsonl")
    parser.add_argument("--write", action="store_true", help="renew the page in docs")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # of the workers
    console, version, start = Console(), digest(), time.monotonic()
    seeds = range(given.first, given.first + given.pairs)
    done = {s: line for s, line in kept(given.log, version).items() if s in seeds}
    left = [seed for seed in seeds if seed not in done]
    given.log.parent.mkdir(parents=True, exist_ok=True)
    with given.log.open("a", encoding="utf-8") as log:
        for line in run(left, given.jobs, console):
            done[line["seed"]] = line
            log.write(json.dumps(line | {"version": version}) + "\n")
            log.flush()
    took, lines = time.monotonic() - start, list(done.values())
    table = Table(
        "what", "neighbours", "pairs", "refused", "sums", "largest", "differed"
    )
    for row in summed(lines):
        table.add_row(*(str(value) for name, value in row.items() if name != "query"))
    console.print(table)
    differed = [line for line in lines if line["wrong"]]
    releases = sum(line["releases"] for line in lines)
    most = max(largest(lines).values(), default=0.0)
    summary = (
        f"{len(lines):,} pairs, {releases:,} sums compared. The largest ratio is "
        f"{most:.6f}. {len(differed) or 'No'} pairs differed by more than was claimed, "
        "or in anything else."
    )
    console.print(summary)
    if left:
        speed = len(left) / took
        console.print(f"{took / 60:.1f} minutes, {speed:.1f} pairs a second.")
    if given.write:
        written(lines, summary)
    return int(bool(differed))


if __name__ == "__main__":
    raise SystemExit(main())
