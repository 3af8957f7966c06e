"""All that is promised about speed and memory, measured: writes docs/evidence/speed.md.

    python benchmarks/speed.py [--repeats 7] [--only fit pass scale start]

Two sides take turns in one process, on equally many threads, and medians are compared,
so that a busy machine slows both. With --only the table is printed and not written.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version

import speed_fit
import speed_pass
import speed_scale
import speed_start
from speed_lines import CSV_SECTION, HEADER, PAGE, Line, load

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow")

PARTS: dict[str, Callable[[int], Iterator[Line]]] = {
    "fit": speed_fit.lines,
    "pass": speed_pass.lines,
    "scale": lambda repeats: speed_scale.lines(),
    "start": speed_start.lines,
}

TEXT = """# Speed and memory

Written by `make bench NAME=speed` ({machine}; {before} at the start, {after} at the
end).

{table}

What is counted:

- Both sides take turns in one process with the same number of threads for linear
  algebra, OpenMP and our kernels. Numbers are medians of {repeats} runs.
- *Whole fit on Adult*: ours starts from the raw data frame with its texts and ends with
  a fitted model at ε = 1, δ = 1e-6, with reading, encoding, planning and noise. Theirs
  is not private. It starts from the dense one-hot array with numbers scaled to [0, 1],
  whose making is not counted, and runs to convergence (`max_iter=1000`).
- *A full pass*: one exact gradient after all weights have moved, against the time that
  each further iteration adds to a fit by lbfgs.
- *Two threads* need two cores. If the load is near the number of cores, the line of 2
  threads against 1 is not meaningful, and the other side's fit on two threads is slower
  than on one. Look at the lines of one thread then.
- *Seconds per row*: fits from Parquet files of {numbers} numbers, {levels} texts and a
  target, on all cores, with reading. The small file is fitted before and after the
  large one.
- *Memory*: the largest resident size of that process until the end of the large fit,
  less its size after importing pandas, pyarrow, scikit-learn, numba and skdp. It
  includes encoded rows, margins, compiled kernels and the reader's buffers. The raw
  table is never in memory.
- *First fits*, imports and commands: CPU seconds of fresh processes, from their start
  to their end.
"""


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[])
    options = parser.parse_args()
    before, table = load(), [HEADER]
    print(before, HEADER, sep="\n")
    for name in options.only or PARTS:
        for line in PARTS[name](options.repeats):
            print(line, flush=True)
            table.append(str(line))
    after = load()
    print(after)
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    page = TEXT.format(
        machine=f"{platform.machine()}, Python {platform.python_version()}, {versions}",
        before=before,
        after=after,
        table="\n".join(table),
        repeats=options.repeats,
        numbers=speed_scale.N_NUMBERS,
        levels=len(speed_scale.LEVELS),
    )
    if not options.only:
        _, heading, rest = PAGE.read_text(encoding="utf-8").partition(
            f"\n{CSV_SECTION}\n"
        )
        PAGE.write_text(page + heading + rest, encoding="utf-8")


if __name__ == "__main__":
    main()
