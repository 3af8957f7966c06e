"""Numbers, texts and lists in JSON: written in full, read with suspicion."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from skdp.schema import check


def dumps(value: dict[str, Any]) -> str:
    """Write as JSON text; refuse what JSON does not have."""
    try:
        return json.dumps(value, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError):
        raise ValueError(
            "A parameter of the model is no number, text or list, and cannot be "
            "saved: set it to its name or to None first."
        ) from None


def loads(path: Path) -> Any:
    """Read a file of JSON, or refuse it in one sentence.

    All numbers in it are finite, and floats can hold them.
    """
    try:
        return json.loads(
            path.read_text("utf-8"),
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_finite_integer,
        )
    except (ValueError, RecursionError):
        raise ValueError(
            f"{path.name} is not the JSON that was saved: save the model again."
        ) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _finite_integer(text: str) -> int:
    return int(text) if len(text) <= 300 else _refuse(text)


def check_keys(given: Any, keys: dict[str, Any], where: str) -> None:
    """Refuse a dict that has other keys, or values of other types."""
    check(
        isinstance(given, dict) and set(given) == set(keys),
        f"{where} needs exactly the keys {sorted(keys)}: it was changed.",
    )
    for key, kinds in keys.items():
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        wrong = isinstance(given[key], bool) and bool not in listed
        check(
            isinstance(given[key], listed) and not wrong,
            f"{where} has a {key} of the wrong type: it was changed.",
        )


def number(value: Any) -> Any:
    """JSON has no infinity, and no numbers of numpy's."""
    if isinstance(value, np.generic):
        value = value.item()
    return "inf" if isinstance(value, float) and value == math.inf else value


def read_number(value: Any, name: str) -> float:
    """Read a number that `number` wrote."""
    check(
        value == "inf" or (isinstance(value, (int, float)) and value == value),
        f"The saved model needs a number as {name}. Got {value!r}: it was changed.",
    )
    return math.inf if value == "inf" else float(value)
