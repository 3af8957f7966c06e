"""The total budget of a table on disk; `ledger` says what it promises.

One file an idea: `ceiling` proves the promise, `entries` are what is written, `books`
add it up, `chain` keeps it on disk, `ticket` settles reservations, `released` says by
a digest which run an entry paid for.
"""

from skdp.ledger.entries import Entry, schema_digest
from skdp.ledger.ledger import Ledger
from skdp.ledger.log import Head, LedgerError
from skdp.ledger.released import released_digest, transcript_digest
from skdp.ledger.reservations import Ticket, refuse_unpaid

__all__ = [
    "Entry",
    "Head",
    "Ledger",
    "LedgerError",
    "Ticket",
    "refuse_unpaid",
    "released_digest",
    "schema_digest",
    "transcript_digest",
]
