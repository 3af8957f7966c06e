"""Compile the kernels of ``cuda_kernels.cu`` and call them."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import cupy
import numpy as np

from skdp.engines.formula import Formula

#: Number of threads per block, and number of blocks per processor of the GPU.
THREADS, BLOCKS = 256, 2
#: Largest number of columns of each kind in one sweep, as the kernels define it.
MOST_COLUMNS = 48
#: Largest number of bytes of shared memory of a block, if the GPU has that many.
MOST_SHARED = 96 << 10

FORMULA = np.dtype(
    [
        (name, "f8")
        for name in ("unit", "low", "steps", "bound", "one", "scale", "cap", "last")
    ]
)
COLUMNS = np.dtype(
    [
        ("number", "u8", MOST_COLUMNS),
        ("byte", "u8", MOST_COLUMNS),
        ("two", "u8", MOST_COLUMNS),
        ("change", "f8", MOST_COLUMNS),
        ("byte_slot", "i4", MOST_COLUMNS),
        ("short_slot", "i4", MOST_COLUMNS),
        ("slot_moves", "u8"),
        ("intercept_move", "f8"),
        ("slots", "i8"),
    ]
)
NULL = np.uint64(0)


@lru_cache(maxsize=64)
def compile_kernel(name: str, **constants: int) -> Any:
    """Compile a kernel for the given constants."""
    source = files("skdp.engines").joinpath("cuda_kernels.cu").read_text("utf-8")
    shape = {
        "FORMULA": 0,
        "NUMBERS": 0,
        "BYTES": 0,
        "SHORTS": 0,
        "KEPT": 0,
        "COPIES": 1,
    }
    defines = [f"-D{key}={value}" for key, value in (shape | constants).items()]
    defines += [f"-DTHREADS={THREADS}", f"-DRESIDENT={BLOCKS}"]
    options = ("--std=c++17", "--fmad=false", *defines)
    return cupy.RawModule(code=source, options=options).get_function(name)


def launch(kernel: Any, n: int, *arguments: Any, shared: int = 0) -> None:
    """Run a kernel with enough threads for `n` items, and `shared` bytes per block."""
    if shared:
        kernel.max_dynamic_shared_size_bytes = shared
    processors = _find_attribute("MultiProcessorCount")
    blocks = max(1, min(BLOCKS * processors, -(-n // THREADS)))
    kernel((blocks,), (THREADS,), arguments, shared_mem=shared)


def limit_shared() -> int:
    """Return how many bytes of shared memory a block may use on this GPU."""
    return min(MOST_SHARED, _find_attribute("MaxSharedMemoryPerBlockOptin"))


def _find_attribute(name: str) -> int:
    return int(_list_attributes(cupy.cuda.Device().id)[name])


@cache
def _list_attributes(device: int) -> dict[str, int]:
    """Return the properties of a GPU. Asking for them takes longer than a launch."""
    found: dict[str, int] = cupy.cuda.Device(device).attributes
    return found


def describe_formula(formula: Formula, divisor: int = 1) -> Any:
    """Return the formula as a struct for kernels, with slopes divided by `divisor`."""
    described = np.zeros(1, FORMULA)
    described[0] = (*formula.parameters, len(formula.table) - 1)
    described["scale"] /= divisor
    return described
