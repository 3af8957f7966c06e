"""Keep the total privacy budget of a table in a file on disk.

The module `ledger` states the privacy guarantee, adds up entries, and replaces what was
reserved by what was really spent. `ceiling` proves the guarantee. `log` defines the
entries and stores them on disk. `digests` identifies the run that an entry paid for.
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
