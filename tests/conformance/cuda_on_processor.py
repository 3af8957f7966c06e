"""Run the GPU's kernels on the processor, where there is no GPU.

The kernels are compiled by the system's C++ compiler. A block has one thread, and
blocks run one after another. So this tests the arithmetic of the kernels and the code
around them, and not how threads work together. Arrays are numpy's.
"""

import ctypes
import functools
import importlib.machinery
import re
import shutil
import subprocess
import sys
import tempfile
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from skdp.engines import choice

SHIM = """
#include <cmath>
#include <cstdint>
#include <cstring>
#define __global__
#define __device__
#define __shared__
#define __syncthreads()
#define __launch_bounds__(...)
struct Index { unsigned x; };
static Index threadIdx = {0}, blockDim = {1};
extern "C" { Index blockIdx = {0}, gridDim = {1}; }
struct short4 { short x, y, z, w; };
struct uchar4 { unsigned char x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };
struct int4 { int x, y, z, w; };
struct float4 { float x, y, z, w; };
struct double2 { double x, y; };
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __dsqrt_rn(double a) { return std::sqrt(a); }
static double __hiloint2double(int high, int low) {
    uint64_t bits = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    double value; std::memcpy(&value, &bits, 8); return value;
}
static int __double2loint(double value) {
    uint64_t bits; std::memcpy(&bits, &value, 8); return (int)(uint32_t)bits;
}
template <class T> T __shfl_down_sync(unsigned, T, int) { return 0; }
template <class T> T atomicAdd(T* at, T more) { T old = *at; *at += more; return old; }
using std::floor; using std::fma; using std::trunc;
"""
#: What the host defines for each kernel. Here they are variables, so that the compiler
#: runs once.
CONSTANTS = ("FORMULA", "NUMBERS", "BYTES", "SHORTS", "KEPT", "COPIES")


def has_gpu() -> bool:
    """Whether CuPy is installed and finds a GPU."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:
        return False


@functools.cache
def compiled(source: str) -> ctypes.CDLL:
    variables = "".join(f'extern "C" {{ int {name}; }}\n' for name in CONSTANTS)
    whole = f"{SHIM}{variables}{source}\ndouble shared[1 << 16];\n"
    flags = ["-O1", "-ffp-contract=off", "-shared", "-fPIC", "-std=c++17", "-w"]
    with tempfile.TemporaryDirectory(prefix="skdp-") as folder:
        Path(folder, "kernels.cpp").write_text(whole)
        command = ["g++", *flags, "kernels.cpp", "-o", "kernels.so"]
        subprocess.run(command, check=True, cwd=folder)
        return ctypes.CDLL(str(Path(folder, "kernels.so")))


class Kernel:
    def __init__(self, library: ctypes.CDLL, name: str, constants: Any) -> None:
        self._library, self._function = library, getattr(library, name)
        self._function.restype = None
        self._constants = constants

    def __call__(
        self, grid: Any, block: Any, arguments: Any, shared_mem: int = 0
    ) -> None:
        assert shared_mem <= 8 << 16
        index = ctypes.c_uint.in_dll(self._library, "blockIdx")
        size = ctypes.c_uint.in_dll(self._library, "gridDim")
        size.value = min(grid[0], 3)
        for name in CONSTANTS:
            variable = ctypes.c_int.in_dll(self._library, name)
            variable.value = int(self._constants[name])
        for index.value in range(size.value):
            self._function(*(as_argument(value) for value in arguments))


def as_argument(value: Any) -> Any:
    """A kernel's argument: a struct by value, an array's address or a number."""
    if isinstance(value, np.ndarray) and value.dtype.names:
        words = ctypes.c_uint64 * (value.nbytes // 8)
        struct = type("Struct", (ctypes.Structure,), {"_fields_": [("words", words)]})
        return struct.from_buffer_copy(value.tobytes())
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    kinds = {"f8": ctypes.c_double, "i8": ctypes.c_int64, "i4": ctypes.c_int32}
    return kinds.get(value.dtype.str[1:], ctypes.c_uint64)(value.item())


class RawModule:
    def __init__(self, code: str, options: tuple[str, ...]) -> None:
        assert "--fmad=false" in options
        self._constants = dict(re.findall(r"-D(\w+)=(\d+)", " ".join(options)))
        self._code = code

    def get_function(self, name: str) -> Kernel:
        return Kernel(compiled(self._code), name, self._constants)


def make_cupy() -> types.ModuleType:
    """A stand-in for the module cupy, whose arrays are numpy's."""
    cupy = types.ModuleType("cupy")
    cupy.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    cupy.__getattr__ = lambda name: getattr(np, name)
    attributes = {"MultiProcessorCount": 2, "MaxSharedMemoryPerBlockOptin": 1 << 17}
    device = types.SimpleNamespace(
        id=0, mem_info=(1 << 30, 1 << 30), attributes=attributes
    )
    cupy.cuda = types.SimpleNamespace(Device=lambda index=0: device)
    cupy.RawModule = RawModule
    cupy.asnumpy = np.asarray
    return cupy


def install() -> str | None:
    """Let the engine run here, with a GPU or without. Return why it cannot, if so."""
    if has_gpu():
        return None
    if shutil.which("g++") is None:
        return "needs a GPU or g++"
    # Other libraries look for cupy among the imported modules, so it must not stay.
    sys.modules["cupy"] = make_cupy()
    try:
        from skdp.engines import cuda
    finally:
        del sys.modules["cupy"]
    cuda.find_address = cuda.find_address = lambda array: array.ctypes.data
    choice.ENGINES["cuda"] = replace(choice.ENGINES["cuda"], package=None)
    return None
