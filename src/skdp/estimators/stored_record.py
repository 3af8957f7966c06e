"""A privacy record as JSON, whose releases must add up to what it says.

It is bound to the plan that was run by the plan's digest, and has the digest of the
released values. `model_digest` joins all of it to the model: it is what a ledger's
entry has, and what a saved model is compared with.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from skdp.estimators import stored_model
from skdp.estimators.plain import check_keys, number, read_number
from skdp.ledger import released_digest, schema_digest, transcript_digest
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.selection import SearchRecord
from skdp.schema import check

RECORD_KEYS: dict[str, Any] = {
    "epsilon": (float, int, str),
    "delta": float,
    "neighbours": str,
    "plan_digest": str,
    "transcript_digest": str,
    "reserved_delta": (float, int),
    "seeded": bool,
    "assumptions": list,
    "releases": list,
    "spent_epsilon": (float, int, str),
}
RELEASE_KEYS: dict[str, Any] = {
    "query": str,
    "times": int,
    "sensitivity": (float, int),
    "noise_multiplier": (float, int),
    "n_draws": int,
    "delta": (float, int),
}
#: Most releases of one kind, and most draws of one; most trials of a search.
MOST, MOST_TRIALS = 1 << 53, 10**6
#: Of a model that a search chose.
SEARCH_KEYS: dict[str, Any] = {"n_trials": int, "stop": (float, type(None))}


def summary_digest(summary: dict[str, Any]) -> str:
    """SHA-256 of a plan that `stored_model.plan_summary` summed up, in hex."""
    text = json.dumps(summary, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def model_digest(model: Any, record: PrivacyRecord | None = None) -> str:
    """SHA-256 of a model, the values released for it, and what they cost.

    It is a function of public facts and released values, which a saved model has all
    of. The bound on weights is one of the facts, because `skdp.verify` relies on it.

    Parameters
    ----------
    model : fitted estimator
        Its weights, schema, plan and record are looked at.
    record : PrivacyRecord, optional
        What was spent, if it is not yet the model's.
    """
    summary = stored_model.plan_summary(model.plan_)
    result = {
        "estimator": type(model).__name__,
        "schema": schema_digest(model.schema_),
        "plan": summary_digest(summary),
        "max_weight": float(model.max_weight),
        "n_iter": int(model.n_iter_),
        "weights": [[float(w) for w in row] for row in model.weights_],
    }
    return released_digest(record or model.privacy_, result)


def described(record: PrivacyRecord, summary: dict[str, Any]) -> dict[str, Any]:
    """Return a record, and the digest of its plan, as JSON takes it."""
    search = {}
    if isinstance(record, SearchRecord):
        search["search"] = {"n_trials": record.n_trials, "stop": record.stop}
    return search | {
        "plan_digest": summary_digest(summary),
        "transcript_digest": transcript_digest(record),
        "epsilon": number(record.epsilon),
        "delta": record.delta,
        "neighbours": record.neighbours,
        "reserved_delta": record.reserved_delta,
        "seeded": bool(record.seeded),
        "assumptions": list(record.assumptions),
        "releases": [
            {
                "query": event.query,
                "times": times,
                "sensitivity": event.sensitivity,
                "noise_multiplier": event.noise_multiplier,
                "n_draws": event.n_draws,
                "delta": event.delta,
            }
            for event, times in record.events.items()
        ],
        "spent_epsilon": number(record.spent_epsilon),
    }


def check_types(about: Any) -> None:
    """Refuse what is no record: other keys, other types, numbers below zero."""
    optional = RECORD_KEYS
    if isinstance(about, dict) and "search" in about:
        optional = RECORD_KEYS | {"search": dict}
    check_keys(about, optional, "privacy.json")
    check(
        0 < about["delta"] < 1,
        "privacy.json needs a delta in (0, 1): it was changed.",
    )
    if "search" in about:
        check_keys(about["search"], SEARCH_KEYS, "The search of privacy.json")
        trials, stop = about["search"]["n_trials"], about["search"]["stop"]
        check(
            1 <= trials <= MOST_TRIALS
            and (stop is None or 1 / MOST_TRIALS < stop <= 1),
            "privacy.json has a search of no or too many trials: it was changed.",
        )
    check(
        all(isinstance(line, str) for line in about["assumptions"]),
        "privacy.json needs assumptions that are texts: save the model again.",
    )
    for release in about["releases"]:
        check_keys(release, RELEASE_KEYS, "A release of privacy.json")
        check(
            1 <= release["times"] <= MOST
            and 0 <= release["n_draws"] <= MOST
            and (not release["noise_multiplier"] or _usual(release["noise_multiplier"]))
            and (not release["sensitivity"] or _usual(release["sensitivity"]))
            and 0 <= release["delta"] < 1,
            "A release of privacy.json has a negative number, or one beyond measure: "
            "save the model again.",
        )


def _usual(value: float) -> bool:
    """Whether a number is positive, and its square neither overflows nor vanishes."""
    return 1e-100 <= value <= 1e100


def read(about: Any, summary: dict[str, Any]) -> PrivacyRecord:
    """Make a record whose releases add up to what the file says, of that plan."""
    check_types(about)
    check(
        about["plan_digest"] == summary_digest(summary),
        "privacy.json is the record of another plan than model.json has: one of them "
        "was changed.",
    )
    kind = SearchRecord if "search" in about else PrivacyRecord
    record = kind(
        **about.get("search", {}),
        epsilon=read_number(about["epsilon"], "epsilon"),
        delta=about["delta"],
        neighbours=about["neighbours"],
        assumptions=tuple(about["assumptions"]),
        seeded=about["seeded"],
        reserved_delta=float(about["reserved_delta"]),
        transcript_digest=about["transcript_digest"],
    )
    for release in about["releases"]:
        event = {name: value for name, value in release.items() if name != "times"}
        record.events[Event(**event)] = release["times"]
    claimed = read_number(about["spent_epsilon"], "spent_epsilon")
    check(
        record.spent_epsilon == claimed,
        f"privacy.json says that ε = {claimed:g} was spent, but its releases add up to "
        f"{record.spent_epsilon:g}: it was changed.",
    )
    check(
        claimed <= record.epsilon * (1 + 1e-9),
        f"privacy.json has a budget of ε = {record.epsilon:g} and spends {claimed:g}: "
        "it was changed.",
    )
    return record
