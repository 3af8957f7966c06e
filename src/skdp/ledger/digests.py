"""Compute digests of schemas and of released values.

A ledger's entry contains such a digest, so the entry of a run can be found. Digests
depend only on public facts and on released values, so they are post-processing and cost
no privacy. Released values contain fresh noise. Two runs therefore have the same digest
with negligible probability, even if their plans and results are equal (for example, if
all weights are zero).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, fields, is_dataclass
from typing import Any

import msgspec
import numpy as np

from skdp.privacy.budget import PrivacyRecord
from skdp.schema import level_key


def schema_digest(schema: Any) -> str:
    """Return the SHA-256 digest of a schema's columns, target and row norm.

    The order of the columns matters, but the name of the target does not. `schema` is a
    `Schema` or any object with the attributes `columns`, `target` and `row_norm`. A
    column whose type is not known yet is a string.
    """
    target = schema.target
    # A frame and an array with the same rows are one table, but only a frame names its
    # target.
    target = target[1] if isinstance(target, tuple) else target
    columns = [[name, _to_lists(column)] for name, column in schema.columns.items()]
    whole = [columns, _to_lists(target), _to_lists(schema.row_norm)]
    if getattr(schema, "unit", None) is not None:
        whole.append(_to_lists(schema.unit))
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _to_lists(value: Any) -> Any:
    """Convert a description to nested lists of strings.

    The numbers 1, 1.0 and numpy's 1 become the same string.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)):
        return [_to_lists(part) for part in value]
    if is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        if given.get("fill", True) is None:  # a column's digest is that without a look
            del given["fill"]
        parts = [[name, _to_lists(part)] for name, part in given.items()]
        return [type(value).__name__, parts]
    return level_key(value)


def transcript_digest(record: PrivacyRecord) -> str:
    """Return the SHA-256 digest of all released values in order, in hexadecimal.

    A privacy record that was read from a file contains this digest instead of the
    values.
    """
    if not record.transcript and record.transcript_digest is not None:
        return record.transcript_digest
    digest = hashlib.sha256()
    for released in record.transcript:
        # The byte order is fixed, because a record is verified on other machines too.
        values = np.ascontiguousarray(released.values, dtype="<f8")
        head = json.dumps([released.kind, released.query, list(values.shape)])
        digest.update(head.encode() + b"\n" + values.tobytes())
    return digest.hexdigest()


def content_digest(content: Any) -> str:
    """Return the SHA-256 digest of nested values, whatever their types are.

    The digest depends on each value and on its type, so 1, 1.0, "1" and True differ.
    It does not depend on the order of a mapping's keys, or on whether a number is one
    of numpy's.
    """
    plain = _to_json_types(content)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _to_json_types(value: Any) -> Any:
    """Convert nested values to the types of JSON. Unknown types become strings."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return {level_key(key): _to_json_types(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return [_to_json_types(part) for part in value]
    if is_dataclass(value):
        given = [field.name for field in fields(value) if field.init]
        parts = [[name, _to_json_types(getattr(value, name))] for name in given]
        return [type(value).__name__, parts]
    # Python refuses to write very long integers in decimal digits.
    short = not isinstance(value, int) or value.bit_length() <= 10_000
    if value is None or (isinstance(value, (bool, int, float, str)) and short):
        return value
    return [type(value).__name__, level_key(value)]


def released_digest(record: PrivacyRecord) -> str:
    """Return the SHA-256 digest of a run's released values and of their costs.

    It is the digest of runs that make no model, such as evaluations. That of a model is
    `skdp.estimators.saving.model_digest`.
    """
    charged = [[*astuple(event), times] for event, times in record.events.items()]
    whole = {
        "values": transcript_digest(record),
        "charged": charged,
        "epsilon": float(record.epsilon),
        "delta": float(record.delta),
        "neighbours": record.neighbours,
        "search": [getattr(record, name, None) for name in ("n_trials", "stop")],
        "assumptions": list(record.assumptions),
    }
    if record.unit is not None:
        whole["unit"] = record.unit
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
