"""Write a privacy statement in words, for the people responsible for the data.

Every number in the statement is computed from the privacy record.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from os import PathLike
from typing import Any

from scipy.special import ndtr, ndtri

from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.selection import SearchRecord, search_delta
from skdp.schema import check, name_record

#: The false-positive rate of the attacker whom statements describe.
FALSE_ALARMS = 0.05
NEIGHBOURS = {
    "add-remove": "one row is added or removed, so whether a row is in the table at "
    "all is hidden",
    "zero-out": "one row is left out of every sum; the number of rows stays public "
    "(emptying the cells of a row does not leave the row out, because empty cells get "
    "public default values)",
    "replace-one": "one row is replaced by any other row, so the content of a row is "
    "hidden; the number of rows is public",
}
PERSON_NEIGHBOURS = {
    "add-remove": "all rows of one person are added or removed, so whether a person "
    "is in the table at all is hidden",
    "zero-out": "all rows of one person are left out of every sum; the number of "
    "persons stays public",
    "replace-one": "all rows of one person are replaced by those of any other person, "
    "so the content and the number of a person's rows are hidden; the number of "
    "persons is public",
}


def describe_neighbours(record: PrivacyRecord) -> str:
    """Return in words how neighbouring tables differ."""
    listed = NEIGHBOURS if record.unit is None else PERSON_NEIGHBOURS
    return listed[record.neighbours]


def compute_delta(record: PrivacyRecord, epsilon: float) -> float:
    """Return the δ that the record's releases have at this ε."""
    if isinstance(record, SearchRecord) and record.stop is not None:
        return search_delta(epsilon, math.sqrt(record.budget), record.stop)
    mu, extra = math.sqrt(record.spent), _sum_deltas(record)
    return min(1.0, accountant.gdp_delta(epsilon, mu) + extra)


def _sum_deltas(record: PrivacyRecord) -> float:
    """Return the total δ of the releases, which they cost in addition to μ."""
    return math.fsum(times * event.delta for event, times in record.events.items())


def detection_rate(record: PrivacyRecord, false_alarms: float = FALSE_ALARMS) -> float:
    """Return an upper bound on the true-positive rate of any attacker.

    The attacker knows every other row, the model and every released number, and tests
    whether one row (or one person, with all rows) is in the table, with the
    false-positive rate α = `false_alarms`. For Gaussian releases this is at least as
    hard as telling N(0, 1) from N(μ, 1). The true-positive rate is therefore at most
    Φ(Φ⁻¹(α) + μ), plus the δ that releases cost in addition to their μ (Dong, Roth, Su
    2022, Definition 2.6). For a random search, which returns the best of a random
    number of trials, the rate is at most e^ε α + δ(ε) for every ε.
    """
    if isinstance(record, SearchRecord) and record.stop is not None:
        tried = [record.spent_epsilon * share / 50 for share in range(1, 51)]
        rates = [math.exp(e) * false_alarms + compute_delta(record, e) for e in tried]
        return min(1.0, *rates)
    mu = math.sqrt(record.spent)
    return min(1.0, float(ndtr(ndtri(false_alarms) + mu)) + _sum_deltas(record))


def failure_rate(record: PrivacyRecord) -> float:
    """Return an upper bound on the probability that odds change by a factor above e^ε.

    δ itself is not such a bound. Let P and P' be the laws of the releases on the two
    tables. Let δ(·) be the record's curve, and S the set on which P > e^ε P'. Then
    P'(S) < e^{-ε} P(S), and P(S) ≤ e^{ε-t} P'(S) + δ(ε - t) for every t > 0. It follows
    that P(S) ≤ δ(ε - t)/(1 - e⁻ᵗ), which bounds the probability of a loss above ε. The
    probability of a loss below -ε is at most e^{-ε} times this bound.
    """
    epsilon = record.spent_epsilon
    bounds = [1.0]
    for share in range(1, 100):
        t = epsilon * share / 100
        reached = compute_delta(record, epsilon - t)
        bounds.append((1 + math.exp(-epsilon)) * reached / -math.expm1(-t))
    return min(bounds)


def statement(model: Any) -> str:
    """Explain in words what a model's privacy record means.

    Parameters
    ----------
    model : path, fitted estimator, evaluation, search or PrivacyRecord
        A directory written by ``save``, anything that has a ``privacy_``, or the record
        itself.

    Returns
    -------
    str
        Paragraphs on what was published, what is promised, what was assumed to be
        public, what is not protected, and how to check it.
    """
    if isinstance(model, (str, PathLike)):
        from skdp.estimators.saving import load  # slow, and commands import this file

        model = load(model)
    filled = []
    for title, lines in write_parts(model):
        filled.append(title)
        for line in lines:
            mark = "- " if len(lines) > 1 else ""
            filled.append(
                textwrap.fill(
                    mark + line,
                    79,
                    subsequent_indent="  " if mark else "",
                    break_on_hyphens=False,
                )
            )
        filled.append("")
    return "\n".join(["PRIVACY STATEMENT", "", *filled]).rstrip() + "\n"


Part = tuple[str, list[str]]


def write_parts(model: Any) -> list[Part]:
    """Return the parts of a statement in order, each with a title and sentences."""
    record = model if isinstance(model, PrivacyRecord) else _get_record(model)
    return [
        _write_published(record, model),
        ("What is promised", list(_write_promises(record))),
        _write_public(record),
        _write_unprotected(record),
        _write_checks(record),
    ]


def _get_record(model: Any) -> PrivacyRecord:
    record = getattr(model, "privacy_", None)
    check(
        isinstance(record, PrivacyRecord),
        f"model must be fitted, or a PrivacyRecord, got {type(model).__name__}.",
    )
    assert isinstance(record, PrivacyRecord)
    return record


def _write_published(record: PrivacyRecord, model: Any) -> Part:
    kind = "result" if isinstance(model, PrivacyRecord) else type(model).__name__
    what = (
        f"A {kind} computed from a confidential table. The following sums over the "
        "table's rows were released, each with random noise added, and everything "
        "published was computed from them alone:"
    )
    lines, one = [what], name_record(record.unit)
    for event, times in record.events.items():
        noise = "without noise"
        if event.noise_multiplier:
            noise = (
                f"noise {event.noise_multiplier:.4g} times the largest change that one "
                f"{one} can cause ({event.sensitivity:.4g})"
            )
        if event.presence < 1:
            noise += f"; one {one} changes at most {event.presence:.2g} of them"
        often = "once" if times == 1 else f"{times:,} times"
        lines.append(f"{event.query}, {often}, {noise}")
    return "What was published", lines


def _write_promises(record: PrivacyRecord) -> Iterator[str]:
    if record.seeded:
        yield (
            "NOTHING: the noise was drawn from a seed (random_state), and anyone who "
            "knows or guesses the seed can subtract it. Fit without random_state "
            "before publishing anything."
        )
        return
    epsilon, one = record.spent_epsilon, name_record(record.unit)
    if epsilon == math.inf or record.budget == math.inf:
        yield "NOTHING: there is no noise (epsilon is infinite)."
        return
    yield (
        f"({epsilon:.4g}, {record.delta:.3g})-differential privacy. Compare the table "
        f"with one that differs in a single {one}: {describe_neighbours(record)}. Any "
        "result has nearly the same probability for both tables."
    )
    odds = math.exp(epsilon) if epsilon < 700 else math.inf
    yield (
        "Suppose that someone wants to know which of the two tables was used. Whatever "
        "else they know, the results change their odds by a factor of at most "
        f"{odds:.4g} (that is e^{epsilon:.4g}), up or down. The probability of a "
        f"larger change is at most {failure_rate(record):.2g}."
    )
    yield (
        f"An attacker who knows all other {one}s and tests whether one {one} was used, "
        f"accepting {FALSE_ALARMS:.0%} false alarms, finds at most "
        f"{detection_rate(record):.2%} of the {one}s that were used. Blind guessing "
        f"finds {FALSE_ALARMS:.0%}."
    )
    yield (
        "This holds against every attacker, now and later, even with unlimited "
        "computing power and other data. It also holds for everything that is computed "
        "from the published results alone."
    )


def _write_public(record: PrivacyRecord) -> Part:
    lines = [*record.assumptions]
    if record.neighbours != "add-remove":
        lines.append(f"The number of {name_record(record.unit)}s is public.")
    lines.append(
        "The names of the columns, the settings of the program and the plan made from "
        "them are public. They were not computed from the rows."
    )
    return "What was assumed to be public, and is not protected", lines


def _write_unprotected(record: PrivacyRecord) -> Part:
    several = (
        "Several rows of one person. Each row is protected on its own. For k rows "
        "together, ε is at most k times as large, and δ is more than k times as large. "
        "To protect persons, name a unit in the schema."
    )
    if record.unit is not None:
        several = (
            f"Persons with several values of {record.unit}. All rows with one value "
            "are protected together. For the rows of k values, ε is at most k times as "
            "large, and δ is more than k times as large."
        )
    return "What this does not protect", [
        several,
        "How long the computation took and how much memory it used.",
        "Scores on the table itself. score() of a model, and cv_results_, best_params_ "
        "and best_score_ of scikit-learn's own searches, are computed without noise. "
        "Only skdp.evaluate and skdp.PrivateSearchCV release private scores.",
        "Several results from one table. Each has its own statement, and together they "
        "reveal more. A ledger (ledger=) adds them up and enforces a total budget.",
        "Facts about everyone. If the results show that smokers fall ill more often, "
        "then this is learnt about every smoker, whether or not their row was used.",
        "The table itself, its copies and its backups.",
    ]


def _write_checks(record: PrivacyRecord) -> Part:
    mu, search = math.sqrt(record.spent), ""
    if isinstance(record, SearchRecord) and record.stop is not None:
        search = "They belong to one trial of a search. The cost of the whole search "
        search += "follows from the theorem in skdp/privacy/selection.py. "
    return "How to check it", [
        f"The releases above add up to μ = {mu:.6g}: μ² is the sum of 1/(noise "
        f"multiplier)². {search}`skdp verify MODEL`, or skdp.verify(model), recomputes "
        "ε from the saved list of releases, with code that shares nothing with the "
        "code that spent the budget. docs/guide/verification.md explains how to check "
        "the rest."
    ]
