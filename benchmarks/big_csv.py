"""A CSV file of two gigabytes, fitted by `skdp fit` in one gigabyte of memory.

    python benchmarks/big_csv.py [--bytes 2e9] [--repeats 3] [--quoted] [--ledger]

writes a table of hospital stays in pieces, then fits it by the command line, and reads
the same file with pyarrow, typed and in a stream, in turn, each in a process of its
own. Without options the results are written to the end of docs/evidence/speed.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

from speed_lines import CSV_SECTION, HEADER, PAGE, Line, load

#: Rows that are drawn and written at a time, with a seed of their own.
PIECE = 500_000
#: What is allowed: seconds in those of pyarrow's read, and MB. The aim is lower.
TIMES, MEGABYTES = 3.0, 1000.0
AIM = 2.5

TEXT = """{section}

Written by `make bench NAME=csv` ({machine}; {before} at the start, {after} at the end).

{table}

- Ours is `skdp fit --epsilon 1` from the start of its process to its end, with all
  passes over the file. Theirs is `pyarrow.csv.open_csv` with the columns' types, in a
  stream, without its start and imports. They take turns, {repeats} times each, in
  separate processes. Numbers are medians.
- *Reading and encoding alone* is the same for our reader, in a process of its own.
  The rest of a fit is the Gram matrix, the caps and 80 steps over the encoded rows,
  whatever the file is. They take a little longer than for a table in memory, because
  most rows are kept in a temporary file.
- *Processor time* is that of all threads together. It is more telling than seconds if
  other programs use the cores.
- *Memory* is the largest resident size of the process, mapped files included.
"""

READ = """
import sys, time
import pyarrow as pa
from pyarrow import csv
import skdp
schema = skdp.make_hospital(1).schema
types = {name: pa.float64() if isinstance(column, skdp.Numeric) else pa.string()
         for name, column in [*schema.columns.items(), schema.target]}
start, used = time.perf_counter(), time.process_time()
options = csv.ConvertOptions(column_types=types)
for batch in csv.open_csv(sys.argv[1], convert_options=options):
    pass
print(time.perf_counter() - start, time.process_time() - used)
"""


READ_OURS = """
import sys, time
import skdp
from skdp.tables.encoder import read_rows
schema = skdp.make_hospital(1).schema
options = {"class_weight": None, "intercept": True, "max_weight": 1.0}
read_rows(sys.argv[2], None, None, schema=schema, n_threads=None, **options)
start, used = time.perf_counter(), time.process_time()
read_rows(sys.argv[1], None, None, schema=schema, n_threads=None, **options)
print(time.perf_counter() - start, time.process_time() - used)
"""


def write(path: Path, n_bytes: float, quoted: bool) -> int:
    """Write a table of at least this many bytes, in pieces. Return its rows."""
    import polars as pl

    from skdp.datasets import make_hospital

    style = "non_numeric" if quoted else "necessary"
    seed = 0
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            frame = pl.DataFrame(dict(make_hospital(PIECE, seed).columns))
            frame.write_csv(file, include_header=not seed, quote_style=style)
            seed += 1
    return seed * PIECE


def measured(command: list[str]) -> tuple[float, float, float, str]:
    """Seconds, those of processors, MB and output of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    shown = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed.")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, shown


def lines(
    n_bytes: float = 2e9, repeats: int = 3, quoted: bool = False, ledger: bool = False
) -> list[Line]:
    """Seconds and memory of a fit, beside pyarrow's read."""
    import skdp
    from skdp.schema import toml_files

    with tempfile.TemporaryDirectory() as folder:
        table, schema = Path(folder, "stays.csv"), Path(folder, "stays.toml")
        n_rows = write(table, n_bytes, quoted)
        toml_files.write(skdp.make_hospital(1).schema, schema)
        fit = [str(Path(sys.executable).with_name("skdp")), "fit", str(table)]
        fit += ["--schema", str(schema), "--epsilon", "1", "--quiet"]
        fit += ["--force", "--out", str(Path(folder, "model"))]
        if ledger:
            book = Path(folder, "stays.ledger")
            skdp.Ledger(book, epsilon=100, delta=1e-6)
            fit += ["--ledger", str(book)]
        ours, theirs, memory = [], [], []
        our_work, their_work, read_times, read_work = [], [], [], []
        little = Path(folder, "little.csv")
        with table.open("rb") as file:
            little.write_bytes(b"".join(file.readline() for _ in range(100)))
        for turn in range(repeats):
            seconds, work, megabytes, _ = measured(fit)
            ours.append(seconds)
            our_work.append(work)
            memory.append(megabytes)
            *_, shown = measured([sys.executable, "-c", READ, str(table)])
            seconds, work = map(float, shown.split())
            theirs.append(seconds)
            their_work.append(work)
            command = [sys.executable, "-c", READ_OURS, str(table), str(little)]
            seconds, work = map(float, measured(command)[3].split())
            read_times.append(seconds)
            read_work.append(work)
            print(
                f"turn {turn + 1}: ours {ours[-1]:.1f} s ({our_work[-1]:.1f} s of "
                f"processors), {memory[-1]:.0f} MB, pyarrow {theirs[-1]:.1f} s "
                f"({their_work[-1]:.1f} s) ({load()})",
                file=sys.stderr,
                flush=True,
            )
        size = table.stat().st_size / 1e9
    kind = "quoted texts" if quoted else "plain texts"
    what = f"`skdp fit` of a CSV file of {size:.1f} GB ({n_rows:,} rows, {kind})"
    ratio = median(ours) / median(theirs)
    return [
        Line(
            what=f"{what} against pyarrow's typed read of it",
            ours=f"{median(ours):.1f} s",
            theirs=f"{median(theirs):.1f} s",
            figure=ratio,
            required=TIMES,
            aim=AIM,
        ),
        Line(
            what="reading and encoding alone",
            ours=f"{median(read_times):.1f} s",
            theirs=f"{median(theirs):.1f} s",
            figure=median(read_times) / median(theirs),
            required=None,
        ),
        Line(
            what="processor time of reading and encoding alone",
            ours=f"{median(read_work):.1f} s",
            theirs=f"{median(their_work):.1f} s",
            figure=median(read_work) / median(their_work),
            required=None,
        ),
        Line(
            what="processor time of the whole fit",
            ours=f"{median(our_work):.1f} s",
            theirs=f"{median(their_work):.1f} s",
            figure=median(our_work) / median(their_work),
            required=None,
        ),
        Line(
            what=f"memory of that fit, the whole process ({load()})",
            ours=f"{max(memory):.0f} MB",
            figure=max(memory),
            required=MEGABYTES,
            ratio=False,
            unit=" MB",
        ),
    ]


def write_section(found: list[Line], before: str, repeats: int) -> None:
    """Put the results at the end of the page, in place of earlier ones."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pyarrow"))
    section = TEXT.format(
        section=CSV_SECTION,
        machine=f"{platform.machine()}, Python {platform.python_version()}, "
        f"{libraries}",
        before=before,
        after=load(),
        table="\n".join([HEADER, *map(str, found)]),
        repeats=repeats,
    )
    page, _, _ = PAGE.read_text(encoding="utf-8").partition(f"\n{CSV_SECTION}\n")
    PAGE.write_text(f"{page.rstrip()}\n\n{section}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=float, default=2e9)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quoted", action="store_true")
    parser.add_argument("--ledger", action="store_true")
    given = parser.parse_args()
    before = load()
    found = lines(given.bytes, given.repeats, given.quoted, given.ledger)
    print(HEADER, *found, sep="\n")
    if len(sys.argv) == 1:
        write_section(found, before, given.repeats)
    sys.exit(not all(line.met for line in found))
