"""Processes spend from one ledger at random while they are killed at random.

Each of them reserves, "releases" (writes what it releases to a log of its own, after
the reservation returned and before it is settled) and settles, again and again, asking
for more than is left now and then; the parent ends one with SIGKILL at a random moment
and starts another in its place. At the end, for every reservation and in total,

    released, by the logs  ≤  entered in the ledger  ≤  ceiling

must hold, the hashes must be right and nothing may have raised but what was asked for.

Run ``python benchmarks/ledger_stress.py [--seconds 60] [--processes 2] [--folder F]``.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

from skdp import BudgetError, Ledger

EPSILON, DELTA, RESERVED = 4.0, 1e-6, 1e-7


def spend(path: str, log: int, rng: random.Random) -> None:
    """Reserve, release and settle until somebody ends it."""
    ledger = Ledger(path)
    while True:
        left, left_delta = ledger.remaining, ledger.remaining_delta
        greedy = rng.random() < 0.05
        mu_squared = left * (rng.uniform(1, 2) if greedy else rng.random() ** 2 / 100)
        try:
            reservation = ledger.reserve(
                mu_squared,
                left_delta * rng.random() / 100,
                neighbours="add-remove",
                query="stress",
                n_draws=rng.randrange(1000),
            )
        except BudgetError:
            # A greedy request fits only if others gave something back in between.
            os.write(log, b"refused\n")
            continue
        amount = reservation.amount
        spent = spent_delta = 0.0
        for _ in range(rng.randrange(4)):
            part = (float(amount.mu_squared) - spent) * rng.random()
            other = (float(amount.delta) - spent_delta) * rng.random()
            line = f"released {reservation.seq} {part.hex()} {other.hex()}\n"
            spent, spent_delta = up(spent + part), up(spent_delta + other)
            os.write(log, line.encode())
            time.sleep(rng.random() * 0.002)
        reservation.settle(
            min(spent, float(amount.mu_squared)),
            min(spent_delta, float(amount.delta)),
            kind=rng.choice(["commit", "stop"]),
        )
        os.write(log, b"settled\n")


def up(value: float) -> float:
    """The next float, so that a rounded sum is no less than the parts."""
    return math.nextafter(value, math.inf) if value else value


def start(path: str, logs: Path, number: int, seed: int) -> int:
    """Fork a process that spends. Its errors are kept beside its log."""
    child = os.fork()
    if child:
        return child
    try:
        name = logs / f"{number}.log"
        log = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        spend(path, log, random.Random(f"{seed} {number}"))
    except BaseException:
        (logs / f"{number}.error").write_text(traceback.format_exc())
    finally:
        os._exit(1)


def run(folder: str, seconds: float, processes: int, seed: int) -> tuple[str, int, int]:
    """Let them spend and be killed. Return the ledger, kills and early ends."""
    path, logs = os.path.join(folder, "ledger.db"), Path(folder)
    Ledger(path, epsilon=EPSILON, delta=DELTA, reserved_delta=RESERVED)
    rng = random.Random(seed)
    started = kills = early = 0
    running: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(running) < processes:
            running.append(start(path, logs, started, seed))
            started += 1
        time.sleep(rng.expovariate(1 / 0.1))
        victim = running.pop(rng.randrange(len(running)))
        os.kill(victim, signal.SIGKILL)
        _, status = os.waitpid(victim, 0)
        killed = os.WIFSIGNALED(status)
        kills, early = kills + killed, early + (not killed)
    for victim in running:
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        kills += 1
    return path, kills, early


def told(folder: str) -> tuple[Counter[str], dict[int, tuple[Fraction, Fraction]]]:
    """What the logs say: how often each thing happened, and what was released."""
    happened: Counter[str] = Counter()
    released: defaultdict[int, tuple[Fraction, Fraction]]
    released = defaultdict(lambda: (Fraction(0), Fraction(0)))
    for name in Path(folder).glob("*.log"):
        for line in name.read_text().splitlines():
            what, *numbers = line.split()
            happened[what] += 1
            if what == "released":
                seq, part, other = numbers
                mu, delta = released[int(seq)]
                mu += Fraction(float.fromhex(part))
                delta += Fraction(float.fromhex(other))
                released[int(seq)] = mu, delta
    return happened, dict(released)


def main(arguments: list[str] | None = None) -> int:
    """Run, print the figures, and return how many things went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where the ledger is; /dev/shm is fast")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path, kills, early = run(folder, given.seconds, given.processes, given.seed)
        errors = [name.read_text() for name in Path(folder).glob("*.error")]
        happened, released = told(folder)
        ledger = Ledger(path)  # rolls back what the last kill left half-written
        entries, head = ledger.entries(), ledger.check()
    charged: dict[int, tuple[Fraction, Fraction]] = {}
    for entry in entries:
        of = entry.seq if entry.of is None else entry.of
        charged[of] = entry.amount.mu_squared, entry.amount.delta
    terms = entries[0].terms.mu_squared, RESERVED
    nothing = Fraction(0), Fraction(0)
    totals = [
        [sum((pair[i] for pair in part.values()), Fraction(0)) for i in (0, 1)]
        for part in (released, charged)
    ]
    under = [
        seq
        for seq, pair in released.items()
        if any(a > b for a, b in zip(pair, charged.get(seq, nothing), strict=True))
    ]
    kinds = Counter(entry.kind for entry in entries)
    ended = kinds["commit"] + kinds["stop"]
    print(f"{given.processes} processes, {given.seconds:g} s, seed {given.seed}")
    print(f"kills (SIGKILL)              {kills}")
    print(f"reservations                 {kinds['reserve']}")
    print(f"settled                      {ended}")
    print(f"left unsettled by kills      {kinds['reserve'] - ended}")
    print(f"refused as too much          {happened['refused']}")
    print(f"releases in the logs         {happened['released']}")
    for i, name in enumerate(("μ²", "δ ")):
        print(f"{name} released (logs)           {float(totals[0][i]):.12g}")
        print(f"{name} charged (ledger)          {float(totals[1][i]):.12g}")
        print(f"{name} ceiling                   {terms[i]:.12g}")
    print(f"hashes                       right, {head.size} entries, {head.hash[:16]}…")
    wrong = {
        "the ledger is below what was released": totals[1] < totals[0]
        or any(b < a for a, b in zip(*totals, strict=True)),
        "the ledger is above its ceiling": any(
            total > Fraction(most) for total, most in zip(totals[1], terms, strict=True)
        ),
        f"reservations {under} are below what was released": bool(under),
        f"{early} processes ended by themselves: {errors[:1]}": bool(early or errors),
        "nothing happened": not (kills and ended and happened["released"]),
    }
    for sentence, happened_so in wrong.items():
        if happened_so:
            print(f"WRONG: {sentence}")
    print("WRONG" if any(wrong.values()) else "right")
    return sum(wrong.values())


if __name__ == "__main__":
    sys.exit(main())
