"""Convert a privacy record to privacy.json and back.

The releases in a file must add up to the ε that the file states. The file also has the
digest of the plan that was run and the digest of the released values. `model_digest`
covers the whole file and the model. A ledger's entry contains that digest, so a saved
model can be compared with the ledger.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from msgspec import Meta, structs

from skdp.ledger import transcript_digest
from skdp.planning.plan_files import summary_digest
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.queries import Neighbours
from skdp.privacy.selection import SearchRecord
from skdp.schema import check
from skdp.typed_files import Count, Epsilon, Form, to_json

#: Largest number of trials of a search.
MOST_TRIALS = 10**6
#: Zero, or a number whose square is neither infinite nor rounded to zero.
Size = Annotated[float, Meta(ge=0, le=1e100)]
#: A probability below one.
Probability = Annotated[float, Meta(ge=0, lt=1)]


class ReleaseForm(Form, frozen=True, kw_only=True):
    """A release (`Event`), and the number of times that it was made."""

    query: str
    times: Annotated[int, Meta(ge=1, le=1 << 53)]
    sensitivity: Size
    noise_multiplier: Size
    n_draws: Count
    delta: Probability

    def __post_init__(self) -> None:
        least = min(self.sensitivity or 1.0, self.noise_multiplier or 1.0)
        check(least >= 1e-100, "a sensitivity or noise multiplier is below 1e-100")


class SearchForm(Form, frozen=True, kw_only=True):
    """The parameters of the search that chose the model."""

    n_trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)]
    stop: Annotated[float, Meta(gt=1 / MOST_TRIALS, le=1)] | None


class RecordForm(Form, frozen=True, kw_only=True):
    """The content of privacy.json.

    It describes a `PrivacyRecord`, or a `SearchRecord` if `search` is not None.
    """

    search: SearchForm | None
    plan_digest: str
    transcript_digest: str
    epsilon: Epsilon
    delta: Annotated[float, Meta(gt=0, lt=1)]
    neighbours: Neighbours
    reserved_delta: Probability
    seeded: bool
    assumptions: list[str]
    releases: list[ReleaseForm]
    spent_epsilon: Epsilon
    unit: str | None = None


def make_form(record: PrivacyRecord, summary: dict[str, Any]) -> RecordForm:
    """Return a record and the digest of its plan as the content of privacy.json."""
    search = None
    if isinstance(record, SearchRecord):
        search = SearchForm(n_trials=record.n_trials, stop=record.stop)
    return RecordForm(
        search=search,
        plan_digest=summary_digest(summary),
        transcript_digest=transcript_digest(record),
        epsilon=to_json(record.epsilon),
        delta=record.delta,
        neighbours=record.neighbours,
        reserved_delta=record.reserved_delta,
        seeded=bool(record.seeded),
        assumptions=list(record.assumptions),
        releases=[
            ReleaseForm(times=times, **asdict(event))
            for event, times in record.events.items()
        ],
        spent_epsilon=to_json(record.spent_epsilon),
        unit=record.unit,
    )


def read_form(form: RecordForm, summary: dict[str, Any]) -> PrivacyRecord:
    """Return the privacy record that privacy.json describes.

    Refuse the file if it belongs to another plan, if its releases do not add up to the
    stated ε, or if this ε exceeds the budget.
    """
    check(
        form.plan_digest == summary_digest(summary),
        "privacy.json and model.json have different plans. One of them was changed.",
    )
    common: dict[str, Any] = {
        "epsilon": float(form.epsilon),
        "delta": form.delta,
        "neighbours": form.neighbours,
        "assumptions": tuple(form.assumptions),
        "seeded": form.seeded,
        "reserved_delta": form.reserved_delta,
        "transcript_digest": form.transcript_digest,
        "unit": form.unit,
    }
    search = None if form.search is None else structs.asdict(form.search)
    record = PrivacyRecord(**common) if not search else SearchRecord(**search, **common)
    for release in form.releases:
        values = structs.asdict(release)
        times = values.pop("times")
        record.events[Event(**values)] = times
    claimed = float(form.spent_epsilon)
    check(
        record.spent_epsilon == claimed,
        f"privacy.json says that ε = {claimed:g} was spent, but its releases add up to "
        f"{record.spent_epsilon:g}. It was changed.",
    )
    check(
        claimed <= record.epsilon * (1 + 1e-9),
        f"privacy.json has a budget of ε = {record.epsilon:g} but spends {claimed:g}. "
        "It was changed.",
    )
    return record
