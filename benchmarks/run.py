"""Run one measurement: ``make bench NAME=speed``, or a list of all without a name.

Each entry is a program that writes its tables and figures into ``docs``. Arguments
after the name are handed on: ``make bench NAME="mutants --only no_factor_two"``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: Settings under which times are those of one thread.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Measurement(NamedTuple):
    """A program to run, and its purpose."""

    command: str
    purpose: str
    environment: dict[str, str] = {}  # noqa: RUF012 (never changed)


PYTEST = "-m pytest -n 2 -q"
MEASUREMENTS = {
    "algorithms": Measurement(
        "benchmarks/algorithms.py", "what the other algorithms reach", ONE_THREAD
    ),
    "additive": Measurement(
        "benchmarks/additive.py", "what curves and pairs reach", ONE_THREAD
    ),
    "attack": Measurement("benchmarks/attack.py", "replay fits into neighbours' fits"),
    "audit": Measurement("benchmarks/audit.py", "try to refute every privacy claim"),
    "bands": Measurement(
        "benchmarks/bands.py", "how often the bands of curves hold", ONE_THREAD
    ),
    "calibration": Measurement(
        "benchmarks/calibration.py", "mean predictions beside rates", ONE_THREAD
    ),
    "cluster": Measurement("benchmarks/cluster.py", "fits on a local Dask cluster"),
    "cores": Measurement("benchmarks/cores.py", "a fit on one core and on all"),
    "corpus": Measurement(
        "benchmarks/corpus.py", "defaults on tables that chose nothing", ONE_THREAD
    ),
    "coverage": Measurement(
        "benchmarks/intervals.py", "how often intervals hold the truth", ONE_THREAD
    ),
    "coverage-designs": Measurement(
        "benchmarks/interval_designs.py", "intervals on fresh designs", ONE_THREAD
    ),
    "coverage-diagonal": Measurement(
        "benchmarks/interval_diagonal.py",
        "why the diagonal geometry has no intervals",
        ONE_THREAD,
    ),
    "coverage-kinds": Measurement(
        "benchmarks/interval_kinds.py",
        "the same for counts, classes and weights",
        ONE_THREAD,
    ),
    "coverage-tables": Measurement(
        "benchmarks/interval_tables.py",
        "intervals of real tables, beside statsmodels",
        ONE_THREAD,
    ),
    "curve-rule": Measurement(
        "benchmarks/curve_rule.py", "constants of curves, a table left out", ONE_THREAD
    ),
    "csv": Measurement("benchmarks/big_csv.py", "fit a CSV file of 2 GB"),
    "effect-forecasts": Measurement(
        "benchmarks/effect_forecasts.py",
        "forecasts of intervals against fits",
        ONE_THREAD,
    ),
    "experiments": Measurement("experiments/run.py --jobs 2", "the paper, measured"),
    "forecasts": Measurement("benchmarks/forecasts.py", "forecasts against outcomes"),
    "fuzz": Measurement(
        f"{PYTEST} tests/hostile", "hostile files and arguments", {"SKDP_FUZZ": "2000"}
    ),
    "gpu": Measurement("benchmarks/gpu.py", "sweeps and fits on a GPU"),
    "kill-fits": Measurement("benchmarks/kill_fits.py", "kill fits at random moments"),
    "ledger-stress": Measurement(
        "benchmarks/ledger_stress.py", "spend from one ledger while being killed"
    ),
    "mutants": Measurement(
        "benchmarks/mutants.py", "plant privacy bugs and see the tests catch them"
    ),
    "peers": Measurement(
        "benchmarks/peers.py", "run other libraries on the same tables", ONE_THREAD
    ),
    "persons": Measurement(
        "benchmarks/persons.py", "protect persons with several rows", ONE_THREAD
    ),
    "picture": Measurement("benchmarks/picture.py", "draw the readme's picture"),
    "private-trees": Measurement(
        "benchmarks/private_trees.py", "published and measured private trees"
    ),
    "ranges": Measurement(
        "benchmarks/ranges.py", "ranges 1 to 100 times as wide", ONE_THREAD
    ),
    "rule": Measurement("benchmarks/rule_check.py", "what other constants would give"),
    "scores": Measurement(
        "benchmarks/scores.py", "how often intervals of scores hold", ONE_THREAD
    ),
    "sega": Measurement(
        "benchmarks/sega.py", "try to break DP-SEGA's theorem", ONE_THREAD
    ),
    "speed": Measurement("benchmarks/speed.py", "time and memory"),
    "start": Measurement("benchmarks/speed_start.py", "CPU time of first fits"),
    "subgroups": Measurement(
        "benchmarks/subgroups.py", "what noise does to small groups", ONE_THREAD
    ),
    "theorems": Measurement(
        "benchmarks/theorems.py", "try to break Theorems D, E and F", ONE_THREAD
    ),
    "theory": Measurement("experiments/theory_table.py", "the paper's special cases"),
    "visits": Measurement(
        "benchmarks/visits.py", "what coordinates gain from their visits", ONE_THREAD
    ),
    "whole-tables": Measurement(
        "benchmarks/whole_tables.py", "real tables, from a fit to a model card"
    ),
    "utility": Measurement("benchmarks/utility.py", "what the defaults reach"),
}


def main(words: list[str]) -> int:
    """Run the measurement that is named first, or list them all."""
    if not words or words[0] not in MEASUREMENTS:
        for name, one in MEASUREMENTS.items():
            print(f"make bench NAME={name:17} {one.purpose}")
        return int(bool(words))
    name, *more = words
    one = MEASUREMENTS[name]
    command = [sys.executable, *shlex.split(one.command), *more]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | one.environment
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
