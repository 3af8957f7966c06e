"""The entries of a ledger: what is written, and how it is read back.

**Which table.** A ledger belongs to one table, which has a public name. Every model of
that table is charged to it, whatever its target and columns: spending adds up the same
way for any schema. Only a person can know that the records are those of the named
table. A ledger that was made with a schema notices some mistakes: it accepts no other
schema until `Ledger.admit` enters it. Of schemas, only the digest is kept.

**Who and why.** Each entry has the name of the user who made it and the stated purpose.
Both are public words, like the table's name. No value of a record ever enters a ledger;
of released values, only a digest does (`digests`).
"""

from __future__ import annotations

import csv
import getpass
import io
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

import skdp
from skdp.ledger.ceiling import NOTHING, Amount, Finite, Terms
from skdp.ledger.log import Head
from skdp.privacy.queries import Neighbours
from skdp.schema import check
from skdp.typed_files import Count, Form, parse_json

#: Most letters of a table's name, of a purpose and of a user's name.
LONGEST_LABEL = 200
#: The purpose of an entry if none was given.
NOT_STATED = "not stated"

Kind = Literal["open", "reserve", "commit", "stop", "admit"]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Text = Annotated[str, Meta(max_length=1000)]


class Entry(Form, frozen=True, kw_only=True):
    r"""One line of a ledger.

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
        What was computed, in words.
    purpose : str
        What it was for, in the user's words; "not stated" by default.
    user : str
        Who made the entry; by default the operating system's user name.
    neighbours : str
        Which tables are neighbours.
    schema, plan : str or None
        SHA-256 digests of the public description and of the plan.
    released : str or None
        SHA-256 digest of what a "commit" released: see `skdp.ledger.digests`.
    mu_squared, delta, n_draws : numbers
        What is charged.
    epsilon : float
        The ε of this entry alone, at the ledger's δ.
    of : int or None
        The reservation that a "commit" or "stop" replaces.
    table : str or None
        The name of the table that the ledger belongs to, in the first entry.
    terms : Terms or None
        The ceiling, in the first entry.
    seq : int
        Its number; the first is 0. It is not part of the text.
    hash : str
        Of this entry and all before, see `skdp.ledger.log`. It is not part of the text.
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
            check(getattr(self, name).isprintable(), f"{name} cannot be printed")
        for name in ("purpose", "user", "table"):
            value = getattr(self, name)
            check(_is_label(value) or (name, value) == ("table", None), f"{name}")

    def values(self) -> dict[str, Any]:
        """Return the fields that are written."""
        found = structs.asdict(self)
        del found["seq"], found["hash"]
        return found | {"terms": None if self.terms is None else asdict(self.terms)}

    def text(self) -> str:
        """Return what is written and hashed."""
        return write_line(self.values())

    @classmethod
    def read(cls, head: Head, text: str) -> Entry:
        """Read an entry; ValueError unless it is the very text that skdp writes.

        One text has one meaning: keys in another order, twice, or missing, and numbers
        that are written in another way are refused.
        """
        found = parse_json(text, cls, "The entry")
        check(found.text() == text, "The entry is written in another way.")
        return structs.replace(found, seq=head.size - 1, hash=head.hash)

    @property
    def amount(self) -> Amount:
        """What is charged, exactly."""
        return Amount.of(self.mu_squared, self.delta, self.n_draws)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def write_line(values: dict[str, Any]) -> str:
    """Write JSON on one line."""
    return _ENCODER.encode(values)


@dataclass(frozen=True, kw_only=True)
class Requester:
    """The user, and their purpose: both are entered with everything charged."""

    purpose: str = NOT_STATED
    user: str

    @classmethod
    def of(cls, purpose: str | None, user: str | None) -> Requester:
        """Fill in what is None: the purpose is not stated, the user is the system's."""
        return cls(
            purpose=NOT_STATED if purpose is None else check_label(purpose, "purpose"),
            user=_find_user() if user is None else check_label(user, "user"),
        )


def check_label(given: Any, name: str) -> str:
    """Return a public text unchanged; refuse one that cannot be shown."""
    check(
        _is_label(given),
        f"{name} must be a printable text of 1 to {LONGEST_LABEL} letters, got "
        f"{str(given)[:99]!r}.",
    )
    return str(given)


def _is_label(value: object) -> bool:
    right = isinstance(value, str) and value.isprintable()
    return right and len(str(value).strip()) > 0 and len(str(value)) <= LONGEST_LABEL


def _find_user() -> str:
    """Return the name under which the process runs, or "unknown" if it has none."""
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
) -> Entry:
    """Make an entry of this moment; one that opens a ledger holds its terms."""
    return Entry(
        kind=kind,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
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
