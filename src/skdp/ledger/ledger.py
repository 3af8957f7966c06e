"""The total budget of a table on disk, for everything that is ever computed from it.

A ledger is opened once with a ceiling (ε, δ) and a neighbour relation. Each fit
*reserves* its budget before a record is read and *settles* it afterwards, to what was
released. A reservation that is never settled, because its process was killed, stays
counted in full. A request above the ceiling is refused before a record is read; only
the number of rows, where the relation makes it public, may be counted before. A ledger
counts only what is charged to it: the scores that scikit-learn's searches compute from
held-out rows are not.

**What the records are.** The promise is about the table that the ledger belongs to.
Fits on parts of it are covered if a record's part does not depend on other records:
``KFold`` splits by position, which is right where the number of rows is public, and
wrong under add-remove, where a record more moves the others; ``StratifiedKFold``,
scikit-learn's default for classifiers, looks at all labels and is never covered.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from skdp.ledger.ceiling import Amount, Terms, round_towards
from skdp.ledger.digests import schema_digest
from skdp.ledger.entries import (
    Entry,
    Requester,
    check_label,
    export_entries,
    new_entry,
)
from skdp.ledger.log import Head, LedgerError, Log
from skdp.ledger.reservations import Reservation, refuse_unpaid
from skdp.ledger.totals import Totals
from skdp.privacy.budget import ALLOWED_DRAWS, PrivacyRecord
from skdp.privacy.queries import Neighbours
from skdp.schema import Schema, check


class Ledger:
    """The total budget of a table, in a file that all fits of the table charge.

    Parameters
    ----------
    path : path
        The file. It is made if it does not exist and a ceiling is given.
    epsilon, delta : float, optional
        The ceiling. If the file exists they must be its own, or be left out.
    reserved_delta : float, optional
        The part of delta kept for what is not Gaussian: a fit that has to find
        categories or labels spends a tenth of its own delta from it. None by default.
    neighbours : {"replace-one", "zero-out", "add-remove"}, optional
        Which tables must be hard to tell apart; "add-remove" by default.
    table : str, optional
        The public name of the table that the ledger belongs to, such as "hospital
        stays 2025"; by default the file's name without its ending. If the file exists
        it must be its own.
    schema : Schema, optional
        Take no other schema than this one, but for those that `admit` enters. By
        default any model of the table may be charged.
    purpose : str, optional
        What this object is used for, in public words. It is entered with everything
        charged through it. See `for_purpose`.
    user : str, optional
        By default the operating system's user name.

    Attributes
    ----------
    path : str
        Absolute, symbolic links resolved.
    requester : Requester
        User and purpose of everything charged through this object.

    Raises
    ------
    LedgerError
        In one sentence, if the file was edited or cut, is not a ledger, or has
        another ceiling, table or schema.

    Notes
    -----
    **Guarantee.** For all tables that are neighbours under the ledger's relation and
    for every sequence of releases, each chosen knowing all earlier ones, that were
    reserved before they were made, by any number of processes and threads that may be
    killed at any point, all that was released is together (epsilon, delta)-private:
    the sums of μ², δ and draws over what was released are at most those in the file,
    which never exceed a ceiling fixed when it was made; the proof is in
    `skdp.ledger.ceiling`.

    A ledger can be pickled, copied and sent to other processes: it is a path and the
    last head it has seen, never an open file. The file system must have working locks.

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
        given = {name: value for name, value in given.items() if value is not None}
        digest = None if schema is None else schema_digest(schema)
        if {"epsilon", "delta"} <= set(given) and not os.path.lexists(self.path):
            terms = Terms.of(**given)
            name = named or check_label(Path(self.path).stem, "table")
            about = {"requester": self.requester, "schema": digest, "table": name}
            opening = new_entry("open", "the ceiling", terms, **about)  # type: ignore[arg-type]
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
        self._check_schema(digest)

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
        """The ceiling and the relation, as they were fixed."""
        terms = self._totals.terms or self._read().terms
        if terms is None:
            raise LedgerError(f"The ledger {self.path!r} has no ceiling.")
        return terms

    @property
    def table(self) -> str:
        """The public name of the table that the ledger belongs to."""
        return self._totals.table or self._read().table or ""

    def for_purpose(self, purpose: str, user: str | None = None) -> Ledger:
        """Return the same ledger with another purpose, which its entries will state.

        Parameters
        ----------
        purpose : str
            What the fits that use it are for, in public words.
        user : str, optional
            As before by default.
        """
        requester = Requester.of(purpose, self.requester.user if user is None else user)
        return _reopen(self.path, self._log.seen, requester)

    @property
    def head(self) -> Head:
        """Number and hash of the last entry: note it elsewhere, for `check`."""
        return self._read().head

    @property
    def remaining(self) -> float:
        """What is left of μ², rounded down."""
        return round_towards(self._read().left.mu_squared, -math.inf)

    @property
    def remaining_delta(self) -> float:
        """What is left of the δ for what is not Gaussian, rounded down."""
        return round_towards(self._read().left.delta, -math.inf)

    @property
    def spent_epsilon(self) -> float:
        """The ε that holds at the ledger's δ for all that was entered."""
        return self.terms.epsilon_of(self._read().spent)

    def affordable(self, delta: float, reserved_delta: float = 0.0) -> float:
        """Largest ε, to four digits, of a fit with this δ that the ledger can pay."""
        return self._read().affordable(delta, reserved_delta)

    def entries(self) -> list[Entry]:
        """All entries, checked."""
        totals = Totals(kept=[])
        self._log.read(totals)
        return totals.kept or []

    def check(self, expected_head: Head | str | None = None) -> Head:
        """Recompute the hashes and the sums from the first entry on.

        Parameters
        ----------
        expected_head : Head or str, optional
            A head that was noted earlier: the entries must still lead to it. Without
            one, a file that was rewritten as a whole looks like a true one.

        Returns
        -------
        Head
            The head, to be noted.
        """
        noted = Head.of(expected_head) if isinstance(expected_head, str) else None
        log = Log(self.path, noted or expected_head)  # type: ignore[arg-type]
        log.check_pages()
        return log.read(Totals())

    def export(self, form: str = "jsonl") -> str:
        """Write all entries as JSON lines or CSV, each with its hash last.

        A JSON line without its hash is the very text that is hashed.
        """
        return export_entries(self.entries(), form)

    def admit(self, schema: Schema) -> None:
        """Enter a further schema of the same table into a ledger made with a schema.

        Such a ledger notices if another table is charged to it by mistake. Only a
        person can know that a further schema describes the same records.
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
    ) -> Reservation:
        """Charge the most that may be spent; settle it when the spending is known.

        Parameters
        ----------
        mu_squared, delta : float
            Sums of μ² and of δ over all releases to come.
        neighbours : str
            Which tables are neighbours: the ledger's.
        query : str
            What is computed, in public words.
        schema : Schema, optional
            The public description of the table.
        n_draws : int
            The most noise values that are drawn.
        fit_delta : float, optional
            The δ at which to say what could be afforded; the ledger's by default.

        Raises
        ------
        BudgetError
            If it does not fit, saying what would; nothing is entered.

        Notes
        -----
        **Guarantee.** For every amount, and whatever other processes reserve at the
        same time or whenever one is killed, either the amount is on disk when this
        returns, with the sums over all entries within the ceiling, or this raises and
        the promise holds as if this had not been called.
        """
        terms, amount = self.terms, Amount.of(mu_squared, delta, n_draws)
        if neighbours != terms.neighbours:
            raise LedgerError(
                f"The ledger {self.path!r} is for {terms.neighbours} neighbours, and "
                f"budgets of different relations do not add up, got {neighbours!r}."
            )
        digest = None if schema is None else schema_digest(schema)

        def decide() -> Entry:
            self._check_schema(digest)
            totals = self._totals
            totals.refuse_excess(amount, fit_delta or terms.delta, query, self.path)
            return new_entry(
                "reserve", query, terms, amount, requester=self.requester, schema=digest
            )

        return Reservation(self, self._append(decide), amount, query)

    @contextmanager
    def spend(
        self, record: PrivacyRecord, *, query: str, schema: Any = None
    ) -> Iterator[Reservation]:
        """Reserve a record's whole budget; after the block, settle to what it spent.

        A record that asks for no more than the ledger's own (ε, δ) gets at most the
        ledger's μ², which the sampler's slack makes a little smaller. If the block
        raises, what the record was charged for until then is settled; if the process
        dies, the reservation stays.
        """
        refuse_unpaid(record.epsilon, record.seeded)
        terms = self.terms
        if record.epsilon <= terms.epsilon and record.delta <= terms.delta:
            record.budget = min(record.budget, terms.mu_squared)
        check(not record.events, "A ledger is charged before the first release.")
        reservation = self.reserve(
            record.budget,
            record.reserved_delta,
            neighbours=record.neighbours,
            query=query,
            schema=schema,
            fit_delta=record.delta,
        )
        try:
            yield reservation
        except BaseException as stop:
            try:
                reservation.settle_record(record, "stop")
            except ValueError as error:
                stop.add_note(f"The reservation stays in full: {error}")
            raise
        reservation.settle_record(record, "commit")

    def _read(self) -> Totals:
        """The sums, up to date."""
        self._log.read(self._totals)
        return self._totals

    def _append(self, decide: Callable[[], Entry]) -> int:
        return self._log.append(self._totals, lambda: decide().text())

    def _check_schema(self, digest: str | None) -> None:
        known = self._totals.schemas
        if digest is not None and known and digest not in known:
            raise LedgerError(
                f"The ledger {self.path!r} was made for certain schemas of the table "
                f"{self.table!r}, and this one is not among them (column names, types, "
                "bounds and classes count). If it describes the same table, admit it: "
                "ledger.admit(schema), or `skdp ledger admit`."
            )


def _reopen(path: str, seen: Head, requester: Requester) -> Ledger:
    """Return the same ledger in another process, at least as far as it was seen."""
    ledger = Ledger.__new__(Ledger)
    ledger.path, ledger.requester = path, requester
    ledger._log, ledger._totals = Log(path, seen), Totals()
    return ledger
