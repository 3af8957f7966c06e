"""Define the ledger: a file that keeps a table's total budget and is charged by fits.

A ledger is made once with a ceiling (ε, δ) and a neighbour relation. Each fit
*reserves* its whole budget before it reads a record. Afterwards it *settles* the
reservation, which lowers the charge to what was spent. If the process is killed before
that, the full reservation stays charged. A request above the ceiling is refused before
a record is read. (If the number of rows is public, rows may be counted first.) Scores
that scikit-learn's searches compute from held-out rows are not charged to a ledger.

**Parts of the table.** The guarantee is about the table that the ledger belongs to. It
covers a fit on a part of the table if other records do not affect whether a record is
in that part. ``KFold`` splits by position. It is covered under zero-out and
replace-one, but not under add-remove, where an additional record moves the others.
``StratifiedKFold``, scikit-learn's default for classifiers, looks at all labels and is
never covered.
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
