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
from dataclasses import astuple, fields, is_dataclass
from typing import Any

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
        parts = [[f.name, _to_lists(getattr(value, f.name))] for f in fields(value)]
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
        values = np.ascontiguousarray(released.values, dtype="<f8")
        head = json.dumps([released.query, list(values.shape)])
        digest.update(head.encode() + b"\n" + values.tobytes())
    return digest.hexdigest()


def released_digest(record: PrivacyRecord, result: Any = None) -> str:
    """Return the SHA-256 digest of a run's released values, their costs and its result.

    Parameters
    ----------
    record : PrivacyRecord
        The privacy record of the run.
    result : plain values, optional
        What was computed from the releases, such as a model's weights and public facts.
        It must be possible to write it as JSON.
    """
    charged = [[*astuple(event), times] for event, times in record.events.items()]
    whole = {
        "values": transcript_digest(record),
        "charged": charged,
        "epsilon": float(record.epsilon),
        "delta": float(record.delta),
        "neighbours": record.neighbours,
        "search": [getattr(record, name, None) for name in ("n_trials", "stop")],
        "result": result,
    }
    if record.unit is not None:
        whole["unit"] = record.unit
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
