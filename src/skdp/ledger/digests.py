"""Digests of schemas and of released values; an entry is found by them.

They are functions of public facts and of released values alone: post-processing, which
costs nothing. Released values contain fresh noise, so two runs share a digest with
negligible probability, even if their plans and results are equal (all weights zero,
say).
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
    """SHA-256 of a public description: columns, target and row norm, in their order.

    `schema` is a `Schema`, or anything with its three attributes; its columns may be
    words where they are still to be found. The name of the target does not count.
    """
    target = schema.target
    target = target[1] if isinstance(target, tuple) else target
    columns = [[name, _to_lists(column)] for name, column in schema.columns.items()]
    whole = [columns, _to_lists(target), _to_lists(schema.row_norm)]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _to_lists(value: Any) -> Any:
    """Return a description as lists and texts; 1, 1.0 and numpy's 1 are the same."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)):
        return [_to_lists(part) for part in value]
    if is_dataclass(value):
        parts = [[f.name, _to_lists(getattr(value, f.name))] for f in fields(value)]
        return [type(value).__name__, parts]
    return level_key(value)


def transcript_digest(record: PrivacyRecord) -> str:
    """SHA-256 of all released values in their order, in hexadecimal.

    A record that was read from a file has no values, but keeps their digest.
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
    """SHA-256 of a run: its released values, their cost, and what followed from them.

    Parameters
    ----------
    record : PrivacyRecord
        What the run spent.
    result : plain values, optional
        What was computed from the releases (a model's weights and public facts), as
        ``json`` writes it.
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
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
