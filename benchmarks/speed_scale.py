"""Fits of a file of ten million rows: seconds per row, and memory.

    python benchmarks/speed_scale.py SMALL.parquet LARGE.parquet

fits both in this process and prints what it took as JSON; `lines` writes the files and
does so in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from speed_lines import Line

N_SMALL, N_LARGE = 100_000, 10_000_000
#: Eight numbers and seven categories, of so many levels, and a target.
N_NUMBERS, LEVELS = 8, (2, 5, 7, 9, 15, 16, 41)
#: Rows that are generated, and written as one group, at a time.
GROUP = 1_000_000


def write(path: Path, n_rows: int) -> None:
    """Write a table, a group of rows at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer = np.random.default_rng(0), None
    names = [[f"level {code}" for code in range(k)] for k in LEVELS]
    for start in range(0, n_rows, GROUP):
        n = min(GROUP, n_rows - start)
        columns: dict[str, Any] = {}
        margin = np.zeros(n)
        for j in range(N_NUMBERS):
            columns[f"x{j}"] = rng.random(n)
            margin += (-1) ** j * columns[f"x{j}"]
        for j, k in enumerate(LEVELS):
            codes = rng.integers(0, k, n, dtype=np.int32)
            margin += (codes == 0) * 0.5
            columns[f"c{j}"] = pa.DictionaryArray.from_arrays(codes, names[j]).cast(
                pa.string()
            )
        columns["y"] = rng.random(n) < 1.0 / (1.0 + np.exp(-margin))
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=GROUP)
    if writer is not None:
        writer.close()


def fit(path: str) -> float:
    """Seconds of a fit from a file."""
    from skdp.estimators import LogisticRegression
    from skdp.schema import Categorical, Numeric, Schema

    columns: dict[str, Any] = {f"x{j}": Numeric(0, 1) for j in range(N_NUMBERS)}
    for j, k in enumerate(LEVELS):
        columns[f"c{j}"] = Categorical([f"level {code}" for code in range(k)])
    schema = Schema(columns, target=("y", Categorical([False, True])))
    start = time.perf_counter()
    LogisticRegression(epsilon=1.0, schema=schema).fit(path)
    return time.perf_counter() - start


def peak() -> float:
    """Most memory that this process has held, in MB (Linux)."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


def measure(small: str, large: str) -> dict[str, float]:
    """Fit the small file before and after the large one."""
    import pandas  # noqa: F401 (a user has imported it anyway)
    import pyarrow.parquet  # noqa: F401 (likewise)

    import skdp.engines.compiled
    import skdp.estimators  # noqa: F401 (timed apart from fits)

    imports = peak()
    fit(small)
    few = [fit(small) for _ in range(5)]
    many = fit(large)
    most = peak()
    few += [fit(small) for _ in range(5)]
    return {"imports": imports, "peak": most, "small": median(few), "large": many}


def lines() -> Iterator[Line]:
    """Ten million rows of fifteen columns and a target, read from Parquet."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory, f"{n}.parquet") for n in (N_SMALL, N_LARGE)]
        for path, n_rows in zip(paths, (N_SMALL, N_LARGE), strict=True):
            write(path, n_rows)
        command = [sys.executable, __file__, *map(str, paths)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    small, large = found["small"] / N_SMALL, found["large"] / N_LARGE
    yield Line(
        what=f"seconds per row of a fit, {N_LARGE:,} rows against {N_SMALL:,}",
        ours=f"{1e9 * large:.0f} ns ({found['large']:.1f} s in all)",
        theirs=f"{1e9 * small:.0f} ns",
        figure=large / small,
        required=1.2,
    )
    extra = found["peak"] - found["imports"]
    yield Line(
        what=f"memory of a fit of {N_LARGE:,} × {N_NUMBERS + len(LEVELS)} from Parquet",
        ours=f"{extra:.0f} MB above {found['imports']:.0f} MB of imports",
        figure=extra,
        required=600,
        ratio=False,
        unit=" MB",
    )


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3])))
