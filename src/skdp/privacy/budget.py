"""Check a budget, and keep the record of what a run spends of it.

The record has the budget, the releases and the assumptions of a run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Self

from skdp.privacy import accountant
from skdp.privacy.queries import NEIGHBOURS, BoundedSum, Kind, Neighbours
from skdp.privacy.visits import Visits
from skdp.schema import check

#: Number of noise draws that every budget allows. The sampler's distribution is not
#: exactly normal. Over all these draws, the difference adds 2⁻²⁵ to ε.
ALLOWED_DRAWS = 1 << 24
#: The default δ if the number of rows is private.
PRIVATE_DELTA = 1e-9
#: The number of rows that is assumed if the number of rows is private.
EXPECTED_ROWS = 1000
SCOPE = (
    "Protects one row. Not protected: several rows of one person, run time, memory, "
    "score(), cv_results_."
)
UNIT_SCOPE = (
    "Protects one person, with all rows that have the same {unit}. Not protected: run "
    "time, memory, score(), cv_results_."
)


class BudgetError(ValueError):
    """Raised before any noise is drawn, if the budget is too small."""


@dataclass(frozen=True)
class Event:
    """A release that is μ-GDP with μ² = presence/noise_multiplier².

    `presence` is 1, unless the release is a step of a run in which no record can take
    part in all steps (`skdp.privacy.visits`). Then it is the part of the run's steps
    that a record can take part in. With probability at most `delta`, this guarantee may
    fail. Programs go by `kind`, and `query` is for people. `n_columns` is as in
    `BoundedSum`.
    """

    kind: Kind
    query: str
    sensitivity: float
    noise_multiplier: float
    n_draws: int
    delta: float = 0.0
    n_columns: int = 0
    presence: float = 1.0

    @classmethod
    def of(
        cls,
        total: BoundedSum,
        noise_multiplier: float,
        n_draws: int,
        delta: float = 0.0,
        presence: float = 1.0,
    ) -> Self:
        """Return the release of a sum with this noise."""
        size, z, columns = total.sensitivity, noise_multiplier, total.n_columns
        return cls(total.kind, total.query, size, z, n_draws, delta, columns, presence)

    @property
    def mu_squared(self) -> float:
        """The cost μ² of the release, which is infinite if there is no noise."""
        z = self.noise_multiplier
        return self.presence * z**-2 if z else math.inf


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyRecord:
    """The budget of a run and its releases.

    Parameters
    ----------
    epsilon, delta : float
        The budget. If epsilon is infinite, the run claims no privacy.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        How two neighbouring tables differ.
    assumptions : sequence of str
        Facts that were assumed to be public and therefore cost nothing.
    seeded : bool
        Whether the noise came from a seed. Anyone who knows the seed can remove the
        noise.
    reserved_delta : float
        The part of delta that is set aside for releases that are not Gaussian.
    unit : str, optional
        The names of the columns that identify a person. Neighbouring tables then differ
        in all rows of one person. By default they differ in one row.
    transcript_digest : str, optional
        The SHA-256 digest of the released values. Only a record that was read from a
        file has it, because the file does not contain the values themselves.
    """

    epsilon: float
    delta: float
    neighbours: Neighbours
    assumptions: Sequence[str] = ()
    seeded: bool = False
    reserved_delta: float = 0.0
    unit: str | None = None
    events: dict[Event, int] = field(default_factory=dict)
    transcript: list[Any] = field(default_factory=list)
    transcript_digest: str | None = None
    #: The visits of each run in which no record can take part in all steps.
    visits: list[Visits] = field(default_factory=list)
    #: The μ² that was charged in advance for the steps that are still to come.
    prepaid: float = 0.0

    def __post_init__(self) -> None:
        check(
            self.neighbours in NEIGHBOURS,
            f"neighbours must be one of {NEIGHBOURS}, got {self.neighbours!r}.",
        )
        left = self.delta - self.reserved_delta * (1 + 2.0**-25)  # the sampler's slack
        self.budget = accountant.calibrate(self.epsilon, left, ALLOWED_DRAWS) ** 2

    def _total(self, what: str) -> float:
        return math.fsum(times * getattr(e, what) for e, times in self.events.items())

    @property
    def spent(self) -> float:
        """Sum of μ² over all releases, and over steps that were paid in advance."""
        return self._total("mu_squared") + self.prepaid

    @property
    def remaining(self) -> float:
        """The remaining budget, as a sum of μ²."""
        return math.inf if self.budget == math.inf else self.budget - self.spent

    @property
    def spent_epsilon(self) -> float:
        """The ε of all releases so far, at the record's δ."""
        draws, extra = int(self._total("n_draws")), self._total("delta")
        mu = math.sqrt(self.spent)
        return accountant.spent_epsilon(mu, self.delta, draws, extra)

    def find_released(self, kind: Kind, length: int | None = None) -> Any:
        """Return the first release of a kind, with values of this length, or None."""
        return next(
            (
                one
                for one in self.transcript
                if one.kind == kind and length in (None, len(one.values))
            ),
            None,
        )

    def prepay(self, visits: Visits, noise_multiplier: float) -> None:
        """Charge a run on public sets before its first step.

        Raise BudgetError if the budget does not cover the run. Its steps are then
        charged with a `presence` below 1, which is right only for all of them together:
        a record may take part in the first steps and not in the others. If the run is
        interrupted, all of it stays charged.

        Notes
        -----
        **Guarantee.** For all runs whose visits are at most `visits`, and after each of
        their steps, `spent` is at least the cost of the steps so far.
        """
        cost = visits.most / noise_multiplier**2
        if self.spent + cost > self.budget * (1 + 1e-12):
            raise BudgetError(
                f"The steps cost μ² = {cost:.6g}, but only {self.remaining:.6g} of the "
                "budget is left."
            )
        self.visits.append(visits)
        self.prepaid += cost

    def charge(self, event: Event) -> None:
        """Record a release before its noise is drawn.

        Raise BudgetError if the budget does not cover the release.

        Notes
        -----
        **Guarantee.** For all sequences of queries, each of which may depend on earlier
        answers, Σμ² and Σδ never exceed a budget that was fixed beforehand. All
        releases together are therefore (epsilon, delta)-private, by adaptive
        composition (Dong, Roth, Su 2022, Theorem 3.2). A release with a presence below
        1 is refused unless its run was paid in advance.
        """
        cost, prepaid = event.mu_squared, self.prepaid
        if event.presence < 1:
            if cost > prepaid * (1 + 1e-6):
                raise BudgetError(f"The {event.query} was not paid for in advance.")
            # What is left after the last step is only rounding.
            prepaid = left if (left := prepaid - cost) > 1e-6 * cost else 0.0
        fits = self._total("mu_squared") + prepaid + cost <= self.budget * (1 + 1e-12)
        fits &= 0 <= event.delta <= self.reserved_delta - self._total("delta")
        fits &= self._total("n_draws") + event.n_draws <= ALLOWED_DRAWS
        if self.budget < math.inf and not fits:
            raise BudgetError(
                f"The {event.query} costs μ² = {cost:.6g}, but only "
                f"{self.remaining:.6g} of the budget is left."
            )
        self.events[event] = self.events.get(event, 0) + 1
        self.prepaid = prepaid

    @property
    def _claim(self) -> str:
        if self.seeded or self.budget == math.inf:
            return ("seeded" if self.seeded else "no noise") + ": no privacy claim"
        return f"({self.spent_epsilon:.6g}, {self.delta:g})-differential privacy"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._claim}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # in notebooks

    def __str__(self) -> str:
        scope = SCOPE if self.unit is None else UNIT_SCOPE.format(unit=self.unit)
        whose = "" if self.unit is None else f", of one person ({self.unit})"
        lines = [self._claim, f"neighbouring tables: {self.neighbours}{whose}"]
        for e, times in self.events.items():
            noise = f"noise {e.noise_multiplier:.5g} × {e.sensitivity:.5g}"
            cost = f"μ² {e.mu_squared:.4g}" + (f", δ {e.delta:.3g}" if e.delta else "")
            if e.presence < 1:
                cost = f"one record in at most {e.presence:.4g} of them, {cost}"
            lines.append(f"{times} × {e.query}: {noise}, {cost} each")
        return "\n".join([*lines, *self.assumptions, scope])


# ---- What a budget may be


def check_budget_types(epsilon: Any, delta: Any) -> None:
    """Raise if ε or δ is not a number (δ may be None), or if ε is not positive."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        check(
            isinstance(value, Real) or (value is None and name == "delta"),
            f"{name} must be a number, got {value!r}.",
        )
    check(epsilon > 0, f"epsilon must be positive, got {epsilon}.")


def check_budget(epsilon: float, delta: float, n_rows: float | None) -> None:
    """Raise if a budget is meaningless: if ε ≤ 0, δ ≤ 0 or δ ≥ 1/n.

    If the number of rows is private (None), n is `EXPECTED_ROWS`.
    """
    check_budget_types(epsilon, delta)
    limit = f"below {1.0 / EXPECTED_ROWS:g} if the number of rows is private"
    if n_rows is not None:
        check(n_rows >= 1, f"n_rows must be at least 1, got {n_rows}.")
        limit = f"below 1/n_rows = {1.0 / n_rows:.3g}"
    check(
        0 < delta < 1.0 / (n_rows or EXPECTED_ROWS),
        f"delta must be positive and {limit}, got {delta}. "
        "A larger delta would allow a mechanism that publishes random records.",
    )


def default_delta(n_rows: float | None) -> float:
    """Return the default δ, which is min(1e-6, 1/(10 n)) for n rows.

    If the number of rows is private (None), δ must not depend on it, because δ is fixed
    before the number is released. In that case δ is `PRIVATE_DELTA`, which satisfies
    δ ≤ 1/(10 n) for up to a hundred million rows. At ε = 1 this requires 1.3 times as
    much noise as δ = 1e-6 does.
    """
    return PRIVATE_DELTA if n_rows is None else min(1e-6, 0.1 / max(n_rows, 1.0))
