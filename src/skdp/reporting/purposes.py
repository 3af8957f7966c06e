"""How a budget was spent: releases, grouped by what they were for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from skdp.privacy.budget import Event, PrivacyRecord

#: What a release was for, and how its query begins or ends, in the order of a fit.
PURPOSES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("Number of rows", lambda query: query == "number of rows"),
    ("Ranges, found in the table", lambda query: query.startswith("magnitudes of")),
    ("Categories, found in the table", lambda query: query.startswith("categories of")),
    ("Gram matrix of the columns", lambda query: query.endswith("Gram matrix")),
    (
        "Histogram of the target",
        lambda query: query.startswith(("counts of", "histogram of the target")),
    ),
    ("Gradients, the steps of the fit", lambda query: query.startswith("gradient")),
    ("Scores", lambda query: query.startswith("scores (")),
)
UNSPENT = "Not spent"
#: Below this share of the budget, nothing is said to be left of it.
LITTLE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """Releases for one purpose; `share` of the budget in μ², nan without noise."""

    name: str
    times: int
    mu_squared: float
    delta: float
    share: float
    spent: bool = True


def purpose(query: str) -> str:
    """What a release was for."""
    for name, fits in PURPOSES:
        if fits(query):
            return name
    return query[:1].upper() + query[1:]


def purposes(record: PrivacyRecord) -> list[Purpose]:
    """Group a record's releases, in their order; what is left of the budget is last."""
    groups: dict[str, list[tuple[Event, int]]] = {}
    for event, times in record.events.items():
        groups.setdefault(purpose(event.query), []).append((event, times))
    found = []
    for name, events in groups.items():
        cost = math.fsum(times * event.mu_squared for event, times in events)
        found.append(
            Purpose(
                name=name,
                times=sum(times for _, times in events),
                mu_squared=cost,
                delta=math.fsum(times * event.delta for event, times in events),
                share=cost / record.budget if record.budget < math.inf else math.nan,
            )
        )
    left = 1.0 - math.fsum(one.share for one in found)
    if left > LITTLE:
        found.append(
            Purpose(
                name=UNSPENT,
                times=0,
                mu_squared=left * record.budget,
                delta=0.0,
                share=left,
                spent=False,
            )
        )
    return found
