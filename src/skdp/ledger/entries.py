"""Define the entries of a ledger, and how they are written and read.

**Which table.** A ledger belongs to one table, which has a public name. Every model of
that table is charged to the ledger, whatever columns and target the model uses, because
costs add up in the same way for any schema. skdp cannot check that the records really
belong to the named table. Only a person can know that. A ledger that was made with a
schema notices some mistakes, because it refuses any other schema until `Ledger.admit`
adds that schema. The ledger stores only the digest of a schema.

**Who and why.** Each entry states the user who made it and the purpose. Both are
public, like the table's name. A ledger never contains a value of the table. It contains
released values only as a digest (see `digests`).
"""

from __future__ import annotations

import csv
import getpass
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

import skdp
from skdp.ledger.ceiling import NOTHING, Amount, Finite, Terms
from skdp.ledger.log import Head
from skdp.privacy.queries import Neighbours
from skdp.schema import check
from skdp.typed_files import Count, Form, parse_json

#: Largest length of a table's name, of a purpose and of a user's name.
LONGEST_LABEL = 200
#: The purpose of an entry if none was given.
NOT_STATED = "not stated"

Kind = Literal["open", "reserve", "commit", "stop", "admit"]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Text = Annotated[str, Meta(max_length=1000)]


class Entry(Form, frozen=True, kw_only=True):
    r"""One entry of a ledger.

    Attributes
    ----------
    kind : str
        "open" is the first entry. "reserve" charges the budget of a fit beforehand.
        "commit" replaces that charge after the fit has ended, and "stop" replaces it if
        the fit was stopped by an error. "admit" adds another schema.
    time : str
        The minute of the entry, in UTC. A "commit" or "stop" states the time at which
        its reservation was made, because how long a fit takes depends on the records.
    version : str
        The version of skdp.
    query : str
        What was computed, in words.
    purpose : str
        The purpose of the computation in the user's words, "not stated" by default.
    user : str
        The user who made the entry, by default the operating system's user name.
    neighbours : str
        Which tables are neighbours.
    schema, plan : str or None
        SHA-256 digests of the schema and of the plan.
    released : str or None
        SHA-256 digest of what a "commit" released (see `skdp.ledger.digests`).
    mu_squared, delta, n_draws : numbers
        The amount that is charged.
    epsilon : float
        The ε of this entry alone, at the ledger's δ.
    of : int or None
        The number of the reservation that a "commit" or "stop" replaces.
    table : str or None
        The name of the table that the ledger belongs to. Only the first entry has it.
    terms : Terms or None
        The ceiling of the ledger. Only the first entry has it.
    seq : int
        The number of the entry, counted from 0. It is not part of the written text.
    hash : str
        The hash of this entry and of all earlier entries (see `skdp.ledger.log`). It is
        not part of the written text.
    """

    kind: Kind
    time: Text
    version: Text
    query: Text
    purpose: Text
    user: Text
    neighbours: Neighbours
    schema: Digest | None = None
    plan: Digest | None = None
    released: Digest | None = None
    mu_squared: Finite = 0.0
    delta: Finite = 0.0
    n_draws: Count = 0
    epsilon: Finite = 0.0
    of: Count | None = None
    table: Text | None = None
    terms: Terms | None = None
    seq: int = -1
    hash: str = ""

    def __post_init__(self) -> None:
        for name in ("time", "version", "query"):
            check(
                getattr(self, name).isprintable(),
                f"{name} contains unprintable characters",
            )
        for name in ("purpose", "user", "table"):
            value = getattr(self, name)
            check(_is_label(value) or (name, value) == ("table", None), f"{name}")

    def values(self) -> dict[str, Any]:
        """Return the fields that are written to the ledger."""
        found = structs.asdict(self)
        del found["seq"], found["hash"]
        return found | {"terms": None if self.terms is None else self.terms.to_values()}

    def text(self) -> str:
        """Return the entry as it is written to the ledger and hashed."""
        return write_line(self.values())

    @classmethod
    def read(cls, head: Head, text: str) -> Entry:
        """Read an entry from its written text.

        Raise ValueError if skdp would not have written exactly this text. For example,
        a key may be missing or repeated, keys may be in another order, or a number may
        be written differently.
        """
        found = parse_json(text, cls, "The entry")
        check(found.text() == text, "The entry is not written as skdp writes it.")
        return structs.replace(found, seq=head.size - 1, hash=head.hash)

    @property
    def amount(self) -> Amount:
        """The amount that is charged, as exact numbers."""
        return Amount.of(self.mu_squared, self.delta, self.n_draws)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def write_line(values: dict[str, Any]) -> str:
    """Return values as JSON on one line."""
    return _ENCODER.encode(values)


@dataclass(frozen=True, kw_only=True)
class Requester:
    """The user who makes an entry and the user's purpose. Every entry states both."""

    purpose: str = NOT_STATED
    user: str

    @classmethod
    def of(cls, purpose: str | None, user: str | None) -> Requester:
        """Return a requester, with defaults for arguments that are None.

        By default the purpose is "not stated" and the user is the operating system's
        user name.
        """
        return cls(
            purpose=NOT_STATED if purpose is None else check_label(purpose, "purpose"),
            user=_find_user() if user is None else check_label(user, "user"),
        )


def check_label(given: Any, name: str) -> str:
    """Return a public label unchanged, or raise an error if it is not valid.

    A label must be printable, not blank and not too long.
    """
    check(
        _is_label(given),
        f"{name} must have 1 to {LONGEST_LABEL} printable characters, got "
        f"{str(given)[:99]!r}.",
    )
    return str(given)


def _is_label(value: object) -> bool:
    right = isinstance(value, str) and value.isprintable()
    return right and len(str(value).strip()) > 0 and len(str(value)) <= LONGEST_LABEL


def _find_user() -> str:
    """Return the operating system's user name, or "unknown" if there is none."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
    return name if _is_label(name) else "unknown"


def new_entry(
    kind: Kind,
    query: str,
    terms: Terms,
    amount: Amount = NOTHING,
    *,
    requester: Requester,
    schema: str | None = None,
    plan: str | None = None,
    released: str | None = None,
    of: int | None = None,
    table: str | None = None,
    time: str | None = None,
) -> Entry:
    """Make an entry. Only an "open" entry contains the terms.

    `time` is the current time by default.
    """
    return Entry(
        kind=kind,
        time=time or read_clock(),
        version=skdp.__version__,
        query="".join(c if c.isprintable() else " " for c in query[:1000]),
        purpose=requester.purpose,
        user=requester.user,
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
        terms=terms if kind == "open" else None,
    )


def read_clock() -> str:
    """Return the current minute, in UTC. Seconds would show how long fits take."""
    return datetime.now(UTC).isoformat(timespec="minutes")


def export_entries(entries: list[Entry], form: str) -> str:
    """Return entries as JSON lines or CSV; see `Ledger.export`."""
    check(form in ("jsonl", "csv"), f"form must be 'jsonl' or 'csv', got {form!r}.")
    rows = [entry.values() | {"hash": entry.hash} for entry in entries]
    if form == "jsonl":
        return "".join(f"{write_line(row)}\n" for row in rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        terms = row["terms"]
        writer.writerow(row | {"terms": None if terms is None else write_line(terms)})
    return file.getvalue()
