"""Measure the peers, each in its own environment (make bench NAME=peers).

The released scikit-learn, diffprivlib and Opacus are installed under build/peers, run
on the same encoded tables as ours at their defaults and at settings tuned on the test
loss, and their ε is computed again by two accountants that are not theirs. Every fit is
a row of docs/evidence/peers/results.csv. Rows that exist are not measured again, so an
interrupted run continues. docs/evidence/peers/README.md is written from it
and from docs/evidence/additive.csv, where DP-EBM and our additive model are.
"""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import peers_report

from tables import CATEGORICAL, NAMES, NUMERIC, ROOT, Table, load, split

BUILD, OUT = ROOT / "build" / "peers", ROOT / "docs/evidence/peers"
FILES = Path(__file__).resolve().parent / "peers"
EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)
DELTA = 1e-6
SEEDS = range(5)
#: Seed of the fits by which settings are chosen. No reported fit has this seed.
GRID_SEED = 100
WORKERS = 2
FIELDS = (
    *("peer", "version", "table", "variant", "epsilon", "delta", "seed", "setting"),
    *("value", "seconds", "warnings", "claimed", "noise_multiplier", "rate", "steps"),
    *("epsilon_pld", "epsilon_skdp"),
)
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """How to install a peer, step by step, and what to fit.

    Attributes
    ----------
    file : str
        What its Python runs.
    install : tuple of tuple of str
        Arguments of pip, one call after the other; none for the project's own Python.
    defaults : dict
        The setting that counts as the default, by kind ("classes" or "numbers").
    grid : dict
        Settings to choose from on the test loss, by kind.
    private : bool
        Whether there is an ε, and noise that seeds change.
    """

    file: str
    install: tuple[tuple[str, ...], ...] = ()
    defaults: dict[str, Row]
    grid: dict[str, list[Row]]
    private: bool = True


def opacus(optimizer: str, lr: float, batch: int, epochs: int, clip: float) -> Row:
    """Spell out the settings, because Opacus has no defaults for them."""
    names = {"optimizer": optimizer, "lr": lr, "batch": batch}
    return {**names, "epochs": epochs, "clip": clip}


PEERS = {
    "scikit-learn": Peer(
        file="run_sklearn.py",
        # The last one shows that diffprivlib cannot be imported beside it.
        install=(("scikit-learn==1.9.1",), ("--no-deps", "diffprivlib==0.6.6")),
        defaults={"classes": {}, "numbers": {}},
        grid={"classes": [{"C": c} for c in (1.0, 100.0, 1e4)], "numbers": []},
        private=False,
    ),
    "diffprivlib": Peer(
        file="run_diffprivlib.py",
        install=(("diffprivlib==0.6.6", "scikit-learn==1.7.2"),),
        defaults={"classes": {}, "numbers": {}},
        grid={
            "classes": [
                {"C": c, "max_iter": 1000} for c in (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
            ],
            "numbers": [],  # there is nothing to tune but the bounds, which are public
        },
    ),
    "Opacus": Peer(
        file="run_opacus.py",
        # torch first, or the packages for graphics cards come with it.
        install=(("torch==2.13.0",), ("opacus==1.6.0",)),
        defaults={
            "classes": opacus("SGD", 0.1, 256, 10, 1),
            # Targets reach 5 or 10: the same as 1 with a target in [0, 1].
            "numbers": opacus("SGD", 0.1, 256, 10, 10),
        },
        grid={
            "classes": [
                *(opacus("SGD", lr, 1024, 10, 1) for lr in (0.5, 1, 4)),
                opacus("SGD", 2, 1024, 10, 2),
                *(opacus("SGD", lr, 1024, 10, 4) for lr in (1, 4)),
                opacus("SGD", 1, 256, 10, 4),
                opacus("Adam", 0.1, 1024, 10, 2),
            ],
            "numbers": [
                *(
                    opacus("SGD", lr, 256, 10, c)
                    for lr in (0.05, 0.15)
                    for c in (3, 10)
                ),
                *(opacus("Adam", lr, 256, 10, 2) for lr in (0.03, 0.1)),
                opacus("SGD", 0.05, 256, 30, 10),
                *(opacus("Adam", lr, 256, 30, 2) for lr in (0.03, 0.1)),
            ],
        },
    ),
    "skdp": Peer(
        file="run_skdp.py",
        defaults={k: {"neighbours": "zero-out"} for k in ("classes", "numbers")},
        grid={"classes": [], "numbers": []},
    ),
}


# ---- environments and tables


def python(name: str) -> Path:
    """Return the Python of a peer; its environment is made if it is not there."""
    peer = PEERS[name]
    if not peer.install:
        return Path(sys.executable)
    home = BUILD / name.lower()
    made, wanted = home / "installed.json", json.dumps(peer.install)
    if not made.exists() or made.read_text(encoding="utf-8") != wanted:
        print(f"installing {name} in {home}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet"]
        for arguments in peer.install:
            subprocess.run([*pip, *arguments], check=True)
        made.write_text(wanted, encoding="utf-8")
    return home / "bin" / "python"


def encoded(table: Table) -> np.ndarray:
    """Rows as numbers in [0, 1]: clipped and scaled, with one coordinate per level."""
    if not hasattr(table.X, "iloc"):
        return np.asarray(table.X, dtype=float)
    parts = []
    for name, column in table.schema.columns.items():
        cells = table.X[name].to_numpy()
        if hasattr(column, "levels"):
            parts.append((cells[:, None] == np.array(column.levels)).astype(float))
        else:
            inside = np.clip(cells.astype(float), column.low, column.high)
            parts.append((inside - column.low)[:, None] / (column.high - column.low))
    return np.hstack(parts)


def row_norms() -> dict[str, float]:
    """Largest norm of a row of classes: one per number, and one per category."""
    names = [name for name in NAMES if name in NUMERIC and kind(name) == "classes"]
    widths = {name: len(NUMERIC[name]) + len(CATEGORICAL[name]) for name in names}
    return {name: math.sqrt(width) for name, width in {**widths, "a9a": 14}.items()}


def export(name: str) -> Path:
    """Write a table's matrices once; return where."""
    path = BUILD / "tables" / f"{name}.npz"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    train, test = split(load(name))
    target, classes = train.schema.target_column, train.classification
    y = [t.y == target.levels[1] if classes else t.y for t in (train, test)]
    part = path.with_suffix(".part.npz")
    np.savez(
        part,
        X=encoded(train),
        X_test=encoded(test),
        y=np.asarray(y[0], dtype=float),
        y_test=np.asarray(y[1], dtype=float),
        classification=classes,
        row_norm=row_norms().get(name, len(train.schema.columns) ** 0.5),
        target_bounds=(0.0, 1.0) if classes else (target.low, target.high),
    )
    part.rename(path)
    return path


# ---- jobs


def kind(table: str) -> str:
    """Say what is predicted."""
    return "numbers" if table in peers_report.NUMBERS else "classes"


def job(variant: str, epsilon: float | None, seed: int, setting: Row) -> Row:
    """One fit."""
    given = {"variant": variant, "epsilon": epsilon, "seed": seed}
    return {**given, "delta": DELTA, "setting": setting}


def first_jobs(peer: Peer, table: str) -> list[Row]:
    """List the fits at the defaults, and those that a setting is chosen by."""
    epsilons, seeds = (EPSILONS, SEEDS) if peer.private else ((None,), (0,))
    setting, grid = peer.defaults[kind(table)], peer.grid[kind(table)]
    jobs = [job("default", e, s, setting) for e in epsilons for s in seeds]
    if peer.file == "run_skdp.py":
        other = {"neighbours": "replace-one"}
        jobs += [job("default", e, s, other) for e in epsilons for s in seeds]
    return jobs + [job("grid", e, GRID_SEED, g) for e in epsilons for g in grid]


def tuned_jobs(peer: Peer, table: str, rows: list[Row]) -> list[Row]:
    """List the fits at the best setting of every ε, which the test loss chooses."""
    jobs = []
    sign = -1 if kind(table) == "numbers" else 1
    for epsilon in EPSILONS if peer.private else (None,):
        tried = [r for r in rows if r["variant"] == "grid" and r["epsilon"] == epsilon]
        if tried:
            best = min(tried, key=lambda row: sign * row["value"])
            seeds = SEEDS if peer.private else (0,)
            jobs += [job("tuned", epsilon, s, best["setting"]) for s in seeds]
    return jobs


def key(row: Row) -> tuple[Any, ...]:
    """The settings that identify a fit."""
    setting = json.dumps(row["setting"], sort_keys=True)
    return row["variant"], row["epsilon"], row["seed"], setting


class Store:
    """The rows of results.csv, which grows by a row as a fit ends."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock, self.rows = path, threading.Lock(), []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                self.rows = [read_row(row) for row in csv.DictReader(file)]

    def of(self, peer: str, table: str) -> list[Row]:
        """Rows of a peer on a table."""
        return [r for r in self.rows if r["peer"] == peer and r["table"] == table]

    def add(self, row: Row) -> None:
        """Keep a row, on disk at once."""
        with self.lock:
            self.rows.append(row)
            new = not self.path.exists()
            with self.path.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(written_row(row))

    def rewrite(self, rows: list[Row]) -> None:
        """Replace all rows, sorted."""

        def order(row: Row) -> tuple[Any, ...]:
            at = list(PEERS).index(row["peer"]), NAMES.index(row["table"])
            variant, epsilon, *rest = key(row)
            return *at, variant, epsilon or 0.0, *rest

        self.rows = sorted(rows, key=order)
        part = self.path.with_suffix(".part")
        with part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(written_row(row) for row in self.rows)
        part.rename(self.path)


def written_row(row: Row) -> Row:
    """Spell a row for the file: six digits, and settings as JSON."""
    cells = {}
    for name in FIELDS:
        value = row.get(name)
        if name == "setting":
            value = json.dumps(value, sort_keys=True)
        elif name == "warnings":
            value = " ".join(value)
        elif name in ("epsilon", "delta"):
            value = "" if value is None else f"{value:g}"
        elif isinstance(value, float):
            exact = name in ("noise_multiplier", "rate")  # ε is computed again of these
            value = repr(value) if exact else f"{value:.6g}"
        cells[name] = value
    return cells


def read_row(cells: dict[str, str]) -> Row:
    """Read back what `written_row` spelt."""
    row: Row = dict(cells)
    for name in FIELDS[FIELDS.index("value") :]:
        if name != "warnings":
            row[name] = float(cells[name]) if cells[name] else None
    row["warnings"] = cells["warnings"].split()
    row["setting"] = json.loads(cells["setting"])
    row["seed"] = int(cells["seed"])
    row["epsilon"] = float(cells["epsilon"]) if cells["epsilon"] else None
    row["delta"] = float(cells["delta"])
    row["steps"] = int(row["steps"]) if row["steps"] else None
    return row


# ---- running


def answers(name: str, jobs: list[Row], path: Path) -> Iterator[Row]:
    """Run jobs in a peer's Python, one process, and yield its answers as they come."""
    command = [str(python(name)), str(FILES / PEERS[name].file)]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **one},
        encoding="utf-8",
    ) as process:
        lines = "".join(json.dumps({**j, "path": str(path)}) + "\n" for j in jobs)
        threading.Thread(target=_write, args=(process.stdin, lines)).start()
        for line in process.stdout or ():
            yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}, see above.")


def _write(pipe: Any, text: str) -> None:
    with pipe:
        pipe.write(text)


def measure(name: str, table: str, store: Store) -> None:
    """Run all fits of a peer on a table that are not in the store."""
    peer = PEERS[name]
    for phase in ("first", "tuned"):
        rows = store.of(name, table)
        wanted = first_jobs(peer, table)
        if phase == "tuned":
            wanted = tuned_jobs(peer, table, rows)
        known = {key(row) for row in rows}
        jobs = [j for j in wanted if key(j) not in known]
        if not jobs:
            continue
        for done, answer in enumerate(answers(name, jobs, export(table)), 1):
            answer |= {"peer": name, "table": table}
            store.add({field: answer.get(field) for field in FIELDS})
            if done % 10 == 0 or done == len(jobs):
                text = f"{name} {table} {phase}: {done} of {len(jobs)}"
                print(text, file=sys.stderr, flush=True)


# ---- ε again


@cache
def pld_epsilon(noise_multiplier: float, rate: float, steps: int) -> float:
    """ε at δ of Poisson-sampled Gaussian steps by Google's dp-accounting."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    step = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(noise_multiplier)
    )
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return float(accountant.compose(step, steps).get_epsilon(DELTA))


@cache
def skdp_epsilon(noise_multiplier: float, rate: float, steps: int) -> float:
    """ε at δ of the same steps by ours, rounded up."""
    from skdp.privacy.subsampling import compute_profile

    return compute_profile(noise_multiplier, rate, steps).epsilon(DELTA)


def recomputed(row: Row) -> Row:
    """Add ε by both accountants to a row that says what its noise was."""
    if not row["noise_multiplier"] or row["epsilon_pld"]:
        return row
    steps = (row["noise_multiplier"], row["rate"], row["steps"])
    return {
        **row,
        "epsilon_pld": pld_epsilon(*steps),
        "epsilon_skdp": skdp_epsilon(*steps),
    }


def heard(command: list[Any]) -> str:
    """The output of a program, and the last line of its errors."""
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    complaint = run.stderr.strip().splitlines()[-1:] if run.returncode else []
    # An import that fails says in brackets where the file is on this machine.
    complaint = [line.partition(" (")[0] for line in complaint]
    return "\n".join([run.stdout.strip(), *complaint]).strip()


def violations() -> dict[str, str]:
    """Run the attacks and the import, unless what they printed is there."""
    path = OUT / "violations.json"
    if not path.exists():
        found = {
            "audit": heard([python("diffprivlib"), FILES / "audit_diffprivlib.py"]),
            "import": heard(
                [python("scikit-learn"), "-c", "import diffprivlib.models"]
            ),
        }
        path.write_text(
            json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    """Measure what is missing, of the peers that are named or of all, and write."""
    OUT.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or list(PEERS)
    for name in names:
        python(name)  # one after the other, before anything is measured
    store = Store(OUT / "results.csv")
    units = [(name, table) for name in names for table in NAMES]
    with ThreadPoolExecutor(WORKERS) as pool:
        pool.submit(violations)
        for _ in pool.map(lambda unit: measure(*unit, store), units):
            pass
    store.rewrite([recomputed(row) for row in store.rows])
    additive = peers_report.read_additive(OUT.parent / "additive.csv")
    text = peers_report.page(store.rows, additive, row_norms(), violations())
    (OUT / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
