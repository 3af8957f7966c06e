"""Hold the results of an evaluation: scores, standard errors and intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from skdp.ledger import released_digest
from skdp.privacy.budget import PrivacyRecord


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score of a model.

    Attributes
    ----------
    value : float
        The score, computed from released sums.
    noise_std : float
        The standard error that the privacy noise causes.
    sampling_std : float
        The standard error that comes from having only these rows of a population.
    low, high : float
        A confidence interval for the model's true score. It allows for both errors.
    """

    value: float
    noise_std: float
    sampling_std: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Bin:
    """The rows whose predicted probability is in [low, high).

    Attributes
    ----------
    predicted : float
        The approximate mean of the predicted probabilities.
    count, positives : float
        The number of rows and the number of rows of class 1, both with noise.
    rate, rate_std : float
        positives / count, and the standard error of this ratio.
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
        The scores, by the name of the metric.
    calibration : tuple of Bin
        The calibration table. It is empty unless ``"calibration"`` was requested.
    n_rows : float
        The number of rows if it is public. Otherwise the released number, or the
        released sum of the rows' weights.
    confidence : float
        The confidence level of the intervals.
    notes : tuple of str
        Sentences that say what was clipped, and at which value.
    privacy_ : PrivacyRecord
        The privacy record, with the budget spent and all releases.
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
        """The value of each score, by the name of the metric."""
        return {name: score.value for name, score in self.scores.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values of everything except the record's transcript."""
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
                "unit": record.unit,
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
            counted = "rows" if self.privacy_.unit is None else "persons"
            lines.append(f"predicted  observed      {counted:>7}")
        for one in self.calibration:
            rate = "-" if math.isnan(one.rate) else f"{one.rate:.3f}"
            spread = "" if math.isnan(one.rate) else f" ±{one.rate_std:.3f}"
            lines.append(f"{one.predicted:9.3f}  {rate:>8}{spread:<8} {one.count:9.0f}")
        return "\n".join([*lines, *self.notes, str(self.privacy_)])
