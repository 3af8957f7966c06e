"""Charge a fit's budget to a ledger, and report what an interrupted fit has spent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from skdp.ledger import Ledger, refuse_unpaid
from skdp.planning.plan_files import plan_digest
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import check

#: Called with the model at the end of a fit, to record the model in the ledger.
EnterModel = Callable[[Any], None]


def open_ledger(ledger: Any, epsilon: float, random_state: Any) -> Ledger | None:
    """Return the ledger that a fit must charge, or None if `ledger` is None.

    A path must be absolute, because processes that fit at the same time may run in
    different folders.
    """
    if ledger is None:
        return None
    refuse_unpaid(epsilon, random_state is not None)
    if isinstance(ledger, Ledger):
        return ledger
    check(
        isinstance(ledger, (str, os.PathLike)) and os.path.isabs(ledger),
        f"ledger must be a Ledger or the absolute path of one, got {ledger!r}. "
        "skdp.Ledger(path) resolves a relative path.",
    )
    return Ledger(ledger)


@contextmanager
def reserve_budget(
    record: PrivacyRecord, ledger: Ledger | None, *, query: str, described: Any
) -> Iterator[EnterModel]:
    """Reserve a fit's budget in the ledger, and settle the reservation afterwards.

    If the fit raises an error, a note in the error says what was spent. Releases are
    charged before noise is drawn, so neither the ledger nor the note understates what
    was spent. Both contain only public and released facts. Floating-point errors are
    ignored inside the ``with`` block. Otherwise the caller's ``np.seterr`` could turn
    the underflow of a cell into an error or a warning.
    """
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))
        reservation = None
        if ledger is not None:
            paid = ledger.spend(record, query=query, schema=described)
            reservation = stack.enter_context(paid)

        def enter_model(model: Any) -> None:
            from skdp.estimators.saving import model_digest  # which imports this file

            if reservation is not None:
                reservation.plan = plan_digest(model.plan_)
                reservation.schema = model.schema_
                reservation.released = model_digest(model, record)

        try:
            yield enter_model
        except BaseException as stop:
            if record.events:
                stop.add_note(f"Spent before the fit stopped:\n{record}")
            raise
