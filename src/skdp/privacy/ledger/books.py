"""What a ledger adds up, exactly and one entry at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from skdp.privacy.ledger.ceiling import NOTHING, Amount, Terms, affordable
from skdp.privacy.ledger.chain import Body, Head
from skdp.privacy.ledger.entries import Entry
from skdp.schema import check


@dataclass
class Books:
    """The sums over a ledger's entries, brought up to date one entry at a time."""

    head: Head = field(default_factory=Head)
    terms: Terms | None = None
    spent: Amount = NOTHING
    unsettled: dict[int, Amount] = field(default_factory=dict)
    schemas: frozenset[str] = frozenset()
    kept: list[Entry] | None = None

    @property
    def left(self) -> Amount:
        """What is left under the ceiling."""
        return (
            NOTHING if self.terms is None else self.terms.ceiling.plus(self.spent, -1)
        )

    def affordable(self, delta: float, reserved_delta: float = 0.0) -> float:
        """Largest ε, to four digits, of a fit with this δ that can be paid."""
        own = (self.terms.delta, self.terms.reserved_delta) if self.terms else None
        if self.terms and self.spent == NOTHING and own == (delta, reserved_delta):
            return self.terms.epsilon  # such a fit gets the ledger's own μ²
        return affordable(self.left, delta, reserved_delta)

    def take(self, head: Head, body: Body) -> None:
        """Add an entry; ValueError, and nothing changes, if it cannot be one."""
        entry = Entry.read(head, body)
        amount, spent, seq = entry.amount, self.spent, head.size - 1
        terms = self.terms or Terms.read(entry.terms)
        check((entry.kind == "open") == (seq == 0), "an opening that is not the first")
        check(entry.relation == terms.neighbours, "another relation")
        settles = entry.kind in ("commit", "stop")
        check(settles == (entry.of is not None), "a settlement of nothing")
        if settles:
            check(entry.of in self.unsettled, "a settlement of nothing")
            reserved = self.unsettled[entry.of or 0]
            check(amount.within(reserved), "more than was reserved")
            spent = spent.plus(amount).plus(reserved, -1)
        elif entry.kind == "reserve":
            spent = spent.plus(amount)
        else:
            check(amount == NOTHING, "a charge that was not reserved")
        check(spent.within(terms.ceiling), "more than the ceiling")
        if entry.kind == "reserve":
            self.unsettled[seq] = amount
        elif entry.of is not None:
            self.unsettled.pop(entry.of, None)
        if entry.schema is not None:
            self.schemas |= {entry.schema}
        if self.kept is not None:
            self.kept.append(entry)
        self.head, self.terms, self.spent = head, terms, spent
