"""Whole fits that charge one ledger and save one model, killed at random.

Processes fit a table from a file, by the command line's own function, and save the
model over the one before, again and again; each writes the noise that it is about to
draw to a log of its own before it draws it. The parent ends one with SIGKILL at a
random moment (``benchmarks/ledger_stress.py`` does so to spending alone). After every
kill

- the model's name has a whole model that loads, or none if it was being exchanged,
- the ledger opens, its hashes are right and it is below its ceiling,

and at the end what the logs say was released is in total at
most what the ledger has.

Run ``python benchmarks/kill_fits.py [--seconds 60] [--processes 2] [--folder F]``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import skdp
from skdp import BudgetError, Ledger
from skdp.cli.fit_command import fit_file
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import toml_files

EPSILON, DELTA = 1e4, 1e-6
ROWS = 300


def prepared(folder: Path) -> None:
    """Write the table, its schema and the ledger."""
    import csv

    data = skdp.make_hospital(ROWS)
    toml_files.write(data.schema, folder / "s.toml")
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(data.columns)
        writer.writerows(zip(*data.columns.values(), strict=True))
    Ledger(folder / "l.db", epsilon=EPSILON, delta=DELTA)
    fit(folder, 1.0)  # compiles the kernels before anybody is killed


def fit(folder: Path, epsilon: float) -> None:
    """Fit once and save the model over the last one."""
    fit_file(
        folder / "t.csv",
        toml_files.read_toml(folder / "s.toml"),
        model="logistic",
        epsilon=epsilon,
        delta=DELTA,
        ledger=folder / "l.db",
        seed=None,
        out=folder / "m",
    )


def spend(folder: Path, number: int, rng: random.Random) -> None:
    """Fit until somebody ends it; every charge is logged before noise is drawn."""
    log = os.open(folder / f"{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    charge = PrivacyRecord.charge

    def logged(record: PrivacyRecord, event: Any) -> None:
        charge(record, event)  # noise is drawn after this returns
        os.write(log, f"released {float(event.mu_squared).hex()}\n".encode())

    PrivacyRecord.charge = logged
    while True:
        try:
            fit(folder, rng.uniform(0.5, 2.0))
            os.write(log, b"fitted\n")
        except BudgetError:
            os.write(log, b"refused\n")
        except (FileNotFoundError, FileExistsError, OSError) as error:
            # If two save under one name at once, one of them may be refused.
            os.write(log, f"unsaved {type(error).__name__}\n".encode())


def start(folder: Path, number: int, seed: int) -> int:
    """Fork a process that fits. Its errors are kept beside its log."""
    child = os.fork()
    if child:
        return child
    try:
        spend(folder, number, random.Random(f"{seed} {number}"))
    except BaseException:
        (folder / f"{number}.error").write_text(traceback.format_exc())
    finally:
        os._exit(1)


def looked_at(folder: Path) -> tuple[bool, str | None]:
    """Return whether there is a model, and what is wrong with it, if anything."""
    ledger = Ledger(folder / "l.db")
    if not 0 <= ledger.spent_epsilon <= EPSILON:
        return False, f"the ledger says ε = {ledger.spent_epsilon}"
    for _ in range(3):  # another process may be exchanging it right now
        try:
            skdp.load(folder / "m")
            return True, None
        except ValueError as error:
            wrong = str(error)
        if not (folder / "m").exists():
            return False, None
    return True, f"half a model: {wrong}"


def main(arguments: list[str] | None = None) -> int:
    """Run, print the figures, and return how many things went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where everything is; /dev/shm is fast")
    given = parser.parse_args(arguments)
    rng, wrong = random.Random(given.seed), []
    kills = early = absent = started = 0
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        prepared(folder)
        first = len(Ledger(folder / "l.db").entries())
        running: list[int] = []
        end = time.monotonic() + given.seconds
        while time.monotonic() < end:
            while len(running) < given.processes:
                running.append(start(folder, started, given.seed))
                started += 1
            time.sleep(rng.expovariate(1 / 0.5))
            victim = running.pop(rng.randrange(len(running)))
            os.kill(victim, signal.SIGKILL)
            _, status = os.waitpid(victim, 0)
            killed = os.WIFSIGNALED(status)
            kills, early = kills + killed, early + (not killed)
            there, why = looked_at(folder)
            absent += not there
            wrong += [] if why is None else [why]
        for victim in running:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            kills += 1
        lines = [
            line.split()
            for path in folder.glob("*.log")
            for line in path.read_text().splitlines()
        ]
        errors = [path.read_text() for path in folder.glob("*.error")]
        ledger = Ledger(folder / "l.db")
        head, entries = ledger.check(), ledger.entries()[first:]
        left = [path.name for path in folder.iterdir() if path.name.startswith(".m.")]
    released = sum(float.fromhex(x[1]) for x in lines if x[0] == "released")
    charged: dict[int, float] = {}
    for entry in entries:
        charged[entry.seq if entry.of is None else entry.of] = entry.mu_squared
    total, count = sum(charged.values()), {"fitted": 0, "refused": 0, "unsaved": 0}
    for line in lines:
        if line[0] in count:
            count[line[0]] += 1
    unsettled = len(charged) - sum(entry.of is not None for entry in entries)
    if total < released * (1 - 1e-9):
        wrong.append(f"μ² = {released} was released and {total} is in the ledger")
    if early or errors:
        wrong.append(f"{early} processes ended by themselves: {errors[:1]}")
    if not (kills and count["fitted"] and unsettled):
        wrong.append("nothing happened: take more --seconds")
    print(f"{given.processes} processes, {given.seconds:g} s, seed {given.seed}")
    print(f"kills (SIGKILL)                 {kills}")
    print(f"fits that were saved            {count['fitted']}")
    print(f"fits reserved in the ledger     {len(charged)}")
    print(f"left unsettled by kills         {unsettled}")
    print(f"fits told that others saved     {count['unsaved']}")
    print(f"μ² released (logs)              {released:.12g}")
    print(f"μ² charged (ledger)             {total:.12g}")
    print(f"hashes                          right, {head.size} entries")
    print(
        f"model whole after a kill        {kills - absent} of {kills}, absent {absent}"
    )
    print(f"directories left beside it      {len(left)}")
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    print("WRONG" if wrong else "right")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
