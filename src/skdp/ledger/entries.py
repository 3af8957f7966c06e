"""The lines of a ledger: what is entered, and how it is read back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import skdp
from skdp.ledger.ceiling import NOTHING, Amount, Terms, is_number
from skdp.ledger.log import Body, Head
from skdp.privacy.queries import RELATIONS
from skdp.schema import check, level_key


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 1000 and value.isprintable()


def _is_digest(value: object) -> bool:
    return value is None or (
        isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


KINDS = ("open", "reserve", "commit", "stop", "admit")


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
    relation : str
        Which tables are neighbours.
    schema, plan : str or None
        SHA-256 digests of the public description and of the plan.
    mu_squared, delta, n_draws : numbers
        What is charged.
    epsilon : float
        The ε of this entry alone, at the ledger's δ.
    of : int or None
        The reservation that a "commit" or "stop" replaces.
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
    relation: str
    schema: str | None = None
    plan: str | None = None
    mu_squared: float = 0.0
    delta: float = 0.0
    n_draws: int = 0
    epsilon: float = 0.0
    of: int | None = None
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
    "relation": lambda value: value in RELATIONS,
    "schema": _is_digest,
    "plan": _is_digest,
    "mu_squared": is_number,
    "delta": is_number,
    "n_draws": _is_count,
    "epsilon": is_number,
    "of": lambda value: value is None or _is_count(value),
    "terms": lambda value: value is None or isinstance(value, dict),
}


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
    schema: str | None = None,
    plan: str | None = None,
    of: int | None = None,
) -> Entry:
    """Make an entry of this moment; one that opens a ledger holds its terms."""
    return Entry(
        kind=kind,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        version=skdp.__version__,
        query="".join(c if c.isprintable() else " " for c in query[:1000]),
        relation=terms.neighbours,
        schema=schema,
        plan=plan,
        mu_squared=float(amount.mu_squared),
        delta=float(amount.delta),
        n_draws=amount.n_draws,
        epsilon=terms.epsilon_of(amount),
        of=of,
        terms=asdict(terms) if kind == "open" else None,
    )
