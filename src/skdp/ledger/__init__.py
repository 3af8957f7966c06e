"""Keep the total privacy budget of a table in a file on disk.

The module `ledger` states the privacy guarantee and `ceiling` proves it. `entries`
defines the entries of a ledger, `log` stores them on disk, and `totals` adds them up.
`reservations` replaces reserved amounts by what was really spent. `digests` identifies
the run that an entry paid for.
"""

from skdp.ledger.digests import released_digest, schema_digest, transcript_digest
from skdp.ledger.ledger import Ledger, Reservation, refuse_unpaid
from skdp.ledger.log import Entry, Head, LedgerError

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
