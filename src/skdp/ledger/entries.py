"""The lines of a ledger: what is entered, and how it is read back.

**Which table.** A ledger belongs to one table, which has a public name. Every model of
that table is charged to it, whatever its target and columns: spending adds up the same
for any schema. That the records are those of the named table only a person can know.
Whoever wants less to go wrong makes the ledger with a schema: then it takes no other
until `Ledger.admit` enters it. Of schemas the digest is kept.

**Who and what for.** Each entry has the name of the user who asked and the purpose that
they gave. Both are public words, like the table's name. No value of a record ever
enters a ledger; of what was released, a digest does (`released`).
"""

from __future__ import annotations

import csv
import getpass
import hashlib
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import skdp
from skdp.ledger.ceiling import NOTHING, Amount, Terms, is_number
from skdp.ledger.log import Body, Head, dumps
from skdp.privacy.queries import NEIGHBOURS
from skdp.schema import check, level_key


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 1000 and value.isprintable()


def _is_label(value: object) -> bool:
    return _is_text(value) and 0 < len(str(value).strip()) <= LONGEST_LABEL


def _is_digest(value: object) -> bool:
    return value is None or (
        isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


KINDS = ("open", "reserve", "commit", "stop", "admit")
#: Most letters of a table's name, of a purpose and of a user's name.
LONGEST_LABEL = 200
#: The purpose of an entry whose maker was given none.
NOT_STATED = "not stated"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a ledger.

    Attributes
    ----------
    kind : str
        "open" (the first), "reserve", "commit" or "stop" (a fit that ended, or was
        stopped by an error: replaces what was reserved), "admit" (a further schema).
    time : str
        UTC.
    version : str
        Of skdp.
    query : str
        What was asked, in words.
    purpose : str
        What it was asked for, in the words of whoever asked; "not stated" by default.
    user : str
        Who asked; by default the operating system's name for them.
    neighbours : str
        Which tables are neighbours.
    schema, plan : str or None
        SHA-256 digests of the public description and of the plan.
    released : str or None
        SHA-256 digest of what a "commit" handed out: see
        `skdp.ledger.released`.
    mu_squared, delta, n_draws : numbers
        What is charged.
    epsilon : float
        The ε of this entry alone, at the ledger's δ.
    of : int or None
        The reservation that a "commit" or "stop" replaces.
    table : str or None
        The name of the table that the ledger belongs to, in the first entry.
    terms : dict or None
        The ceiling, in the first entry.
    seq : int
        Its number; the first is 0.
    hash : str
        The chain's, see `skdp.ledger.log`.
    """

    kind: str
    time: str
    version: str
    query: str
    purpose: str
    user: str
    neighbours: str
    schema: str | None = None
    plan: str | None = None
    released: str | None = None
    mu_squared: float = 0.0
    delta: float = 0.0
    n_draws: int = 0
    epsilon: float = 0.0
    of: int | None = None
    table: str | None = None
    terms: dict[str, Any] | None = None
    seq: int = -1
    hash: str = ""

    def body(self) -> Body:
        """Return what is written and hashed."""
        return {name: value for name, value in asdict(self).items() if name in TYPES}

    @classmethod
    def read(cls, head: Head, body: Body) -> Entry:
        """Make an entry of what was written; ValueError if skdp does not write such."""
        check(list(body) == list(TYPES), "other fields")
        for name, right in TYPES.items():
            check(right(body[name]), f"no {name}")
        return cls(**body, seq=head.size - 1, hash=head.hash)

    @property
    def amount(self) -> Amount:
        """What is charged, exactly."""
        return Amount.of(self.mu_squared, self.delta, self.n_draws)


TYPES: Mapping[str, Callable[[object], bool]] = {
    "kind": lambda value: value in KINDS,
    "time": _is_text,
    "version": _is_text,
    "query": _is_text,
    "purpose": _is_label,
    "user": _is_label,
    "neighbours": lambda value: value in NEIGHBOURS,
    "schema": _is_digest,
    "plan": _is_digest,
    "released": _is_digest,
    "mu_squared": is_number,
    "delta": is_number,
    "n_draws": _is_count,
    "epsilon": is_number,
    "of": lambda value: value is None or _is_count(value),
    "table": lambda value: value is None or _is_label(value),
    "terms": lambda value: value is None or isinstance(value, dict),
}


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Who asks, and what for: both are entered with all that is charged."""

    purpose: str = NOT_STATED
    user: str

    @classmethod
    def of(cls, purpose: str | None, user: str | None) -> Asker:
        """Take what was given; a user that was not is the operating system's."""
        return cls(
            purpose=NOT_STATED if purpose is None else label(purpose, "purpose"),
            user=_login() if user is None else label(user, "user"),
        )


def label(given: Any, name: str) -> str:
    """Return a public text as it was given; refuse one that cannot be shown."""
    check(
        _is_label(given),
        f"{name} must be a text of 1 to {LONGEST_LABEL} letters that can be printed. "
        f"Got {str(given)[:99]!r}.",
    )
    return str(given)


def _login() -> str:
    """The name under which the process runs, or "unknown" where it has none."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
    return name if _is_label(name) else "unknown"


def schema_digest(described: Any) -> str:
    """SHA-256 of a public description: columns, target and row norm, in their order.

    `described` is a `Schema`, or anything with its three attributes, whose columns may
    be words where they are still to be found. The target counts without its name.
    """
    target = described.target
    target = target[1] if isinstance(target, tuple) else target
    columns = [[name, _plain(column)] for name, column in described.columns.items()]
    whole = [columns, _plain(target), _plain(described.row_norm)]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A description as lists and texts; 1, 1.0 and numpy's 1 are the same."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if is_dataclass(value):
        parts = [[f.name, _plain(getattr(value, f.name))] for f in fields(value)]
        return [type(value).__name__, parts]
    return level_key(value)


def new_entry(
    kind: str,
    query: str,
    terms: Terms,
    amount: Amount = NOTHING,
    *,
    asker: Asker,
    schema: str | None = None,
    plan: str | None = None,
    released: str | None = None,
    of: int | None = None,
    table: str | None = None,
) -> Entry:
    """Make an entry of this moment; one that opens a ledger holds its terms."""
    return Entry(
        kind=kind,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        version=skdp.__version__,
        query="".join(c if c.isprintable() else " " for c in query[:1000]),
        purpose=asker.purpose,
        user=asker.user,
        neighbours=terms.neighbours,
        schema=schema,
        plan=plan,
        released=released,
        mu_squared=float(amount.mu_squared),
        delta=float(amount.delta),
        n_draws=amount.n_draws,
        epsilon=terms.epsilon_of(amount),
        of=of,
        table=table,
        terms=asdict(terms) if kind == "open" else None,
    )


def exported(entries: list[Entry], form: str) -> str:
    """Return entries as JSON lines or CSV; see `Ledger.export`."""
    check(form in ("jsonl", "csv"), f"form is 'jsonl' or 'csv'. Got {form!r}.")
    rows = [entry.body() | {"hash": entry.hash} for entry in entries]
    if form == "jsonl":
        return "".join(f"{dumps(row)}\n" for row in rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        terms = row["terms"]
        writer.writerow(row | {"terms": None if terms is None else dumps(terms)})
    return file.getvalue()
