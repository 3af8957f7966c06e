"""CPU seconds of fresh processes, and of predictions of one row.

    python benchmarks/speed_start.py

prints the table, of which `lines` makes the rows.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from speed_lines import HEADER, Line

IMPORT = "import skdp"
FIT = """
import skdp
data = skdp.make_hospital({rows})
skdp.LogisticRegression(schema=data.schema, engine="{engine}").fit(data.columns)
"""
PREDICT = """
import time
import pandas as pd
import skdp
data = skdp.make_hospital(2000)
model = skdp.LogisticRegression(schema=data.schema).fit(data.columns)
frame = pd.DataFrame(data.columns)[:1]
row = {name: frame[name].iloc[0] for name in data.schema.inputs}
for one, table in ((model, row), (model, frame), (model.to_sklearn(), frame)):
    times = []
    for _ in range(200):
        start = time.process_time()
        one.predict_proba(table)
        times.append(time.process_time() - start)
    print(1000 * sorted(times)[len(times) // 2])
"""
COMMAND = """
import sys
from skdp.cli import main
sys.argv = ["skdp", *{words}]
main()
"""


def start(program: str, folder: str, code: int = 0) -> tuple[float, str]:
    """CPU seconds of a fresh process, and what it wrote to stderr."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"NUMBA_CACHE_DIR": folder, "OPENBLAS_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return user + system, done.stderr


def lines(repeats: int) -> Iterator[Line]:
    """Time each program in processes of its own. The first one compiles kernels."""
    small, usual = FIT.format(rows=1000, engine="auto"), {"rows": 50_000}
    words = "'--schema', 's.toml', '--epsilon', '1', '--out', 'model'"
    plan = COMMAND.format(words="['plan', '--schema', 's.toml', '--rows', '50000']")
    missing = COMMAND.format(words=f"['fit', 'missing.csv', {words}]")
    from skdp import make_hospital
    from skdp.schema import toml_files

    with tempfile.TemporaryDirectory() as folder:
        toml_files.write(make_hospital(1).schema, Path(folder, "s.toml"))
        compiling = FIT.format(engine="compiled", **usual)
        cold, said = start(compiling, folder)
        message = "announced" if "compiling" in said else "not announced"
        for what, program, required, code in (
            ("`import skdp`", IMPORT, 0.1, 0),
            ("`import sklearn.base`, for comparison", "import sklearn.base", None, 0),
            ("a first fit, 1,000 rows", small, 1.2, 0),
            ("a first fit, 50,000 rows", FIT.format(engine="auto", **usual), None, 0),
            ("the same, kernels compiled before", compiling, None, 0),
            ("`skdp plan`", plan, 0.8, 0),
            ("`skdp fit` of a file that is missing", missing, 0.8, 2),
        ):
            times = [start(program, folder, code)[0] for _ in range(repeats)]
            yield _line(f"{what}, CPU time of a fresh process", median(times), required)
    what = f"a first fit, 50,000 rows, kernels being compiled ({message})"
    yield _line(f"{what}, CPU time", cold, 8.0)
    yield from time_rows()


def time_rows() -> Iterator[Line]:
    """Time predictions of one row, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PREDICT],
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = {"from a dict": 1.0, "from a frame": 3.0, "by `to_sklearn()`": 3.0}
    for (what, required), line in zip(kinds.items(), done.stdout.split(), strict=True):
        yield Line(
            what=f"one row predicted {what}, CPU time",
            ours=f"{float(line):.2f} ms",
            figure=float(line),
            required=required,
            ratio=False,
            unit=" ms",
        )


def _line(what: str, seconds: float, required: float | None) -> Line:
    return Line(
        what=what,
        ours=f"{seconds:.2f} s",
        figure=seconds,
        required=required,
        ratio=False,
        unit=" s",
    )


if __name__ == "__main__":
    print(HEADER, *lines(3), sep="\n")
