"""A digest of what was handed out, by which an entry knows the run that it paid for.

It is entered when a reservation is settled, and is a function of public facts and of
released values alone: post-processing, which costs nothing. Released values hold fresh
noise, so that two runs share a digest with a probability that can be neglected, even
if their plans are the same and their results are (all weights zero, say).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple
from typing import Any

import numpy as np

from skdp.privacy.budget import PrivacyRecord


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
    """SHA-256 of a run: its released values, what they cost, and what came of them.

    Parameters
    ----------
    record : PrivacyRecord
        What the run spent.
    result : plain values, optional
        What was made of the releases (a model's weights and public facts), as
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
