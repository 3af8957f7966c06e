"""Reserve a part of a ledger's budget, and settle the reservation after the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from skdp.ledger.ceiling import Amount
from skdp.ledger.digests import released_digest, schema_digest
from skdp.ledger.entries import Entry, new_entry, read_clock
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import check

if TYPE_CHECKING:
    from skdp.ledger.ledger import Ledger


class Reservation:
    """A reserved part of a ledger's budget, made by `Ledger.reserve`.

    The full amount is charged until the reservation is settled. The attributes below
    are written to the entry that settles it.

    Attributes
    ----------
    plan : str, optional
        SHA-256 digest of the plan that was run.
    released : str, optional
        SHA-256 digest of what was released. By default `settle_record` computes it from
        the privacy record.
    schema : Schema, optional
        The schema that was used, if it was inferred during the fit.
    """

    def __init__(self, ledger: Ledger, seq: int, amount: Amount, query: str) -> None:
        self.ledger, self.seq, self.amount, self.query = ledger, seq, amount, query
        self._time = read_clock()  # no record has been read yet
        self.plan: str | None = None
        self.released: str | None = None
        self.schema: Any = None

    def settle(
        self,
        mu_squared: float,
        delta: float = 0.0,
        *,
        n_draws: int | None = None,
        kind: Literal["commit", "stop"] = "commit",
    ) -> None:
        """Replace the reserved amount by what was spent.

        If more was spent than was reserved, raise ValueError and keep the reservation.

        Parameters
        ----------
        mu_squared, delta : float
            Sums of μ² and of δ over all releases that were made.
        n_draws : int, optional
            Number of noise values drawn, by default the reserved number.
        kind : {"commit", "stop"}
            "commit" if the fit ended without an error, "stop" otherwise.
        """
        draws = self.amount.n_draws if n_draws is None else n_draws
        amount = Amount.of(mu_squared, delta, draws)
        check(
            amount.within(self.amount),
            f"{self.query} spent more than it reserved. The reservation stays charged.",
        )
        check(
            kind in ("commit", "stop"),
            f"kind must be 'commit' or 'stop', got {kind!r}.",
        )
        digest = None if self.schema is None else schema_digest(self.schema)
        entry = new_entry(
            kind,
            self.query,
            self.ledger.terms,
            amount,
            requester=self.ledger.requester,
            schema=digest,
            plan=self.plan,
            released=self.released if kind == "commit" else None,
            of=self.seq,
            time=self._time,
        )
        totals = self.ledger._totals

        def decide() -> Entry:
            check(
                self.seq in totals.unsettled,
                f"The reservation for {self.query!r} is already settled.",
            )
            return entry

        self.ledger._append(decide)

    def settle_record(
        self, record: PrivacyRecord, kind: Literal["commit", "stop"]
    ) -> None:
        """Replace the reserved amount by a privacy record's total cost, rounded up."""
        refuse_unpaid(record.epsilon, record.seeded)
        self.released = self.released or released_digest(record)
        spent, events = record.spent * (1 + 2.0**-40), record.events.items()
        delta = math.fsum(times * event.delta for event, times in events)
        draws = sum(times * event.n_draws for event, times in events)
        most = float(self.amount.mu_squared), float(self.amount.delta)
        self.settle(min(spent, most[0]), min(delta, most[1]), n_draws=draws, kind=kind)


def refuse_unpaid(epsilon: float, seeded: bool) -> None:
    """Refuse a fit that has no noise or has a seed, because it claims no privacy."""
    check(
        epsilon < math.inf,
        "A fit with epsilon=inf has no noise and cannot be charged to a ledger. For "
        "public data, leave the ledger out.",
    )
    check(
        not seeded,
        "A seeded fit claims no privacy and cannot be charged to a ledger. Leave "
        "random_state out. If the data is public, leave the ledger out instead.",
    )
