"""Run the experiments, and write their numbers, figures and page.

Command: ``make bench NAME=experiments``, or ``python experiments/run.py [FIGURE ...]``.

A figure is a file ``experiments/figures/<letter>_<name>.py`` with

    TITLE: str                              heading on the page
    cells() -> list of dict                 jobs, plain JSON; "seed" where random
    measure(cell) -> list of dict           rows of numbers; the cell's keys are added
    draw(rows) -> matplotlib Figure
    text(rows) -> str                       Markdown, every number from rows

and, if it wants,

    losses(rows) -> list of str             where our method loses: points on the page
    learnt(rows) -> list of str             what it says about the paper, in a sentence
    quick(cells) -> list of dict            the cells of ``--quick``
    BASED_ON: str, derive(rows) -> rows     instead of cells and measure: its numbers
                                            come from another figure's rows

Each finished cell is appended to ``build/experiments/FIGURE.jsonl`` at once, so that a
run that was stopped goes on where it was; a changed figure needs that file deleted.
With ``--keep``, cells whose rows are in the figure's CSV count as finished, too.
Numbers go to ``docs/evidence/experiments/FIGURE.csv``; figures and page follow from it.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ in ("__main__", "__mp_main__"):
    # The folder of this file would hide the standard library's `statistics`.
    sys.path[:] = [
        p for p in sys.path if Path(p or ".").resolve() != ROOT / "experiments"
    ]
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):  # one thread a process
        os.environ[f"{name}_NUM_THREADS"] = "1"

from experiments import page, store  # noqa: E402 (needs the path)
from experiments.folders import modules  # noqa: E402 (needs the path)

BUILD, DOCS = ROOT / "build" / "experiments", ROOT / "docs/evidence/experiments"
Cell = dict[str, Any]


def run_cell(figure: str, cell: Cell) -> tuple[list[dict[str, Any]] | None, float]:
    """Measure one cell: its rows, None where its data is absent, and CPU seconds."""
    start = time.process_time()
    try:
        rows = modules("figures")[figure].measure(cell)
    except FileNotFoundError as absent:
        print(f"skipped {cell}: {absent}", file=sys.stderr)
        return None, 0.0
    return [cell | row for row in rows], time.process_time() - start


def thinned(cells: list[Cell]) -> list[Cell]:
    """Few cells, of the first seed, in which every name of every kind is found.

    Tables that are made up come first: they are small, and need no file.
    """
    first = min((cell.get("seed", 0) for cell in cells), default=0)
    files = set(modules("data")) - {"hospital"}
    seen: set[tuple[str, str]] = set()
    kept = []
    for cell in sorted(cells, key=lambda cell: cell.get("table") in files):
        names = {(key, v) for key, v in cell.items() if isinstance(v, str)}
        if cell.get("seed", first) == first and (not names <= seen or not kept):
            kept.append(cell)
            seen |= names
    return kept


def pending(figure: str, folder: Path, quick: bool) -> list[Cell]:
    """Cells of a figure that are still to run."""
    module = modules("figures")[figure]
    if hasattr(module, "BASED_ON"):
        return []
    cells = module.cells()
    if quick:
        cells = getattr(module, "quick", thinned)(cells)
    done = store.finished(folder / f"{figure}.jsonl")
    return [cell for cell in cells if store.key(cell) not in done]


def run_all(jobs: list[tuple[str, Cell]], folder: Path, n_processes: int) -> None:
    """Run cells and keep each as it ends; what failed is told when all have run."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TimeRemainingColumn,
    )

    # Mixed, so that the first cells tell the time of all, and seed by seed, so that
    # what a stop leaves is complete.
    random.Random(0).shuffle(jobs)
    jobs.sort(key=lambda job: job[1].get("seed", 0))
    look = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed: list[str] = []
    with Progress("{task.description}", *look) as progress:
        task = progress.add_task("experiments", total=len(jobs))

        def keep(figure: str, cell: Cell, outcome: Callable[[], Any]) -> None:
            try:
                rows, seconds = outcome()
            except Exception as error:
                failed.append(f"{figure} {cell}: {error!r}")
                rows = None
            if rows is not None:
                store.append(folder / f"{figure}.jsonl", cell, rows, seconds)
            progress.update(task, advance=1, description=figure)

        if n_processes == 1:
            for job in jobs:
                keep(*job, partial(run_cell, *job))
        else:
            context = get_context("spawn")  # threads of a parent do not survive a fork
            with ProcessPoolExecutor(n_processes, mp_context=context) as pool:
                running = {pool.submit(run_cell, *job): job for job in jobs}
                try:
                    for future in as_completed(running):
                        keep(*running[future], future.result)
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
    if failed:
        raise SystemExit(
            "\n".join(["These cells failed; the others are kept.", *failed])
        )


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run the experiments.")
    parser.add_argument("figures", nargs="*", help="all by default; a letter will do")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--quick", action="store_true", help="one seed of a few cells, into build/ only"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="count cells that the CSVs hold as finished, and measure the others",
    )
    parser.add_argument(
        "--draw", action="store_true", help="measure nothing: draw what the CSVs hold"
    )
    asked = parser.parse_args(arguments)
    figures = chosen(asked.figures)
    build, docs = (BUILD / "quick",) * 2 if asked.quick else (BUILD, DOCS)
    build.mkdir(parents=True, exist_ok=True)
    docs.mkdir(parents=True, exist_ok=True)
    if asked.quick:
        for old in build.iterdir():
            old.unlink()
    if not asked.draw:
        needed = {getattr(modules("figures")[f], "BASED_ON", f) for f in figures}
        for figure in needed if asked.keep else ():
            cells = modules("figures")[figure].cells()
            store.restore(build / f"{figure}.jsonl", docs, figure, cells)
        jobs = [
            (f, cell) for f in sorted(needed) for cell in pending(f, build, asked.quick)
        ]
        run_all(jobs, build, asked.jobs)
        for figure in figures:
            write_numbers(figure, build, docs)
    page.write(docs, {name: modules("figures")[name] for name in modules("figures")})


def chosen(asked: list[str]) -> list[str]:
    """Names of figures, from names or letters; all if none is asked for."""
    known = list(modules("figures"))
    found = [f for f in known if not asked or {f, f.partition("_")[0]} & set(asked)]
    if len(found) < len(set(asked)):
        raise SystemExit(f"A figure must be one of {known}. Got {asked}.")
    return found


def write_numbers(figure: str, build: Path, docs: Path) -> None:
    """Write a figure's CSV from its finished cells."""
    module = modules("figures")[figure]
    source = getattr(module, "BASED_ON", figure)
    wanted = {store.key(cell) for cell in modules("figures")[source].cells()}
    rows, seconds = store.collected(build / f"{source}.jsonl", wanted)
    if source != figure:
        rows, seconds = module.derive(rows), 0.0
    if rows:
        store.write_csv(docs / f"{figure}.csv", rows)
        store.note_time(docs / page.TIMES, figure, seconds)


if __name__ == "__main__":
    main()
