"""The total budget of a data set on disk; `ledger` says what it promises.

One file an idea: `ceiling` proves the promise, `entries` are what is written, `books`
add it up, `chain` keeps it on disk, `ticket` settles reservations.
"""

from skdp.ledger.entries import Entry, schema_digest
from skdp.ledger.ledger import Ledger
from skdp.ledger.log import Head, LedgerError
from skdp.ledger.reservations import Ticket, refuse_unpaid

__all__ = [
    "Entry",
    "Head",
    "Ledger",
    "LedgerError",
    "Ticket",
    "refuse_unpaid",
    "schema_digest",
]
