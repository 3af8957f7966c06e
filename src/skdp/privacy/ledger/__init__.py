"""The total budget of a data set on disk; `ledger` says what it promises.

One file an idea: `ceiling` proves the promise, `entries` are what is written, `books`
add it up, `chain` keeps it on disk, `ticket` settles reservations.
"""

from skdp.privacy.ledger.chain import Head, LedgerError
from skdp.privacy.ledger.entries import Entry, schema_digest
from skdp.privacy.ledger.ledger import Ledger
from skdp.privacy.ledger.ticket import Ticket, refuse_unpaid

__all__ = [
    "Entry",
    "Head",
    "Ledger",
    "LedgerError",
    "Ticket",
    "refuse_unpaid",
    "schema_digest",
]
