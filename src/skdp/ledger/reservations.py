"""Reservations and their settlement."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from skdp.ledger.ceiling import Amount
from skdp.ledger.digests import released_digest, schema_digest
from skdp.ledger.entries import Entry, new_entry
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import check

if TYPE_CHECKING:
    from skdp.ledger.ledger import Ledger


class Reservation:
    """A part of the budget; see `Ledger.reserve`. It counts in full until settled.

    Attributes
    ----------
    plan : str, optional
        SHA-256 of the plan that was run, for the entry.
    released : str, optional
        SHA-256 of what was released, for the entry; by default that of the record's
        releases.
    schema : Schema, optional
        The public description that was used, if it was found out on the way.
    """

    def __init__(self, ledger: Ledger, seq: int, amount: Amount, query: str) -> None:
        self.ledger, self.seq, self.amount, self.query = ledger, seq, amount, query
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
        """Replace what was reserved by what was spent, which cannot be more.

        Parameters
        ----------
        mu_squared, delta : float
            Sums over all releases that were made.
        n_draws : int, optional
            Noise values drawn; as reserved by default.
        kind : {"commit", "stop"}
            Whether the fit ended without an error.
        """
        draws = self.amount.n_draws if n_draws is None else n_draws
        amount = Amount.of(mu_squared, delta, draws)
        check(
            amount.within(self.amount),
            f"{self.query} spent more than it reserved. The reservation stays.",
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
        )
        totals = self.ledger._totals

        def decide() -> Entry:
            check(self.seq in totals.unsettled, f"{self.query} is already settled.")
            return entry

        self.ledger._append(decide)

    def settle_record(
        self, record: PrivacyRecord, kind: Literal["commit", "stop"]
    ) -> None:
        """Settle to what a record was charged for, rounded up."""
        refuse_unpaid(record.epsilon, record.seeded)
        self.released = self.released or released_digest(record)
        spent, events = record.spent * (1 + 2.0**-40), record.events.items()
        delta = math.fsum(times * event.delta for event, times in events)
        draws = sum(times * event.n_draws for event, times in events)
        most = float(self.amount.mu_squared), float(self.amount.delta)
        self.settle(min(spent, most[0]), min(delta, most[1]), n_draws=draws, kind=kind)


def refuse_unpaid(epsilon: float, seeded: bool) -> None:
    """Refuse a fit that claims no privacy, because a ledger adds up claims."""
    check(
        epsilon < math.inf,
        "A fit with epsilon=inf has no noise and cannot be charged to a ledger. For "
        "public data, leave the ledger out.",
    )
    check(
        not seeded,
        "A seeded fit claims no privacy and cannot be charged to a ledger. Leave "
        "random_state out; for public data, leave the ledger out.",
    )
