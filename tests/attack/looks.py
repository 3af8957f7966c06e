"""Everything that can be seen of a run, bit for bit, and where two runs differ."""

import contextlib
import io
import re
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np

#: Attributes that are not results: handles of files and of the process.
LEFT_OUT = {"ledger", "_process"}
#: What a warning says that follows from the types of columns in memory alone. These
#: are taken as public, although a library may have guessed them from cells.
OF_TYPES = "holds floating-point numbers"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def look(act):
    """Run `act`; return what it returned, printed, warned of, raised and saved."""
    out, err = io.StringIO(), io.StringIO()
    seen = {}
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        try:
            result = act()
            seen["result"] = frozen(result)
            if hasattr(result, "save"):
                seen["files"] = _saved(result)
        except Exception as raised:
            said = str(raised), getattr(raised, "__notes__", None)
            seen["error"] = [type(raised).__name__, *said]
    said = [[w.category.__name__, str(w.message)] for w in caught]
    seen["warnings"] = [line for line in said if OF_TYPES not in line[1]]
    seen["printed"] = [out.getvalue(), err.getvalue()]
    return seen


def _saved(model):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        model.save(Path(folder) / "model")
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }


def frozen(value, inside=()):
    """A value as nested lists of plain values, equal where every bit is."""
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    if isinstance(value, float):
        return value.hex()
    if id(value) in inside:
        return "itself"
    inside = (*inside, id(value))
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        held = array.tolist() if array.dtype == object else array.tobytes()
        return [array.dtype.str, list(array.shape), frozen(held, inside)]
    if isinstance(value, list | tuple):
        return [frozen(part, inside) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(part) for part in value)
    if isinstance(value, dict | types.MappingProxyType):
        kept = {key: part for key, part in value.items() if key not in LEFT_OUT}
        return {
            str(frozen(k, inside)): frozen(part, inside) for k, part in kept.items()
        }
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return value.__qualname__
    if hasattr(value, "__dict__"):
        return [type(value).__qualname__, frozen(vars(value), inside)]
    return re.sub("0x[0-9a-f]+", "", repr(value))


def differences(one, other, path=""):
    """Paths at which two frozen values differ, with both values, shortened."""
    if type(one) is type(other) and isinstance(one, dict):
        for key in dict.fromkeys([*one, *other]):
            if key in one and key in other:
                yield from differences(one[key], other[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is in one of them: {_short([one, other])}"
        if list(one) != list(other) and set(one) == set(other):
            yield f"{path} is in another order"
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{at}]")
    elif one != other or type(one) is not type(other):
        yield f"{path}: {_short(one)} and {_short(other)}"


def _short(value):
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
