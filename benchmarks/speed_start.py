"""Imports, and first fits in a fresh process, with kernels on disk and without.

    python benchmarks/speed_start.py

times a first fit in this process and prints the seconds; `lines` starts such processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median

from speed_lines import Line

IMPORT = (
    "import time; s = time.perf_counter(); import skdp; print(time.perf_counter() - s)"
)


def first_fit() -> float:
    """Seconds that a first fit takes, its imports but those of the peers included."""
    import numpy as np
    import pandas as pd
    import sklearn.linear_model  # noqa: F401 (not timed)

    rng, n = np.random.default_rng(0), 10_000
    jobs = ["admin", "sales", "tech", "other"]
    frame = pd.DataFrame(
        {
            "age": rng.integers(17, 90, n),
            "hours": rng.integers(1, 99, n),
            "job": np.array(jobs)[rng.integers(0, 4, n)],
            "rich": np.array(["no", "yes"])[rng.integers(0, 2, n)],
        }
    )
    start = time.perf_counter()
    from skdp.estimators import LogisticRegression
    from skdp.schema import Categorical, Numeric, Schema

    schema = Schema(
        {"age": Numeric(17, 90), "hours": Numeric(1, 99), "job": Categorical(jobs)},
        target=("rich", Categorical(["no", "yes"])),
    )
    LogisticRegression(epsilon=1.0, schema=schema).fit(frame)
    return time.perf_counter() - start


def started(*command: str, cache: str) -> tuple[float, str]:
    """Seconds that a fresh process printed, and what it said beside."""
    done = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout), done.stderr


def lines(repeats: int) -> Iterator[Line]:
    """Each in processes of their own."""
    with tempfile.TemporaryDirectory() as cache:
        imports = median(started("-c", IMPORT, cache=cache)[0] for _ in range(repeats))
        cold, said = started(__file__, cache=cache)
        again = [started(__file__, cache=cache) for _ in range(repeats)]
    warm, quiet = median(seconds for seconds, _ in again), not any(s for _, s in again)
    yield _line("`import skdp`", imports, 0.5)
    silence = "nothing is said" if quiet else "with a message"
    yield _line(
        "a first fit, kernels on disk, beyond importing scikit-learn and pandas "
        f"({silence})",
        warm,
        1.0,
    )
    message = "announced" if "compiling" in said else "not announced"
    yield _line(f"the same, kernels compiled ({message})", cold, 20.0)


def _line(what: str, seconds: float, required: float) -> Line:
    return Line(
        what=what,
        ours=f"{seconds:.2f} s",
        figure=seconds,
        required=required,
        ratio=False,
        unit=" s",
    )


if __name__ == "__main__":
    print(first_fit())
