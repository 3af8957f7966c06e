"""Add up the entries of a ledger exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

from skdp.ledger.ceiling import NOTHING, Amount, Terms, find_epsilon
from skdp.ledger.entries import Entry
from skdp.ledger.log import Head, LedgerError
from skdp.privacy.budget import BudgetError
from skdp.schema import check


@dataclass
class Totals:
    """The exact sums of all costs in a ledger. Each new entry updates them."""

    head: Head = field(default_factory=Head)
    terms: Terms | None = None
    spent: Amount = NOTHING
    unsettled: dict[int, Amount] = field(default_factory=dict)
    table: str | None = None
    schemas: frozenset[str] = frozenset()
    kept: list[Entry] | None = None

    @property
    def left(self) -> Amount:
        """The part of the ceiling, the ledger's total budget, that is not spent yet."""
        return (
            NOTHING if self.terms is None else self.terms.ceiling.plus(self.spent, -1)
        )

    def affordable(self, delta: float, reserved_delta: float = 0.0) -> float:
        """Return the largest ε, to four digits, that is left for a fit with this δ."""
        own = (self.terms.delta, self.terms.reserved_delta) if self.terms else None
        if self.terms and self.spent == NOTHING and own == (delta, reserved_delta):
            return self.terms.epsilon  # such a fit gets the ledger's own μ²
        return find_epsilon(self.left, delta, reserved_delta)

    def describe(self, terms: Terms) -> str:
        """Describe how much of the ceiling is spent and how much is left."""
        spent = self.spent
        lines = [
            f"table: {self.table}",
            f"ceiling: ({terms.epsilon:g}, {terms.delta:g})-differential privacy, "
            f"neighbouring tables: {terms.neighbours}"
            + ("" if terms.unit is None else f", of one person ({terms.unit})"),
            f"spent: ε = {terms.epsilon_of(spent):.6g}, from μ² = "
            f"{float(spent.mu_squared):.6g} of {terms.mu_squared:.6g} and δ = "
            f"{float(spent.delta):.3g} of {terms.reserved_delta:.3g}",
            f"left: enough for ε = {self.affordable(terms.delta):.4g} at δ = "
            f"{terms.delta:g}",
            f"unsettled reservations, counted in full: {len(self.unsettled)}",
            f"head: {self.head}",
        ]
        return "\n".join(lines)

    def refuse_relation(self, neighbours: str, unit: str | None, path: str) -> None:
        """Raise LedgerError if a fit's neighbours or unit differ from the ledger's."""
        terms = self.terms
        assert terms is not None  # the first entry has them
        if neighbours != terms.neighbours:
            raise LedgerError(
                f"The ledger {path!r} is for {terms.neighbours} neighbours, got "
                f"{neighbours!r}. Costs under different relations do not add up."
            )
        if unit != terms.unit:
            raise LedgerError(
                f"The unit of the ledger {path!r} is {terms.unit or 'one row'}, got "
                f"{unit or 'one row'}. Costs for different units do not add up. "
                "Make another ledger, with unit= or `skdp ledger make --unit`."
            )

    def refuse_schema(self, digest: str | None, path: str) -> None:
        """Raise LedgerError if the ledger does not accept the schema of this digest."""
        if digest is not None and self.schemas and digest not in self.schemas:
            raise LedgerError(
                f"The ledger {path!r} accepts only certain schemas of the table "
                f"{self.table!r}. This schema has other column names, types, bounds or "
                "classes. If it describes the same table, add it with "
                "ledger.admit(schema) or `skdp ledger admit`."
            )

    def refuse_excess(
        self, wanted: Amount, delta: float, query: str, path: str
    ) -> None:
        """Raise BudgetError if `wanted` is more than what is left.

        The message names the largest ε that a fit with this δ can still have.
        """
        left, kept = self.left, self.terms.reserved_delta if self.terms else 0.0
        if wanted.within(left):
            return
        wanted_delta = float(wanted.delta)
        if wanted.delta > left.delta:
            why = (
                f"δ = {wanted_delta:.3g} for releases that are not Gaussian, but "
                f"only {float(left.delta):.3g} of the {kept:.3g} set aside for them is "
                "left. This part of δ is fixed when a ledger is made (reserved_delta=, "
                "or `skdp ledger make --reserved-delta`). A fit whose schema lists all "
                "categories and classes does not need it"
            )
        elif wanted.n_draws > left.n_draws:
            why = (
                f"{wanted.n_draws} draws of noise, but only {left.n_draws} are left. "
                "Fits that were killed count with all draws they reserved"
            )
        else:
            most = self.affordable(delta, wanted_delta)
            why = (
                f"μ² = {float(wanted.mu_squared):.6g}, but "
                f"only {float(left.mu_squared):.6g} is left. At δ = {delta:g}, "
                f"epsilon={most:.4g} is affordable"
            )
            if self.terms is not None and most > self.terms.epsilon:
                why += (
                    f", which is above the ledger's ε = {self.terms.epsilon:g} only "
                    "because the fit's δ is smaller"
                )
        n = len(self.unsettled)
        many = "1 unsettled reservation counts" if n == 1 else ""
        many = many or f"{n} unsettled reservations count"
        also = f" ({many} in full)" if n else ""
        raise BudgetError(f"{query} asks the ledger {path!r} for {why}{also}.")

    def take(self, head: Head, text: str) -> None:
        """Add one entry to the sums.

        If the text is not a valid next entry, raise ValueError and change nothing.
        """
        entry = Entry.read(head, text)
        amount, spent, seq = entry.amount, self.spent, head.size - 1
        check(
            (entry.kind == "open") == (seq == 0), "only the first entry has kind 'open'"
        )
        check(
            (entry.terms is None) == (seq > 0), "only the first entry states the terms"
        )
        terms = self.terms or entry.terms
        assert terms is not None  # the first entry has them
        if self.terms is None:
            terms.check()
        check(
            (entry.table is None) == (seq > 0), "only the first entry names the table"
        )
        check(entry.neighbours == terms.neighbours, "the neighbour relation differs")
        settles = entry.kind in ("commit", "stop")
        named = entry.of is not None
        check(settles == named, "only settlements have the field 'of'")
        check(
            entry.released is None or entry.kind == "commit",
            "only a commit states what was released",
        )
        if settles:
            check(entry.of in self.unsettled, "the reservation is not open")
            reserved = self.unsettled[entry.of or 0]
            check(amount.within(reserved), "more was spent than reserved")
            spent = spent.plus(amount).plus(reserved, -1)
        elif entry.kind == "reserve":
            spent = spent.plus(amount)
        else:
            check(amount == NOTHING, "only reservations add to the cost")
        check(spent.within(terms.ceiling), "the sums exceed the ceiling")
        if entry.kind == "reserve":
            self.unsettled[seq] = amount
        elif entry.of is not None:
            self.unsettled.pop(entry.of, None)
        if entry.schema is not None and entry.kind in ("open", "admit"):
            self.schemas |= {entry.schema}
        self.table = self.table or entry.table
        if self.kept is not None:
            self.kept.append(entry)
        self.head, self.terms, self.spent = head, terms, spent
