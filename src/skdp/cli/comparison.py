"""Fits at several budgets on one table, and what they spend together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import skdp
from skdp.cli.fitting import fitted, summary
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.fit_warnings import describe_constant
from skdp.estimators.preparation import open_table
from skdp.estimators.standard_errors import compute_class_effects
from skdp.estimators.summary import note_units
from skdp.evaluation.results import Evaluation
from skdp.planning.forecast import Forecast, forecast, range_in_words
from skdp.planning.plan import check_budget, default_delta
from skdp.privacy import accountant
from skdp.privacy.budget import ALLOWED_DRAWS, PrivacyRecord
from skdp.schema import Schema, check

#: What `Side.lines` writes behind a score: `Score.noise_std`.
PLUS_MINUS = "±: one standard deviation of the privacy noise; sampling comes on top."


def together(records: Sequence[PrivacyRecord], delta: float) -> float:
    """The ε that holds at δ for everything that the records released."""
    events = [item for record in records for item in record.events.items()]
    mu = math.sqrt(math.fsum(record.spent for record in records))
    draws = sum(times * event.n_draws for event, times in events)
    extra = math.fsum(times * event.delta for event, times in events)
    return accountant.spent_epsilon(mu, delta, draws, extra)


def planned_total(epsilons: Sequence[float], delta: float) -> float:
    """The ε at δ of fits and scores with these budgets, before anything is spent."""
    squares = (accountant.calibrate(e, delta, ALLOWED_DRAWS) ** 2 for e in epsilons)
    draws = ALLOWED_DRAWS * len(epsilons)
    return accountant.spent_epsilon(math.sqrt(math.fsum(squares)), delta, draws)


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """A fit: its budget, where it is, what was expected and what it scored."""

    epsilon: float
    out: Path
    model: PrivateLinearModel
    expected: Forecast
    scored: Evaluation | None

    def lines(self) -> dict[str, str]:
        """Return what is shown of it, by name: all of it public or released."""
        seen = self.expected
        cost = range_in_words(seen)
        lines = {
            f"expected cost of privacy in {seen.score}": (
                "only a constant" if describe_constant(self.model) else cost
            )
        }
        for name, score in self.scores().items():
            lines[name] = f"{score['value']:.4g} ± {score['noise_std']:.1g}"
        for name, coef in self.coefficients().items():
            lines[name] = f"{coef:+.3g}"
        return lines

    def coefficients(self) -> dict[str, float]:
        """Return coefficients by name, and by class if there are more than two.

        A column's categories are relative to their mean, and several classes to the
        mean of the classes: two fits need not agree on what is common to them, which
        changes no prediction.
        """
        found = compute_class_effects(self.model)[:-1]
        names = [str(name) for name in self.model.get_feature_names_out()]
        marks = [""]
        if found.shape[1] > 1:
            marks = [f" [{level}]" for level in self.model.classes_]
        return {
            f"{name}{mark}": float(coef)
            for name, coefs in zip(names, found, strict=True)
            for mark, coef in zip(marks, coefs, strict=True)
        }

    def scores(self) -> dict[str, dict[str, float]]:
        """Return value and privacy noise of each score that was paid for."""
        if self.scored is None:
            return {}
        return {
            name: {"value": score.value, "noise_std": score.noise_std}
            for name, score in self.scored.scores.items()
        }

    def records(self) -> list[PrivacyRecord]:
        """Return what was spent on it."""
        scored = [] if self.scored is None else [self.scored.privacy_]
        return [self.model.privacy_, *scored]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """All sides, and the δ that they share."""

    sides: list[Side]
    delta: float

    @property
    def spent_epsilon(self) -> float:
        """What all of them spent together."""
        records = [record for side in self.sides for record in side.records()]
        return together(records, self.delta)

    @property
    def seeded(self) -> bool:
        """Whether the noise can be computed by whoever knows the seed."""
        return any(record.seeded for side in self.sides for record in side.records())

    @property
    def notes(self) -> list[str]:
        """What is to be known of the numbers, as far as it applies."""
        one = self.sides[0]
        return [*([PLUS_MINUS] if one.scores() else []), *note_units(one.model)]

    @property
    def claim(self) -> str:
        """What holds for all of it."""
        if self.seeded:
            return "seeded: no privacy claim"
        return (
            f"({self.spent_epsilon:.6g}, {self.delta:g})-differential privacy for all "
            f"{len(self.sides)} together"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "claim": "none" if self.seeded else "differential privacy",
            "spent_epsilon": None if self.seeded else self.spent_epsilon,
            "delta": self.delta,
            "models": [
                summary(side.model, side.out)
                | {"expected_privacy_excess": side.expected.privacy_excess}
                | {"expected_range": [side.expected.low, side.expected.high]}
                | {"expected_in": side.expected.score}
                | {"scores": side.scores()}
                for side in self.sides
            ],
        }


def compared(
    file: PathLike[str],
    schema: Schema,
    *,
    epsilons: Sequence[float],
    total: float,
    score: float | None,
    delta: float | None,
    out: Path,
    **options: Any,
) -> Comparison:
    """Fit at each budget, and score if asked to; refuse all of it above the total.

    Parameters
    ----------
    file, schema
        The table, and what is public about it.
    epsilons, total : floats
        Budget of each fit, and of everything.
    score : float, optional
        Budget of the scores of each model.
    delta : float, optional
        The δ of each fit and of everything.
    out : path
        Directory of the models.
    **options
        Those of `skdp.cli.fitting.fitted`.
    """
    rows = options["n_rows"]
    if options["neighbours"] != "add-remove":
        about = open_table(file, None, schema=schema, bounds=None, target=None)
        rows = about.count_rows(options["verbose"])
    delta = default_delta(rows) if delta is None else delta
    scores = [] if score is None else [score] * len(epsilons)
    for epsilon in [*epsilons, *scores]:
        check_budget(epsilon, delta, rows or 1)
        check(epsilon < math.inf, "A comparison needs finite budgets: lower --epsilon.")
    spent = planned_total([*epsilons, *scores], delta)
    check(
        spent <= total,
        f"Together these spend ε = {spent:.4g} at δ = {delta:g}, and --total allows "
        f"{total:g}: lower them, or raise it.",
    )
    sides = []
    for epsilon in epsilons:
        place = out / f"epsilon-{epsilon:g}"
        options |= {"epsilon": epsilon, "delta": delta, "out": place}
        model = fitted(file, schema, **options)
        scored = None if score is None else _scored(model, file, score, options)
        sides.append(
            Side(
                epsilon=epsilon,
                out=place,
                model=model,
                expected=forecast(model.plan_),
                scored=scored,
            )
        )
    return Comparison(sides=sides, delta=delta)


def _scored(
    model: PrivateLinearModel,
    file: PathLike[str],
    epsilon: float,
    options: dict[str, Any],
) -> Evaluation:
    return skdp.evaluate(
        model,
        file,
        epsilon=epsilon,
        delta=options["delta"],
        neighbours=options["neighbours"],
        n_rows=options["n_rows"],
        random_state=options["seed"],
        ledger=options["ledger"],
    )
