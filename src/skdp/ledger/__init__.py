"""The total budget of a table on disk; `ledger` states the promise.

`ceiling` proves the promise, `entries` defines what is written, `log` keeps it on disk,
`totals` adds it up, `reservations` settles what was reserved, and `digests` identifies
the run that an entry paid for.
"""

from skdp.ledger.digests import released_digest, schema_digest, transcript_digest
from skdp.ledger.entries import Entry
from skdp.ledger.ledger import Ledger
from skdp.ledger.log import Head, LedgerError
from skdp.ledger.reservations import Reservation, refuse_unpaid

__all__ = [
    "Entry",
    "Head",
    "Ledger",
    "LedgerError",
    "Reservation",
    "refuse_unpaid",
    "released_digest",
    "schema_digest",
    "transcript_digest",
]
