"""Time sweeps and whole fits on a GPU: make bench NAME=gpu.

The table has 8 numbers and 7 categories (60 levels) and is made on the GPU. Times are
medians. A sweep's speed is the number of bytes that it must read, divided by its time,
as a share of the speed of a copy in the same run. The non-private fit is torch's L-BFGS
on dense one-hot floats, with as many passes as our fit makes. Needs CuPy, torch and a
GPU.

    python benchmarks/gpu.py [--rows 1000000000] [--fit-rows 100000000] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from skdp import Categorical, Numeric, Schema
from skdp.descent.plan import run
from skdp.descent.rule import make_plan
from skdp.models import losses
from skdp.privacy import queries
from skdp.privacy.encoding import Chunk, Records
from skdp.privacy.grid import WeightGrid

LEVELS = (9, 16, 7, 15, 6, 5, 2)
N_NUMBERS = 8
#: Bytes that a sweep reads per row: numbers, codes (combined to three columns), target,
#: weight and cap. A step on one column reads and writes margins instead, and reads the
#: column that moved and the one that is added up.
ROW_BYTES = 2 * N_NUMBERS + 3 + 2 + 4 + 4
COLUMN_BYTES = 2 * 8 + 2 * 2 + 2 + 4 + 4
EVIDENCE = Path(__file__).resolve().parents[1] / "docs" / "evidence"


def make_schema() -> Schema:
    """Describe 8 numbers and 7 categories."""
    columns: dict[str, Any] = {f"x{j}": Numeric(0, 1) for j in range(N_NUMBERS)}
    columns |= {f"c{g}": Categorical(range(width)) for g, width in enumerate(LEVELS)}
    return Schema(columns, target=("y", Categorical([0, 1])))


def make_records(rows: int) -> Records:
    """A table on the GPU, whose labels depend on its columns."""
    import cupy

    layout = make_schema().layout(True)
    rng = cupy.random.default_rng(1)
    parts: list[Any] = []
    target = cupy.empty(rows, np.uint8)
    numbers = [cupy.empty((rows, 1), np.int16) for _ in range(N_NUMBERS)]
    codes = [cupy.empty(rows, np.uint8) for _ in LEVELS]
    piece = 1 << 26
    for start in range(0, rows, piece):
        at = slice(start, min(start + piece, rows))
        n = at.stop - at.start
        margin = cupy.full(n, -1.5, np.float32)
        for j, column in enumerate(numbers):
            values = rng.random(n, dtype=np.float32)
            column[at, 0] = (values * 16384).astype(np.int16)
            margin += values * np.float32((-1) ** j * 0.8)
        for g, column in enumerate(codes):
            values = rng.random(n, dtype=np.float32) ** 2 * np.float32(LEVELS[g])
            column[at] = values.astype(np.uint8)
            margin += (column[at] % 3).astype(np.float32) * np.float32(0.3)
        chance = 1 / (1 + cupy.exp(-margin))
        target[at] = rng.random(n, dtype=np.float32) < chance
    parts = [*numbers, *codes, cupy.empty((rows, 0), np.int16)]
    weight = cupy.ones(rows, np.float32)
    return Records(layout, (Chunk(tuple(parts), target, weight),))


def median_time(work: Callable[[], Any], times: int = 7) -> float:
    """Return the median time of some runs, after one that does not count."""
    import cupy

    found = []
    for _ in range(times + 1):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


def copy_speed() -> float:
    """Bytes per second that a copy reads and writes."""
    import cupy

    source = cupy.ones(1 << 30, np.float64)
    goal = cupy.empty_like(source)
    return 2 * source.nbytes / median_time(lambda: cupy.copyto(goal, source))


def measure_steps(rows: int) -> dict[str, float]:
    """Time what a fit does: the Gram matrix, caps, sweeps and steps on one column."""
    import cupy

    from skdp.engines.cuda import CudaEngine

    found: dict[str, float] = {"rows": rows, "copy_TB_per_s": copy_speed() / 1e12}
    cupy.get_default_memory_pool().free_all_blocks()
    records = make_records(rows)
    start = time.perf_counter()
    engine = CudaEngine(records)
    cupy.cuda.Device().synchronize()
    found["load_s"] = time.perf_counter() - start
    layout = records.layout
    d = layout.n_features
    engine.records = Records(layout, ())
    del records
    cupy.get_default_memory_pool().free_all_blocks()
    rng = np.random.default_rng(0)
    slopes = queries.Slopes(loss=losses.Logistic())
    root = np.linalg.qr(rng.normal(size=(d, d)))[0]
    metric = queries.Metric.of(root, 0.5)
    found["gram_s"] = median_time(engine.gram, 2)
    found["caps_s"] = median_time(lambda: engine.caps(metric, slopes), 2)
    capped = queries.cap_slopes(engine, slopes, metric)
    grid = WeightGrid.of(layout)
    every = np.arange(d)

    def sweep() -> None:
        engine.gradient(grid.units(rng.normal(size=(d, 1))), every, capped)

    found["sweep_ms"] = 1e3 * median_time(sweep, 15)
    bytes_per_s = rows * ROW_BYTES / (found["sweep_ms"] / 1e3)
    found["sweep_share_of_copy"] = bytes_per_s / (found["copy_TB_per_s"] * 1e12)
    weights = rng.normal(size=(d, 1))
    turn = [0]

    def column_step() -> None:
        block = layout.blocks[turn[0] % N_NUMBERS]
        turn[0] += 1
        weights[block] += 0.01
        engine.gradient(grid.units(weights), block, capped)

    column_step()
    found["column_ms"] = 1e3 * median_time(column_step, 15)
    bytes_per_s = rows * COLUMN_BYTES / (found["column_ms"] / 1e3)
    found["column_share_of_copy"] = bytes_per_s / (found["copy_TB_per_s"] * 1e12)
    return found


def measure_fit(rows: int) -> dict[str, float]:
    """Time whole fits: Gram matrix, caps and all steps."""
    import cupy

    from skdp.engines.cuda import CudaEngine

    records = make_records(rows)
    engine = CudaEngine(records)
    cupy.get_default_memory_pool().free_all_blocks()
    plan = make_plan(
        records.layout,
        losses.Logistic(),
        n_rows=rows,
        epsilon=1.0,
        delta=1e-10,
        neighbours="replace-one",
    )

    def fit() -> Any:
        return run(plan, records, engine=lambda _: engine, random_state=1)

    return {"fit_rows": rows, "steps": plan.n_steps, "fit_s": median_time(fit, 2)}


def measure_torch(rows: int, passes: int) -> dict[str, float]:
    """Time a non-private logistic fit by L-BFGS on dense one-hot floats."""
    import cupy
    import torch

    records = make_records(rows)
    chunk = records.chunks[0]
    d = records.layout.n_features
    table = torch.empty((rows, d), dtype=torch.float32, device="cuda")
    for j in range(N_NUMBERS):
        table[:, j] = torch.as_tensor(chunk.parts[j][:, 0], device="cuda") / 16384
    place = N_NUMBERS
    for g, width in enumerate(LEVELS):
        codes = torch.as_tensor(chunk.parts[N_NUMBERS + g], device="cuda")
        for level in range(width):
            table[:, place] = codes == level
            place += 1
    table[:, place] = 1
    y = torch.as_tensor(chunk.target, device="cuda").float()
    del records, chunk
    cupy.get_default_memory_pool().free_all_blocks()
    weights = torch.zeros(d, device="cuda", requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights],
        max_iter=passes,
        max_eval=passes,
        tolerance_grad=0,
        tolerance_change=0,
        history_size=10,
    )
    calls = [0]

    def loss() -> Any:
        calls[0] += 1
        optimiser.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(table @ weights, y)
        value.backward()
        return value

    loss()
    torch.cuda.synchronize()
    calls[0], start = 0, time.perf_counter()
    optimiser.step(loss)
    torch.cuda.synchronize()
    return {
        "torch_rows": rows,
        "torch_passes": calls[0],
        "torch_s": time.perf_counter() - start,
    }


def name_device() -> str:
    """Return the name of the GPU."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return str(properties["name"].decode())


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    parser.add_argument("--fit-rows", type=int, default=100_000_000)
    parser.add_argument("--parts", default="steps,fit,torch")
    parser.add_argument("--output", default=str(EVIDENCE / "gpu.json"))
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if "steps" in options.parts:
        found |= measure_steps(options.rows)
        print(json.dumps(found, indent=1), flush=True)
    if "fit" in options.parts:
        found |= measure_fit(options.rows)
        print(json.dumps(found, indent=1), flush=True)
    if "torch" in options.parts:
        ours = measure_fit(options.fit_rows)
        found |= {f"small_{key}": value for key, value in ours.items()}
        found |= measure_torch(options.fit_rows, int(ours["steps"]) + 2)
        print(json.dumps(found, indent=1), flush=True)
    found = {"device": name_device()} | found
    Path(options.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
