"""What a page says of an evaluation: released scores, and calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from skdp.estimators.summary import Z
from skdp.evaluation.results import Bin, Evaluation
from skdp.reporting.drawing import Scale
from skdp.reporting.statement import RELATIONS
from skdp.reporting.words import number

TITLE = "Evaluation of a model"


@dataclass(frozen=True, kw_only=True)
class Row:
    """Rows of like predictions: where the prediction and what was observed stand."""

    bin: Bin
    predicted: float
    at: float
    interval: tuple[float, float]


def rows(found: Evaluation) -> tuple[str, str]:
    """The number of rows, and why it may be told."""
    count = f"{found.n_rows:,.0f}"
    if found.privacy_.relation != "add-remove":
        return count, "a public number"
    return count, "given as public, or released with noise"


def facts(found: Evaluation) -> list[tuple[str, str]]:
    """Names and values of what was evaluated."""
    record = found.privacy_
    listed = [
        ("Scores", ", ".join(found.scores) or "calibration alone"),
        ("Rows", ", ".join(rows(found))),
        ("Budget", f"ε = {number(record.epsilon)}, δ = {number(record.delta)}"),
        ("Neighbouring tables", f"{record.relation}: {RELATIONS[record.relation]}"),
    ]
    return listed + [("Note", note) for note in found.notes]


def contents(found: Evaluation) -> dict[str, Any]:
    """Scores and calibration, drawn."""
    scale = Scale(low=0.0, high=1.0)
    drawn = []
    for one in found.calibration:
        if math.isfinite(one.rate) and math.isfinite(one.rate_std):
            ends = one.rate - Z * one.rate_std, one.rate + Z * one.rate_std
            drawn.append(
                Row(
                    bin=one,
                    predicted=scale(one.predicted),
                    at=scale(one.rate),
                    interval=(scale(ends[0]), scale(ends[1])),
                )
            )
    return {
        "scores": found.scores,
        "confidence": found.confidence,
        "calibration": found.calibration,
        "calibration_rows": drawn,
        "calibration_scale": scale,
    }
