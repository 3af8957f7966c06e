"""Keep the total budget of a table."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from skdp.ledger.ceiling import NOTHING, Amount, Terms, find_epsilon, round_towards
from skdp.ledger.digests import released_digest, schema_digest
from skdp.ledger.log import (
    Entry,
    Head,
    LedgerError,
    Log,
    Requester,
    check_label,
    export_entries,
    new_entry,
    read_clock,
)
from skdp.privacy.budget import ALLOWED_DRAWS, BudgetError, PrivacyRecord
from skdp.privacy.queries import Neighbours
from skdp.schema import Schema, check

# ---- Add up the entries of a ledger exactly


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


# ---- Reserve a part of a ledger's budget, and settle the reservation after the run


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


# ---- Define the ledger: a file that keeps a table's total budget and is charged by
# fits
#
# A ledger is made once with a ceiling (ε, δ) and a neighbour relation. Each fit
# *reserves* its whole budget before it reads a record. Afterwards it *settles* the
# reservation, which lowers the charge to what was spent. If the process is killed
# before that, the full reservation stays charged. A request above the ceiling is
# refused before a record is read. (If the number of rows is public, rows may be counted
# first.) Scores that scikit-learn's searches compute from held-out rows are not charged
# to a ledger.
#
# **Parts of the table.** The guarantee is about the table that the ledger belongs to.
# It covers a fit on a part of the table if other records do not affect whether a record
# is in that part. ``KFold`` splits by position. It is covered under zero-out and
# replace-one, but not under add-remove, where an additional record moves the others.
# ``StratifiedKFold``, scikit-learn's default for classifiers, looks at all labels and
# is never covered.


class Ledger:
    """A file that keeps the total budget of a table and is charged by every fit.

    Parameters
    ----------
    path : path
        The file. If it does not exist, it is created, which requires epsilon and delta.
    epsilon, delta : float, optional
        The ceiling. If the file exists, leave them out or repeat the file's values.
    reserved_delta : float, optional
        The part of delta kept for releases that are not Gaussian, 0 by default. A fit
        that discovers categories or labels takes a tenth of its delta from it.
    neighbours : {"replace-one", "zero-out", "add-remove"}, optional
        Which tables are neighbours, "add-remove" by default.
    unit : str, optional
        The column that identifies a person, or several names joined by ", ". The budget
        then protects persons. By default it protects rows.
    table : str, optional
        The public name of the table, such as "hospital stays 2025". The default is the
        file's name without its ending.
    schema : Schema, optional
        The only schema that is accepted, apart from those that `admit` adds. By default
        every schema is accepted.
    purpose : str, optional
        The purpose of the fits, in public words. Every entry made through this object
        states it. See `for_purpose`.
    user : str, optional
        The user that entries state, by default the operating system's user name.

    Attributes
    ----------
    path : str
        The absolute path of the file, with symbolic links resolved.
    requester : Requester
        The user and the purpose that entries made through this object state.

    Raises
    ------
    LedgerError
        If the file was edited or cut, is not a ledger, or has another ceiling, table
        or schema.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours under the ledger's relation and
    for every sequence of releases that were reserved before they were made, all
    releases together are (epsilon, delta)-private. Each release may be chosen knowing
    all earlier ones, and any number of processes and threads may make releases and be
    killed at any point. The sums of μ², δ and draws over all releases are at most those
    in the file, which never exceed a ceiling that was fixed when the file was made. The
    proof is in `skdp.ledger.ceiling`.

    A ledger can be pickled, copied and sent to other processes, because it holds a path
    and the last known `head`, but no open file. The file system must have working
    locks.

    Examples
    --------
    >>> import skdp, tempfile, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> ledger = skdp.Ledger(
    ...     f"{folder}/budget.db", epsilon=2.0, delta=1e-6, table="a square",
    ...     purpose="an example")
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> model = skdp.LogisticRegression(
    ...     epsilon=1.0, delta=1e-6, bounds=(0, 1), classes=[0, 1],
    ...     ledger=ledger)
    >>> _ = model.fit(X, y)
    >>> 0.9 < ledger.spent_epsilon <= 1.0
    True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        reserved_delta: float | None = None,
        neighbours: Neighbours | None = None,
        unit: str | None = None,
        table: str | None = None,
        schema: Schema | None = None,
        purpose: str | None = None,
        user: str | None = None,
    ) -> None:
        self.path = os.path.realpath(os.fsdecode(path))
        self.requester = Requester.of(purpose, user)
        self._log, self._totals = Log(self.path), Totals()
        named = None if table is None else check_label(table, "table")
        given: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        given |= {"reserved_delta": reserved_delta, "neighbours": neighbours}
        given["unit"] = unit
        given = {name: value for name, value in given.items() if value is not None}
        digest = None if schema is None else schema_digest(schema)
        if {"epsilon", "delta"} <= set(given) and not os.path.lexists(self.path):
            terms = Terms.of(**given)
            name = named or check_label(Path(self.path).stem, "table")
            about: dict[str, Any] = {"requester": self.requester, "schema": digest}
            opening = new_entry("open", "the ceiling", terms, table=name, **about)
            self._log.create(opening.text())
        own = self._read().terms
        for name, value in given.items():
            if getattr(own, name) != value:
                raise LedgerError(
                    f"{name} of the ledger {self.path!r} is {getattr(own, name)!r}, "
                    f"got {value!r}."
                )
        if named not in (None, self.table):
            raise LedgerError(
                f"The ledger {self.path!r} belongs to the table {self.table!r}, got "
                f"{named!r}."
            )
        self._totals.refuse_schema(digest, self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self._log.seen, self.requester)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __fspath__(self) -> str:
        return self.path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Ledger({self.path!r})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # what a notebook shows

    def __str__(self) -> str:
        return f"ledger {self.path}\n{self._read().describe(self.terms)}"

    @property
    def terms(self) -> Terms:
        """The ceiling and the neighbour relation, which never change."""
        terms = self._totals.terms or self._read().terms
        if terms is None:
            raise LedgerError(f"The ledger {self.path!r} has no ceiling.")
        return terms

    @property
    def table(self) -> str:
        """The public name of the table that the ledger belongs to."""
        return self._totals.table or self._read().table or ""

    def for_purpose(self, purpose: str, user: str | None = None) -> Ledger:
        """Return a ledger object for the same file whose entries state another purpose.

        Parameters
        ----------
        purpose : str
            The purpose of the fits that use the returned object, in public words.
        user : str, optional
            The user that entries state, by default the same as before.
        """
        requester = Requester.of(purpose, self.requester.user if user is None else user)
        return _reopen(self.path, self._log.seen, requester)

    @property
    def head(self) -> Head:
        """The number of entries and the hash of the last one.

        Keep a copy elsewhere. `check` can compare the file with it later.
        """
        return self._read().head

    @property
    def remaining(self) -> float:
        """The part of μ² that is not spent yet, rounded down."""
        return round_towards(self._read().left.mu_squared, -math.inf)

    @property
    def remaining_delta(self) -> float:
        """The part of `reserved_delta` that is not spent yet, rounded down."""
        return round_towards(self._read().left.delta, -math.inf)

    @property
    def spent_epsilon(self) -> float:
        """The ε that all entries together cost at the ledger's δ."""
        return self.terms.epsilon_of(self._read().spent)

    def affordable(self, delta: float, reserved_delta: float = 0.0) -> float:
        """Return the largest ε, to four digits, that is left for a fit with this δ."""
        return self._read().affordable(delta, reserved_delta)

    def entries(self) -> list[Entry]:
        """Return all entries, after checking them."""
        totals = Totals(kept=[])
        self._log.read(totals)
        return totals.kept or []

    def check(self, expected_head: Head | str | None = None) -> Head:
        """Recompute all hashes and sums, and raise LedgerError if the file was changed.

        Parameters
        ----------
        expected_head : Head or str, optional
            A head that was copied earlier. The file must still contain it. Without such
            a copy, nobody can tell whether the whole file was rewritten.

        Returns
        -------
        Head
            The current head. Keep a copy elsewhere.
        """
        head = expected_head
        log = Log(self.path, Head.of(head) if isinstance(head, str) else head)
        log.check_pages()
        return log.read(Totals())

    def export(self, form: str = "jsonl") -> str:
        """Return all entries as JSON lines or CSV. The last field is the entry's hash.

        A JSON line without its hash is exactly the text that was hashed.
        """
        return export_entries(self.entries(), form)

    def admit(self, schema: Schema) -> None:
        """Accept another schema of the same table.

        A ledger that was made with a schema refuses all others, because they may
        describe another table. Only a person can know whether they do. A ledger that
        was made without a schema accepts every schema, so this method raises an error.
        """
        terms, digest = self.terms, schema_digest(schema)

        def decide() -> Entry:
            check(
                bool(self._totals.schemas),
                f"The ledger {self.path!r} was made without a schema and accepts every "
                "schema of its table. There is nothing to admit.",
            )
            return new_entry(
                "admit", "a schema", terms, requester=self.requester, schema=digest
            )

        self._append(decide)

    def reserve(
        self,
        mu_squared: float,
        delta: float = 0.0,
        *,
        neighbours: str,
        query: str,
        schema: Any = None,
        n_draws: int = ALLOWED_DRAWS,
        fit_delta: float | None = None,
        unit: str | None = None,
    ) -> Reservation:
        """Charge the most that a fit may spend, until the reservation is settled.

        Parameters
        ----------
        mu_squared, delta : float
            Upper bounds on the sums of μ² and of δ over the releases of the fit.
        neighbours : str
            Which tables are neighbours. It must be the ledger's relation.
        query : str
            What is computed, in public words.
        schema : Schema, optional
            The public description of the table.
        n_draws : int
            The largest number of noise values that the fit may draw.
        fit_delta : float, optional
            The δ of the fit, by default the ledger's δ. If the budget is too small, the
            error message states the ε that is affordable at this δ.
        unit : str, optional
            The columns that identify a person, or None. It must be the ledger's unit.

        Raises
        ------
        BudgetError
            If too little is left. The message names an affordable ε. Nothing changes.

        Notes
        -----
        **Guarantee.** For every amount, for all reservations that other processes make
        at the same time, and even if processes are killed at any point: If this method
        returns, the amount is on disk and the sums over all entries are within the
        ceiling. If it raises, the ledger's guarantee holds as if it was never called.
        """
        terms, amount = self.terms, Amount.of(mu_squared, delta, n_draws)
        self._totals.refuse_relation(neighbours, unit, self.path)
        digest = None if schema is None else schema_digest(schema)

        def decide() -> Entry:
            totals = self._totals
            totals.refuse_schema(digest, self.path)
            totals.refuse_excess(amount, fit_delta or terms.delta, query, self.path)
            return new_entry(
                "reserve", query, terms, amount, requester=self.requester, schema=digest
            )

        return Reservation(self, self._append(decide), amount, query)

    @contextmanager
    def spend(
        self, record: PrivacyRecord, *, query: str, schema: Any = None
    ) -> Iterator[Reservation]:
        """Reserve the whole budget of a privacy record for a ``with`` block.

        After the block, the charge is lowered to what the record has spent, even if the
        block raises. If the process dies, the whole reservation stays charged. If the
        record has the ledger's (ε, δ), its μ² is lowered to the ledger's μ². The
        ledger's μ² is slightly smaller, because a ledger allows more noise draws.
        """
        refuse_unpaid(record.epsilon, record.seeded)
        terms = self.terms
        if record.epsilon <= terms.epsilon and record.delta <= terms.delta:
            record.budget = min(record.budget, terms.mu_squared)
        check(not record.events, "The ledger must be charged before the first release.")
        reservation = self.reserve(
            record.budget,
            record.reserved_delta,
            neighbours=record.neighbours,
            query=query,
            schema=schema,
            fit_delta=record.delta,
            unit=record.unit,
        )
        try:
            yield reservation
        except BaseException as stop:
            try:
                reservation.settle_record(record, "stop")
            except ValueError as error:
                stop.add_note(f"The full reservation stays charged: {error}")
            raise
        reservation.settle_record(record, "commit")

    def _read(self) -> Totals:
        """Read new entries and return the sums over all entries."""
        self._log.read(self._totals)
        return self._totals

    def _append(self, decide: Callable[[], Entry]) -> int:
        return self._log.append(self._totals, lambda: decide().text())


def _reopen(path: str, seen: Head, requester: Requester) -> Ledger:
    """Return a ledger object for a file that must still contain the head `seen`."""
    ledger = Ledger.__new__(Ledger)
    ledger.path, ledger.requester = path, requester
    ledger._log, ledger._totals = Log(path, seen), Totals()
    return ledger
