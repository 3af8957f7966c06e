"""The results of an evaluation: scores with their errors and intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from skdp.ledger import released_digest
from skdp.privacy.budget import PrivacyRecord


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score.

    Attributes
    ----------
    value : float
        The score, computed from released sums.
    noise_std : float
        Standard error caused by the privacy noise.
    sampling_std : float
        Standard error of the score over other tables like this one.
    low, high : float
        Confidence interval for the model's score, which includes both errors.
    """

    value: float
    noise_std: float
    sampling_std: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Rows whose predicted probability is in [low, high).

    Attributes
    ----------
    predicted : float
        Their approximate mean predicted probability.
    count, positives : float
        Number of rows and number of rows of class 1, with noise.
    rate, rate_std : float
        positives / count, and its standard error.
    """

    low: float
    high: float
    predicted: float
    count: float
    positives: float
    rate: float
    rate_std: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Released scores of a model on a table.

    Attributes
    ----------
    scores : dict of str to Score
        By metric.
    calibration : tuple of Bin
        Counts and positives by predicted probability, if requested.
    n_rows : float
        The number of rows, or the released sum of their weights.
    confidence : float
        Level of the intervals.
    notes : tuple of str
        What was clipped, and at which value.
    privacy_ : PrivacyRecord
        The budget spent, and every release.
    """

    scores: dict[str, Score]
    calibration: tuple[Bin, ...]
    n_rows: float
    confidence: float
    notes: tuple[str, ...]
    privacy_: PrivacyRecord

    def __getitem__(self, metric: str) -> float:
        return self.scores[metric].value

    @property
    def values(self) -> dict[str, float]:
        """The value of each score."""
        return {name: score.value for name, score in self.scores.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the record's transcript, as plain values."""
        record = self.privacy_
        return {
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "calibration": [asdict(one) for one in self.calibration],
            "n_rows": self.n_rows,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "privacy": {
                "claim": str(record).partition("\n")[0],
                "epsilon": record.epsilon,
                "delta": record.delta,
                "spent_epsilon": record.spent_epsilon,
                "neighbours": record.neighbours,
                "released": released_digest(record),
                "releases": [
                    asdict(event) | {"times": times}
                    for event, times in record.events.items()
                ],
            },
        }

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # for notebooks

    def __str__(self) -> str:
        level = f"{self.confidence:.0%}"
        lines = []
        for name, score in self.scores.items():
            lines.append(
                f"{name:<9} {score.value:8.4f}   {level} in [{score.low:.4f}, "
                f"{score.high:.4f}]   (noise ±{score.noise_std:.2g}, sampling "
                f"±{score.sampling_std:.2g})"
            )
        if self.calibration:
            lines.append("predicted  observed         rows")
        for one in self.calibration:
            rate = "-" if math.isnan(one.rate) else f"{one.rate:.3f}"
            spread = "" if math.isnan(one.rate) else f" ±{one.rate_std:.3f}"
            lines.append(f"{one.predicted:9.3f}  {rate:>8}{spread:<8} {one.count:9.0f}")
        return "\n".join([*lines, *self.notes, str(self.privacy_)])
