"""A fit that stops half-way still says what it has spent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skdp.privacy.record import PrivacyRecord


@contextmanager
def spending(record: PrivacyRecord) -> Iterator[None]:
    """Add what was spent to whatever ends the block, an interrupt included.

    Releases are charged before anything is drawn, so that the note never says less
    than what was spent; it holds public and released facts only.
    """
    try:
        yield
    except BaseException as stop:
        if record.events:
            stop.add_note(f"Spent before the fit stopped:\n{record}")
        raise
