"""A privacy record as JSON, whose releases must add up to what it says."""

from __future__ import annotations

from typing import Any

from skdp.estimators.plain import check_keys, number, read_number
from skdp.privacy.record import Event, PrivacyRecord
from skdp.schema import check

RECORD_KEYS: dict[str, Any] = {
    "epsilon": (float, int, str),
    "delta": float,
    "relation": str,
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


def described(record: PrivacyRecord) -> dict[str, Any]:
    """Return a record as JSON takes it."""
    return {
        "epsilon": number(record.epsilon),
        "delta": record.delta,
        "relation": record.relation,
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


def read(about: Any) -> PrivacyRecord:
    """Make a record whose releases add up to what the file says."""
    check_keys(about, RECORD_KEYS, "privacy.json")
    check(
        all(isinstance(line, str) for line in about["assumptions"]),
        "privacy.json needs assumptions that are texts: save the model again.",
    )
    record = PrivacyRecord(
        epsilon=read_number(about["epsilon"], "epsilon"),
        delta=about["delta"],
        relation=about["relation"],
        assumptions=tuple(about["assumptions"]),
        seeded=about["seeded"],
        reserved_delta=float(about["reserved_delta"]),
    )
    for release in about["releases"]:
        check_keys(release, RELEASE_KEYS, "A release of privacy.json")
        times = release.pop("times")
        check(
            times >= 1
            and release["n_draws"] >= 0
            and min(release["noise_multiplier"], release["sensitivity"]) >= 0
            and 0 <= release["delta"] < 1,
            "A release of privacy.json has a negative number: save the model again.",
        )
        record.events[Event(**release)] = times
    claimed = read_number(about["spent_epsilon"], "spent_epsilon")
    check(
        record.spent_epsilon == claimed,
        f"privacy.json says that ε = {claimed:g} was spent, but its releases add up to "
        f"{record.spent_epsilon:g}: it was changed.",
    )
    return record
